import path from "node:path";
import { parseToml, type TomlTable } from "../codec/toml.ts";
import { Failure, type FailureCode, hasErrno, messageOf } from "../core/errors.ts";
import { readBounded } from "../core/files.ts";
import type { Layout } from "./layout.ts";
import type { Problems } from "./problems.ts";

const LIMIT_BYTES = 1024 * 1024;

/**
 * The text of a settings file of the source, or undefined where there is none. A file that cannot be taken (a symlink,
 * over 1 MiB, not UTF-8) is a problem with this code and undefined too.
 */
export async function readSourceText(
  layout: Layout,
  file: string,
  code: FailureCode,
  problems: Problems,
): Promise<string | undefined> {
  try {
    const bytes = await readBounded(file, LIMIT_BYTES);
    return bytes && new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    if (hasErrno(error, "ENOTDIR")) return undefined;
    problems.error(code, relative(layout, file), "", unreadable(error));
    return undefined;
  }
}

/** What a JSON file of the source holds; like {@link readSourceText} where there is nothing to read. */
export async function readSourceJson(
  layout: Layout,
  file: string,
  code: FailureCode,
  problems: Problems,
): Promise<unknown> {
  const text = await readSourceText(layout, file, code, problems);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    problems.error(code, relative(layout, file), "", jsonProblem(error, text));
    return undefined;
  }
}

/** The table that a TOML file of the source holds; like {@link readSourceText} where there is nothing to read. */
export async function readSourceToml(
  layout: Layout,
  file: string,
  code: FailureCode,
  problems: Problems,
): Promise<TomlTable | undefined> {
  const text = await readSourceText(layout, file, code, problems);
  if (text === undefined) return undefined;
  try {
    return parseToml(text);
  } catch (error) {
    problems.error(code, relative(layout, file), "", messageOf(error));
    return undefined;
  }
}

/** A path as operators know it: relative to the bucket. */
export function relative(layout: Layout, file: string): string {
  return path.relative(layout.root, file);
}

function unreadable(error: unknown): string {
  if (error instanceof Failure && error.code === "file_not_found")
    return "is not a regular file; symbolic links are not allowed";
  return error instanceof TypeError ? "is not UTF-8 text" : messageOf(error);
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
  let [good, bad] = [0, text.length];
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
