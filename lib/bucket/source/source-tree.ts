import { join } from "../../core/shape.ts";
import { type FoundFile, isSameState, walk } from "../../core/walk.ts";
import { type Layout, SKIPPED_FOLDERS } from "../base/layout.ts";
import type { Problems } from "../base/problems.ts";
import { SourceRules } from "./source-rules.ts";

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
    const { file, rest } = placeOf(below);
    if (readOnTheirOwn.includes(below) || ++count > MOST_PROBLEMS) return;
    problems.error(file === "workspace" ? "invalid_source" : "ErrInvalidJob", file, shown(rest), why);
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
function placeOf(below: string): { file: string; rest: string } {
  if (below === "jobs") return { file: "workspace/jobs", rest: "" };
  const [, job, rest = ""] = /^jobs\/([^/]+)(?:\/(.+))?$/s.exec(below) ?? [];
  return job === undefined ? { file: "workspace", rest: below } : { file: `workspace/jobs/${job}`, rest };
}

/** A path that reads as one in a message, whatever characters it has. */
function shown(path: string): string {
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
    if (!known || !isSameState(known, state)) changed.push(path);
  }
  changed.push(...gone);
  changed.sort();
  const [first, ...others] = changed;
  if (first === undefined) return;
  const more = others.length === 0 ? "" : `, as ${others.length} more`;
  problems.error(
    "ErrSourceChanged",
    "workspace",
    shown(first),
    `was changed while the build read the workspace${more}: build again`,
  );
}
