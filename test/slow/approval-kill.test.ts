import { test } from "node:test";
import { approvalKillRounds } from "../helpers/approval-kills.ts";
import { SEED } from "../helpers/random.ts";

test("CP-523 CP-524 a server is killed 6 times while people propose, approve, reject and start: nothing half written, no approval twice, no proposal used twice", async (t) => {
  const met = await approvalKillRounds(t, 6, SEED);
  t.diagnostic(`seed ${SEED}: ${JSON.stringify(met)}`);
});
