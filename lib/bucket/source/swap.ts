import { chmod, lstat, mkdir, readdir, readFile, rename } from "node:fs/promises";
import path from "node:path";
import { runAll } from "../../core/async.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import {
  emptyFolder,
  exists,
  flushFolder,
  makePrivateFolder,
  namesIn,
  PRIVATE_FOLDER,
  readBounded,
  remove,
  requireFolder,
  unlessMissing,
  writeAtomic,
} from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import { type Infer, list, object, optional, string } from "../../core/shape.ts";
import { type Layout, SOURCE_PATHS } from "../base/layout.ts";
import { place } from "./place.ts";
import { Present } from "./present.ts";
import { parseRecord, recordCurrent, removeUnlisted, STORED_REVISION, type StoredRevision } from "./revisions.ts";

/** The files beside the database go before it does: a database never stands beside the write-ahead log of another one. */
const DATA_PATHS = ["data/ops.db-wal", "data/ops.db-shm", "data/ops.db", "data/contents"] as const;
/** What a restore replaces besides the source. */
export const STATE_PATHS = [...DATA_PATHS, "secrets", ".ssh", "bucket.json"] as const;
const PRIVATE: ReadonlySet<string> = new Set(["data/contents", "secrets", ".ssh"]);
const SOURCES: ReadonlySet<string> = new Set(SOURCE_PATHS);

/** A path that may be replaced: each of {@link STATE_PATHS}, and of the source each path. */
const REPLACED = new RegExp(
  `^(?:${[...SOURCE_PATHS, ...STATE_PATHS].join("|").replaceAll(".", "\\.")}|(?:workspace|templates)(?:/(?!\\.\\.?(?:/|$))[^/\\0]+)+)$`,
);

const CHANGE = object({
  /** The tree that wins, below `.ops/`; it never changes. */
  tree: string({ pattern: /^(revisions|restores)\/[0-9a-f-]{36}$/, means: "a tree in .ops/" }),
  /**
   * The paths that it replaces, in this order, none of them below another one; a path that the tree does not have is
   * removed.
   */
  paths: list(string({ pattern: REPLACED, means: "a path of the source or the state" })),
  /** The revision that a replaced source then is. */
  revision: optional(STORED_REVISION),
});
/** An exchange of paths in a bucket: the content of its journal. */
type Change = Infer<typeof CHANGE>;

const MOST_PATHS = 500;
/** Enough for so many of the longest paths that a source may have. */
const JOURNAL_BYTES = 1024 * 1024;
const FLUSHES_AT_ONCE = 16;
/** One flush takes along what all other programs have written, too. */
const FLUSH_LIMIT_MS = 300_000;
/** From so many files on, one flush of the whole file system costs less than one for each file. */
const MANY_FILES = 200;
/** Likewise for folders, which are flushed one after the other. */
const MANY_FOLDERS = 30;
/** Smaller files are read and written, which costs less than the calls that could clone them. */
const CLONED_BYTES = 64 * 1024;

/** What was made before a swap: a copy of all that lies at the paths, the only ones at which a source differs. */
export interface Prepared {
  copied: string;
  paths: readonly string[];
}

/** Makes a revision the source of the bucket, as described at {@link swap}. */
export function install(layout: Layout, revision: StoredRevision, prepared?: Prepared): Promise<void> {
  // So that the journal stays small, and because each path costs several steps.
  const isWhole = prepared !== undefined && prepared.paths.length <= MOST_PATHS;
  const paths = isWhole ? [...prepared.paths] : [...SOURCE_PATHS];
  return swap(layout, { tree: `revisions/${revision.id}`, paths, revision }, prepared && { folder: prepared.copied, isWhole });
}

/** A copy of what lies at the paths of a change, or of a part of that, flushed. */
interface Copied {
  folder: string;
  isWhole: boolean;
}

