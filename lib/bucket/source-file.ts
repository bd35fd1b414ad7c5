import path from "node:path";
import { parseToml, type TomlTable, type TomlValue } from "../codec/toml.ts";
import { type FailureCode, hasErrno, messageOf } from "../core/errors.ts";
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
    problems.error(
      code,
      relative(layout, file),
      "",
      `not valid JSON: ${messageOf(error)}${placeOf(error, text)}`,
    );
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
  return text === undefined ? undefined : tomlTable(text, relative(layout, file), code, problems);
}

/** Parses TOML text that is shown as `file`. */
export function tomlTable(
  text: string,
  file: string,
  code: FailureCode,
  problems: Problems,
): TomlTable | undefined {
  try {
    return parseToml(text);
  } catch (error) {
    problems.error(code, file, "", messageOf(error));
    return undefined;
  }
}

/** A path as operators know it: relative to the bucket. */
export function relative(layout: Layout, file: string): string {
  return path.relative(layout.root, file);
}

function unreadable(error: unknown): string {
  if (hasErrno(error, "ELOOP")) return "is a symbolic link, which is not allowed";
  if (error instanceof TypeError) return "is not UTF-8 text";
  return messageOf(error);
}

/**
 * Where JSON breaks, for the one message of the engine that does not say it. Every text that ends before the
 * unexpected character is only incomplete, so halving finds it.
 */
function placeOf(error: unknown, text: string): string {
  if (!messageOf(error).startsWith("Unexpected token")) return "";
  let [good, bad] = [0, text.length];
  while (bad - good > 1) {
    const middle = (good + bad) >> 1;
    if (isIncomplete(text.slice(0, middle))) good = middle;
    else bad = middle;
  }
  const before = text.slice(0, good).split("\n");
  return ` (line ${before.length} column ${(before.at(-1) ?? "").length + 1})`;
}

function isIncomplete(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    return !messageOf(error).startsWith("Unexpected token");
  }
}

/** True for a TOML table. */
export function isTable(value: TomlValue): value is TomlTable {
  return typeof value === "object" && Object.getPrototypeOf(value) === null;
}

/** A table whose integers are plain numbers, as the shapes of core/shape.ts expect them. */
export function plainTable(table: TomlTable): Record<string, unknown> {
  const entries = Object.entries(table).map(([key, value]) => [
    key,
    typeof value === "bigint" ? Number(value) : isTable(value) ? plainTable(value) : value,
  ]);
  return Object.fromEntries(entries);
}
