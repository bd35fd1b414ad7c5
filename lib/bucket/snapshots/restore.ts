import { randomUUID } from "node:crypto";
import { mkdtemp, rename } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { isUuid } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { flushFolder, makePrivateFolder, namesIn, realPlace, remove, unlessMissing } from "../../core/files.ts";
import { openDatabase } from "../base/database.ts";
import { type Layout, layoutOf, SOURCE_PATHS } from "../base/layout.ts";
import { loadKvKey, sealedValues } from "../kv/kv-seal.ts";
import { listRevisions, type Revision } from "../source/revisions.ts";
import { flushTree, STATE_PATHS, swap } from "../source/swap.ts";
import { initBucket } from "../workspace/init.ts";
import { type SnapshotManifest, unpackSnapshot } from "./snapshots.ts";

/** A snapshot that was unpacked and checked, and waits in `.ops/restores/<id>/`. */
export interface PreparedRestore {
  id: string;
  manifest: SnapshotManifest;
}

/**
 * Unpacks a snapshot of this bucket beside the live state and checks all of it; nothing live is touched. To be called
 * under the bucket's lock. Throws `failed`, `schema_too_new` or `cancelled`, and then nothing is left behind.
 */
export async function prepareRestore(
  layout: Layout,
  bucketId: string,
  file: string,
  signal: AbortSignal,
): Promise<PreparedRestore> {
  const id = randomUUID();
  const folder = path.join(layout.restores, id);
  try {
    await makePrivateFolder(folder);
    const manifest = await unpackSnapshot(file, folder, signal);
    if (manifest.bucket_id !== bucketId)
      throw new Failure(
        "failed",
        `Cannot restore ${file}: it is of bucket ${manifest.bucket_id}, not of ${bucketId}; restore it into a folder of its own`,
      );
    await flushTree(folder);
    return { id, manifest };
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
export async function commitRestore(
  layout: Layout,
  { id, manifest }: PreparedRestore,
  withSource: boolean,
): Promise<void> {
  const hasLabels = manifest.files.some((file) => file.path === "bucket.json");
  const state = STATE_PATHS.filter((name) => name !== "bucket.json" || hasLabels);
  const paths = [...state, ...(withSource ? SOURCE_PATHS : [])];
  const source = withSource && (await revisionOf(layout, manifest));
  if (!source) return swap(layout, { tree: `restores/${id}`, paths, revision: undefined });
  const { current: _, last_successful: __, ...revision } = source;
  await swap(layout, { tree: `restores/${id}`, paths, revision });
}

/** The kept revision that was the source of a snapshot. */
async function revisionOf(layout: Layout, manifest: SnapshotManifest): Promise<Revision | undefined> {
  return (await listRevisions(layout)).find(({ id }) => id === manifest.source_revision);
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
export async function restoreBucket(dir: string, file: string, signal: AbortSignal): Promise<SnapshotManifest> {
  // Of this name a server removes what was interrupted.
  const hidden = path.join(path.dirname(dir), `.creating-${randomUUID()}`);
  try {
    const manifest = await restoreInto(hidden, file, signal);
    const name = path.basename(dir).toLowerCase();
    if (isUuid(name) && name !== manifest.bucket_id)
      throw new Failure(
        "failed",
        `Cannot restore ${file} into ${dir}: below a server root the folder must be named ${manifest.bucket_id}`,
      );
    if (!isUuid(name)) await remove(layoutOf(hidden).bucketJson);
    await flushTree(hidden);
    await rename(hidden, dir);
    await flushFolder(path.dirname(dir));
    return manifest;
  } finally {
    await remove(hidden);
  }
}

async function restoreInto(dir: string, file: string, signal: AbortSignal): Promise<SnapshotManifest> {
  await makePrivateFolder(dir);
  const manifest = await unpackSnapshot(file, dir, signal);
  // What a snapshot does not hold, and the check that its key and its CA can be used.
  await initBucket(dir, { bucketId: manifest.bucket_id, source: false });
  return manifest;
}

/** What a restore into a temporary bucket has shown. */
interface SnapshotCheck {
  bucket_id: string;
  created_at: string;
  note: string;
  schema_version: number;
  files: number;
  size_bytes: number;
  rows: number;
  /** Values that are sealed with the snapshot's own kv.key; every one of them could be opened. */
  sealed_values: number;
}

/**
 * Restores a snapshot into a temporary bucket (in the system's folder for such, 0700) and compares: sums, sizes, rows,
 * schema, the database's own check, the CA's pair, and that the snapshot's kv.key opens every sealed value. The bucket
 * is removed again; the live one is not looked at. Throws `failed`, `schema_too_new` or `cancelled`.
 */
export async function verifySnapshot(file: string, signal: AbortSignal): Promise<SnapshotCheck> {
  const folder = await mkdtemp(path.join(realPlace(tmpdir()), "ops-verify-"));
  try {
    const { files, rows, bucket_id, created_at, note, schema_version } = await restoreInto(folder, file, signal);
    const layout = layoutOf(folder);
    using db = openDatabase(layout.database);
    const { sealed, unreadable } = sealedValues(db, await loadKvKey(layout));
    const [first] = unreadable;
    if (first)
      throw new Failure(
        "failed",
        `Cannot use the snapshot ${file}: its kv.key does not open ${unreadable.length} of ${sealed} sealed values, the first is ${first}`,
      );
    return {
      bucket_id,
      created_at,
      note,
      schema_version,
      files: files.length,
      sealed_values: sealed,
      size_bytes: files.reduce((sum, one) => sum + one.size_bytes, 0),
      rows: Object.values(rows).reduce((sum, one) => sum + one, 0),
    };
  } finally {
    await remove(folder);
  }
}
