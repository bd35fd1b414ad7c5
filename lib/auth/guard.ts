import { base32Decode } from "../codec/crypto/totp.ts";
import { openController } from "../core/async.ts";
import { Failure } from "../core/errors.ts";
import { quote } from "../core/shape.ts";
import type { HttpRequest } from "../http/message.ts";
import type { AccessToken } from "./access-file.ts";
import type { AccessStore } from "./access-store.ts";
import { Attempts, BEARER_ATTEMPTS } from "./attempts.ts";
import { ROOT_NAME, type Role } from "./role.ts";
import { equalText, type Session, type Sessions } from "./session.ts";
import { isMistyped } from "./token.ts";
import { TotpCodes, type UsedSteps } from "./totp.ts";

/** Who makes a request, once that is proven. */
export interface Identity {
  /** The name of the token; `root` for the server's own. */
  name: string;
  role: Role;
  /** The ids of the buckets that the token is for; undefined for all. */
  buckets: readonly string[] | undefined;
  /** The id of the token; undefined for the server's own. */
  token: string | undefined;
  address: string;
  via: "bearer" | "session";
  /** The browser session; undefined for a bearer token. */
  session: Session | undefined;
  /** The judge of the codes of the second factor; undefined where the token needs none. */
  codes: TotpCodes | undefined;
  /** Whether TOTP is proven too. False where TOTP is off, and possibly on the two paths without it: verify, sign out. */
  totp: boolean;
  /** Is aborted when the token is revoked, replaced or expires, or the session is ended. */
  ends: AbortSignal | undefined;
}

/** Where a browser signs in and out. */
export const SESSION_PATH = "/api/auth/session";
/** Where a TOTP code becomes a TOTP session. */
export const VERIFY_PATH = "/api/auth/totp/verify";

const BEARER = /^bearer(?: +(\S+))?$/i;
const SAFE_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD"]);

/** Which second factor each token asks for, and the sessions that verified codes open. */
export class SecondFactor {
  readonly sessions: Sessions;
  readonly #common: Uint8Array | undefined;
  readonly #now: () => number;
  readonly #kept: UsedSteps | undefined;
  /** By the id of the token, or `common`. A judge stays as long as the server: it remembers which codes are used up. */
  readonly #judges = new Map<string, TotpCodes>();

  /** Without `common`, a secret, only tokens with a secret of their own need a code. */
  constructor(sessions: Sessions, common: Uint8Array | undefined, now: () => number = Date.now, kept?: UsedSteps) {
    this.sessions = sessions;
    this.#common = common;
    this.#now = now;
    this.#kept = kept;
  }

  /** The judge of the codes of a token, the server's own where there is none; undefined where it needs no code. */
  codesOf(token: Pick<AccessToken, "id" | "totp" | "totp_secret"> | undefined): TotpCodes | undefined {
    const { id: name, totp_secret } = token?.totp === "own" ? token : { id: "common", totp_secret: null };
    // The file was refused where this is no base32.
    const secret = totp_secret === null ? this.#common : (base32Decode(totp_secret) as Buffer);
    if (token?.totp === "none" || !secret) return undefined;
    const codes = this.#judges.get(name) ?? new TotpCodes(secret, this.#now, this.#kept && { ...this.#kept, name });
    this.#judges.set(name, codes);
    return codes;
  }
}

/** Decides who may call. The checks come in a fixed order (decisions: HTTP conventions), and a missing proof means no. */
export class Guard {
  #token: string;
  /** Ends what goes on with the server's own token. */
  #end = openController();
  readonly #access: AccessStore | undefined;
  readonly #sessions: Sessions;
  readonly #totp: SecondFactor | undefined;
  readonly #attempts: Attempts;

  constructor(options: {
    token: string;
    /** Undefined: there are no tokens but the server's own. */
    access?: AccessStore | undefined;
    sessions: Sessions;
    /** Undefined: the token or a session is enough. */
    totp?: SecondFactor | undefined;
    now?: () => number;
  }) {
    this.#token = options.token;
    this.#access = options.access;
    this.#sessions = options.sessions;
    this.#totp = options.totp;
    this.#attempts = new Attempts(BEARER_ATTEMPTS, options.now);
  }

