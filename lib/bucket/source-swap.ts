import { chmod, constants, copyFile, lstat, mkdir, readdir, rename } from "node:fs/promises";
import path from "node:path";
import { runAll } from "../core/async.ts";
import { Failure, hasErrno, messageOf } from "../core/errors.ts";
import {
  emptyFolder,
  exists,
  flushFolder,
  makePrivateFolder,
  readBounded,
  remove,
  writeAtomic,
} from "../core/files.ts";
import { object } from "../core/shape.ts";
import { type Layout, SOURCE_PATHS } from "./layout.ts";
import {
  parseRecord,
  recordCurrent,
  removeUnlisted,
  STORED_REVISION,
  type StoredRevision,
} from "./revisions.ts";

const JOURNAL = object({ revision: STORED_REVISION });
const JOURNAL_BYTES = 64 * 1024;
const FLUSHES_AT_ONCE = 16;

/**
 * Makes a revision, whose files lie in `.ops/revisions/<id>/` and are on the disk, the source of the bucket. In order:
 *
 * 1. it is copied to `.ops/staging/new/` and the copy flushed
 * 2. `.ops/journal.json` is written with the revision's record: the moment from which the new source wins
 * 3. of ops.conf, workspace/ and templates/ each: the live one is renamed to `.ops/staging/old/`, the new one, if the
 *    revision has it, to its place
 * 4. revisions.json gets the record and names it current; revisions that are not kept are removed
 * 5. tmp/ is emptied
 * 6. the journal is removed, then the staging
 *
 * Killed before 2 is done: nothing live has changed, and recovery removes what revisions.json does not list. Killed
 * later: recovery takes the record from the journal and repeats 1 and 3 to 6 from the revision, which never changes.
 * Each of these steps gives the same result however often, and however far, it was done before. So after recovery the
 * source is wholly the old or wholly the new one, and `current` says which.
 */
export async function install(layout: Layout, revision: StoredRevision): Promise<void> {
  await stage(layout, revision.id);
  await writeAtomic(layout.journal, `${JSON.stringify({ revision })}\n`);
  await swap(layout, revision);
}

/** Finishes what {@link install} began, if there is a journal. */
export async function finishInterrupted(layout: Layout): Promise<void> {
  const bytes = await readBounded(layout.journal, JOURNAL_BYTES);
  if (!bytes) return;
  const { revision } = parseRecord(JOURNAL, bytes, layout.journal);
  await stage(layout, revision.id);
  await swap(layout, revision);
}

/** Removes all that no journal speaks of: uploads, staging, unlisted revisions, files that were being written. */
export async function discardLeftovers(layout: Layout): Promise<void> {
  const unfinished = /^\.(journal|revisions)\.json\.[0-9a-f]+\.tmp$/;
  for (const name of await namesIn(layout.internal))
    if (unfinished.test(name)) await remove(path.join(layout.internal, name));
  for (const name of await namesIn(layout.uploads)) await remove(path.join(layout.uploads, name));
  await remove(stagingOf(layout));
  await removeUnlisted(layout);
}

/** Flushes a folder and all below it, so that they outlast a power loss. */
export async function flushTree(folder: string): Promise<void> {
  const below = await readdir(folder, { recursive: true });
  const all = [...below.map((name) => path.join(folder, name)), folder];
  // What flushes a folder flushes a file as well.
  const outcomes = await runAll(all, FLUSHES_AT_ONCE, flushFolder);
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
}

function stagingOf(layout: Layout): string {
  return path.join(layout.internal, "staging");
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return [];
    throw error;
  }
}

async function stage(layout: Layout, revisionId: string): Promise<void> {
  const staging = stagingOf(layout);
  await remove(staging);
  await makePrivateFolder(path.join(staging, "old"));
  await copyTree(path.join(layout.revisions, revisionId), path.join(staging, "new"));
  await flushTree(staging);
}

/** Copies folders and files; the copies can be written by their owner. */
async function copyTree(from: string, to: string): Promise<void> {
  await mkdir(to);
  await chmod(to, 0o755);
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [path.join(from, entry.name), path.join(to, entry.name)];
    if (entry.isDirectory()) await copyTree(source, target);
    else {
      await copyFile(source, target, constants.COPYFILE_FICLONE);
      await chmod(target, ((await lstat(source)).mode & 0o777) | 0o200);
    }
  }
}

async function swap(layout: Layout, revision: StoredRevision): Promise<void> {
  try {
    for (const name of SOURCE_PATHS) await replace(layout, name);
    await flushFolder(layout.root);
    await recordCurrent(layout, revision);
    await removeUnlisted(layout);
    await emptyFolder(layout.tmp);
    await remove(layout.journal);
    await flushFolder(layout.internal);
    await remove(stagingOf(layout));
  } catch (cause) {
    throw new Failure(
      "failed",
      `Cannot finish replacing the source in ${layout.root}: ${messageOf(cause)}; the next operation on the bucket tries again`,
      { cause },
    );
  }
}

async function replace(layout: Layout, name: string): Promise<void> {
  const live = path.join(layout.root, name);
  const next = path.join(stagingOf(layout), "new", name);
  if (await exists(live)) await rename(live, path.join(stagingOf(layout), "old", name));
  if (await exists(next)) await rename(next, live);
}
