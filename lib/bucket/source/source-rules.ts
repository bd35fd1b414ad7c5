import type { Stats } from "node:fs";
import { type FileHandle, lstat, readdir, realpath } from "node:fs/promises";
import path from "node:path";
import { archiveFailure, type TarEntry } from "../../codec/archive/tar-read.ts";
import { type TarInput, writeTar } from "../../codec/archive/tar-write.ts";
import { Failure, hasErrno, messageOf } from "../../core/errors.ts";
import { isUnchanged, openRegular, unlessMissing } from "../../core/files.ts";
import { join } from "../../core/shape.ts";
import { type FoundFile, walk } from "../../core/walk.ts";
import { type Layout, SKIPPED_FOLDERS, SOURCE_PATHS } from "../base/layout.ts";
import type { Problems } from "../base/problems.ts";
import { folderOf } from "./present.ts";

/** What one push may hold (decisions: Push). */
export const SOURCE_LIMITS = {
  /** All files together. */
  bytes: 256 * 1024 * 1024,
  /** Files and folders, those that are only part of another's path included. */
  entries: 20_000,
  pathBytes: 1_024,
  partBytes: 255,
} as const;

type SourceEntry = Pick<TarEntry, "path" | "type" | "size">;

interface Known {
  path: string;
  type: string;
  /** It had an entry of its own; else it is only part of another's path. */
  named: boolean;
}

/**
 * Decides for one archive which entries may become files, and for one build which files may be read. For an archive it
 * is asked before anything is written, and what it answers is the only way from a name to a path.
 */
export class SourceRules {
  readonly #known = new Map<string, Known>();
  /** Folders that something was entered below, with all that are on the way to them. */
  readonly #folders = new Set<string>();
  #bytes = 0;

  /**
   * The parts of an entry's path, each safe as the name of a file; none for `./` itself. A `./` before the name, as
   * `tar -C <bucket> .` writes it, is dropped. Throws `invalid_source` naming the entry.
   */
  admit(entry: TarEntry): string[] {
    const path = entry.path.startsWith("./") ? entry.path.slice(2) : entry.path;
    const isTop = path === "." && entry.type === "directory";
    const problem = isTop ? this.#enter(path, entry.type) : this.problemOf({ path, type: entry.type, size: entry.size });
    if (problem !== undefined) throw archiveFailure(entry.index, entry.path, problem);
    return isTop ? [] : path.split("/");
  }

  /** Why an entry cannot lie beside those asked about before, or undefined. */
  problemOf(entry: SourceEntry): string | undefined {
    return (
      this.#typeProblem(entry) ??
      pathProblem(entry.path) ??
      rootProblem(entry.path, entry.type) ??
      this.#enter(entry.path, entry.type)
    );
  }

  /** Whether any entry was the folder workspace/ or below it. */
  get hasWorkspace(): boolean {
    return this.#known.has("workspace");
  }

  #typeProblem(entry: SourceEntry): string | undefined {
    if (entry.type !== "file" && entry.type !== "directory") return `a ${entry.type} is not allowed, only files and directories`;
    this.#bytes += entry.size;
    if (this.#bytes > SOURCE_LIMITS.bytes) return `all files together may have at most ${SOURCE_LIMITS.bytes / 1024 / 1024} MiB`;
    return undefined;
  }

  /** Remembers a path and the folders on the way to it; answers what keeps it from lying beside the others. */
  #enter(path: string, type: string): string | undefined {
    return this.#enterFolder(folderOf(path)) ?? this.#enterOne({ path, type, named: true });
  }

  /** Likewise for a folder on the way to a path, which need not be asked about again for the next path. */
  #enterFolder(path: string): string | undefined {
    if (path === "." || this.#folders.has(path)) return undefined;
    const clash = this.#enterFolder(folderOf(path)) ?? this.#enterOne({ path, type: "directory", named: false });
    if (clash === undefined) this.#folders.add(path);
    return clash;
  }

  #enterOne(next: Known): string | undefined {
    const key = fold(next.path);
    const known = this.#known.get(key);
    if (!known) {
      this.#known.set(key, next);
      const tooMany = this.#known.size > SOURCE_LIMITS.entries;
      return tooMany ? `there are more than ${SOURCE_LIMITS.entries} files and folders` : undefined;
    }
    if (known.path !== next.path)
      return `${next.named ? "it" : next.path} differs from ${known.path} only in case or in how its letters are composed`;
    if (known.type !== next.type) return `${next.path} is both a file and a directory`;
    if (known.named && next.named) return "it is in the archive twice";
    known.named ||= next.named;
    return undefined;
  }
}

/** Equal for names that a file system without case, or one that composes accents, takes for the same. */
function fold(path: string): string {
  return /^[ -~]*$/.test(path) ? path.toLowerCase() : path.normalize("NFC").toUpperCase().toLowerCase();
}

/** Why a name in an archive is none for a file below a folder, or undefined. */
export function pathProblem(path: string): string | undefined {
  if (path === "") return "it has no name";
  if (/\p{Cc}/u.test(path)) return "its name has a control character";
  if (path.startsWith("/")) return "an absolute path is not allowed";
  const bytes = Buffer.byteLength(path);
  if (bytes > SOURCE_LIMITS.pathBytes) return `its path has more than ${SOURCE_LIMITS.pathBytes} bytes`;
  for (const part of path.split("/")) {
    if (part === "") return "an empty part in its path is not allowed";
    if (part === "." || part === "..") return `"${part}" in its path is not allowed`;
    if (bytes > SOURCE_LIMITS.partBytes && Buffer.byteLength(part) > SOURCE_LIMITS.partBytes)
      return `a part of its path has more than ${SOURCE_LIMITS.partBytes} bytes`;
  }
  return undefined;
}

