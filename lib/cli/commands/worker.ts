import type { Command } from "../flags.ts";
import { runCommand } from "../run-command.ts";

/** Commands about the workers of a bucket. */
export const WORKER_COMMANDS: readonly Command[] = [runCommand("worker_trust", { name: "worker trust" })];
