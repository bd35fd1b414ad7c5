import type { FileHandle } from "node:fs/promises";
import path from "node:path";
import { readTar, type TarEntry } from "../../codec/archive/tar-read.ts";
import { type OpenedSeal, type Seal, sealKey } from "../../codec/crypto/seal-key.ts";
import { openedStream } from "../../codec/crypto/sealed-stream.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure, isFull, messageOf } from "../../core/errors.ts";
import { makePrivateFolder, openRegular } from "../../core/files.ts";
import { parsedJson } from "../../core/shape.ts";
import { knownSigningKey, type SigningKey, serverKeyFile, serverSigningKey, signingKey } from "../../core/signing-key.ts";
import type { Layout } from "../base/layout.ts";
import {
  headIn,
  readManifestEntries,
  requireKnownFormat,
  rightPart,
  SEALED_HEAD,
  type SnapshotHead,
  type SnapshotManifest,
} from "./manifest.ts";

/** The first line of a sealed snapshot; its head is the second, and the sealed archive follows. */
const SEALED_MAGIC = "ops sealed snapshot 1\n";
/** What a head can have at most. */
const HEAD_BYTES = 64 * 1024;

/** What opens a sealed snapshot: one of them is enough. Never stored, logged or shown. */
export interface SnapshotSecret {
  passphrase?: string;
  /** The private key of the recipient, in PEM. */
  identity?: string;
  /** The key of this one snapshot, in base64. */
  key?: string;
}

/** What the reader of a snapshot has and wants. */
export interface Opening {
  trust: Trust;
  secret?: SnapshotSecret;
  signal: AbortSignal;
}

/** What can be known of a snapshot without a key. */
export interface SnapshotFace {
  head: SnapshotHead;
  /** Null for one that is not sealed. */
  seal: Seal | null;
  /** The fingerprint of the key that has signed it, null for none; of a sealed one as its head says. */
  signer: string | null;
}

/** What stands in clear before the sealed archive. */
export function sealedHeader(head: SnapshotHead, signer: string, seal: Seal): Buffer {
  return Buffer.from(`${SEALED_MAGIC}${JSON.stringify({ ...head, signer, seal })}\n`);
}

/** Reads what a snapshot tells without a key. Throws like {@link ofSnapshot}. */
export function readFace(file: string): Promise<SnapshotFace> {
  return ofSnapshot(file, async () => {
    await using handle = await openRegular(file);
    const header = await headerOf(handle);
    if (header) return faceOf(header);
    await using entries = readTar(await unpacked(handle.createReadStream({ autoClose: false })));
    const { manifest, signer } = await readManifestEntries(entries);
    return { head: headIn(manifest), seal: null, signer };
  });
}

/**
 * Opens a snapshot for `work`: its checked manifest, the entries that follow, and of a sealed one the seal with its key. Who
 * has signed it must be trusted. Throws like {@link ofSnapshot}.
 */
export function readSnapshot<T>(
  file: string,
  { trust, secret = {} }: Omit<Opening, "signal">,
  work: (manifest: SnapshotManifest, entries: AsyncIterator<TarEntry, void>, opened?: OpenedSeal) => Promise<T>,
): Promise<T> {
  return ofSnapshot(file, async () => {
    await using handle = await openRegular(file);
    const header = await headerOf(handle);
    const face = header && faceOf(header);
    const stored = handle.createReadStream({ autoClose: false, start: header?.length ?? 0 });
    const opened = face?.seal ? { seal: face.seal, key: await sealKey(face.seal, secret) } : undefined;
    const archive = header && opened ? openedStream(opened.key, header, stored) : stored;
    await using entries = readTar(await unpacked(archive));
    const { manifest, signer } = await readManifestEntries(entries);
    requireTrusted(signer, trust);
    if (face && JSON.stringify([headIn(face.head), face.signer]) !== JSON.stringify([headIn(manifest), signer]))
      throw new Failure("failed", "its head is not that of what is sealed in it");
    return await work(manifest, entries, opened);
  });
}

