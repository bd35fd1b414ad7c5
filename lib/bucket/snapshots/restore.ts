import { randomUUID } from "node:crypto";
import { chmod, mkdir, mkdtemp, rename } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { TarEntry } from "../../codec/archive/tar-read.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import {
  flushFolder,
  makePrivateFolder,
  namesIn,
  PRIVATE_FILE,
  PRIVATE_FOLDER,
  realPlace,
  remove,
  unlessMissing,
} from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import { bucketIdOf, lostContents, migrate, openDatabase } from "../base/database.ts";
import { type Layout, layoutOf, SOURCE_PATHS } from "../base/layout.ts";
import { loadKvKey, sealedValues } from "../kv/kv-access.ts";
import { listRevisions, withoutMarks } from "../source/revisions.ts";
import { writeEntry } from "../source/source.ts";
import { flushTree, STATE_PATHS, swap } from "../source/swap.ts";
import { initBucket } from "../workspace/init.ts";
import { type Opening, ofSnapshot, readSnapshot } from "./envelope.ts";
import { DATABASE, isPrivatePath, type SnapshotFile, type SnapshotManifest } from "./manifest.ts";
import { rowsOf } from "./snapshots.ts";

/**
 * Unpacks a snapshot into an empty folder and checks everything about it: that its files are exactly those of the
 * manifest, with their sizes and sums; that its schema is not newer than this program's; that its database opens, is
 * whole, belongs to the bucket it names and has as many rows as were counted. An older schema is upgraded. The caller
 * flushes the files, and removes the folder after `failed`, `schema_too_new` or `cancelled`.
 */
async function unpackSnapshot(file: string, folder: string, opening: Opening) {
  const { signal } = opening;
  const unpacked = await readSnapshot(file, opening, async (found, entries, opened) => {
    for (const expected of found.files) {
      throwIfCancelled(signal);
      await unpackFile(await entries.next(), expected, folder);
    }
    const extra = await entries.next();
    if (!extra.done) throw new Failure("failed", `it holds ${quote(extra.value.path)}, which its manifest does not list`);
    return { manifest: found, opened };
  });
  for (const name of ["data", "secrets", ".ssh"]) {
    await makePrivateFolder(path.join(folder, name));
    await chmod(path.join(folder, name), PRIVATE_FOLDER);
  }
  await ofSnapshot(file, () => {
    migrate(path.join(folder, DATABASE), unpacked.manifest.bucket_id);
    checkDatabase(path.join(folder, DATABASE), unpacked.manifest);
  });
  return unpacked;
}

async function unpackFile(
  { done, value: entry }: IteratorResult<TarEntry, void>,
  { path: name, mode, size_bytes, sha256 }: SnapshotFile,
  folder: string,
): Promise<void> {
  if (done || !entry || entry.path !== name || entry.type !== "file" || entry.size !== size_bytes)
    throw new Failure("failed", `expected ${quote(name)} of ${size_bytes} bytes, found something else`);
  const target = path.join(folder, name);
  await mkdir(path.dirname(target), { recursive: true, mode: isPrivatePath(name) ? PRIVATE_FOLDER : 0o755 });
  const sum = await writeEntry(entry, target, isPrivatePath(name) ? PRIVATE_FILE : Number.parseInt(mode, 8));
  if (sum !== sha256) throw new Failure("failed", `${quote(name)} differs from its sum in the manifest`);
}

function checkDatabase(file: string, { bucket_id, rows }: SnapshotManifest): void {
  using db = openDatabase(file);
  const [check] = db.all<{ quick_check: string }>("PRAGMA quick_check(1)");
  if (check?.quick_check !== "ok") throw new Failure("failed", `its database is damaged: ${check?.quick_check}`);
  if (bucketIdOf(db) !== bucket_id)
    throw new Failure("failed", `its database belongs to bucket ${bucketIdOf(db)}, its manifest names ${bucket_id}`);
  const found = rowsOf(db);
  for (const [table, count] of Object.entries(rows))
    if (found[table] !== count)
      throw new Failure("failed", `table ${table} of its database has ${found[table] ?? 0} rows instead of ${count}`);
  const [lost] = lostContents(db);
  if (lost !== undefined) throw new Failure("failed", `it lacks data/contents/${lost}`);
}

/** A snapshot that was unpacked and checked, and waits in `.ops/restores/<id>/`. */
export type PreparedRestore = Awaited<ReturnType<typeof prepareRestore>>;

/**
 * Unpacks a snapshot of this bucket beside the live state and checks all of it; nothing live is touched. To be called
 * under the bucket's lock. Throws `failed`, `schema_too_new` or `cancelled`, and then nothing is left behind.
 */
