import { test } from "node:test";
import { takeOverBySnapshot } from "../helpers/standby.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("CP-373 a cold standby takes over from the last snapshot of a server that was killed, and its deploy finds nothing to do", async (t) => {
  const { snapshotBytes, restoreMs } = await takeOverBySnapshot(temporaryFolder(t), { workers: 4, jobs: 3 });
  t.diagnostic(`${snapshotBytes} bytes restored in ${restoreMs.toFixed(0)} ms`);
});