function rootProblem(path: string, type: string): string | undefined {
  const [root = ""] = path.split("/", 1);
  if (!(SOURCE_PATHS as readonly string[]).includes(root)) return "only ops.conf, workspace/ and templates/ can be pushed";
  const isFile = root === path && type === "file";
  if (root === "ops.conf") return isFile ? undefined : "ops.conf must be a file";
  return isFile ? `${root} must be a directory` : undefined;
}

/** The source of a local bucket, ready to be sent. */
export type PackedSource = Awaited<ReturnType<typeof packSource>>;

interface FoundEntry {
  /** Below the bucket, with `/`. */
  path: string;
  isFile: boolean;
  size: number;
}

/**
 * Packs ops.conf, workspace/ and templates/ of the bucket in `dir`, without the folders that are never part of a
 * source. Throws `invalid_source` for a symbolic link or special file, by its name, and where there is no workspace/;
 * reading the archive throws when a file changes meanwhile.
 */
export async function packSource(dir: string) {
  const root = await realRoot(dir);
  const found: FoundEntry[] = [];
  for (const name of SOURCE_PATHS) await collect(root, name, found);
  const workspace = found.find(({ path }) => path === "workspace");
  if (!workspace || workspace.isFile)
    throw new Failure("invalid_source", `Cannot push ${dir}: it has no workspace/, so it is not a bucket`);
  const files = found.filter(({ isFile }) => isFile);
  const bytes = files.reduce((sum, { size }) => sum + size, 0);
  return {
    files: files.length,
    /** Of all files together; the archive is a little larger. */
    bytes,
    /** The ustar archive; can be read once. */
    archive: writeTar(sourceEntries(root, found)),
  };
}

async function realRoot(dir: string): Promise<string> {
  try {
    return await realpath(dir);
  } catch (cause) {
    if (!hasErrno(cause, "ENOENT", "ENOTDIR")) throw cause;
    throw new Failure("invalid_source", `Cannot push ${dir}: there is no such folder`, { cause });
  }
}

async function collect(root: string, below: string, found: FoundEntry[]): Promise<void> {
  const full = path.join(root, below);
  const status = await readable(full, () => statusOf(full));
  if (!status) return;
  if (!status.isFile() && !status.isDirectory())
    throw pushRefusal(full, status.isSymbolicLink() ? "a symbolic link is" : "a special file is");
  found.push({ path: below, isFile: status.isFile(), size: status.size });
  if (status.isFile()) return;
  for (const name of (await readable(full, () => readdir(full))).sort())
    if (!SKIPPED_FOLDERS.has(name)) await collect(root, `${below}/${name}`, found);
}

/** A name that is not UTF-8 is not found either: Node has replaced the bytes that it could not read. */
async function statusOf(file: string): Promise<Stats | undefined> {
  if (file.includes("\uFFFD")) throw pushRefusal(file, "a name that is not UTF-8 is");
  return unlessMissing(lstat(file));
}

function pushRefusal(file: string, what: string): Failure {
  return new Failure("invalid_source", `Cannot push ${file}: ${what} not allowed`);
}

async function* sourceEntries(root: string, found: readonly FoundEntry[]): AsyncGenerator<TarInput> {
  for (const entry of found) {
    if (!entry.isFile) {
      yield { path: entry.path, mode: 0o755, size: 0 };
      continue;
    }
    const full = path.join(root, entry.path);
    await using handle = await readable(full, () => openFound(full));
    const { mode, size } = await handle.stat();
    const content = handle.createReadStream({ autoClose: false });
    yield { path: entry.path, mode: (mode & 0o100) === 0 ? 0o644 : 0o755, size, content };
  }
}

/**
 * Opens a file that was found before. Where it is no regular file any more, or lies behind a link, it was changed
 * since.
 */
async function openFound(file: string): Promise<FileHandle> {
  return await openRegular(file).catch((cause: unknown) => {
    throw cause instanceof Failure ? new Error("it changed while it was packed", { cause }) : cause;
  });
}

async function readable<T>(file: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof Failure) throw cause;
    throw new Failure("invalid_source", `Cannot push ${file}: ${messageOf(cause)}`, { cause });
  }
}

/** The files of `workspace/` as they were at one moment. */
export type SourceTree = ReturnType<typeof scanSource>;

const MOST_PROBLEMS = 100;

/**
 * Looks at every file of `workspace/`. Symlinks, special files, and what the rules of a push refuse (names, their
 * lengths, names that differ only in case, too many or too large files) are problems: `ErrInvalidJob` in a job,
 * elsewhere `invalid_source`, at most 100. Problems of the files in `readOnTheirOwn` are left to their readers.
 */
export function scanSource(layout: Layout, problems: Problems, readOnTheirOwn: readonly string[] = []) {
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
  // `jobs`: the files by folder of `workspace/jobs/`, in order of name, with paths below that folder. `states`: the state of
  // each file by its path below `workspace/`.
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
  const inJobs = found.flatMap((file) => {
    const [, job, below] = /^jobs\/([^/]+)\/(.+)$/s.exec(file.path) ?? [];
    return job === undefined || below === undefined ? [] : { job, file: { ...file, path: below } };
  });
  const jobs = [...Map.groupBy(inJobs, ({ job }) => job)].sort(([a], [b]) => (a < b ? -1 : 1));
  return new Map(jobs.map(([job, own]) => [job, own.map(({ file }) => file)]));
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
  const more = others.length === 0 ? "" : ` (and ${others.length} more)`;
  const message = `was changed${more} while the build read the workspace: build again`;
  problems.error("ErrSourceChanged", "workspace", readablePath(first), message);
}