/** Names the snapshot in whatever `work` throws: `cancelled`, `schema_too_new`, else `failed`. */
export async function ofSnapshot<T>(file: string, work: () => Promise<T> | T): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof Failure && cause.code === "cancelled") throw cause;
    const code = cause instanceof Failure && cause.code === "schema_too_new" ? cause.code : "failed";
    const why = isFull(cause) ? "the disk is full" : messageOf(cause);
    throw new Failure(code, `Cannot use the snapshot ${file}: ${why}`, { cause });
  }
}

/** The bytes before the sealed archive; undefined for a snapshot that is not sealed. */
async function headerOf(handle: FileHandle): Promise<Buffer | undefined> {
  const start = Buffer.alloc(HEAD_BYTES);
  const { bytesRead } = await handle.read(start, 0, HEAD_BYTES, 0);
  if (bytesRead < SEALED_MAGIC.length || !start.subarray(0, SEALED_MAGIC.length).equals(Buffer.from(SEALED_MAGIC)))
    return undefined;
  const end = start.subarray(0, bytesRead).indexOf("\n", SEALED_MAGIC.length);
  if (end < 0) throw new Failure("failed", "it is cut off in its head");
  return start.subarray(0, end + 1);
}

function faceOf(header: Buffer): SnapshotFace {
  const text = header.subarray(SEALED_MAGIC.length).toString();
  const { seal, signer, ...head } = rightPart("head", SEALED_HEAD, parsedJson(text));
  requireKnownFormat(head);
  return { head, seal, signer };
}

/** Loaded here, because `source.ts` is of another room that loads much. */
async function unpacked(packed: AsyncIterable<Uint8Array>): Promise<AsyncIterable<Uint8Array>> {
  const { unzipped } = await import("../source/source.ts");
  return unzipped(packed);
}

/** Whose snapshots are used. */
export interface Trust {
  /** Fingerprints of the keys that are believed. */
  signers: readonly string[];
  /** A snapshot without a signature is used, too. */
  unsigned: boolean;
}

/** What a person says about the signer of a snapshot. */
export interface AskedTrust {
  signer?: string | undefined;
  unsigned?: boolean | undefined;
}

/**
 * The key that signs the snapshots of a bucket, made where nothing was signed yet: below the root of a server that of the
 * server, else one of its own, which is in no snapshot. Throws `failed` where the key of the server is lost.
 */
export async function snapshotSigner(layout: Layout): Promise<SigningKey> {
  const root = serverRootOf(layout);
  if (root !== undefined) return await serverSigningKey(root);
  await makePrivateFolder(path.dirname(layout.signingKey));
  return await signingKey(layout.signingKey);
}

/** The trust in a place: in its own key, and in what was asked for. Makes nothing. */
export async function trustAt(layout: Layout, { signer, unsigned = false }: AskedTrust = {}): Promise<Trust> {
  const own = await ownSigner(layout);
  return { signers: [own, signer].filter((one) => one !== undefined), unsigned };
}

/** The fingerprint of the key that signs here; undefined where nothing was signed yet. */
export async function ownSigner(layout: Layout): Promise<string | undefined> {
  const root = serverRootOf(layout);
  return (await knownSigningKey(root === undefined ? layout.signingKey : serverKeyFile(root)))?.fingerprint;
}

/** The root of the server that a bucket belongs to: that of a folder which is named by a UUID. */
function serverRootOf({ root }: Layout): string | undefined {
  return isUuid(path.basename(root).toLowerCase()) ? path.dirname(root) : undefined;
}

/** Throws `failed`, with what to compare and to give, where the signer of a snapshot is not trusted. */
export function requireTrusted(signer: string | null, { signers, unsigned }: Trust): void {
  if (signer === null ? unsigned : signers.includes(signer)) return;
  const unknown = "it is not signed: whoever can write files may have made it; if it is of an older ops, give --unsigned";
  const other = `it is signed by ${signer}, not by the key of this place`;
  const advice = `compare with the server that made it, then give --signer ${signer}`;
  throw new Failure("failed", signer === null ? unknown : `${other}: ${advice}`);
}
