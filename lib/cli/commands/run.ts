import { bucketDir, type Command } from "../base/flags.ts";
import { runCommand } from "../bucket/run-command.ts";

/** The command for commands on workers. */
export const RUN_COMMANDS: readonly Command[] = [
  runCommand("run_command", {
    name: "run_command",
    operands: [
      {
        name: "command",
        help: "The script, for sh, or for bash where its first line says so (default: workspace/command.sh)",
        optional: true,
      },
    ],
    short: { workers: "w", labels: "l", concurrency: "c" },
    flags: [
      { name: "fold", help: "Show at the end which workers had the same output, instead of each line as it comes" },
    ],
    async complete(params, input) {
      if (params.command !== undefined) return;
      const { readCommandFile } = await import("../bucket/command-file.ts");
      params.command = await readCommandFile(bucketDir(input));
    },
    async view({ switches }) {
      return switches.has("fold") ? (await import("../bucket/fold.ts")).foldedText : undefined;
    },
  }),
];
