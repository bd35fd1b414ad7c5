import { BUCKET_DIR, bucketDir, type Command } from "../base/flags.ts";
import { runCommand } from "../bucket/run-command.ts";

/** Commands that make a bucket and bring it to its workers. */
export const BUCKET_COMMANDS: readonly Command[] = [
  {
    name: "init",
    summary: "Make the current folder a bucket, or upgrade its database",
    flags: [BUCKET_DIR],
    run: async (input) => (await import("../bucket/bucket.ts")).initCommand(bucketDir(input)),
  },
  runCommand("build", { name: "build" }),
  runCommand("deploy", {
    name: "deploy",
    short: { build: "b", dry_run: "n" },
    async conclude(result) {
      const { deploySummary } = await import("../bucket/deploy-summary.ts");
      return deploySummary(result, process.stdout.columns || undefined);
    },
  }),
];
