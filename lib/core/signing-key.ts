import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from "node:crypto";
import path from "node:path";
import { Failure, messageOf } from "./errors.ts";
import { createExclusive, flushFolder, namesIn, PRIVATE_FILE, readBounded } from "./files.ts";

/** What comes before the 32 bytes of an Ed25519 public key in its DER form (RFC 8410). */
const SPKI_PREFIX = Buffer.from("302a300506032b6570032100", "hex");
const PUBLIC_BYTES = 32;
const SIGNATURE_BYTES = 64;
const KEY_FILE_BYTES = 4096;
/** How the files of an audit end. */
const SIGNED_LINES = ".jsonl";

/** An Ed25519 key that signs what a server writes down: its audit and its snapshots. */
export interface SigningKey {
  privateKey: KeyObject;
  /** The 32 bytes of the public part, in base64. */
  publicKey: string;
  /** As people compare it: see {@link signerFingerprint}. */
  fingerprint: string;
}

/** The file of the key that a server signs with. */
export function serverKeyFile(root: string): string {
  return path.join(root, "audit.key");
}

/** The folder of what a server writes down: its audit, in files of lines that its key has signed. */
export function serverAuditFolder(root: string): string {
  return path.join(root, "audit");
}

/**
 * The key that a server signs with, made where nothing was signed yet. Throws `failed` where it is missing beside an audit: a
 * second key would stand for another server.
 */
export async function serverSigningKey(root: string): Promise<SigningKey> {
  const [file, folder] = [serverKeyFile(root), serverAuditFolder(root)];
  const known = await knownSigningKey(file);
  if (known) return known;
  if (!(await namesIn(folder)).some((name) => name.endsWith(SIGNED_LINES))) return await signingKey(file);
  throw new Failure("failed", `${file} is missing: put it back, or move ${folder} away to begin a new audit`);
}

/** The key in a PEM file, which is made where it is missing (0600, flushed to the disk). Throws `failed` for another file. */
export async function signingKey(file: string): Promise<SigningKey> {
  const known = await knownSigningKey(file);
  if (known) return known;
  const { privateKey } = generateKeyPairSync("ed25519");
  if (await createExclusive(file, privateKey.export({ type: "pkcs8", format: "pem" }), PRIVATE_FILE))
    await flushFolder(path.dirname(file));
  // Another process may have been faster: the key is the one that is there.
  return (await knownSigningKey(file)) as SigningKey;
}

/** The same without making one: undefined where there is none. */
export async function knownSigningKey(file: string): Promise<SigningKey | undefined> {
  const pem = await readBounded(file, KEY_FILE_BYTES);
  if (!pem) return undefined;
  try {
    const privateKey = createPrivateKey(pem);
    if (privateKey.asymmetricKeyType !== "ed25519") throw new Error("it is a key of another type");
    const der = createPublicKey(privateKey).export({ type: "spki", format: "der" });
    const publicKey = der.subarray(-PUBLIC_BYTES).toString("base64");
    return { privateKey, publicKey, fingerprint: signerFingerprint(publicKey) };
  } catch (cause) {
    throw new Failure("failed", `Cannot use ${file}: it is no Ed25519 key in PEM: ${messageOf(cause)}`, { cause });
  }
}

/** `SHA256:` and the sum of the public key's 32 bytes in base64, in the way of ssh. */
export function signerFingerprint(publicKey: string): string {
  const hash = createHash("sha256").update(Buffer.from(publicKey, "base64")).digest("base64");
  return `SHA256:${hash.replaceAll("=", "")}`;
}

/** The signature of these bytes in base64. One for another `purpose` does not pass for it. */
export function signatureOf(key: SigningKey, purpose: string, bytes: Uint8Array): string {
  return sign(null, purposed(purpose, bytes), key.privateKey).toString("base64");
}

/** True where the owner of the public key has signed exactly these bytes for this purpose. */
export function isSigned(publicKey: string, purpose: string, bytes: Uint8Array, signature: string): boolean {
  const [key, made] = [publicKey, signature].map((text) => Buffer.from(text, "base64")) as [Buffer, Buffer];
  // Decoding skips characters that are not base64: encoded again, only the one right spelling is the same.
  if (key.toString("base64") !== publicKey || made.toString("base64") !== signature) return false;
  if (key.length !== PUBLIC_BYTES || made.length !== SIGNATURE_BYTES) return false;
  const spki = createPublicKey({ key: Buffer.concat([SPKI_PREFIX, key]), type: "spki", format: "der" });
  return verify(null, purposed(purpose, bytes), spki, made);
}

function purposed(purpose: string, bytes: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${purpose}\0`), bytes]);
}
