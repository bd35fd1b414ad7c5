import { realpath, stat } from "node:fs/promises";
import path from "node:path";
import { messageOf } from "../../core/errors.ts";
import { plainLine } from "../../core/plain-text.ts";
import type { Argv, Launcher, OtherUser } from "../../core/spawn.ts";

const COMMAND_LIMIT_MS = 30_000;
const KEPT_BYTES = 16 * 1024;
const SHOWN_OUTPUT = 300;
const OTHERS_WRITE = 0o002;

/**
 * Gives a command a message on its standard input; resolves once the command has ended with exit code 0. It has a process
 * group of its own, 30 seconds, and of the environment only PATH. Like hooks it runs as the user that the server has for
 * what is pushed, where it has one. Throws a sentence that may quote its last line.
 */
export async function runMessageCommand(
  { launcher, hookUser: user }: { launcher: Launcher; hookUser?: OtherUser | undefined },
  command: Argv,
  input: string,
  signal: AbortSignal,
): Promise<void> {
  await requireOwn(command[0]);
  const {
    reason,
    exitCode,
    signal: killed,
    stdout,
    stderr,
  } = await launcher.run(command, {
    cwd: "/",
    environment: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
    input,
    user,
    keepBytes: KEPT_BYTES,
    signal,
    timeoutMs: COMMAND_LIMIT_MS,
  });
  if (reason === "timeout") throw new Error(`the command has not ended within ${COMMAND_LIMIT_MS / 1_000} s`);
  if (exitCode === 0) return;
  const last = plainLine((stderr.trim() || stdout.trim()).split("\n").at(-1) ?? "", SHOWN_OUTPUT);
  const how = exitCode === null ? `by signal ${killed}` : `with exit code ${exitCode}`;
  throw new Error(`the command ended ${how}${last === "" ? "" : `: ${last}`}`);
}

/** Throws unless the file is one that only its owner and group can have written. */
async function requireOwn(file: string): Promise<void> {
  const place = await realpath(file).catch((error: unknown) => {
    throw new Error(`the command cannot be used: ${messageOf(error)}`);
  });
  const [found, folder] = await Promise.all([stat(place), stat(path.dirname(place))]);
  if (!found.isFile()) throw new Error("the command is not a file");
  if (((found.mode | folder.mode) & OTHERS_WRITE) !== 0)
    throw new Error("others may write the command, or the folder that it is in: chmod o-w");
}
