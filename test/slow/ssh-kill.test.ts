import { test } from "node:test";
import { SEED } from "../helpers/random.ts";
import { sshKillRounds } from "../helpers/ssh-kill-rounds.ts";

test("T-39 CP-117 run, server or what runs on a worker are killed 6 times during a rolling deploy over ssh; the next deploy converges each time", async (t) => {
  const met = await sshKillRounds(t, 6, SEED);
  t.diagnostic(`seed ${SEED}: killed ${met.run} runs, ${met.server} servers and ${met.runner} processes on workers at work`);
});
