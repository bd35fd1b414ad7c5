import { randomUUID } from "node:crypto";
import { constants, lstatSync, type Stats } from "node:fs";
import { open, readdir, rename } from "node:fs/promises";
import path from "node:path";
import { isUuid } from "../../codec/uuid.ts";
import { Failure, hasErrno, messageOf } from "../../core/errors.ts";
import { exists, flushFolder, makePrivateFolder, readRegularSync, remove, writeAtomic } from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import { isObject, quote } from "../../core/shape.ts";
import { type LabelFile, type Layout, layoutOf } from "../base/layout.ts";
import { acquireLock, type BucketLock, type LockPlace } from "../base/lock.ts";
import { flushTree } from "./swap.ts";

/** A bucket below a server root, as its folder name and bucket.json tell it. */
export type RootBucket = ReturnType<typeof findBucket>;

/** The name, beside the buckets, of a folder that is being made or removed. */
const CREATING = ".creating-";
const DELETING = ".deleting-";
const OTHERS_WRITE = 0o002;
const BUCKET_JSON_BYTES = 64 * 1024;

/**
 * Refuses (`usage`) a root that is no folder, that others may write, that is itself a bucket (control-plane.md, Server
 * root layout 2), or that holds what the other variant of the server works with.
 */
export async function refuseUsedRoot(root: string, labels: LabelFile = "bucket.json"): Promise<void> {
  for (const sign of ["ops.conf", path.join("data", "ops.db"), "bucket.json", "env.json"])
    if (await exists(path.join(root, sign)))
      throw new Failure("usage", `the root ${root} is itself a bucket: it contains ${sign}; give its parent folder`);
  try {
    await using handle = await open(root, constants.O_RDONLY | constants.O_NONBLOCK);
    const found = await handle.stat();
    if (!found.isDirectory()) throw new Failure("usage", `the root ${root} is not a folder`);
    if ((found.mode & OTHERS_WRITE) !== 0) throw new Failure("usage", `others may write the root ${root}: chmod o-w ${root}`);
  } catch (error) {
    if (error instanceof Failure) throw error;
    if (!hasErrno(error, "ENOENT")) throw new Failure("usage", `Cannot use the root: ${messageOf(error)}`);
    return;
  }
  const other = labels === "env.json" ? "bucket.json" : "env.json";
  const [id] = await bucketIds(root, other);
  if (id !== undefined) throw new Failure("usage", `the root ${root} holds ${OF_OTHER[other]}; the first one is ${id}`);
}

const OF_OTHER: Readonly<Record<LabelFile, string>> = {
  "env.json": "environments: turn them into buckets with `ops server migrate <root>`, or serve them with `ops serve`",
  "bucket.json": "buckets, as `ops server migrate` makes them of environments: serve them with `ops server`",
};

/**
 * Makes the root with its parents where it is missing, and takes it for this process until the lock is released. Throws
 * `failed`, with host and process, while another server has it. The lock of a dead server is taken over.
 */
export async function takeRoot(root: string, advice = "give each server a root of its own"): Promise<BucketLock> {
  const place = serverLock(root);
  await makePrivateFolder(place.data);
  return await acquireLock(place, randomUUID(), "server").catch((error: unknown) => {
    if (!(error instanceof Failure && error.code === "bucket_busy")) throw error;
    const { holder = "another server is just taking it" } = (error.details ?? {}) as { holder?: string };
    throw new Failure("failed", `Cannot take the root ${root}: ${holder}; ${advice}`);
  });
}

/** Who may call besides the server's own token (lib/auth/access-file.ts). */
export function accessFile(root: string): string {
  return path.join(root, "access.json");
}

/** The files of the lock that a server has on its root. */
export function serverLock(root: string): LockPlace {
  const data = path.join(root, ".server");
  return { data, lock: path.join(data, "ops.lock"), takeover: path.join(data, "takeover.db") };
}

/** Removes what interrupted changes of buckets left in the root. */
export async function prepareRoot(root: string): Promise<void> {
  for (const entry of await readdir(root))
    if (entry.startsWith(CREATING) || entry.startsWith(DELETING)) await remove(path.join(root, entry));
}

/**
 * The ids of all buckets, sorted. Entries that are no folder, are not named by a UUID or lack bucket.json are not
 * buckets.
 */
export async function bucketIds(root: string, labels: LabelFile = "bucket.json"): Promise<string[]> {
  const entries = await readdir(root, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isDirectory() && isUuid(entry.name)).map((entry) => entry.name);
  return names.filter((name) => lookAt(path.join(root, name, labels))).sort();
}

/** The bucket with this id, in whatever case; throws `bucket_not_found`. */
export function findBucket(root: string, id: string, labels: LabelFile = "bucket.json") {
  const name = id.toLowerCase();
  const layout = layoutOf(path.join(root, name), labels);
  if (!isUuid(name) || !lookAt(layout.bucketJson) || !lookAt(layout.root)?.isDirectory()) throw bucketNotFound(id);
  return { id: name, ...readLabels(layout), layout };
}

/** Synchronous, because a promise for each call costs ten times the call. */
function lookAt(file: string): Stats | undefined {
  try {
    return lstatSync(file, { throwIfNoEntry: false });
  } catch (error) {
    if (hasErrno(error, "ENOTDIR")) return undefined;
    throw error;
  }
}

