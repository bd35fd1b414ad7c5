import { readFile } from "node:fs/promises";
import path from "node:path";
import { Failure } from "../core/errors.ts";
import { PROGRAM_ROOT } from "../core/self.ts";
import { walk } from "../core/walk.ts";

/** A file of the console, as it is sent. */
export interface Asset {
  /** Its media type. */
  type: string;
  content: Buffer;
}

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};

/** The files that are joined out of all others of their kind, each with the file to begin with. */
const JOINED = { "console.js": "main.js", "console.css": "style/console.css" };

/**
 * Reads the console below a folder (ui/ by default) into a fixed list, by the path of its URL: pages and drawings as they
 * are, the scripts as one and the styles as one, these two below /docs too: what the reference loads is no more public than
 * the reference. An `index.html` also stands for its folder, with and without the slash. A path that is not in the list
 * does not exist.
 */
export async function readConsole(folder: string = path.join(PROGRAM_ROOT, "ui")): Promise<ReadonlyMap<string, Asset>> {
  const texts = await textsIn(folder);
  const sent = new Map([...texts].filter(([name]) => !/\.(?:js|css)$/.test(name)));
  for (const [name, first] of Object.entries(JOINED)) sent.set(name, joined(texts, first));
  return assetsOf(folder, sent);
}

/** The same of files that are sent as they are, scripts and styles too. */
export async function readPages(folder: string): Promise<ReadonlyMap<string, Asset>> {
  return assetsOf(folder, await textsIn(folder));
}

async function textsIn(folder: string): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  for (const { path: name } of walk(folder)) texts.set(name, await readFile(path.join(folder, name), "utf8"));
  return texts;
}

function assetsOf(folder: string, texts: ReadonlyMap<string, string>): ReadonlyMap<string, Asset> {
  const assets = new Map<string, Asset>();
  for (const [name, text] of texts) {
    const type = MEDIA_TYPES[path.extname(name)];
    if (type === undefined) throw new Failure("failed", `Cannot serve ${path.join(folder, name)}: unknown kind of file`);
    const asset = { type, content: Buffer.from(text) };
    const second = name in JOINED ? `docs/${name}` : name.replace(/(?<=^|\/)index\.html$/, "");
    for (const place of [name, second, name.replace(/\/index\.html$/, "")]) assets.set(`/${place}`, asset);
  }
  return assets;
}

const IMPORT = /^(?:import \{[^}]*\} from|@import) "(\.[^"]+)";\n/gm;
const COMMENT_LINE = /^(?: *(?:\/\/.*|\/\*(?:(?!\*\/).)*(?:\*\/)?)| +\*(?:[ /].*)?)\n/gm;
/** The type of an expression, for the check alone. */
const CAST = /\/\*\* @type \{[^*]*\} \*\/ (?=\()/g;
const INDENT_OR_EXPORT = /^(?:\s+|export (?=(?:async )?function|const|class))/gm;

/**
 * A file as one text with all that it imports, each file once and behind those that it imports itself: without imports, the
 * word `export`, indentation, the types of expressions, and lines that are only comment. A name of the top level means the
 * same in all files, so that nothing else has to change; test/ui/static.test.ts holds the rules that make this true.
 */
function joined(texts: ReadonlyMap<string, string>, name: string, seen = new Set<string>()): string {
  if (seen.has(name)) return "";
  seen.add(name);
  const text = texts.get(name);
  if (text === undefined) throw new Failure("failed", `Cannot serve the console: ${name} is not there`);
  const below = [...text.matchAll(IMPORT)].map(([, target]) => path.posix.join(path.posix.dirname(name), target as string));
  const own = text.replace(IMPORT, "").replace(COMMENT_LINE, "").replace(CAST, "").replace(INDENT_OR_EXPORT, "");
  return [...below.map((file) => joined(texts, file, seen)), own].join("");
}
