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
    return `seed ${seed}: killed the server ${hits.server} and the run ${hits.run} times while it worked, each followed by a clean deploy`;
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
