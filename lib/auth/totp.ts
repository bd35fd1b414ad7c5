import { randomBytes } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";
import { base32Decode, base32Encode, TOTP_STEP_MS, totpCode } from "../codec/crypto/totp.ts";
import { Failure, hasErrno, messageOf } from "../core/errors.ts";
import { createExclusive, OF_OTHERS, PRIVATE_FILE, readGuarded, readRegularSync, realPlace } from "../core/files.ts";
import { integer, record, valueIn } from "../core/shape.ts";
import { Attempts, TOTP_ATTEMPTS, TOTP_ATTEMPTS_OF_ALL } from "./attempts.ts";
import { equalText } from "./session.ts";

/** Steps by which a client's clock may be wrong (decisions: Sessions and TOTP). Of two with one code the later is used up. */
const DRIFT = [1, 0, -1];
const ALL_PEERS = "";

/** Where the last used step of each secret is kept, so that a restart of the server makes no code good again. */
export interface UsedSteps {
  file: string;
  /** Hears where the file cannot be written. Then a restart may forget a step; nobody is kept out for it. */
  onTrouble: (error: unknown) => void;
}

/**
 * Judges the TOTP codes of all clients: there is one secret, and so one memory of used codes (control-plane.md,
 * Authentication 6).
 */
export class TotpCodes {
  readonly #secret: Uint8Array;
  readonly #now: () => number;
  readonly #peers: Attempts;
  readonly #everybody: Attempts;
  readonly #kept: (UsedSteps & { name: string }) | undefined;
  #usedStep: number;

  /** `kept.name` is that of the secret in the file; without `kept` the memory ends with this object. */
  constructor(secret: Uint8Array, now: () => number = Date.now, kept?: UsedSteps & { name: string }) {
    this.#secret = secret;
    this.#now = now;
    this.#kept = kept;
    const used = (kept && stepsIn(kept)[kept.name]) ?? -1;
    // A clock that ran ahead and was set right must not void all codes until then.
    this.#usedStep = used <= now() / TOTP_STEP_MS + 1 ? used : -1;
    this.#peers = new Attempts(TOTP_ATTEMPTS, now);
    this.#everybody = new Attempts(TOTP_ATTEMPTS_OF_ALL, now);
  }

  /**
   * Whether this code of this peer is right now. A right code is used up by the question: from then on this code and
   * every earlier one are refused. Success forgets the failures of that peer alone. Throws `rate_limited` before the
   * code is looked at.
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
    if (this.#kept) keepStep(this.#kept, step);
    this.#peers.clear(peer);
    return true;
  }

  /** The step of the code, if it is near now and later than any used step. */
  #stepOf(code: string): number | undefined {
    const now = Math.floor(this.#now() / TOTP_STEP_MS);
    const isCode = (step: number) => step > this.#usedStep && equalText(code, totpCode(this.#secret, step));
    return DRIFT.map((drift) => now + drift).filter(isCode)[0];
  }
}

const STEPS = record(integer());

function stepsIn({ file }: UsedSteps): Record<string, number> {
  try {
    return valueIn(STEPS, readRegularSync(file)) ?? {};
  } catch {
    return {};
  }
}

/** Writes at once, so that a code is marked as used before the request is answered; at most one write for a step. */
function keepStep(kept: UsedSteps & { name: string }, step: number): void {
  // No code of an earlier step can be accepted any more, whoever has used it.
  const others = Object.entries(stepsIn(kept)).filter(([, used]) => used > step - DRIFT.length);
  const steps = { ...Object.fromEntries(others), [kept.name]: step };
  try {
    writeFileSync(`${kept.file}.new`, `${JSON.stringify(steps)}\n`, { mode: PRIVATE_FILE });
    renameSync(`${kept.file}.new`, kept.file);
  } catch (error) {
    kept.onTrouble(error);
  }
}

/** A new TOTP secret is as long as the hash, as RFC 4226 recommends. */
export const NEW_SECRET_BYTES = 20;
/** The 16 characters that many programs hand out. */
const LEAST_SECRET_BYTES = 10;
/** RFC 4226, R6: a shared secret has at least 128 bits. A shorter one is worth a warning. */
export const STRONG_SECRET_BYTES = 16;
/** HMAC-SHA-1 would hash a longer key to a shorter one. */
const MOST_SECRET_BYTES = 64;

/** systemd gives the server access by an access list, whose mask is shown as the bits of the group. */
const NOT_A_CREDENTIAL = 0o037;

/**
 * Reads the secret from a file that has one line of base32 and is readable and writable by its owner alone, or is a
 * credential of systemd. Throws `usage` with one sentence for any other file.
 */
export async function readTotpSecret(file: string, isCredential = false): Promise<Buffer> {
  const text = await readGuarded(file, isCredential ? NOT_A_CREDENTIAL : OF_OTHERS).catch((error: unknown) => {
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

/** The secret in a file. A missing file is made, for its owner alone; an existing file is never replaced. */
export async function enrolTotpSecret(file: string): Promise<{ secret: Buffer; created: boolean }> {
  const line = `${base32Encode(randomBytes(NEW_SECRET_BYTES))}\n`;
  const created = await createExclusive(realPlace(file), line).catch((error: unknown) => {
    const why = hasErrno(error, "ENOENT") ? "its folder does not exist" : messageOf(error);
    throw secretFileFailure(file, `it cannot be written: ${why}`, error);
  });
  return { secret: await readTotpSecret(file), created };
}

function secretFileFailure(file: string, why: string, cause?: unknown): Failure {
  return new Failure("usage", `Cannot use the TOTP secret file ${file}: ${why}`, { cause });
}
