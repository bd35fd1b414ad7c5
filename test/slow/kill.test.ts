import { test } from "node:test";
import { killRounds } from "../helpers/kill-rounds.ts";
import { SEED } from "../helpers/random.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("CP-117 CP-168 CP-170 CP-216 the server or a run is killed 6 times at random moments of push, build and deploy, and a clean deploy follows each time", async (t) => {
  const hits = await killRounds(temporaryFolder(t), 6, SEED);
  t.diagnostic(`seed ${SEED}: hit the server ${hits.server} times and the run ${hits.run} times while it worked`);
});
