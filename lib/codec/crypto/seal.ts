import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { Failure } from "../../core/errors.ts";

const PREFIX = "enc:v2:";
const CIPHER = "aes-256-gcm";
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Encrypts a text with AES-256-GCM under a key of 32 bytes: `enc:v2:` and base64 of nonce ‖ ciphertext ‖ tag.
 * The result opens only under the same namespace and name. Nonces are random: keep one key below 2^32 values.
 */
export function seal(key: Buffer, namespace: string, name: string, plaintext: string): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(sealPlace(namespace, name));
  const ciphertext = Buffer.concat([cipher.update(plaintext, "utf8"), cipher.final()]);
  return PREFIX + Buffer.concat([nonce, ciphertext, cipher.getAuthTag()]).toString("base64");
}

/** The text that {@link seal} encrypted. Throws `failed` for another key, another place or any altered bit. */
export function unseal(key: Buffer, namespace: string, name: string, sealed: string): string {
  const encoded = sealed.startsWith(PREFIX) ? sealed.slice(PREFIX.length) : "";
  const bytes = Buffer.from(encoded, "base64");
  // Decoding skips characters that are not base64: encoded again, only the one right spelling is the same.
  if (bytes.length < NONCE_BYTES + TAG_BYTES || bytes.toString("base64") !== encoded)
    throw new Failure("failed", `Cannot open the sealed value ${name} of ${namespace}: it is not of the form ${PREFIX}…`);
  const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
    .setAAD(sealPlace(namespace, name))
    .setAuthTag(bytes.subarray(-TAG_BYTES));
  try {
    const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
    return Buffer.concat([text, decipher.final()]).toString("utf8");
  } catch (cause) {
    const why = "it was altered, moved from another place or sealed with another key";
    throw new Failure("failed", `Cannot open the sealed value ${name} of ${namespace}: ${why}`, { cause });
  }
}

function sealPlace(namespace: string, name: string): Buffer {
  return Buffer.from(`${namespace}\0${name}`, "utf8");
}
