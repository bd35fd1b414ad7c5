import { chown, lstat, mkdir, rename, stat } from "node:fs/promises";
import path from "node:path";
import { parseToml } from "../../codec/config/toml.ts";
import { Failure, hasErrno, messageOf } from "../../core/errors.ts";
import { flushFolder, namesIn, readBounded, remove, requireFolder, unlessMissing, writeAtomic } from "../../core/files.ts";
import { decodeUtf8, TextFailure, textProblem } from "../../core/plain-text.ts";
import type { Layout } from "../base/layout.ts";
import type { FileProblems } from "../base/problems.ts";

/** No settings file and no manifest is larger. */
export const SOURCE_FILE_BYTES = 1024 * 1024;

type Parse<T> = (bytes: Uint8Array, found: FileProblems) => T | undefined;

/**
 * What the file of `found` holds, or undefined where there is none. A file that cannot be read (a symlink, over 1 MiB,
 * not UTF-8, not what `parse` reads) is a problem and undefined too.
 */
export async function readSource<T>(parse: Parse<T>, layout: Layout, found: FileProblems): Promise<T | undefined> {
  try {
    const bytes = await unlessMissing(readBounded(path.join(layout.root, found.file), SOURCE_FILE_BYTES), "ENOTDIR");
    return bytes && parse(bytes, found);
  } catch (error) {
    const isOther = error instanceof Failure && error.code === "file_not_found";
    found.error("", isOther ? "is not a regular file; symbolic links are not allowed" : messageOf(error));
    return undefined;
  }
}

/** Replaces a file of a source, whose folder is made where it is missing. Throws `failed` where that lies behind a link. */
export async function writeSourceFile(file: string, content: string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o755 });
  await writeAtomic(file, content, 0o644);
}

/** The JSON in a file that was read already. A byte order mark is passed over. */
export const parseSourceJson = parserOf<unknown>((given) => {
  const text = given.replace(/^\ufeff/, "");
  try {
    return JSON.parse(text);
  } catch (error) {
    throw jsonFailure(error, text);
  }
});

/** The TOML in a file that was read already. */
export const parseSourceToml = parserOf(parseToml);

function parserOf<T>(parse: (text: string) => T): Parse<T> {
  return (bytes, found) => {
    if (bytes.length > SOURCE_FILE_BYTES) return void found.error("", `has more than ${SOURCE_FILE_BYTES} bytes`);
    const text = decodeUtf8(bytes);
    if (text === undefined) return void found.error("", "is not UTF-8 text");
    try {
      return parse(text);
    } catch (error) {
      const { place, what } = textProblem(error);
      return void found.error(place, what);
    }
  };
}

/** A path as operators know it: relative to the bucket. */
export function relative(layout: Layout, file: string): string {
  return path.relative(layout.root, file);
}

/** What breaks JSON, without the engine's quotation of the text, and where. */
function jsonFailure(error: unknown, text: string): TextFailure {
  const [what] = messageOf(error).split(/, (?:\.\.\.)?"|(?: in JSON)? at position \d+/);
  return new TextFailure(text, brokenAt(error, text), `not valid JSON: ${what}`);
}

/**
 * Where JSON breaks. One message of the engine does not say it: then halving finds it, since every text that ends
 * before the unexpected character is only incomplete.
 */
function brokenAt(error: unknown, text: string): number {
  const [, place] = / at position (\d+) \(line \d+ column \d+\)$/.exec(messageOf(error)) ?? [];
  if (place !== undefined) return Number(place);
  let [good, bad] = [0, text.length + 1];
  while (bad - good > 1) {
    const middle = (good + bad) >> 1;
    if (isIncomplete(text.slice(0, middle))) good = middle;
    else bad = middle;
  }
  return good;
}

function isIncomplete(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    return !messageOf(error).startsWith("Unexpected token");
  }
}

/** A new text for a file of the source; the path is below the bucket's folder. */
export interface SourceEdit {
  file: string;
  after: string;
  mode: number;
}

/** In workspace/, in templates/ or beside ops.conf: what lies beside a file of a job would be a file of the job. */
const TEMPORARY = ".ops-edit.tmp";

/**
 * Replaces files of the source, each at once, with its owner where that can be. A kill in between leaves whole files and at
 * most one temporary file, which belongs to no job; the next call takes that away. Throws where a file cannot be written.
 */
export async function writeEdits({ root }: Pick<Layout, "root">, edits: readonly SourceEdit[]): Promise<void> {
  for (const place of ["", "workspace", "templates"]) await clearTemporary(path.join(root, place));
  for (const { file, after, mode } of edits) {
    // Each of the three may be a mount of its own.
    const temporary = path.join(root, file.includes("/") ? (file.split("/")[0] as string) : "", TEMPORARY);
    try {
      await replaceFile(path.join(root, file), temporary, { after, mode });
    } catch (error) {
      await remove(temporary);
      throw error;
    }
  }
}

async function clearTemporary(folder: string): Promise<void> {
  for (const name of await namesIn(folder)) {
    const place = path.join(folder, name);
    if (/^\.?\.ops-edit\.tmp(\.|$)/.test(name) && (await lstat(place)).isFile()) await remove(place);
  }
}

async function replaceFile(file: string, temporary: string, { after, mode }: { after: string; mode: number }): Promise<void> {
  const { uid, gid } = await stat(file);
  await writeAtomic(temporary, after, mode);
  await chown(temporary, uid, gid).catch((error: unknown) => {
    if (!hasErrno(error, "EPERM")) throw error;
  });
  const folder = path.dirname(file);
  await requireFolder(folder);
  await rename(temporary, file);
  await flushFolder(folder);
}
