import { test } from "node:test";
import { killRounds } from "../helpers/kill-rounds.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("CP-117 CP-168 CP-170 CP-216 the server or a run is killed 20 times at random moments of push, build and deploy, and a clean deploy follows each time", async (t) => {
  const seed = Number(process.env.OPS_TEST_SEED ?? Date.now() % 1_000_000);
  const hits = await killRounds(temporaryFolder(t), 20, seed);
  t.diagnostic(
    `seed ${seed}: hit the server ${hits.server} times and the run ${hits.run} times while it worked`,
  );
});
