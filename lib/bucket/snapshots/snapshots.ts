import { createHash, randomBytes } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { chmod, readdir, rename, stat } from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { type TarInput, writeTar } from "../../codec/archive/tar-write.ts";
import { turnEnd } from "../../core/async.ts";
import { cancelledFailure, Failure, hasErrno, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { exists, flushFolder, makePrivateFolder, namesIn, PRIVATE_FILE, remove } from "../../core/files.ts";
import { programVersion } from "../../core/self.ts";
import { quote } from "../../core/shape.ts";
import { type FoundFile, readFound, walk } from "../../core/walk.ts";
import { bucketIdOf, type Database, schemaVersion } from "../base/database.ts";
import { type Layout, SKIPPED_FOLDERS, SOURCE_PATHS } from "../base/layout.ts";
import { listRevisions } from "../source/revisions.ts";
import { DATABASE, MANIFEST, manifestOf, readManifest, rowsOf, type SnapshotFile } from "./snapshots.ts";

/** A snapshot of a bucket, as lists show it. */
export interface Snapshot {
  /** `<UTC time>-<short id>`; its file is `.ops/snapshots/<name>.tar.gz`. */
  name: string;
  created_at: string;
  size_bytes: number;
  note: string;
  schema_version: number | null;
  program_version: string | null;
  /** The revision that was the source; null where none was. */
  source_revision: string | null;
  /** Why it cannot be used; null for one whose manifest can be read. */
  error: string | null;
}

const NAME = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(\.\d{3}Z)-[0-9a-f]{8}$/;
const SUFFIX = ".tar.gz";

/** The file of a snapshot of this name. */
function fileOf(layout: Layout, name: string): string {
  return path.join(layout.snapshots, name + SUFFIX);
}

/** The file of a snapshot, named with or without `.tar.gz`. Throws `snapshot_not_found`. */
export async function findSnapshot(layout: Layout, given: string): Promise<string> {
  const name = given.endsWith(SUFFIX) ? given.slice(0, -SUFFIX.length) : given;
  const file = fileOf(layout, name);
  if (NAME.test(name) && (await exists(file))) return file;
  throw new Failure("snapshot_not_found", `snapshot ${quote(given)} does not exist`);
}

/** One page of the snapshots of a bucket, newest first. The cursor is the name of the last one of the page before. */
export async function listSnapshots(
  layout: Layout,
  { limit, cursor }: { limit: number; cursor?: string | undefined },
): Promise<{ items: Snapshot[]; next_cursor: string | null }> {
  if (cursor !== undefined && !NAME.test(cursor))
    throw new Failure("invalid_request", "cursor: expected the next_cursor of an earlier answer");
  const names = (await namesOf(layout)).filter((name) => cursor === undefined || name < cursor);
  const shown = names.sort().reverse().slice(0, limit);
  const items: Snapshot[] = [];
  for (const name of shown) items.push(await describeSnapshot(fileOf(layout, name)));
  return { items, next_cursor: names.length > limit ? (shown.at(-1) ?? null) : null };
}

async function namesOf(layout: Layout): Promise<string[]> {
  const files = (await namesIn(layout.snapshots)).filter((file) => file.endsWith(SUFFIX));
  return files.map((file) => file.slice(0, -SUFFIX.length)).filter((name) => NAME.test(name));
}

async function describeSnapshot(file: string): Promise<Snapshot> {
  const name = path.basename(file, SUFFIX);
  const size_bytes = (await stat(file)).size;
  const created_at = name.replace(NAME, "$1-$2-$3T$4:$5:$6$7");
  try {
    const { note, schema_version, program_version, source_revision } = await readManifest(file);
    const told = { note, schema_version, program_version, source_revision: source_revision || null };
    return { name, created_at, size_bytes, ...told, error: null };
  } catch (error) {
    const unknown = { note: "", schema_version: null, program_version: null, source_revision: null };
    return { name, created_at, size_bytes, ...unknown, error: messageOf(error) };
  }
}

/** Removes a snapshot. To be called under the bucket's lock. Throws `snapshot_not_found`. */
export async function deleteSnapshot(layout: Layout, name: string): Promise<void> {
  await remove(await findSnapshot(layout, name));
  await flushFolder(layout.snapshots);
}

/** A file that goes into a snapshot. */
interface Part extends SnapshotFile {
  content: () => AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

/**
 * Makes a snapshot (decisions: Snapshots): a consistent copy of the database, secrets/, .ssh/, bucket.json and the source
 * paths, with their sums, in one file that only its owner may read. To be called under the bucket's lock. Each file is
 * taken as it was at one moment: one that changes meanwhile fails the snapshot. Symbolic links are refused, the folders
 * that are never part of a source are left out, empty folders are not kept. Killed at any moment: there is no snapshot,
 * and the next operation removes what was written. Throws `failed`, `invalid_source` or `cancelled`.
 */
export async function createSnapshot(
  layout: Layout,
  db: Database,
  note: string,
  signal: AbortSignal,
): Promise<Snapshot> {
  const now = new Date();
  const name = `${now.toISOString().replace(/[-:]/g, "")}-${randomBytes(4).toString("hex")}`;
  await makePrivateFolder(layout.snapshots);
  const [copy, unfinished] = [".db", SUFFIX].map((end) => path.join(layout.snapshots, `.${name}${end}`)) as [
    string,
    string,
  ];
  try {
    const parts = [await databasePart(db, copy), ...(await partsOf(layout, signal))];
    const current = (await listRevisions(layout)).find((revision) => revision.current);
    const manifest = manifestOf({
      bucket_id: bucketIdOf(db),
      schema_version: schemaVersion(db),
      program_version: programVersion(),
      created_at: now.toISOString(),
      note,
      source_revision: current?.id ?? "",
      rows: rowsOf(db),
      files: parts.map(({ content: _, ...file }) => file),
    });
    await pack(unfinished, entriesOf(JSON.stringify(manifest), parts), signal);
    await rename(unfinished, fileOf(layout, name));
    await flushFolder(layout.snapshots);
    return await describeSnapshot(fileOf(layout, name));
  } catch (cause) {
    if (signal.aborted) throw cancelledFailure();
    if (!hasErrno(cause, "ENOSPC", "EDQUOT")) throw cause;
    throw new Failure("failed", `Cannot make a snapshot in ${layout.snapshots}: the disk is full`, { cause });
  } finally {
    await remove(copy);
    await remove(unfinished);
  }
}

async function databasePart(db: Database, copy: string): Promise<Part> {
  try {
    db.run("VACUUM INTO ?", copy);
  } catch (cause) {
    throw new Failure("failed", `Cannot copy the database into a snapshot: ${messageOf(cause)}`, { cause });
  }
  await chmod(copy, PRIVATE_FILE);
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(copy)) hash.update(chunk);
  const { size: size_bytes } = await stat(copy);
  return {
    path: DATABASE,
    mode: "0600",
    size_bytes,
    sha256: hash.digest("hex"),
    content: () => createReadStream(copy),
  };
}

const ALONE = ["bucket.json", "ops.conf"];
const FOLDERS = ["secrets", ".ssh", "workspace", "templates"];

async function partsOf(layout: Layout, signal: AbortSignal): Promise<Part[]> {
  const others = (await readdir(layout.root)).filter((name) => !ALONE.includes(name));
  const found = walk(layout.root, new Set(others));
  for (const folder of FOLDERS)
    for (const file of walk(path.join(layout.root, folder), SKIPPED_FOLDERS))
      found.push({ ...file, path: `${folder}/${file.path}` });
  const parts: Part[] = [];
  for (const file of found) {
    throwIfCancelled(signal);
    parts.push(partOf(layout, file));
    // So that a cancel is heard before the whole source has been read.
    await turnEnd();
  }
  return parts;
}

function partOf(layout: Layout, file: FoundFile): Part {
  const [root = ""] = file.path.split("/");
  const isSource = (SOURCE_PATHS as readonly string[]).includes(root);
  const mode = !isSource ? "0600" : file.executable ? "0755" : "0644";
  const content = () => [contentOf(layout, file)];
  const sha256 = createHash("sha256").update(contentOf(layout, file)).digest("hex");
  return { path: file.path, mode, size_bytes: file.sizeBytes, sha256, content };
}

function contentOf(layout: Layout, file: FoundFile): Buffer {
  try {
    return readFound(layout.root, file);
  } catch (cause) {
    const message = `Cannot take ${path.join(layout.root, file.path)}: ${messageOf(cause)}`;
    throw new Failure("failed", message, { cause });
  }
}

function* entriesOf(manifest: string, parts: readonly Part[]): Generator<TarInput> {
  const content = Buffer.from(manifest);
  yield { path: MANIFEST, mode: 0o600, size: content.length, content: [content] };
  for (const { path: name, mode, size_bytes: size, content } of parts)
    yield { path: name, mode: Number.parseInt(mode, 8), size, content: content() };
}

async function pack(file: string, entries: Iterable<TarInput>, signal: AbortSignal): Promise<void> {
  const output = createWriteStream(file, { flags: "wx", mode: PRIVATE_FILE, flush: true });
  await pipeline(Readable.from(writeTar(entries)), createGzip(), output, { signal });
}