/**
 * Puts a tree in `.ops/`, whose files are on the disk, in the place of parts of the bucket. In order:
 *
 * 1. what it has at these paths is copied to `.ops/staging/new/` and the copy flushed; what `copied` has was copied
 *    before. Files of the source that stay as they are become files of the copy too
 * 2. `.ops/journal.json` is written: the moment from which the new state wins
 * 3. each of the paths: the live one is renamed to `.ops/staging/old/` and the new one, if the tree has it, to its
 *    place; a file is replaced in one step
 * 4. where the source was replaced, revisions.json names the current revision, and those that are not kept are removed
 * 5. tmp/ is emptied
 * 6. the journal is removed, then the staging and what was unpacked for a restore
 *
 * Killed before 2 is done: nothing live has changed, and recovery removes what revisions.json does not list. Killed
 * later: recovery takes the change from the journal and repeats 1 and 3 to 6 from the tree. Each of these steps gives
 * the same result however often, and however far, it was done before. So after recovery the bucket is wholly as before
 * or wholly as wanted.
 */
export async function swap(layout: Layout, change: Change, copied?: Copied): Promise<void> {
  await stage(layout, change, copied);
  faultPoint("swap: staged");
  await writeAtomic(layout.journal, `${JSON.stringify(change)}\n`);
  faultPoint("swap: journal");
  await exchange(layout, change);
}

/** Finishes what {@link swap} began, if there is a journal. */
export async function finishInterrupted(layout: Layout): Promise<void> {
  const bytes = await readBounded(layout.journal, JOURNAL_BYTES);
  if (!bytes) return;
  const change = parseRecord(CHANGE, bytes, layout.journal);
  await stage(layout, change);
  await exchange(layout, change);
}

/** Removes all that no journal speaks of: uploads, restores, staging, unlisted revisions, files that were being written. */
export async function discardLeftovers(layout: Layout): Promise<void> {
  const unfinished = /^\.(journal|revisions)\.json\.[0-9a-f]+\.tmp$/;
  for (const name of await namesIn(layout.internal)) if (unfinished.test(name)) await remove(path.join(layout.internal, name));
  for (const name of await namesIn(layout.uploads)) await remove(path.join(layout.uploads, name));
  for (const name of await namesIn(layout.snapshots)) if (name.startsWith(".")) await remove(path.join(layout.snapshots, name));
  await remove(layout.restores);
  await remove(stagingOf(layout));
  await removeUnlisted(layout);
}

/** Flushes a folder and all below it, at least `files` files, so that they outlast a power loss. */
export async function flushTree(folder: string, files = 0): Promise<void> {
  await requireFolder(folder);
  if (files >= MANY_FILES && (await flushFileSystem(folder))) return;
  const below = await readdir(folder, { recursive: true, withFileTypes: true });
  const all = [...below.map(({ parentPath, name }) => path.join(parentPath, name)), folder];
  if (files === 0 && all.length >= MANY_FILES && (await flushFileSystem(folder))) return;
  // What flushes a folder flushes a file as well.
  const outcomes = await runAll(all, FLUSHES_AT_ONCE, flushFolder);
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
}

/** Flushes all that the file system of a folder holds. Answers false where that is not possible, fails or takes too long. */
export async function flushFileSystem(folder: string): Promise<boolean> {
  const { Launcher } = await import("../../core/spawn.ts");
  // The child needs nothing of the environment: without a PATH `sync` is looked for where systems have it.
  const ended = await new Launcher({}).run(["sync", "-f", folder], { timeoutMs: FLUSH_LIMIT_MS }).catch(() => undefined);
  return ended?.exitCode === 0;
}

function stagingOf(layout: Layout): string {
  return path.join(layout.internal, "staging");
}

