import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { Failure } from "../../core/errors.ts";

const PREFIX = "enc:v2:";
const CIPHER = "aes-256-gcm";
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const SEAL_BYTES = NONCE_BYTES + TAG_BYTES;
/** The bytes of each piece that {@link sealPieces} makes; only the last piece may have fewer. */
export const SEALED_PIECE_BYTES = 32 * 1024;

/** A key of 32 bytes; while a key is changed several, of which the first seals and each opens. */
export type SealKey = Buffer | readonly [Buffer, ...Buffer[]];

/** The key that seals. */
export function sealingKey(key: SealKey): Buffer {
  return Buffer.isBuffer(key) ? key : key[0];
}

/**
 * Encrypts a text with AES-256-GCM under a key of 32 bytes: `enc:v2:` and base64 of nonce ‖ ciphertext ‖ tag.
 * The result opens only under the same namespace and name. Nonces are random: keep one key below 2^32 values.
 */
export function seal(key: SealKey, namespace: string, name: string, plaintext: string): string {
  return PREFIX + sealBytes(key, namespace, name, Buffer.from(plaintext, "utf8")).toString("base64");
}

/** The text that {@link seal} encrypted. Throws `failed` for another key, another place or any altered bit. */
export function unseal(key: SealKey, namespace: string, name: string, sealed: string): string {
  const encoded = sealed.startsWith(PREFIX) ? sealed.slice(PREFIX.length) : "";
  const bytes = Buffer.from(encoded, "base64");
  // Decoding skips characters that are not base64: encoded again, only the one right spelling is the same.
  if (bytes.length < SEAL_BYTES || bytes.toString("base64") !== encoded)
    throw new Failure("failed", `Cannot open the sealed value ${name} of ${namespace}: it is not of the form ${PREFIX}…`);
  return unsealBytes(key, namespace, name, bytes).toString("utf8");
}

/** The bytes of each piece that {@link sealPieces} encrypts; only the last piece may have fewer. */
const PLAIN_PIECE_BYTES = SEALED_PIECE_BYTES - SEAL_BYTES;

/**
 * Encrypts bytes as {@link seal} does, piece by piece: each is nonce ‖ ciphertext ‖ tag, and opens only at its place
 * among as many pieces.
 */
export function* sealPieces(key: SealKey, namespace: string, name: string, bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += PLAIN_PIECE_BYTES)
    yield sealBytes(key, namespace, pieceName(name, at, bytes.length), bytes.subarray(at, at + PLAIN_PIECE_BYTES));
}

/** How many bytes so many bytes of {@link sealPieces} are once they are opened. */
export function unsealedLength(sealedBytes: number): number {
  return sealedBytes - Math.ceil(sealedBytes / SEALED_PIECE_BYTES) * SEAL_BYTES;
}

/** The bytes that {@link sealPieces} encrypted; `length` is how many these are. Throws like {@link unseal}. */
export function* unsealPieces(
  key: SealKey,
  [namespace, name]: readonly [namespace: string, name: string],
  sealed: Iterable<Uint8Array>,
  length: number,
): Generator<Buffer> {
  let at = 0;
  for (const piece of sealed) {
    yield unsealBytes(key, namespace, pieceName(name, at, length), piece);
    at += PLAIN_PIECE_BYTES;
  }
  if (at < length) throw notSealed(namespace, name);
}

/** Pieces that {@link sealPieces} made, sealed anew with the first key. Throws like {@link unsealPieces}. */
export function* resealPieces(
  key: SealKey,
  [namespace, name]: readonly [namespace: string, name: string],
  sealed: Iterable<Uint8Array>,
  length: number,
): Generator<Buffer> {
  let at = 0;
  for (const piece of unsealPieces(key, [namespace, name], sealed, length)) {
    yield sealBytes(key, namespace, pieceName(name, at, length), piece);
    at += piece.length;
  }
}

function pieceName(name: string, at: number, length: number): string {
  return `${name} ${at}/${length}`;
}

function sealBytes(key: SealKey, namespace: string, name: string, bytes: Uint8Array): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, sealingKey(key), nonce).setAAD(sealPlace(namespace, name));
  const ciphertext = Buffer.concat([cipher.update(bytes), cipher.final()]);
  return Buffer.concat([nonce, ciphertext, cipher.getAuthTag()]);
}

function unsealBytes(key: SealKey, namespace: string, name: string, sealed: Uint8Array): Buffer {
  let cause: unknown;
  for (const one of Buffer.isBuffer(key) ? [key] : key)
    try {
      return opened(one, sealPlace(namespace, name), sealed);
    } catch (error) {
      cause ??= error;
    }
  throw notSealed(namespace, name, cause);
}

function opened(key: Buffer, place: Buffer, sealed: Uint8Array): Buffer {
  const decipher = createDecipheriv(CIPHER, key, sealed.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
    .setAAD(place)
    .setAuthTag(sealed.subarray(-TAG_BYTES));
  const bytes = decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES));
  return Buffer.concat([bytes, decipher.final()]);
}

function notSealed(namespace: string, name: string, cause?: unknown): Failure {
  const why = "it was altered, moved from another place or sealed with another key";
  return new Failure("failed", `Cannot open the sealed value ${name} of ${namespace}: ${why}`, { cause });
}

function sealPlace(namespace: string, name: string): Buffer {
  return Buffer.from(`${namespace}\0${name}`, "utf8");
}
