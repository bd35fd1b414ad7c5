import { createHash, randomBytes } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { chmod, readdir, rename, stat } from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate as nextRound } from "node:timers/promises";
import { createGzip } from "node:zlib";
import { type TarInput, writeTar } from "../../codec/archive/tar-write.ts";
import { newSeal, type SealTarget } from "../../codec/crypto/seal-key.ts";
import { sealedStream } from "../../codec/crypto/sealed-stream.ts";
import { cancelledFailure, Failure, isFull, messageOf, sqliteCode, throwIfCancelled } from "../../core/errors.ts";
import { exists, flushFolder, makePrivateFolder, namesIn, PRIVATE_FILE, remove } from "../../core/files.ts";
import { programVersion } from "../../core/self.ts";
import { quote } from "../../core/shape.ts";
import { type FoundFile, foundPieces, walk } from "../../core/walk.ts";
import { digestOf } from "../base/contents.ts";
import { bucketIdOf, type Database, largeContents, lostContents, schemaVersion } from "../base/database.ts";
import { type Layout, SKIPPED_FOLDERS } from "../base/layout.ts";
import { listRevisions } from "../source/revisions.ts";
import { ownSigner, readFace, sealedHeader, snapshotSigner } from "./envelope.ts";
import {
  DATABASE,
  FOLDERS,
  FORMAT,
  headIn,
  isPrivatePath,
  manifestEntries,
  SINGLE_FILES,
  type SnapshotFile,
  type SnapshotManifest,
} from "./manifest.ts";

/** How many rows each table of a database has. */
export function rowsOf(db: Database): Record<string, number> {
  const tables = db.all<{ name: string }>(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
  );
  const count = (name: string) => db.get<{ rows: number }>(`SELECT COUNT(*) AS rows FROM "${name}"`)?.rows ?? 0;
  return Object.fromEntries(tables.map(({ name }) => [name, count(name)]));
}

/** A snapshot of a bucket, as lists show it. */
export type Snapshot = Awaited<ReturnType<typeof describeSnapshot>>;

const SNAPSHOT_NAME = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(\.\d{3}Z)-[0-9a-f]{8}$/;
const SUFFIX = ".tar.gz";
const SEALED_SUFFIX = `${SUFFIX}.sealed`;

/** The name of a snapshot, given as its name or as that of its file. */
export function withoutSuffix(given: string): string {
  return given.replace(/\.tar\.gz(\.sealed)?$/, "");
}

/** The file of a snapshot, named with or without what its file ends with. Throws `snapshot_not_found`. */
export async function findSnapshot(layout: Layout, given: string): Promise<string> {
  const name = withoutSuffix(given);
  const file = SNAPSHOT_NAME.test(name) && (await fileNamed(layout, name));
  if (file) return file;
  throw new Failure("snapshot_not_found", `snapshot ${quote(given)} does not exist`);
}

async function fileNamed({ snapshots }: Layout, name: string): Promise<string | undefined> {
  for (const suffix of [SUFFIX, SEALED_SUFFIX]) {
    const file = path.join(snapshots, name + suffix);
    if (await exists(file)) return file;
  }
  return undefined;
}

/** One page of the snapshots of a bucket, newest first. The cursor is the name of the last one of the page before. */
export async function listSnapshots(
  layout: Layout,
  { limit, cursor }: { limit: number; cursor?: string | undefined },
): Promise<{ items: Snapshot[]; next_cursor: string | null }> {
  if (cursor !== undefined && !SNAPSHOT_NAME.test(cursor))
    throw new Failure("invalid_request", "cursor: expected the next_cursor of an earlier answer");
  const names = (await snapshotNames(layout)).filter((name) => cursor === undefined || name < cursor);
  const shown = names.sort().reverse().slice(0, limit);
  const items: Snapshot[] = [];
  for (const name of shown) {
    const file = await fileNamed(layout, name);
    if (file) items.push(await describeSnapshot(layout, file));
  }
  return { items, next_cursor: names.length > limit ? (shown.at(-1) ?? null) : null };
}

