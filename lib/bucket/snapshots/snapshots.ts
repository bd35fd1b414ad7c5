import { createHash, randomBytes } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { chmod, readdir, rename, stat } from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate as nextRound } from "node:timers/promises";
import { createGzip } from "node:zlib";
import { readTar, type TarEntry } from "../../codec/archive/tar-read.ts";
import { type TarInput, writeTar } from "../../codec/archive/tar-write.ts";
import { cancelledFailure, Failure, hasErrno, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { exists, flushFolder, makePrivateFolder, namesIn, openRegular, PRIVATE_FILE, remove } from "../../core/files.ts";
import { programVersion } from "../../core/self.ts";
import { check, type Infer, integer, list, object, oneOf, quote, record, string } from "../../core/shape.ts";
import { type FoundFile, foundPieces, walk } from "../../core/walk.ts";
import { digestOf } from "../base/contents.ts";
import { bucketIdOf, type Database, largeContents, lostContents, schemaVersion } from "../base/database.ts";
import { type Layout, SKIPPED_FOLDERS } from "../base/layout.ts";
import { SCHEMA_VERSION } from "../base/schema.ts";
import { listRevisions } from "../source/revisions.ts";
import { unzipped } from "../source/source.ts";
import { pathProblem } from "../source/source-rules.ts";

/** The copy of the database in a snapshot. */
export const DATABASE = "data/ops.db";
/** A content beside it; named by its SHA-256. */
const CONTENT = /^data\/contents\/([0-9a-f]{64})(\.sealed)?$/;
/** The first entry of a snapshot. */
const MANIFEST = "manifest.json";
const FORMAT = 1;

/** What a snapshot may hold. */
const LIMITS = { manifestBytes: 32 * 1024 * 1024, files: 200_000, bytes: 256 * 1024 ** 3 } as const;
/** Parts of a bucket of which a snapshot has files for their owner alone. */
const PRIVATE_ROOTS: readonly string[] = ["data", "secrets", ".ssh", "bucket.json"];
/** The parts that are one file. */
const SINGLE_FILES: readonly string[] = ["bucket.json", "ops.conf"];
/** The other parts, besides the database. */
const FOLDERS = ["secrets", ".ssh", "workspace", "templates"];

const FILE = object({
  path: string({ max: 1_024 }),
  mode: oneOf("0600", "0644", "0755"),
  size_bytes: integer({ min: 0, max: LIMITS.bytes }),
  sha256: string({ pattern: /^[0-9a-f]{64}$/, means: "a SHA-256 in hexadecimal" }),
});
// A later format may have more fields; its number tells that this program does not know it.
const MANIFEST_SHAPE = object(
  {
    format: integer({ min: 1 }),
    bucket_id: string({ pattern: /^[0-9a-f-]{36}$/, means: "a bucket id" }),
    schema_version: integer({ min: 1 }),
    program_version: string(),
    created_at: string(),
    note: string(),
    /** The revision that was the source, empty where none was ever pushed. */
    source_revision: string(),
    /** How many rows each table has. */
    rows: record(integer({ min: 0 })),
    files: list(FILE, { max: LIMITS.files }),
  },
  { unknown: "warn" },
);
/** What the first entry of a snapshot says about it. */
export type SnapshotManifest = Infer<typeof MANIFEST_SHAPE>;
/** One file of a snapshot. */
export type SnapshotFile = Infer<typeof FILE>;

/** True for a file that is restored for its owner alone, whatever mode the snapshot has. */
export function isPrivatePath(name: string): boolean {
  return PRIVATE_ROOTS.includes(name.split("/")[0] as string);
}

/** Reads the manifest of a snapshot alone. Throws `failed` for a file that is no snapshot. */
export function readManifest(file: string): Promise<SnapshotManifest> {
  return readSnapshot(file, async (manifest) => manifest);
}

/** Opens a snapshot for `work`: its checked manifest, and the entries that follow. Throws like {@link ofSnapshot}. */
export function readSnapshot<T>(
  file: string,
  work: (manifest: SnapshotManifest, entries: AsyncIterator<TarEntry, void>) => Promise<T>,
): Promise<T> {
  return ofSnapshot(file, async () => {
    await using handle = await openRegular(file);
    await using entries = readTar(unzipped(handle.createReadStream({ autoClose: false })));
    return await work(await manifestIn(await entries.next()), entries);
  });
}

/** Names the snapshot in whatever `work` throws: `cancelled`, `schema_too_new`, else `failed`. */
export async function ofSnapshot<T>(file: string, work: () => Promise<T> | T): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof Failure && cause.code === "cancelled") throw cause;
    const code = cause instanceof Failure && cause.code === "schema_too_new" ? cause.code : "failed";
    const why = hasErrno(cause, "ENOSPC", "EDQUOT") ? "the disk is full" : messageOf(cause);
    throw new Failure(code, `Cannot use the snapshot ${file}: ${why}`, { cause });
  }
}

async function manifestIn({ done, value: entry }: IteratorResult<TarEntry, void>): Promise<SnapshotManifest> {
  if (done || !entry || entry.path !== MANIFEST || entry.type !== "file" || entry.size > LIMITS.manifestBytes)
    throw new Failure("failed", `it does not begin with ${MANIFEST}, so it is no snapshot`);
  const text = Buffer.concat(await Array.fromAsync(entry.content)).toString();
  const checked = check(MANIFEST_SHAPE, JSON.parse(text));
  const [problem] = checked.ok ? [] : checked.problems;
  if (!checked.ok) throw new Failure("failed", `its manifest is not right: ${problem?.path} ${problem?.message}`);
  const { format, schema_version, program_version, files } = checked.value;
  const made = `it was made by ops ${program_version} with schema ${schema_version}`;
  if (format > FORMAT || schema_version > SCHEMA_VERSION)
    throw new Failure("schema_too_new", `${made}, this program knows ${SCHEMA_VERSION}; use a newer ops`);
  requirePlaces(files);
  return checked.value;
}

