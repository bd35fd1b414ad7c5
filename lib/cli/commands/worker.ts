import { Failure } from "../../core/errors.ts";
import { bucketDir, type Command, type Flag, type Parsed } from "../base/flags.ts";
import { runCommand } from "../bucket/run-command.ts";

const SHORT = { workers: "w", labels: "l", concurrency: "c" };

const GENERATE: Flag[] = [
  {
    name: "generate-workers",
    help: "Write memory and processors of each worker into workspace/workers.json, once all have answered",
  },
  { name: "dry-run", help: "With --generate-workers: only show what would be written" },
];

async function factsView(input: Parsed) {
  const { switches } = input;
  const dryRun = switches.has("dry-run");
  if (switches.has("generate-workers")) {
    if (switches.has("json")) throw new Failure("usage", "give --generate-workers or --json, not both");
    const { generateWorkers } = await import("../bucket/generate-workers.ts");
    return (result: unknown) => generateWorkers(bucketDir(input), result, dryRun);
  }
  if (dryRun) throw new Failure("usage", "--dry-run goes with --generate-workers");
  return (await import("../bucket/readings.ts")).factsTable;
}

/** Commands about the workers of a bucket. */
export const WORKER_COMMANDS: readonly Command[] = [
  runCommand("worker_trust", { name: "worker trust", short: SHORT }),
  runCommand("worker_facts", { name: "worker facts", short: SHORT, flags: GENERATE, view: factsView }),
  runCommand("worker_uptime", {
    name: "worker uptime",
    short: SHORT,
    view: async () => (await import("../bucket/readings.ts")).uptimeTable,
  }),
  runCommand("worker_sysstat", {
    name: "worker sysstat",
    short: SHORT,
    view: async () => (await import("../bucket/readings.ts")).sysstatTable,
  }),
];