/** The names of the snapshots of a bucket, in no order. */
export async function snapshotNames(layout: Layout): Promise<string[]> {
  const files = await namesIn(layout.snapshots);
  const names = files.filter((file) => /\.tar\.gz(\.sealed)?$/.test(file)).map(withoutSuffix);
  return [...new Set(names)].filter((name) => SNAPSHOT_NAME.test(name));
}

async function describeSnapshot(layout: Layout, file: string) {
  const name = withoutSuffix(path.basename(file));
  const { size } = await stat(file);
  const found = await readFace(file).catch(messageOf);
  const { head, signer = null, seal = null } = typeof found === "string" ? {} : found;
  return {
    /** `<UTC time>-<short id>`; its file is `.ops/snapshots/<name>.tar.gz`, sealed `<name>.tar.gz.sealed`. */
    name,
    created_at: name.replace(SNAPSHOT_NAME, "$1-$2-$3T$4:$5:$6$7"),
    size_bytes: size,
    note: head?.note ?? "",
    schema_version: head?.schema_version ?? null,
    program_version: head?.program_version ?? null,
    /** The revision that was the source; null where none was. */
    source_revision: head?.source_revision || null,
    /** How it is opened; null for one in clear. */
    seal,
    /** The fingerprint of the key that has signed it, of a sealed one as its head says; null for none. */
    signer,
    /** Signed with the key of this place. */
    own: signer !== null && signer === (await ownSigner(layout)),
    /** Why the snapshot cannot be used; null for one whose beginning can be read. */
    error: typeof found === "string" ? found : null,
  };
}

/** Removes a snapshot. To be called under the bucket's lock. Throws `snapshot_not_found`. */
export async function deleteSnapshot(layout: Layout, name: string): Promise<void> {
  await remove(await findSnapshot(layout, name));
  await flushFolder(layout.snapshots);
}

/** Removes the oldest snapshots but `keep`; 0 keeps all. Answers the names of those. To be called under the bucket's lock. */
export async function keepSnapshots(layout: Layout, keep: number): Promise<string[]> {
  const old = keep === 0 ? [] : (await snapshotNames(layout)).sort().reverse().slice(keep);
  for (const name of old) await deleteSnapshot(layout, name);
  return old;
}

/** What a snapshot is made with: why it is made, and for whom it is sealed. */
export interface SnapshotWish {
  note?: string;
  sealFor?: SealTarget | undefined;
}

/** A file that goes into a snapshot. */
interface Part extends SnapshotFile {
  content: () => AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

/**
 * Makes a snapshot (decisions: Snapshots): a consistent copy of the database, secrets/, .ssh/, bucket.json and the source
 * paths, with their sums, in one file that only its owner may read; signed, and sealed where that is wanted. To be called under the bucket's lock. Each file is
 * taken as it was at one moment: a file that changes meanwhile fails the snapshot. Symbolic links are refused, folders
 * that are never part of a source are left out, and empty folders are not kept. After a kill at any moment there is no
 * snapshot, and the next operation removes what was written. Throws `failed`, `invalid_source` or `cancelled`.
 */
export async function createSnapshot(
  layout: Layout,
  db: Database,
  { note = "", sealFor }: SnapshotWish,
  signal: AbortSignal,
): Promise<Snapshot> {
  const now = new Date();
  const name = `${now.toISOString().replace(/[-:]/g, "")}-${randomBytes(4).toString("hex")}`;
  await makePrivateFolder(layout.snapshots);
  const copy = path.join(layout.snapshots, `.${name}.db`);
  const fileName = name + (sealFor ? SEALED_SUFFIX : SUFFIX);
  const unfinished = path.join(layout.snapshots, `.${fileName}`);
  try {
    const key = await snapshotSigner(layout);
    const parts = [await databasePart(db, copy), ...(await partsOf(layout, db, signal))];
    const current = (await listRevisions(layout)).find((revision) => revision.current);
    const manifest: SnapshotManifest = {
      format: FORMAT,
      bucket_id: bucketIdOf(db),
      schema_version: schemaVersion(db),
      program_version: programVersion(),
      created_at: now.toISOString(),
      note,
      source_revision: current?.id ?? "",
      rows: rowsOf(db),
      files: parts.map(({ content: _, ...file }) => file),
    };
    const sealed = sealFor && (await newSeal(sealFor));
    const header = sealed && sealedHeader(headIn(manifest), key.fingerprint, sealed.seal);
    const entries = [...manifestEntries(manifest, key), ...parts.map(entryFor)];
    await pack(unfinished, entries, header && { header, key: sealed.key }, signal);
    await rename(unfinished, path.join(layout.snapshots, fileName));
    await flushFolder(layout.snapshots);
    return await describeSnapshot(layout, path.join(layout.snapshots, fileName));
  } catch (cause) {
    if (signal.aborted) throw cancelledFailure();
    if (!isFull(cause) && sqliteCode(cause) === 0) throw cause;
    const why = isFull(cause) ? "the disk is full" : messageOf(cause);
    throw new Failure("failed", `Cannot make a snapshot in ${layout.snapshots}: ${why}`, { cause });
  } finally {
    await remove(copy);
    await remove(unfinished);
  }
}

async function databasePart(db: Database, copy: string): Promise<Part> {
  db.run("VACUUM INTO ?", copy);
  await chmod(copy, PRIVATE_FILE);
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(copy)) hash.update(chunk);
  const { size: size_bytes } = await stat(copy);
  const content = () => createReadStream(copy);
  return { path: DATABASE, mode: "0600", size_bytes, sha256: hash.digest("hex"), content };
}

