import { TOTP_STEP_MS, totpCode } from "../codec/crypto/totp.ts";
import { Attempts, TOTP_ATTEMPTS, TOTP_ATTEMPTS_OF_ALL } from "./attempts.ts";
import { equalText } from "./constant-time.ts";

/** Steps that a clock may be off, either way (decisions: Sessions and TOTP). */
const DRIFT = [-1, 0, 1];
const EVERYBODY = "";

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
    this.#everybody.admit(EVERYBODY);
    const step = this.#stepOf(code);
    if (step === undefined) {
      this.#peers.fail(peer);
      this.#everybody.fail(EVERYBODY);
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
