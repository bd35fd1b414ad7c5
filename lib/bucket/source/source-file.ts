import path from "node:path";
import { parseToml } from "../../codec/config/toml.ts";
import { Failure, type FailureCode, messageOf } from "../../core/errors.ts";
import { isUnchanged, readBounded, unlessMissing } from "../../core/files.ts";
import { decodeUtf8 } from "../../core/plain-text.ts";
import { join } from "../../core/shape.ts";
import { type FoundFile, walk } from "../../core/walk.ts";
import { type Layout, SKIPPED_FOLDERS } from "../base/layout.ts";
import type { Problems } from "../base/problems.ts";
import { SourceRules } from "./source-rules.ts";

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
  return `not valid JSON: ${what?.trim()} ${brokenAt(error, text)}`.trimEnd();
}

/**
 * Where JSON breaks. One message of the engine does not say it: then halving finds it, since every text that ends
 * before the unexpected character is only incomplete.
 */
function brokenAt(error: unknown, text: string): string {
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

/** The files of `workspace/` as they were at one moment. */
export interface SourceTree {
  /** By folder of `workspace/jobs/`, in order of name; paths are relative to that folder. */
  jobs: ReadonlyMap<string, FoundFile[]>;
  /** The state of each file, by path below `workspace/`. */
  states: ReadonlyMap<string, FoundFile["state"]>;
}

const JOBS = "jobs/";
const MOST_PROBLEMS = 100;

/**
 * Looks at every file of `workspace/`. Symlinks, special files, and what the rules of a push refuse (names, their
 * lengths, names that differ only in case, too many or too large files) are problems: `ErrInvalidJob` in a job,
 * elsewhere `invalid_source`, at most 100. The files in `readOnTheirOwn` are left to those who read them.
 */
export function scanSource(layout: Layout, problems: Problems, readOnTheirOwn: readonly string[] = []): SourceTree {
  let count = 0;
  const refuse = (below: string, why: string) => {
    const { file, rest } = folderAndRest(below);
    if (readOnTheirOwn.includes(below) || ++count > MOST_PROBLEMS) return;
    problems.error(file === "workspace" ? "invalid_source" : "ErrInvalidJob", file, readablePath(rest), why);
  };
  const found = walk(layout.workspace, SKIPPED_FOLDERS, refuse);
  if (found.some(({ path }) => path === "jobs")) refuse("jobs", "it is not a folder");
  const rules = new SourceRules();
  const said = new Set<string>();
  const taken = found.filter(({ path, sizeBytes }) => {
    const why = rules.problemOf({ path: `workspace/${path}`, type: "file", size: sizeBytes });
    if (why === undefined) return true;
    // What is about more than this one file is said once, and none of those files is read.
    const isOfOne = why.startsWith("it");
    if (isOfOne || !said.has(why)) refuse(path, why);
    said.add(why);
    return isOfOne;
  });
  const states = new Map(found.map(({ path, state }) => [path, state]));
  return { jobs: byJob(taken), states };
}

/** The folder to name for a path below `workspace/`, that of its job if it has one, and the rest of the path in it. */
function folderAndRest(below: string): { file: string; rest: string } {
  if (below === "jobs") return { file: "workspace/jobs", rest: "" };
  const [, job, rest = ""] = /^jobs\/([^/]+)(?:\/(.+))?$/s.exec(below) ?? [];
  return job === undefined ? { file: "workspace", rest: below } : { file: `workspace/jobs/${job}`, rest };
}

/** A path that reads as one in a message, whatever characters it has. */
function readablePath(path: string): string {
  return path
    .split("/")
    .map((part) => (part === "" ? "" : join("", part)))
    .join("/");
}

function byJob(found: readonly FoundFile[]): Map<string, FoundFile[]> {
  const jobs = new Map<string, FoundFile[]>();
  for (const file of found) {
    const end = file.path.indexOf("/", JOBS.length);
    if (!file.path.startsWith(JOBS) || end < 0) continue;
    const job = file.path.slice(JOBS.length, end);
    const own = { ...file, path: file.path.slice(end + 1) };
    const list = jobs.get(job);
    if (list) list.push(own);
    else jobs.set(job, [own]);
  }
  return new Map([...jobs].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Makes sure that what was read is one state of the workspace and no mixture of two (`ErrSourceChanged`). */
export function checkUnchanged(layout: Layout, before: SourceTree, problems: Problems): void {
  const gone = new Set(before.states.keys());
  const changed: string[] = [];
  for (const { path, state } of walk(layout.workspace, SKIPPED_FOLDERS, () => {})) {
    gone.delete(path);
    const known = before.states.get(path);
    if (!known || !isUnchanged(known, state)) changed.push(path);
  }
  changed.push(...gone);
  changed.sort();
  const [first, ...others] = changed;
  if (first === undefined) return;
  const more = others.length === 0 ? "" : `, as ${others.length} more`;
  problems.error(
    "ErrSourceChanged",
    "workspace",
    readablePath(first),
    `was changed while the build read the workspace${more}: build again`,
  );
}
