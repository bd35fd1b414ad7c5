import { randomBytes } from "node:crypto";
import { base32Decode, base32Encode } from "../codec/crypto/base32.ts";
import { Failure, hasErrno, messageOf } from "../core/errors.ts";
import { createExclusive, readGuarded, realPlace } from "../core/files.ts";

/** What a new secret has: as long as the hash, as RFC 4226 recommends. */
const NEW_BYTES = 20;
/** RFC 4226, R6: a shared secret has at least 128 bits. */
const LEAST_BYTES = 16;
/** A longer key is hashed to a shorter one by HMAC-SHA-1. */
const MOST_BYTES = 64;

/** The mode bits of everybody but the owner: to read or to replace the secret is to have the second factor. */
const NOT_ITS_OWNER = 0o077;

/**
 * Reads the secret from a file that has one line of base32 and is readable and writable by its owner alone. Throws
 * `usage` with one sentence for any other file.
 */
export async function readTotpSecret(file: string): Promise<Buffer> {
  const text = await readGuarded(file, NOT_ITS_OWNER).catch((error: unknown) => {
    if (error instanceof Failure) throw refusal(file, error.message, error);
    throw refusal(file, `it cannot be read: ${messageOf(error)}`, error);
  });
  const line = text.replace(/\r?\n$/, "");
  if (line === "") throw refusal(file, "it is empty");
  const secret = base32Decode(line);
  if (!secret || secret.length > MOST_BYTES)
    throw refusal(file, `expected one line of base32 (A-Z, 2-7), at most ${MOST_BYTES} bytes`);
  if (secret.length < LEAST_BYTES)
    throw refusal(file, `it has ${secret.length * 8} bits, at least ${LEAST_BYTES * 8} are needed`);
  return secret;
}

/** The secret in a file; where there is none, one is made, for its owner alone. What is there is never replaced. */
export async function enrolTotpSecret(file: string): Promise<{ secret: Buffer; created: boolean }> {
  const created = await createExclusive(realPlace(file), `${base32Encode(randomBytes(NEW_BYTES))}\n`).catch(
    (error: unknown) => {
      const why = hasErrno(error, "ENOENT") ? "its folder does not exist" : messageOf(error);
      throw refusal(file, `it cannot be written: ${why}`, error);
    },
  );
  return { secret: await readTotpSecret(file), created };
}

function refusal(file: string, why: string, cause?: unknown): Failure {
  return new Failure("usage", `Cannot use the TOTP secret file ${file}: ${why}`, { cause });
}