export async function prepareRestore(layout: Layout, bucketId: string, file: string, opening: Opening) {
  const id = randomUUID();
  const folder = path.join(layout.restores, id);
  try {
    await makePrivateFolder(folder);
    const { manifest, opened } = await unpackSnapshot(file, folder, opening);
    const why = `it is of bucket ${manifest.bucket_id}, not of ${bucketId}; restore it into a folder of its own`;
    if (manifest.bucket_id !== bucketId) throw new Failure("failed", `Cannot restore ${file}: ${why}`);
    await flushTree(folder);
    return { id, manifest, opened };
  } catch (error) {
    await remove(layout.restores);
    throw error;
  }
}

/**
 * Puts a prepared snapshot in the place of database, secrets/, .ssh/ and bucket.json, with `withSource` of the source
 * paths too, as described at {@link swap}: wholly or not at all. To be called under the bucket's lock, with the database
 * closed. A bucket.json that the snapshot does not have stays: it comes with the place, not with the bucket.
 */
export async function commitRestore(layout: Layout, { id, manifest }: PreparedRestore, withSource: boolean): Promise<void> {
  const hasLabels = manifest.files.some((file) => file.path === "bucket.json");
  const state = STATE_PATHS.filter((name) => name !== "bucket.json" || hasLabels);
  const paths = [...state, ...(withSource ? SOURCE_PATHS : [])];
  const revisions = withSource ? await listRevisions(layout) : [];
  const source = revisions.find((one) => one.id === manifest.source_revision);
  await swap(layout, { tree: `restores/${id}`, paths, revision: source && withoutMarks(source) });
}

/** True for a folder that a whole snapshot can be restored into: it is empty, or there is none yet. */
export async function isEmptyPlace(dir: string): Promise<boolean> {
  return (await unlessMissing(namesIn(dir), "ENOTDIR"))?.length === 0;
}

/**
 * Makes a bucket of a snapshot, source and all, in a folder that is empty or does not exist yet; it appears whole or not
 * at all. A folder with a UUID for its name, as below a server root, must be named by the snapshot's bucket id; any other
 * is a bucket that stands alone, without bucket.json. Throws `failed`, `schema_too_new` or `cancelled`.
 */
export async function restoreBucket(dir: string, file: string, opening: Opening): Promise<SnapshotManifest> {
  // A server removes folders of this name: their restore was interrupted.
  const hidden = path.join(path.dirname(dir), `.creating-${randomUUID()}`);
  try {
    const manifest = await restoreInto(hidden, file, opening);
    const name = path.basename(dir).toLowerCase();
    const rule = `below a server root the folder must be named ${manifest.bucket_id}`;
    if (isUuid(name) && name !== manifest.bucket_id) throw new Failure("failed", `Cannot restore ${file} into ${dir}: ${rule}`);
    if (!isUuid(name)) await remove(layoutOf(hidden).bucketJson);
    await flushTree(hidden);
    await rename(hidden, dir);
    await flushFolder(path.dirname(dir));
    return manifest;
  } finally {
    await remove(hidden);
  }
}

async function restoreInto(dir: string, file: string, opening: Opening): Promise<SnapshotManifest> {
  await makePrivateFolder(dir);
  const { manifest } = await unpackSnapshot(file, dir, opening);
  // What a snapshot does not hold, and the check that its key and its CA can be used.
  await initBucket(dir, { bucketId: manifest.bucket_id, source: false });
  return manifest;
}

/**
 * Restores a snapshot into a temporary bucket (in the system's folder for such, 0700) and compares: sums, sizes, rows,
 * schema, the database's own check, the CA's pair, and that the snapshot's kv.key opens every sealed value. The bucket
 * is removed again; the live one is not looked at. Throws `failed`, `schema_too_new` or `cancelled`.
 */
export async function verifySnapshot(file: string, opening: Opening) {
  const folder = await mkdtemp(path.join(realPlace(tmpdir()), "ops-verify-"));
  try {
    const { files, rows, bucket_id, created_at, note, schema_version } = await restoreInto(folder, file, opening);
    const layout = layoutOf(folder);
    using db = openDatabase(layout.database);
    const { sealed, unreadable } = sealedValues(db, await loadKvKey(layout));
    const why = `its kv.key does not open ${unreadable.length} of ${sealed} sealed values, the first is ${unreadable[0]}`;
    if (unreadable.length > 0) throw new Failure("failed", `Cannot use the snapshot ${file}: ${why}`);
    return {
      bucket_id,
      created_at,
      note,
      schema_version,
      files: files.length,
      /** Values that are sealed with the snapshot's own kv.key; every one of them could be opened. */
      sealed_values: sealed,
      size_bytes: files.reduce((sum, one) => sum + one.size_bytes, 0),
      rows: Object.values(rows).reduce((sum, one) => sum + one, 0),
    };
  } finally {
    await remove(folder);
  }
}
