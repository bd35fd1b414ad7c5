// The long proofs: `npm run prove`, about an hour. The same code runs in the tests with smaller numbers.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { contend } from "../test/helpers/contention.ts";
import { killRounds } from "../test/helpers/kill-rounds.ts";

const PROOFS: Record<string, (folder: string) => Promise<string>> = {
  async lock(folder) {
    const { turns, killed } = await contend(folder, 50, 1000);
    return `50 processes, ${killed} holders killed, ${turns} turns, never two holders`;
  },
  async kill(folder) {
    const seed = Number(process.env.OPS_TEST_SEED ?? Date.now() % 1_000_000);
    const hits = await killRounds(folder, 200, seed);
    return `200 rounds with seed ${seed}: hit the server ${hits.server} and the run ${hits.run} times while it worked`;
  },
};

const wanted = process.argv.slice(2).filter((argument) => argument !== "--");
for (const [name, prove] of Object.entries(PROOFS)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  const folder = mkdtempSync(path.join(tmpdir(), `ops-prove-${name}-`));
  console.log(`${name}: …`);
  try {
    console.log(`${name}: proved: ${await prove(folder)}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
