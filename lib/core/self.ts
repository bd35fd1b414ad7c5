import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The folder of the program: where bin/, lib/, ui/ and openapi.yaml are. */
export const PROGRAM_ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** The argument list that starts this very program again, on the same Node, in the mode that `args` name. */
export function selfArguments(...args: string[]): [string, ...string[]] {
  return [process.execPath, `${PROGRAM_ROOT}bin/ops.js`, ...args];
}

/** The version of the program, as in package.json. */
export function programVersion(): string {
  return (JSON.parse(readFileSync(`${PROGRAM_ROOT}package.json`, "utf8")) as { version: string }).version;
}
