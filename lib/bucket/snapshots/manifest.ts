import type { TarEntry } from "../../codec/archive/tar-read.ts";
import type { TarInput } from "../../codec/archive/tar-write.ts";
import { SEAL } from "../../codec/crypto/seal-key.ts";
import { Failure } from "../../core/errors.ts";
import { PRIVATE_FILE } from "../../core/files.ts";
import {
  check,
  type Infer,
  integer,
  list,
  object,
  oneOf,
  parsedJson,
  quote,
  record,
  type Shape,
  string,
} from "../../core/shape.ts";
import { isSigned, type SigningKey, signatureOf, signerFingerprint } from "../../core/signing-key.ts";
import { SCHEMA_VERSION } from "../base/schema.ts";
import { pathProblem } from "../source/source-rules.ts";

/** The copy of the database in a snapshot. */
export const DATABASE = "data/ops.db";
/** A content beside it; named by its SHA-256. */
const CONTENT = /^data\/contents\/([0-9a-f]{64})(\.sealed)?$/;
/** The first entry of a snapshot. */
export const MANIFEST = "manifest.json";
/** What holds the signature, from format 2 on; always the second entry. */
const SIGNATURE = "manifest.sig";
/** The format of new snapshots; those of format 1 have no signature. */
export const FORMAT = 2;

/** What a snapshot may hold. */
const LIMITS = { manifestBytes: 32 * 1024 * 1024, files: 200_000, bytes: 256 * 1024 ** 3 } as const;
/** Parts of a bucket of which a snapshot has files for their owner alone. */
const PRIVATE_ROOTS: readonly string[] = ["data", "secrets", ".ssh", "bucket.json"];
/** The parts that are one file. */
export const SINGLE_FILES: readonly string[] = ["bucket.json", "ops.conf"];
/** The other parts, besides the database. */
export const FOLDERS = ["secrets", ".ssh", "workspace", "templates"];

const FILE = object({
  path: string({ max: 1_024 }),
  mode: oneOf("0600", "0644", "0755"),
  size_bytes: integer({ min: 0, max: LIMITS.bytes }),
  sha256: string({ pattern: /^[0-9a-f]{64}$/, means: "a SHA-256 in hexadecimal" }),
});
// A later format may have more fields; its number tells that this program does not know it.
const HEAD_FIELDS = {
  format: integer({ min: 1 }),
  bucket_id: string({ pattern: /^[0-9a-f-]{36}$/, means: "a bucket id" }),
  schema_version: integer({ min: 1 }),
  program_version: string(),
  created_at: string(),
  note: string(),
  /** The revision that was the source, empty where none was ever pushed. */
  source_revision: string(),
};
const MANIFEST_SHAPE = object(
  {
    ...HEAD_FIELDS,
    /** How many rows each table has. */
    rows: record(integer({ min: 0 })),
    files: list(FILE, { max: LIMITS.files }),
  },
  { unknown: "warn" },
);
/** What stands in clear before a sealed snapshot. */
export const SEALED_HEAD = object({ ...HEAD_FIELDS, signer: string({ max: 100 }), seal: SEAL }, { unknown: "warn" });
const SIGNATURE_SHAPE = object({ signer: string({ max: 100 }), signature: string({ max: 200 }) });
/** What the signature of a snapshot is for. */
const PURPOSE = "ops snapshot";

/** The fields of a manifest that lists show, and that a sealed snapshot has in clear. */
export type SnapshotHead = Pick<SnapshotManifest, keyof typeof HEAD_FIELDS>;
/** What the first entry of a snapshot says about it. */
export type SnapshotManifest = Infer<typeof MANIFEST_SHAPE>;
/** One file of a snapshot. */
export type SnapshotFile = Infer<typeof FILE>;

/** True for a file that is restored for its owner alone, whatever mode the snapshot has. */
export function isPrivatePath(name: string): boolean {
  return PRIVATE_ROOTS.includes(name.split("/")[0] as string);
}

/** The head of a manifest, its fields always in the same order. */
export function headIn(manifest: SnapshotHead): SnapshotHead {
  const names = Object.keys(HEAD_FIELDS) as (keyof SnapshotHead)[];
  return Object.fromEntries(names.map((name) => [name, manifest[name]])) as SnapshotHead;
}

/** The first entries of a snapshot: its manifest and, signed, who vouches for it. */
export function manifestEntries(manifest: SnapshotManifest, key: SigningKey): TarInput[] {
  const bytes = Buffer.from(JSON.stringify(manifest));
  const signature = { signer: key.publicKey, signature: signatureOf(key, PURPOSE, bytes) };
  const content = Buffer.from(JSON.stringify(signature));
  return [
    { path: MANIFEST, mode: PRIVATE_FILE, size: bytes.length, content: [bytes] },
    { path: SIGNATURE, mode: PRIVATE_FILE, size: content.length, content: [content] },
  ];
}

/**
 * The checked manifest at the beginning of a snapshot, and the fingerprint of the key that has signed it; null where the
 * format has no signature. Throws for a signature that does not belong to the manifest.
 */
export async function readManifestEntries(
  entries: AsyncIterator<TarEntry, void>,
): Promise<{ manifest: SnapshotManifest; signer: string | null }> {
  const bytes = await entryNamed(MANIFEST, await entries.next());
  const manifest = manifestOf(bytes);
  if (manifest.format < 2) return { manifest, signer: null };
  const checked = check(SIGNATURE_SHAPE, parsedJson((await entryNamed(SIGNATURE, await entries.next())).toString()));
  if (!checked.ok || !isSigned(checked.value.signer, PURPOSE, bytes, checked.value.signature))
    throw new Failure("failed", "its signature does not belong to its manifest: it was forged or damaged");
  return { manifest, signer: signerFingerprint(checked.value.signer) };
}

async function entryNamed(name: string, { done, value: entry }: IteratorResult<TarEntry, void>): Promise<Buffer> {
  const beginning = name === MANIFEST ? MANIFEST : `${MANIFEST} and ${name}`;
  if (done || !entry || entry.path !== name || entry.type !== "file" || entry.size > LIMITS.manifestBytes)
    throw new Failure("failed", `it does not begin with ${beginning}, so it is no snapshot`);
  return Buffer.concat(await Array.fromAsync(entry.content));
}

function manifestOf(bytes: Buffer): SnapshotManifest {
  const manifest = rightPart("manifest", MANIFEST_SHAPE, JSON.parse(bytes.toString()));
  requireKnownFormat(manifest);
  requirePlaces(manifest.files);
  return manifest;
}

/** A part of a snapshot that has the form it must have. Throws `failed`. */
export function rightPart<T>(what: string, shape: Shape<T>, value: unknown): T {
  const checked = check(shape, value);
  if (checked.ok) return checked.value;
  const [problem] = checked.problems;
  throw new Failure("failed", `its ${what} is not right: ${problem?.path} ${problem?.message}`);
}

/** Throws `schema_too_new` for a snapshot that a later program has made. */
export function requireKnownFormat({ format, schema_version, program_version }: SnapshotHead): void {
  if (format <= FORMAT && schema_version <= SCHEMA_VERSION) return;
  const made = `it was made by ops ${program_version} with schema ${schema_version}`;
  throw new Failure("schema_too_new", `${made}, this program knows ${SCHEMA_VERSION}; use a newer ops`);
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
