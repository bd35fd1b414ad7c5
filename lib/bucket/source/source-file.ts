import path from "node:path";
import { parseToml } from "../../codec/config/toml.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { isUnchanged, readBounded, unlessMissing } from "../../core/files.ts";
import { decodeUtf8 } from "../../core/plain-text.ts";
import { join } from "../../core/shape.ts";
import { type FoundFile, walk } from "../../core/walk.ts";
import { type Layout, SKIPPED_FOLDERS } from "../base/layout.ts";
import type { FileProblems, Problems } from "../base/problems.ts";
import { SourceRules } from "./source-rules.ts";

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

/** The JSON in a file that was read already. A byte order mark is passed over. */
export const parseSourceJson = parserOf<unknown>(
  (text) => JSON.parse(text.replace(/^\ufeff/, "")),
  (error, text) => jsonProblem(error, text.replace(/^\ufeff/, "")),
);

/** The TOML in a file that was read already. */
export const parseSourceToml = parserOf(parseToml, messageOf);

function parserOf<T>(parse: (text: string) => T, problemOf: (error: unknown, text: string) => string): Parse<T> {
  return (bytes, found) => {
    const text = decodeUtf8(bytes);
    if (bytes.length > SOURCE_FILE_BYTES) return void found.error("", `has more than ${SOURCE_FILE_BYTES} bytes`);
    if (text === undefined) return void found.error("", "is not UTF-8 text");
    try {
      return parse(text);
    } catch (error) {
      return void found.error("", problemOf(error, text));
    }
  };
}

/** A path as operators know it: relative to the bucket. */
export function relative(layout: Layout, file: string): string {
  return path.relative(layout.root, file);
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

const MOST_PROBLEMS = 100;

/**
 * Looks at every file of `workspace/`. Symlinks, special files, and what the rules of a push refuse (names, their
 * lengths, names that differ only in case, too many or too large files) are problems: `ErrInvalidJob` in a job,
 * elsewhere `invalid_source`, at most 100. Problems of the files in `readOnTheirOwn` are left to their readers.
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
    // A problem of more than this one file is reported once, and none of those files is read.
    const isOfOne = why.startsWith("it");
    if (isOfOne || !said.has(why)) refuse(path, why);
    said.add(why);
    return isOfOne;
  });
  const states = new Map(found.map(({ path, state }) => [path, state]));
  return { jobs: byJob(taken), states };
}

/** The folder to name for a path below `workspace/` (the folder of its job, if it has one), and the rest of the path. */
function folderAndRest(below: string): { file: string; rest: string } {
  if (below === "jobs") return { file: "workspace/jobs", rest: "" };
  const [, job, rest = ""] = /^jobs\/([^/]+)(?:\/(.+))?$/s.exec(below) ?? [];
  return job === undefined ? { file: "workspace", rest: below } : { file: `workspace/jobs/${job}`, rest };
}

/** A path that reads as one in a message, whatever characters it has. */
function readablePath(path: string): string {
  return path.replace(/[^/]+/g, (part) => join("", part));
}

function byJob(found: readonly FoundFile[]): Map<string, FoundFile[]> {
  const jobs = new Map<string, FoundFile[]>();
  for (const file of found) {
    const [, job, below] = /^jobs\/([^/]+)\/(.+)$/s.exec(file.path) ?? [];
    if (job === undefined || below === undefined) continue;
    const own = jobs.get(job) ?? [];
    own.push({ ...file, path: below });
    jobs.set(job, own);
  }
  return new Map([...jobs].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Makes sure that the files were read in one state of the workspace, not in a mixture of two (`ErrSourceChanged`). */
export function checkUnchanged(layout: Layout, before: SourceTree, problems: Problems): void {
  const now = new Map(walk(layout.workspace, SKIPPED_FOLDERS, () => {}).map(({ path, state }) => [path, state]));
  const isChanged = (path: string) => {
    const [old, state] = [before.states.get(path), now.get(path)];
    return !old || !state || !isUnchanged(old, state);
  };
  const [first, ...others] = [...new Set([...before.states.keys(), ...now.keys()])].filter(isChanged).sort();
  if (first === undefined) return;
  const more = others.length === 0 ? "" : `, as ${others.length} more`;
  const message = `was changed while the build read the workspace${more}: build again`;
  problems.error("ErrSourceChanged", "workspace", readablePath(first), message);
}
