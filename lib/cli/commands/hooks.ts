import type { Command } from "../base/flags.ts";
import { runCommand } from "../bucket/run-command.ts";

/** Commands about the hooks of jobs. */
export const HOOK_COMMANDS: readonly Command[] = [
  runCommand("hooks", {
    name: "hooks",
    operands: [
      { name: "hook", help: "The hook; it must be on the event cli" },
      { name: "job", help: "Its job (default: the only one that has the hook)", optional: true },
    ],
  }),
  {
    name: "hook-run",
    summary: "Run a hook's script in TypeScript or JavaScript",
    hidden: true,
    operands: [{ name: "file", help: "The script" }],
    flags: [],
    run: async ({ operands }) => (await import("../server/hook-run.ts")).runHookFile(operands[0] ?? ""),
  },
];
