import { randomBytes } from "node:crypto";
import { base32Decode, base32Encode, TOTP_STEP_MS, totpCode } from "../codec/crypto/totp.ts";
import { Failure, hasErrno, messageOf } from "../core/errors.ts";
import { createExclusive, readGuarded, realPlace } from "../core/files.ts";
import { Attempts, TOTP_ATTEMPTS, TOTP_ATTEMPTS_OF_ALL } from "./attempts.ts";
import { equalText } from "./constant-time.ts";

/** Steps that a clock may be off, either way (decisions: Sessions and TOTP). */
const DRIFT = [-1, 0, 1];
const ALL_PEERS = "";

/**
 * Judges TOTP codes for all clients: one secret, so one memory of what was used (control-plane.md, Authentication 6).
 * What is held in memory ends with the server.
 */
export class TotpCodes {
  readonly #secret: Uint8Array;
  readonly #now: () => number;
  readonly #peers: Attempts;
  readonly #everybody: Attempts;
  #usedStep = -1;

  constructor(secret: Uint8Array, now: () => number = Date.now) {
    this.#secret = secret;
    this.#now = now;
    this.#peers = new Attempts(TOTP_ATTEMPTS, now);
    this.#everybody = new Attempts(TOTP_ATTEMPTS_OF_ALL, now);
  }

  /**
   * Whether this code counts, from this address, now. One that does is used up by the very question: it and every
   * earlier one are refused from then on. Success forgets the failures of that address alone. Throws `rate_limited`
   * before it looks at the code.
   */
  accept(peer: string, code: string): boolean {
    this.#peers.admit(peer);
    this.#everybody.admit(ALL_PEERS);
    const step = this.#stepOf(code);
    if (step === undefined) {
      this.#peers.fail(peer);
      this.#everybody.fail(ALL_PEERS);
      return false;
    }
    this.#usedStep = step;
    this.#peers.clear(peer);
    return true;
  }

  /** The step near now that the code is of and that is later than any used one. */
  #stepOf(code: string): number | undefined {
    const now = Math.floor(this.#now() / TOTP_STEP_MS);
    return DRIFT.map((drift) => now + drift).filter(
      (step) => step > this.#usedStep && equalText(code, totpCode(this.#secret, step)),
    )[0];
  }
}

/** What a new secret has: as long as the hash, as RFC 4226 recommends. */
const NEW_SECRET_BYTES = 20;
/** RFC 4226, R6: a shared secret has at least 128 bits. */
const LEAST_SECRET_BYTES = 16;
/** A longer key is hashed to a shorter one by HMAC-SHA-1. */
const MOST_SECRET_BYTES = 64;

/** The mode bits of everybody but the owner: to read or to replace the secret is to have the second factor. */
const NOT_ITS_OWNER = 0o077;

/**
 * Reads the secret from a file that has one line of base32 and is readable and writable by its owner alone. Throws
 * `usage` with one sentence for any other file.
 */
export async function readTotpSecret(file: string): Promise<Buffer> {
  const text = await readGuarded(file, NOT_ITS_OWNER).catch((error: unknown) => {
    if (error instanceof Failure) throw secretFileFailure(file, error.message, error);
    throw secretFileFailure(file, `it cannot be read: ${messageOf(error)}`, error);
  });
  const line = text.replace(/\r?\n$/, "");
  if (line === "") throw secretFileFailure(file, "it is empty");
  const secret = base32Decode(line);
  if (!secret || secret.length > MOST_SECRET_BYTES)
    throw secretFileFailure(file, `expected one line of base32 (A-Z, 2-7), at most ${MOST_SECRET_BYTES} bytes`);
  if (secret.length < LEAST_SECRET_BYTES)
    throw secretFileFailure(file, `it has ${secret.length * 8} bits, at least ${LEAST_SECRET_BYTES * 8} are needed`);
  return secret;
}

/** The secret in a file; where there is none, one is made, for its owner alone. What is there is never replaced. */
export async function enrolTotpSecret(file: string): Promise<{ secret: Buffer; created: boolean }> {
  const created = await createExclusive(realPlace(file), `${base32Encode(randomBytes(NEW_SECRET_BYTES))}\n`).catch(
    (error: unknown) => {
      const why = hasErrno(error, "ENOENT") ? "its folder does not exist" : messageOf(error);
      throw secretFileFailure(file, `it cannot be written: ${why}`, error);
    },
  );
  return { secret: await readTotpSecret(file), created };
}

function secretFileFailure(file: string, why: string, cause?: unknown): Failure {
  return new Failure("usage", `Cannot use the TOTP secret file ${file}: ${why}`, { cause });
}
