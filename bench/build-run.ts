// One build for `npm run bench -- build`, in a process of its own: node bench/build-run.ts <bucket folder>
// Prints what it took as JSON.
import { bucketIdOf, openForReading } from "../lib/bucket/base/database.ts";
import { layoutOf } from "../lib/bucket/base/layout.ts";
import { uuidV7 } from "../lib/codec/uuid.ts";
import { Launcher } from "../lib/core/spawn.ts";
import { perform } from "../lib/operation/index.ts";

/** What one build took. */
export interface BuildCost {
  /** From the start of the process to the end of the build. */
  ms: number;
  /** What of the machine it took, all threads of the process together. */
  cpuMs: number;
  /** Milliseconds by phase; `start` is the time before the first one. */
  phases: Record<string, number>;
  maxRssMb: number;
}

const [bucketDir = ""] = process.argv.slice(2);
const bucketId = bucketIdOf(openForReading(layoutOf(bucketDir).database));
const begun: [phase: string, at: number][] = [["start", 0]];
const said: string[] = [];
const outcome = await perform(
  { runId: uuidV7(), kind: "build", bucketId, bucketDir, params: {}, revision: null, by: "bench" },
  {
    launcher: new Launcher(process.env, () => {}),
    server: null,
    signal: new AbortController().signal,
    activity: (text) => said.push(text),
    progress: ({ phase }) => begun.push([phase, performance.now()]),
  },
);
const ms = performance.now();
if (!outcome.ok) throw new Error(said.join(""));
const phases = begun.map(([phase, at], index) => [phase, (begun[index + 1]?.[1] ?? ms) - at] as const);
const { user, system } = process.cpuUsage();
const cost: BuildCost = {
  ms,
  cpuMs: (user + system) / 1000,
  phases: Object.fromEntries(phases),
  maxRssMb: process.resourceUsage().maxRSS / 1024,
};
console.log(JSON.stringify(cost));
