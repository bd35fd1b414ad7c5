import { createHash } from "node:crypto";
import { chmod, mkdir, open } from "node:fs/promises";
import path from "node:path";
import { readTar, type TarEntry } from "../../codec/archive/tar-read.ts";
import { Failure, hasErrno, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { makePrivateFolder, openRegular, PRIVATE_FILE, PRIVATE_FOLDER } from "../../core/files.ts";
import { check, type Infer, integer, list, object, oneOf, quote, record, string } from "../../core/shape.ts";
import { bucketIdOf, type Database, migrate, openDatabase, SCHEMA_VERSION } from "../base/database.ts";
import { SOURCE_PATHS } from "../base/layout.ts";
import { unzipped } from "../source/source.ts";
import { pathProblem } from "../source/source-rules.ts";

/** The name of the first entry of a snapshot. */
export const MANIFEST = "manifest.json";
/** The copy of the database in a snapshot. */
export const DATABASE = "data/ops.db";

/** What a snapshot may hold. */
const LIMITS = { manifestBytes: 32 * 1024 * 1024, files: 200_000, bytes: 256 * 1024 ** 3 } as const;
const FORMAT = 1;
const PRIVATE_ROOTS: ReadonlySet<string> = new Set(["data", "secrets", ".ssh", "bucket.json"]);
const ROOTS: ReadonlySet<string> = new Set([...PRIVATE_ROOTS, ...SOURCE_PATHS]);

const HASH = string({ pattern: /^[0-9a-f]{64}$/, means: "a SHA-256 in hexadecimal" });
const FILE = object({
  path: string({ max: 1_024 }),
  mode: oneOf("0600", "0644", "0755"),
  size_bytes: integer({ min: 0, max: LIMITS.bytes }),
  sha256: HASH,
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

/** The manifest of a new snapshot. */
export function manifestOf(fields: Omit<SnapshotManifest, "format">): SnapshotManifest {
  return { format: FORMAT, ...fields };
}

/** Reads the manifest of a snapshot alone. Throws `failed` for what is no snapshot. */
export function readManifest(file: string): Promise<SnapshotManifest> {
  return reading(file, async (entries) => manifestIn(await entries.next()));
}

/**
 * Unpacks a snapshot into an empty folder and checks everything about it: that its files are exactly those of the
 * manifest, with their sizes and sums; that its schema is not newer than this program's; that its database opens, is whole,
 * belongs to the bucket it names and has as many rows as were counted. An older schema is upgraded. All files are flushed
 * by the caller. Throws `failed`, `schema_too_new` or `cancelled`; the folder is then the caller's to remove.
 */
export async function unpackSnapshot(file: string, folder: string, signal: AbortSignal): Promise<SnapshotManifest> {
  const manifest = await reading(file, async (entries) => {
    const found = await manifestIn(await entries.next());
    for (const expected of found.files) {
      throwIfCancelled(signal);
      await unpackFile(await entries.next(), expected, folder);
    }
    const extra = await entries.next();
    if (!extra.done)
      throw new Failure("failed", `it holds ${quote(extra.value.path)}, which its manifest does not list`);
    return found;
  });
  for (const name of ["data", "secrets", ".ssh"]) await privateFolder(path.join(folder, name));
  await about(file, async () => {
    migrate(path.join(folder, DATABASE), manifest.bucket_id);
    checkDatabase(path.join(folder, DATABASE), manifest);
  });
  return manifest;
}

/** How many rows each table of a database has. */
export function rowsOf(db: Database): Record<string, number> {
  const tables = db.all<{ name: string }>(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
  );
  const count = (name: string) => db.get<{ rows: number }>(`SELECT COUNT(*) AS rows FROM "${name}"`)?.rows ?? 0;
  return Object.fromEntries(tables.map(({ name }) => [name, count(name)]));
}

type Entries = AsyncIterator<TarEntry, void>;

async function reading<T>(file: string, work: (entries: Entries) => Promise<T>): Promise<T> {
  return about(file, async () => {
    await using handle = await openRegular(file);
    await using entries = readTar(unzipped(handle.createReadStream({ autoClose: false })));
    return await work(entries);
  });
}

/** Whatever is wrong with a snapshot is told with its name. */
async function about<T>(file: string, work: () => Promise<T>): Promise<T> {
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
  const chunks: Uint8Array[] = [];
  for await (const chunk of entry.content) chunks.push(chunk);
  const value = JSON.parse(Buffer.concat(chunks).toString()) as unknown;
  const checked = check(MANIFEST_SHAPE, value);
  const [problem] = checked.ok ? [] : checked.problems;
  if (!checked.ok) throw new Failure("failed", `its manifest is not right: ${problem?.path} ${problem?.message}`);
  requireKnown(checked.value);
  return checked.value;
}

function requireKnown({ format, schema_version, program_version, files }: SnapshotManifest): void {
  if (format > FORMAT || schema_version > SCHEMA_VERSION)
    throw new Failure(
      "schema_too_new",
      `it was made by ops ${program_version} with schema ${schema_version}, this program knows ${SCHEMA_VERSION}; use a newer ops`,
    );
  const names = new Set<string>();
  let bytes = 0;
  for (const { path: name, size_bytes } of files) {
    const problem = nameProblem(name) ?? (names.has(name) ? "it is listed twice" : undefined);
    if (problem !== undefined) throw new Failure("failed", `its manifest lists ${quote(name)}: ${problem}`);
    names.add(name);
    bytes += size_bytes;
  }
  if (bytes > LIMITS.bytes) throw new Failure("failed", "its manifest lists more than a snapshot can hold");
  if (!names.has(DATABASE)) throw new Failure("failed", "it holds no database");
}

function nameProblem(name: string): string | undefined {
  const [root = "", ...rest] = name.split("/");
  if (!ROOTS.has(root)) return "that is no part of a bucket that a snapshot holds";
  const isSingle = root === "ops.conf" || root === "bucket.json";
  if (isSingle !== (rest.length === 0) || (root === "data" && name !== DATABASE)) return "no such file can be there";
  return pathProblem(name);
}

async function unpackFile(
  { done, value: entry }: IteratorResult<TarEntry, void>,
  expected: SnapshotFile,
  folder: string,
): Promise<void> {
  const { path: name, mode, size_bytes, sha256 } = expected;
  if (done || !entry || entry.path !== name || entry.type !== "file" || entry.size !== size_bytes)
    throw new Failure("failed", `where ${quote(name)} of ${size_bytes} bytes should be there is something else`);
  const target = path.join(folder, name);
  await parentOf(target, name);
  const hash = createHash("sha256");
  await using handle = await open(target, "wx", 0o600);
  for await (const chunk of entry.content) {
    hash.update(chunk);
    await handle.appendFile(chunk);
  }
  await handle.chmod(isPrivate(name) ? PRIVATE_FILE : Number.parseInt(mode, 8));
  if (hash.digest("hex") !== sha256)
    throw new Failure("failed", `${quote(name)} is not what was saved: its sum differs`);
}

async function parentOf(target: string, name: string): Promise<void> {
  await mkdir(path.dirname(target), { recursive: true, mode: isPrivate(name) ? PRIVATE_FOLDER : 0o755 });
}

/** True for a path that is restored for its owner alone, whatever mode the snapshot has. */
function isPrivate(name: string): boolean {
  return PRIVATE_ROOTS.has(name.split("/")[0] as string);
}

async function privateFolder(folder: string): Promise<void> {
  await makePrivateFolder(folder);
  await chmod(folder, PRIVATE_FOLDER);
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
}
