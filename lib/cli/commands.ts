import { readFileSync } from "node:fs";
import path from "node:path";
import { PROGRAM_ROOT } from "../core/self.ts";
import { BUCKET_COMMANDS } from "./commands/bucket.ts";
import { SERVER_COMMANDS } from "./commands/server.ts";
import { WORKER_COMMANDS } from "./commands/worker.ts";
import type { Command } from "./flags.ts";

const VERSION: Command = {
  name: "version",
  summary: "Print the program's version",
  flags: [],
  async run() {
    const { version } = JSON.parse(readFileSync(path.join(PROGRAM_ROOT, "package.json"), "utf8"));
    process.stdout.write(`ops ${version} (node ${process.versions.node})\n`);
    return 0;
  },
};

/** Every command of the program. What a command needs is loaded when it runs, so that each starts fast. */
export const COMMANDS: readonly Command[] = [
  ...BUCKET_COMMANDS,
  ...WORKER_COMMANDS,
  ...SERVER_COMMANDS,
  VERSION,
];
