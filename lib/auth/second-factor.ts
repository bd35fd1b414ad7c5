import { base32Decode } from "../codec/crypto/totp.ts";
import type { AccessToken } from "./access-file.ts";
import type { Sessions } from "./session.ts";
import { TotpCodes } from "./totp.ts";

/** Which second factor each token asks for, and the sessions that verified codes open. */
export class SecondFactor {
  readonly sessions: Sessions;
  readonly #common: TotpCodes | undefined;
  readonly #now: () => number;
  /** By the id of the token. A judge stays as long as the server: it remembers which codes are used up. */
  readonly #own = new Map<string, TotpCodes>();

  /** Without `common` only tokens with a secret of their own need a code. */
  constructor(sessions: Sessions, common: TotpCodes | undefined, now: () => number = Date.now) {
    this.sessions = sessions;
    this.#common = common;
    this.#now = now;
  }

  /** The judge of the codes of a token, the server's own where there is none; undefined where it needs no code. */
  codesOf(token: Pick<AccessToken, "id" | "totp" | "totp_secret"> | undefined): TotpCodes | undefined {
    if (token === undefined || token.totp === "common") return this.#common;
    if (token.totp === "none") return undefined;
    const known = this.#own.get(token.id);
    if (known) return known;
    // The file was refused where this is no base32.
    const made = new TotpCodes(base32Decode(token.totp_secret ?? "") as Buffer, this.#now);
    this.#own.set(token.id, made);
    return made;
  }
}
