// The long proofs: `npm run prove`, about an hour. The same code runs in the tests with smaller numbers.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { within } from "../lib/core/async.ts";
import { LIMITS } from "../lib/http/listen.ts";
import { contend } from "../test/helpers/contention.ts";
import { stressHooks } from "../test/helpers/hook-stress.ts";
import { killRounds } from "../test/helpers/kill-rounds.ts";
import { SimulatedDeploys } from "../test/helpers/simulated-deploys.ts";
import { slowClients } from "../test/helpers/slow-clients.ts";

/** Node looks for slow connections once a second, and waits one more second for a late request. */
const TIMEOUT_SLACK_MS = 5_000;

const PROOFS: Record<string, (folder: string) => Promise<string>> = {
  async lock(folder) {
    const { turns, killed } = await contend(folder, 50, 1000);
    return `50 processes, ${killed} holders killed, ${turns} turns, never two holders`;
  },
  async kill(folder) {
    const seed = Number(process.env.OPS_TEST_SEED ?? Date.now() % 1_000_000);
    const hits = await killRounds(folder, 200, seed);
    return `seed ${seed}: killed the server ${hits.server} and the run ${hits.run} times while it worked, each followed by a clean deploy`;
  },
  async deploys() {
    const first = Number(process.env.OPS_TEST_SEED ?? Date.now() % 1_000_000);
    const count = 3_000;
    const ends: (() => unknown)[] = [];
    try {
      const bucket = await SimulatedDeploys.bucket({ after: (end) => ends.push(end as () => unknown) });
      const tally = await SimulatedDeploys.runAll(bucket, first, count);
      return `seeds ${first} to ${first + count - 1} of simulated deploys: ${JSON.stringify(tally)}, every property held`;
    } finally {
      for (const end of ends.reverse()) await end();
    }
  },
  async hooks(folder) {
    const { writes, killed, flushes } = await stressHooks(folder, {
      allocations: 64,
      rounds: 80,
      kills: 300,
    });
    return `64 scripts in parallel, ${killed} kills, ${writes} writes and as many hand-overs, ${flushes} flushes: nothing lost, nobody stuck`;
  },
  async timeouts() {
    const outcome = await within(slowClients(LIMITS), LIMITS.requestMs + 60_000);
    if (!outcome) throw new Error("a client that is too slow was not cut off");
    const { headers, body, write, idle, longPoll } = outcome;
    const cuts = { headers: [headers, LIMITS.headersMs], body: [body, LIMITS.requestMs] };
    const all = { ...cuts, write: [write, LIMITS.writeMs], idle: [idle, LIMITS.idleMs] };
    const told = Object.entries(all).map(([what, [took = 0, limit = 0]]) => {
      if (took < limit || took > limit + TIMEOUT_SLACK_MS)
        throw new Error(`${what}: cut off after ${took} ms instead of ${limit} ms`);
      return `${what} ${(took / 1000).toFixed(1)} s`;
    });
    if (longPoll !== 200) throw new Error(`a long-poll longer than the write timeout ended ${longPoll}`);
    return `slow clients were cut off after their time: ${told.join(", ")}; a long-poll of 135 s was answered`;
  },
};

const wanted = process.argv.slice(2).filter((argument) => argument !== "--");
for (const name of wanted.length > 0 ? wanted : Object.keys(PROOFS)) {
  const prove = PROOFS[name];
  if (!prove) {
    console.error(`there is no proof ${JSON.stringify(name)}; there are: ${Object.keys(PROOFS).join(", ")}`);
    process.exit(2);
  }
  const folder = mkdtempSync(path.join(tmpdir(), `ops-prove-${name}-`));
  console.log(`${name}: …`);
  try {
    console.log(`${name}: proved: ${await prove(folder)}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