async function partsOf(layout: Layout, db: Database, signal: AbortSignal): Promise<Part[]> {
  const others = (await readdir(layout.root)).filter((name) => !SINGLE_FILES.includes(name));
  const found = [...walk(layout.root, new Set(others)), ...contentsOf(db)];
  for (const folder of FOLDERS)
    for (const file of walk(path.join(layout.root, folder), SKIPPED_FOLDERS))
      found.push({ ...file, path: `${folder}/${file.path}` });
  const parts: Part[] = [];
  for (const file of found) {
    throwIfCancelled(signal);
    parts.push(partOf(layout, file));
    // So that a cancel is heard before the whole source has been read.
    await nextRound();
  }
  return parts;
}

/** The contents beside the database that its rows name. */
function contentsOf(db: Database): FoundFile[] {
  const names = largeContents(db);
  const found = walk(db.contents).filter((file) => names.has(file.path));
  const [lost] = lostContents(db);
  if (lost !== undefined) throw new Failure("failed", `Cannot take ${path.join(db.contents, lost)}: it is missing; build again`);
  return found.map((file) => ({ ...file, path: `data/contents/${file.path}` }));
}

function partOf(layout: Layout, file: FoundFile): Part {
  function* read(buffer?: Buffer) {
    try {
      yield* foundPieces(layout.root, file, buffer);
    } catch (cause) {
      const message = `Cannot take ${path.join(layout.root, file.path)}: ${messageOf(cause)}`;
      throw new Failure("failed", message, { cause });
    }
  }
  const mode = isPrivatePath(file.path) ? "0600" : file.executable ? "0755" : "0644";
  return { path: file.path, mode, size_bytes: file.sizeBytes, sha256: digestOf(read), content: () => read() };
}

/** A file is read once its turn in the archive has come. */
function entryFor({ path: name, mode, size_bytes: size, content }: Part): TarInput {
  const lazily = async function* () {
    yield* content();
  };
  return { path: name, mode: Number.parseInt(mode, 8), size, content: lazily() };
}

async function pack(
  file: string,
  entries: readonly TarInput[],
  sealing: { header: Buffer; key: Buffer } | undefined,
  signal: AbortSignal,
): Promise<void> {
  const output = createWriteStream(file, { flags: "wx", mode: PRIVATE_FILE, flush: true });
  const archive = Readable.from(writeTar(entries));
  if (!sealing) return await pipeline(archive, createGzip(), output, { signal });
  const seal = (packed: AsyncIterable<Uint8Array>) => sealedStream(sealing.key, sealing.header, packed);
  await pipeline(archive, createGzip(), seal, output, { signal });
}