function requirePlaces(files: readonly SnapshotFile[]): void {
  const names = new Set<string>();
  for (const { path: name, sha256 } of files) {
    const [, digest = sha256, seal] = CONTENT.exec(name) ?? [];
    const isOther = seal === undefined && digest !== sha256 ? "its sum is not its name" : undefined;
    const problem = placeProblem(name) ?? isOther ?? (names.has(name) ? "it is listed twice" : undefined);
    if (problem !== undefined) throw new Failure("failed", `its manifest lists ${quote(name)}: ${problem}`);
    names.add(name);
  }
  if (files.reduce((sum, one) => sum + one.size_bytes, 0) > LIMITS.bytes)
    throw new Failure("failed", "its manifest lists more than a snapshot can hold");
  if (!names.has(DATABASE)) throw new Failure("failed", "it holds no database");
}

function placeProblem(name: string): string | undefined {
  const [root = "", ...rest] = name.split("/");
  if (name === DATABASE) return undefined;
  if (root === "data" && !CONTENT.test(name)) return "no such file can be there";
  if (![...SINGLE_FILES, ...FOLDERS, "data"].includes(root)) return "that is no part of a bucket that a snapshot holds";
  return SINGLE_FILES.includes(root) === (rest.length === 0) ? pathProblem(name) : "no such file can be there";
}

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

/** The file of a snapshot of this name. */
function snapshotFile(layout: Layout, name: string): string {
  return path.join(layout.snapshots, name + SUFFIX);
}

/** The file of a snapshot, named with or without `.tar.gz`. Throws `snapshot_not_found`. */
export async function findSnapshot(layout: Layout, given: string): Promise<string> {
  const name = given.endsWith(SUFFIX) ? given.slice(0, -SUFFIX.length) : given;
  const file = snapshotFile(layout, name);
  if (SNAPSHOT_NAME.test(name) && (await exists(file))) return file;
  throw new Failure("snapshot_not_found", `snapshot ${quote(given)} does not exist`);
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
  for (const name of shown) items.push(await describeSnapshot(snapshotFile(layout, name)));
  return { items, next_cursor: names.length > limit ? (shown.at(-1) ?? null) : null };
}

/** The number of snapshots of a bucket. */
export async function countSnapshots(layout: Layout): Promise<number> {
  return (await snapshotNames(layout)).length;
}

/** The names of the snapshots of a bucket, in no order. */
export async function snapshotNames(layout: Layout): Promise<string[]> {
  const files = await namesIn(layout.snapshots);
  const names = files.filter((file) => file.endsWith(SUFFIX)).map((file) => path.basename(file, SUFFIX));
  return names.filter((name) => SNAPSHOT_NAME.test(name));
}

async function describeSnapshot(file: string) {
  const name = path.basename(file, SUFFIX);
  const { size } = await stat(file);
  const found = await readManifest(file).catch(messageOf);
  const manifest = typeof found === "string" ? undefined : found;
  return {
    /** `<UTC time>-<short id>`; its file is `.ops/snapshots/<name>.tar.gz`. */
    name,
    created_at: name.replace(SNAPSHOT_NAME, "$1-$2-$3T$4:$5:$6$7"),
    size_bytes: size,
    note: manifest?.note ?? "",
    schema_version: manifest?.schema_version ?? null,
    program_version: manifest?.program_version ?? null,
    /** The revision that was the source; null where none was. */
    source_revision: manifest?.source_revision || null,
    /** Why the snapshot cannot be used; null for one whose manifest can be read. */
    error: typeof found === "string" ? found : null,
  };
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
 * taken as it was at one moment: a file that changes meanwhile fails the snapshot. Symbolic links are refused, folders
 * that are never part of a source are left out, and empty folders are not kept. After a kill at any moment there is no
 * snapshot, and the next operation removes what was written. Throws `failed`, `invalid_source` or `cancelled`.
 */
export async function createSnapshot(layout: Layout, db: Database, note: string, signal: AbortSignal): Promise<Snapshot> {
  const now = new Date();
  const name = `${now.toISOString().replace(/[-:]/g, "")}-${randomBytes(4).toString("hex")}`;
  await makePrivateFolder(layout.snapshots);
  const copy = path.join(layout.snapshots, `.${name}.db`);
  const unfinished = path.join(layout.snapshots, `.${name}${SUFFIX}`);
  try {
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
    await pack(unfinished, snapshotEntries(JSON.stringify(manifest), parts), signal);
    await rename(unfinished, snapshotFile(layout, name));
    await flushFolder(layout.snapshots);
    return await describeSnapshot(snapshotFile(layout, name));
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

function* snapshotEntries(manifest: string, parts: readonly Part[]): Generator<TarInput> {
  const content = Buffer.from(manifest);
  yield { path: MANIFEST, mode: 0o600, size: content.length, content: [content] };
  for (const { path: name, mode, size_bytes: size, content } of parts)
    yield { path: name, mode: Number.parseInt(mode, 8), size, content: content() };
}

async function pack(file: string, entries: Iterable<TarInput>, signal: AbortSignal): Promise<void> {
  const output = createWriteStream(file, { flags: "wx", mode: PRIVATE_FILE, flush: true });
  await pipeline(Readable.from(writeTar(entries)), createGzip(), output, { signal });
}