  /**
   * Puts another token in the place of the server's own. What goes on with the one before ends, its sessions too. False
   * where it is the same one.
   */
  replaceToken(token: string): boolean {
    if (equalText(token, this.#token)) return false;
    const ended = this.#end;
    this.#token = token;
    this.#end = openController();
    for (const sessions of [this.#sessions, this.#totp?.sessions])
      for (const { sid, token: of } of sessions?.list() ?? []) if (of === undefined) sessions?.endById(sid);
    ended.abort();
    return true;
  }

  /**
   * The identity behind a request. An `Authorization` header decides alone; a session cookie beside it is ignored.
   * Throws `rate_limited`, `unauthorized`, `csrf_failed` or `totp_required`; on verify `totp_disabled`.
   */
  admit(request: HttpRequest): Identity {
    const { authorization } = request.headers;
    const session = authorization === undefined ? this.#requireSession(request) : undefined;
    const token = session ? this.#tokenOf(session) : this.#requireToken(request, String(authorization));
    const codes = this.#totp?.codesOf(token);
    // TOTP is last, so that nobody without token or session can use up the failures of all peers.
    const totp = this.#requireTotp(request, codes, token?.id);
    if (token) this.#access?.noteUse(token);
    return {
      name: token?.name ?? ROOT_NAME,
      role: token?.role ?? "root",
      buckets: token?.buckets ?? undefined,
      token: token?.id,
      address: request.peer,
      via: session ? "session" : "bearer",
      session,
      codes,
      totp,
      ends: session?.ends ?? (token ? this.#access?.endOf(token) : this.#end.signal),
    };
  }

  /** The token of the header; undefined for the server's own. */
  #requireToken({ peer, noted }: HttpRequest, authorization: string): AccessToken | undefined {
    const found = BEARER.exec(authorization.trim());
    if (!found) {
      noted.refused = "wrong";
      throw new Failure("unauthorized", "Authorization must be: Bearer <API token>");
    }
    // The limit comes before the token: a blocked peer learns nothing about any token, the right one included.
    this.#attempts.admit(peer);
    const given = found[1] ?? "";
    if (equalText(given, this.#token)) return undefined;
    const token = isMistyped(given) ? undefined : this.#access?.find(given);
    if (token && !this.#access?.isExpired(token)) return token;
    noted.refused = "wrong";
    // Who has a token that was right knows it, and guesses nothing.
    if (token) throw expired(token);
    this.#attempts.fail(peer);
    const why = isMistyped(given) ? "is mistyped: a character is wrong or missing" : "is wrong";
    throw new Failure("unauthorized", `the API token ${why}`);
  }

  /** The token that a session was opened with; undefined for the server's own. */
  #tokenOf({ token: id }: Session): AccessToken | undefined {
    const token = id === undefined ? undefined : this.#access?.byId(id);
    // A token that is revoked has ended its sessions already.
    if (id !== undefined && !token) throw new Failure("unauthorized", "the API token of this session was revoked");
    if (token && this.#access?.isExpired(token)) throw expired(token);
    return token;
  }

  #requireSession(request: HttpRequest): Session {
    const session = this.#sessions.verify(cookieOf(request));
    if (!session) {
      request.noted.refused = this.#sessions.isIn(cookieOf(request)) ? "wrong" : "missing";
      throw new Failure("unauthorized", "sign in, or send Authorization: Bearer <API token>");
    }
    // A browser also sends cookies with requests that other sites cause (CSRF).
    if (!SAFE_METHODS.has(request.method) && !isOwnRequest(request))
      throw new Failure("csrf_failed", "a change by session cookie needs an Origin header of this server and X-Ops-CSRF: 1");
    return session;
  }

  #requireTotp(request: HttpRequest, codes: TotpCodes | undefined, token: string | undefined): boolean {
    const isVerify = request.path === VERIFY_PATH && request.method === "POST";
    const totp = this.#totp;
    if (isVerify && !codes) throw new Failure("totp_disabled", "TOTP is not enabled on this server, or not for this token");
    if (isVerify || !codes || !totp) return false;
    const code = request.headers["x-ops-totp"];
    const verified = code === undefined ? totp.sessions.verify(cookieOf(request)) : undefined;
    // A code that was verified for one token proves nothing for another one.
    const isProven =
      code === undefined ? verified !== undefined && verified.token === token : codes.accept(request.peer, String(code));
    const isSignOut = request.path === SESSION_PATH && request.method === "DELETE";
    if (!isProven) {
      const isGiven = code !== undefined || totp.sessions.isIn(cookieOf(request));
      request.noted.refused = isGiven ? "totp_wrong" : "totp_missing";
      if (!isSignOut) throw totpRequired();
    }
    return isProven;
  }
}

function expired({ name }: AccessToken): Failure {
  return new Failure("unauthorized", `the API token ${quote(name)} has expired`);
}

/** The request's `Cookie` header. */
export function cookieOf(request: HttpRequest): string | undefined {
  return request.headers.cookie === undefined ? undefined : String(request.headers.cookie);
}

/** True when a page of this very server made the request: same scheme, host and port, and our own header. */
export function isOwnRequest(request: HttpRequest): boolean {
  const origin = originOf(String(request.headers.origin ?? ""));
  const own = originOf(`${request.scheme}://${request.headers.host ?? ""}`);
  return origin !== undefined && origin === own && request.headers["x-ops-csrf"] === "1";
}

/** The failure of a request that lacks its second factor. */
export function totpRequired(): Failure {
  return new Failure(
    "totp_required",
    "a TOTP code is needed: verify one (POST /api/auth/totp/verify) or send a fresh one as X-Ops-TOTP",
  );
}

/** Scheme, host and port, the default port left out; undefined for anything more, less or else (such as `null`). */
function originOf(text: string): string | undefined {
  return /^https?:\/\/[A-Za-z0-9._:[\]-]+$/.test(text) && URL.canParse(text) ? new URL(text).origin : undefined;
}
