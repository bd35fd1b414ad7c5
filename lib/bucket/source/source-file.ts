import path from "node:path";
import { parseToml } from "../../codec/config/toml.ts";
import { Failure, type FailureCode, messageOf } from "../../core/errors.ts";
import { readBounded, unlessMissing } from "../../core/files.ts";
import { decodeUtf8 } from "../../core/plain-text.ts";
import type { Layout } from "../base/layout.ts";
import type { Problems } from "../base/problems.ts";

/** No settings file and no manifest is larger. */
const LIMIT_BYTES = 1024 * 1024;

type Parse<T> = (bytes: Uint8Array, file: string, code: FailureCode, problems: Problems) => T | undefined;

/**
 * What a file of the source holds, or undefined where there is none. A file that cannot be taken (a symlink, over 1 MiB,
 * not UTF-8, not what `parse` reads) is a problem with this code and undefined too.
 */
export async function readSource<T>(
  parse: Parse<T>,
  layout: Layout,
  file: string,
  code: FailureCode,
  problems: Problems,
): Promise<T | undefined> {
  try {
    const bytes = await unlessMissing(readBounded(file, LIMIT_BYTES), "ENOTDIR");
    return bytes && parse(bytes, relative(layout, file), code, problems);
  } catch (error) {
    problems.error(code, relative(layout, file), "", unreadable(error));
    return undefined;
  }
}

/** The JSON in a file that was read already; `file` is only named. A byte order mark is passed over. */
export const parseSourceJson = parserOf<unknown>(
  (text) => JSON.parse(text.replace(/^\ufeff/, "")),
  (error, text) => jsonProblem(error, text.replace(/^\ufeff/, "")),
);

/** The TOML in a file that was read already; `file` is only named. */
export const parseSourceToml = parserOf(parseToml, messageOf);

function parserOf<T>(parse: (text: string) => T, problemOf: (error: unknown, text: string) => string): Parse<T> {
  return (bytes, file, code, problems) => {
    const wrong = (message: string) => void problems.error(code, file, "", message);
    if (bytes.length > LIMIT_BYTES) return wrong(`has more than ${LIMIT_BYTES} bytes`);
    const text = decodeUtf8(bytes);
    if (text === undefined) return wrong("is not UTF-8 text");
    try {
      return parse(text);
    } catch (error) {
      return wrong(problemOf(error, text));
    }
  };
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
