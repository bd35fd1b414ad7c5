import path from "node:path";
import { parseToml, type TomlTable } from "../codec/toml.ts";
import { Failure, type FailureCode, hasErrno, messageOf } from "../core/errors.ts";
import { readBounded } from "../core/files.ts";
import type { Layout } from "./layout.ts";
import type { Problems } from "./problems.ts";

/** No settings file and no manifest is larger. */
const LIMIT_BYTES = 1024 * 1024;

/**
 * What a JSON file of the source holds, or undefined where there is none. A file that cannot be taken (a symlink, over
 * 1 MiB, not UTF-8, not JSON) is a problem with this code and undefined too.
 */
export async function readSourceJson(
  layout: Layout,
  file: string,
  code: FailureCode,
  problems: Problems,
): Promise<unknown> {
  const bytes = await readSource(layout, file, code, problems);
  return bytes && parseSourceJson(bytes, relative(layout, file), code, problems);
}

/** The table that a TOML file of the source holds; like {@link readSourceJson} where there is nothing to read. */
export async function readSourceToml(
  layout: Layout,
  file: string,
  code: FailureCode,
  problems: Problems,
): Promise<TomlTable | undefined> {
  const bytes = await readSource(layout, file, code, problems);
  return bytes && parseSourceToml(bytes, relative(layout, file), code, problems);
}

async function readSource(
  layout: Layout,
  file: string,
  code: FailureCode,
  problems: Problems,
): Promise<Buffer | undefined> {
  try {
    return await readBounded(file, LIMIT_BYTES);
  } catch (error) {
    if (hasErrno(error, "ENOTDIR")) return undefined;
    problems.error(code, relative(layout, file), "", unreadable(error));
    return undefined;
  }
}

/** Like {@link readSourceJson} for what was read already; `file` is only named. A byte order mark is passed over. */
export function parseSourceJson(
  bytes: Uint8Array,
  file: string,
  code: FailureCode,
  problems: Problems,
): unknown {
  const text = textOf(bytes, file, code, problems)?.replace(/^\ufeff/, "");
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    problems.error(code, file, "", jsonProblem(error, text));
    return undefined;
  }
}

/** Like {@link readSourceToml} for what was read already; `file` is only named. */
export function parseSourceToml(
  bytes: Uint8Array,
  file: string,
  code: FailureCode,
  problems: Problems,
): TomlTable | undefined {
  const text = textOf(bytes, file, code, problems);
  if (text === undefined) return undefined;
  try {
    return parseToml(text);
  } catch (error) {
    problems.error(code, file, "", messageOf(error));
    return undefined;
  }
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function textOf(bytes: Uint8Array, file: string, code: FailureCode, problems: Problems): string | undefined {
  try {
    if (bytes.length <= LIMIT_BYTES) return UTF8.decode(bytes);
    problems.error(code, file, "", `has more than ${LIMIT_BYTES} bytes`);
  } catch {
    problems.error(code, file, "", "is not UTF-8 text");
  }
  return undefined;
}

/** A path as operators know it: relative to the bucket. */
export function relative(layout: Layout, file: string): string {
  return path.relative(layout.root, file);
}

function unreadable(error: unknown): string {
  const isOther = error instanceof Failure && error.code === "file_not_found";
  return isOther ? "is not a regular file; symbolic links are not allowed" : messageOf(error);
}

/** What breaks JSON, without the engine's quotation of the text, and where. */
function jsonProblem(error: unknown, text: string): string {
  const [what] = messageOf(error).split(/, (?:\.\.\.)?"|in JSON at position \d+/);
  return `not valid JSON: ${what?.trim()} ${placeOf(error, text)}`.trimEnd();
}

/**
 * Where JSON breaks. One message of the engine does not say it: then halving finds it, since every text that ends
 * before the unexpected character is only incomplete.
 */
function placeOf(error: unknown, text: string): string {
  const [place] = /\(line \d+ column \d+\)$/.exec(messageOf(error)) ?? [];
  if (place !== undefined) return place;
  let [good, bad] = [0, text.length + 1];
  while (bad - good > 1) {
    const middle = (good + bad) >> 1;
    if (isIncomplete(text.slice(0, middle))) good = middle;
    else bad = middle;
  }
  const before = text.slice(0, good).split("\n");
  return `(line ${before.length} column ${(before.at(-1) ?? "").length + 1})`;
}

function isIncomplete(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    return !messageOf(error).startsWith("Unexpected token");
  }
}
