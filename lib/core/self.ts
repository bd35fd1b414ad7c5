import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Failure } from "./errors.ts";

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

/** Which program this is: its version and, of a release, the commit that it was made from. */
export function programRelease(): { version: string; commit: string | null } {
  const told = JSON.parse(readFileSync(`${PROGRAM_ROOT}package.json`, "utf8")) as { version: string; gitHead?: string };
  return { version: told.version, commit: told.gitHead ?? null };
}

/** The version of the program, as in package.json. */
export function programVersion(): string {
  return programRelease().version;
}

/** A file of the user interface. */
export interface Asset {
  /** Its media type. */
  type: string;
  content: Buffer;
}

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".ico": "image/x-icon",
  ".js": "text/javascript; charset=utf-8",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
  ".woff2": "font/woff2",
};

/**
 * Reads all files below a folder (ui/ by default) into a fixed list, by the path of their URL. An `index.html` also
 * stands for its folder, with and without the slash. A path that is not in the list does not exist.
 */
export async function loadAssets(folder: string = path.join(PROGRAM_ROOT, "ui")): Promise<ReadonlyMap<string, Asset>> {
  // Loaded here: every start of the program loads this file, and only a server serves files.
  const { walk } = await import("./walk.ts");
  const assets = new Map<string, Asset>();
  for (const { path: name } of walk(folder)) {
    const type = MEDIA_TYPES[path.extname(name)];
    if (type === undefined) throw new Failure("failed", `Cannot serve ${path.join(folder, name)}: unknown kind of file`);
    const asset = { type, content: await readFile(path.join(folder, name)) };
    assets.set(`/${name}`, asset);
    if (path.basename(name) !== "index.html") continue;
    const parent = `/${name.slice(0, -"index.html".length)}`;
    assets.set(parent, asset);
    if (parent !== "/") assets.set(parent.slice(0, -1), asset);
  }
  return assets;
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