async function stage(layout: Layout, { tree, paths }: Change, copied?: Copied): Promise<void> {
  const staging = stagingOf(layout);
  await remove(staging);
  await makePrivateFolder(path.join(staging, "old"));
  if (copied) await rename(copied.folder, path.join(staging, "new"));
  if (copied?.isWhole) return flushFolder(path.join(staging, "new"));
  const present = new Present(layout.root, 0o755);
  for (const name of paths) {
    const source = path.join(layout.internal, tree, name);
    await makePrivateFolder(path.dirname(path.join(staging, "new", name)));
    const isSource = SOURCES.has(name.split("/", 1)[0] ?? "");
    const to = { target: path.join(staging, "new", name), name, present: isSource ? present : undefined };
    const isThere = (await unlessMissing(lstat(to.target)))?.isFile() ?? false;
    if (!isThere && (await exists(source))) await copy(source, to, PRIVATE.has(name) ? PRIVATE_FOLDER : 0o755);
  }
  await flushTree(staging);
}

/** Where a copy is to be, and its name in the source, if it belongs to the source: a file that is there already is shared. */
interface CopyPlace {
  target: string;
  name: string;
  present: Present | undefined;
}

/** Copies a file, or a folder with all below it that its copy does not have; the copies can be written by their owner. */
async function copy(source: string, { target, name, present }: CopyPlace, folderMode: number): Promise<void> {
  const found = await lstat(source);
  if (!found.isDirectory()) {
    if (!found.isFile()) throw new Failure("failed", `Cannot take ${source}: it is no regular file`);
    const content = found.size < CLONED_BYTES ? await readFile(source) : source;
    const like = present?.kindOf(name) === "file" ? present.placeOf(name) : undefined;
    return place({ target, like, content, mode: (found.mode & 0o777) | 0o200 });
  }
  const isNew = (await mkdir(target, { recursive: true })) !== undefined;
  const there = new Set(isNew ? [] : await readdir(target));
  await chmod(target, folderMode);
  for (const one of await readdir(source, { withFileTypes: true })) {
    const to = { target: path.join(target, one.name), name: `${name}/${one.name}`, present };
    if (one.isDirectory() || !there.has(one.name)) await copy(path.join(source, one.name), to, folderMode);
  }
}

async function exchange(layout: Layout, { paths, revision }: Change): Promise<void> {
  const hasSource = revision !== undefined || paths.includes("workspace");
  try {
    const folders = [...new Set(paths.map((name) => path.dirname(path.join(layout.root, name))))];
    await Promise.all(folders.map(requireFolder));
    for (const [index, name] of paths.entries()) await replace(layout, name, index);
    if (folders.length < MANY_FOLDERS || !(await flushFileSystem(layout.root)))
      for (const folder of folders) await flushFolder(folder);
    faultPoint("swap: replaced");
    if (hasSource) await recordCurrent(layout, revision);
    faultPoint("swap: recorded");
    if (hasSource) await removeUnlisted(layout);
    await emptyFolder(layout.tmp);
    faultPoint("swap: tmp emptied");
    await remove(layout.journal);
    faultPoint("swap: journal removed");
    await flushFolder(layout.internal);
    await remove(stagingOf(layout));
    await remove(layout.restores);
  } catch (cause) {
    const message = `Cannot finish replacing what is in ${layout.root}: ${messageOf(cause)}`;
    throw new Failure("failed", `${message}; the next operation on the bucket tries again`, { cause });
  }
}

async function replace(layout: Layout, name: string, index: number): Promise<void> {
  const live = path.join(layout.root, name);
  const next = path.join(stagingOf(layout), "new", name);
  const old = path.join(stagingOf(layout), "old", String(index));
  const isNew = await exists(next);
  // The database is never missing, not for a moment: a folder without one is taken for no bucket.
  const inOneStep = isNew && (await lstat(next)).isFile() && (await unlessMissing(lstat(live)))?.isFile();
  if (!inOneStep && (await exists(live))) await rename(live, old);
  faultPoint(`swap: ${name} out`);
  if (isNew) await rename(next, live);
  faultPoint(`swap: ${name} in`);
}
