import { readFile } from "node:fs/promises";
import path from "node:path";
import { Failure } from "./errors.ts";
import { PROGRAM_ROOT } from "./self.ts";
import { walk } from "./walk.ts";

/** A file of the user interface. */
export interface Asset {
  /** Its media type. */
  type: string;
  content: Buffer;
}

const TYPES: Readonly<Record<string, string>> = {
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
 * Reads all files below a folder (ui/ by default) into a fixed list, keyed by the path they are served at; an
 * `index.html` is also the path of its folder, with and without the slash. What is not in the list does not exist,
 * whatever a path looks like.
 */
export async function loadAssets(folder: string = path.join(PROGRAM_ROOT, "ui")): Promise<ReadonlyMap<string, Asset>> {
  const assets = new Map<string, Asset>();
  for (const { path: name } of walk(folder)) {
    const type = TYPES[path.extname(name)];
    if (type === undefined)
      throw new Failure("failed", `Cannot serve ${path.join(folder, name)}: unknown kind of file`);
    const asset = { type, content: await readFile(path.join(folder, name)) };
    assets.set(`/${name}`, asset);
    if (path.basename(name) !== "index.html") continue;
    const parent = `/${name.slice(0, -"index.html".length)}`;
    assets.set(parent, asset);
    if (parent !== "/") assets.set(parent.slice(0, -1), asset);
  }
  return assets;
}
