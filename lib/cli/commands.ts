import { programVersion } from "../core/self.ts";
import type { Command } from "./base/flags.ts";
import { toStdout } from "./base/terminal.ts";
import { BUCKET_COMMANDS } from "./commands/bucket.ts";
import { CATALOG_COMMANDS } from "./commands/catalog.ts";
import { HOOK_COMMANDS } from "./commands/hooks.ts";
import { JOB_COMMANDS } from "./commands/job.ts";
import { LOG_COMMANDS } from "./commands/logs.ts";
import { RUN_COMMANDS } from "./commands/run.ts";
import { SERVER_COMMANDS } from "./commands/server.ts";
import { UPKEEP_COMMANDS } from "./commands/upkeep.ts";
import { WORKER_COMMANDS } from "./commands/worker.ts";

const VERSION: Command = {
  name: "version",
  summary: "Print the program's version",
  flags: [],
  async run() {
    toStdout(`ops ${programVersion()} (node ${process.versions.node})\n`);
    return 0;
  },
};

/** Every command of the program. What a command needs is loaded when it runs, so that each starts fast. */
export const COMMANDS: readonly Command[] = [
  ...BUCKET_COMMANDS,
  ...WORKER_COMMANDS,
  ...RUN_COMMANDS,
  ...JOB_COMMANDS,
  ...HOOK_COMMANDS,
  ...CATALOG_COMMANDS,
  ...LOG_COMMANDS,
  ...UPKEEP_COMMANDS,
  ...SERVER_COMMANDS,
  VERSION,
];