/** The failure for a bucket that is not there, or not any more. */
export function bucketNotFound(id: string): Failure {
  return new Failure("bucket_not_found", `bucket ${quote(id)} does not exist`);
}

/** Project and name are labels: a bucket whose bucket.json is damaged goes on working without them. */
function readLabels(layout: Layout) {
  const value = parsedLabels(layout.bucketJson);
  const labels = isObject(value) ? value : {};
  const label = (key: string) => (typeof labels[key] === "string" ? labels[key] : undefined);
  /** RFC 3339, or null for a bucket that was not created by a server. */
  const created_at = label("created_at") ?? null;
  return { project: label("project") ?? "", name: label("name") ?? "", created_at };
}

function parsedLabels(file: string): unknown {
  try {
    return (lookAt(file)?.size ?? 0) > BUCKET_JSON_BYTES ? undefined : JSON.parse(readRegularSync(file));
  } catch {
    return undefined;
  }
}

/**
 * Creates a bucket: everything is made in a hidden folder, `initialise` included, which then gets its name, so that a
 * bucket exists as a whole or not at all. `id` is a UUID of any version, by default a new one. Writes no source path.
 * Throws `invalid_bucket_id` and `bucket_exists`.
 */
export async function createBucket(
  root: string,
  wanted: { id?: string | undefined; project: string; name: string },
  initialise: (dir: string, id: string) => Promise<void>,
  labelFile: LabelFile = "bucket.json",
): Promise<RootBucket> {
  const id = (wanted.id ?? randomUUID()).toLowerCase();
  if (!isUuid(id)) throw new Failure("invalid_bucket_id", "id: expected a UUID");
  const layout = layoutOf(path.join(root, id), labelFile);
  if (await exists(layout.root)) throw bucketExists(id);
  const hidden = layoutOf(path.join(root, CREATING + randomUUID()), labelFile);
  const labels = { project: wanted.project, name: wanted.name, created_at: new Date().toISOString() };
  try {
    for (const folder of [hidden.data, hidden.logs, hidden.secrets, hidden.ssh, hidden.tmp, hidden.internal])
      await makePrivateFolder(folder);
    await writeLabels(hidden, labels);
    faultPoint("create: folders");
    await initialise(hidden.root, id);
    faultPoint("create: database");
    await flushTree(hidden.root);
    await rename(hidden.root, layout.root);
    faultPoint("create: renamed");
    await flushFolder(root);
  } catch (error) {
    await remove(hidden.root);
    throw hasErrno(error, "ENOTEMPTY", "EEXIST") ? bucketExists(id) : error;
  }
  return { id, ...labels, layout };
}

function bucketExists(id: string): Failure {
  return new Failure("bucket_exists", `bucket ${id} exists already`);
}

async function writeLabels({ bucketJson }: Layout, labels: Record<string, unknown>): Promise<void> {
  await writeAtomic(bucketJson, `${JSON.stringify(labels, null, 2)}\n`);
}

/** Gives a bucket another project or name, at any time; answers it. Throws `bucket_not_found` when it has gone. */
export async function renameBucket(
  bucket: RootBucket,
  given: { project?: string | undefined; name?: string | undefined },
): Promise<RootBucket> {
  const { created_at } = bucket;
  const { project = bucket.project, name = bucket.name } = given;
  try {
    await writeLabels(bucket.layout, { project, name, ...(created_at !== null && { created_at }) });
  } catch (error) {
    throw hasErrno(error, "ENOENT") ? bucketNotFound(bucket.id) : error;
  }
  return { ...bucket, project, name };
}

/** Removes a bucket: once it has lost its name it is gone, whatever happens then. Only for the holder of its lock. */
export async function deleteBucket(root: string, { layout }: RootBucket): Promise<void> {
  const hidden = path.join(root, DELETING + randomUUID());
  faultPoint("delete: locked");
  await rename(layout.root, hidden);
  faultPoint("delete: renamed");
  await flushFolder(root);
  await remove(hidden);
  faultPoint("delete: removed");
}

/**
 * Turns the environments below a root into buckets, by the names of their folders: env.json gets the name bucket.json, in
 * one step each, so that a killed migration is simply repeated. Changes nothing with `dryRun`; else only for the holder of
 * the root's lock.
 */
export async function* migrateEnvironments(root: string, dryRun: boolean) {
  const entries = (await readdir(root, { withFileTypes: true })).filter((entry) => entry.isDirectory());
  for (const { name: id } of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const [from, to] = [layoutOf(path.join(root, id), "env.json").bucketJson, layoutOf(path.join(root, id)).bucketJson];
    if (!(await exists(from))) continue;
    const bucket = isUuid(id) ? findBucket(root, id, "env.json") : undefined;
    const problem = !bucket
      ? "its folder is not named by a UUID in small letters"
      : (await exists(to))
        ? "it has a bucket.json too"
        : null;
    if (problem === null && !dryRun) {
      await rename(from, to);
      faultPoint("migrate: renamed");
      await flushFolder(path.dirname(to));
    }
    // The label is empty where the folder has another name than an id; the problem says why it stays as it is.
    yield { id, label: bucket ? `${bucket.project}/${bucket.name}` : "", problem };
  }
}
