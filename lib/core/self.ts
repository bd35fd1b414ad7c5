import { readFileSync } from "node:fs";
import { getCompileCacheDir } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the program: where bin/, lib/, ui/ and openapi.yaml are. */
export const PROGRAM_ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** The file of a module of this program, which may be TypeScript or what was made from it, by its path without extension. */
export function programFile(name: string): string {
  return `${PROGRAM_ROOT}${name}${path.extname(import.meta.filename)}`;
}

/** The argument list that starts this very program again, on the same Node, in the mode that `args` name. */
export function selfArguments(...args: string[]): [string, ...string[]] {
  return [process.execPath, `${PROGRAM_ROOT}bin/ops.js`, ...args];
}

/**
 * The environment of a thread of this program: nothing of the process's own, in which a token may be, but where compiled
 * modules are kept. A thread that compiles its modules anew takes three times the processor time to start.
 */
export function threadEnvironment(): Record<string, string> {
  // Node answers the folder that it has made for its own version in the one that it was given.
  const folder = getCompileCacheDir();
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: path.dirname(folder) };
}

/** Which program this is: its version and, of a release, the commit that it was made from. */
export function programRelease(): { version: string; commit: string | null } {
  const told = JSON.parse(readFileSync(`${PROGRAM_ROOT}package.json`, "utf8")) as { version: string; gitHead?: string };
  return { version: told.version, commit: told.gitHead ?? null };
}

/** The version of the program, as in package.json. */
export function programVersion(): string {
  return programRelease().version;
}

let reached: (point: string) => void = () => {};

/**
 * Marks a moment at which a crash would leave something half done. The call does nothing; tests of the recovery kill the
 * process at the point with this name.
 */
export function faultPoint(name: string): void {
  reached(name);
}

/** For tests: the listener is called at every fault point that this process reaches. */
export function onFaultPoint(listener: (point: string) => void): void {
  reached = listener;
}
