import assert from "node:assert/strict";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { readLock } from "../../../lib/bucket/base/lock.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { OneRunSupervisor } from "../../../lib/server/earlier/surface.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

test("CP-931 a start that is given up leaves its environment and all others to the next one", async (t) => {
  const supervisor = new OneRunSupervisor({ launcher: new Launcher(process.env), log: () => {} });
  t.after(() => supervisor.stop());
  const [one, other] = [layoutOf(temporaryFolder(t)), layoutOf(temporaryFolder(t))];
  const first = await supervisor.reserve(one, "one", "push");
  await assert.rejects(supervisor.reserve(other, "other", "push"), {
    code: "busy",
    details: { env_id: "one", run_id: first.runId },
  });
  await first.release();
  assert.equal(await readLock(one), undefined);
  for (const layout of [other, one]) await (await supervisor.reserve(layout, "next", "push")).release();
});
