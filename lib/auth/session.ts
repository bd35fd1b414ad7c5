import { createHmac, hash, hkdfSync, randomBytes, timingSafeEqual } from "node:crypto";
import { check, integer, object, string } from "../core/shape.ts";

/** Compares two texts by their SHA-256, in a time that tells nothing about the texts or where they differ. */
export function equalText(a: string, b: string): boolean {
  return timingSafeEqual(hash("sha256", a, "buffer"), hash("sha256", b, "buffer"));
}

/** control-plane.md, Resources and their fields: the browser's session cookie. */
export const SESSION_COOKIE = "ops_server_session";
/** control-plane.md, Limits: a browser session lasts 12 hours, in milliseconds. */
export const SESSION_MS = 12 * 60 * 60 * 1000;
/** control-plane.md, Resources and their fields: the cookie that says that a TOTP code was verified. */
export const TOTP_COOKIE = "ops_totp_session";

/** The session cookie of the earlier variant (control-plane.md, Earlier variant 3). */
export const EARLIER_COOKIE = "ops_serve_token";

/** The names of the cookies. */
export type SessionCookie = typeof SESSION_COOKIE | typeof TOTP_COOKIE | typeof EARLIER_COOKIE;

/** What a cookie says; times in milliseconds since 1970. */
export interface Session {
  sid: string;
  iat: number;
  exp: number;
}

const PAYLOAD = object({ use: string(), sid: string({ min: 1, max: 64 }), iat: integer(), exp: integer() });
const SESSION_KEY_BYTES = 32;

/** One kind of session. */
interface SessionRule {
  cookie: SessionCookie;
  lifetimeMs: number;
  /** Whether the browser may send it over TLS only. */
  secure: boolean;
}

/**
 * Issues and checks the session cookies of one kind, `base64url(payload).base64url(HMAC-SHA256)`. The key is made at
 * start, so a restart ends all sessions. Each kind derives its own key with the cookie's name, and the name is signed
 * too: no cookie can stand in for one of another kind.
 */
export class Sessions {
  readonly #rule: SessionRule;
  readonly #key: Buffer;
  readonly #now: () => number;
  /** Ids of sessions that were signed out, with the time at which their cookie expires. */
  readonly #revoked = new Map<string, number>();

  constructor(rule: SessionRule, key: Buffer = randomBytes(SESSION_KEY_BYTES), now: () => number = Date.now) {
    this.#rule = rule;
    this.#key = Buffer.from(hkdfSync("sha256", key, "", rule.cookie, SESSION_KEY_BYTES));
    this.#now = now;
  }

  /** A new session and the `Set-Cookie` header that gives it to the browser. */
  issue(): { session: Session; cookie: string } {
    const { cookie: use, lifetimeMs } = this.#rule;
    const iat = this.#now();
    const session = { sid: randomBytes(16).toString("base64url"), iat, exp: iat + lifetimeMs };
    const payload = Buffer.from(JSON.stringify({ use, ...session })).toString("base64url");
    return { session, cookie: this.#setCookie(`${payload}.${this.#sign(payload)}`, lifetimeMs / 1000) };
  }

  /** The valid session in a `Cookie` header; undefined when it is forged, expired, signed out or given twice. */
  verify(cookieHeader: string | undefined): Session | undefined {
    const [payload, signature, ...rest] = cookieValue(cookieHeader, this.#rule.cookie)?.split(".") ?? [];
    if (payload === undefined || signature === undefined || rest.length > 0) return undefined;
    if (!equalText(signature, this.#sign(payload))) return undefined;
    const checked = check(PAYLOAD, JSON.parse(Buffer.from(payload, "base64url").toString()));
    if (!checked.ok || checked.value.use !== this.#rule.cookie) return undefined;
    const { sid, iat, exp } = checked.value;
    return exp <= this.#now() || this.#revoked.has(sid) ? undefined : { sid, iat, exp };
  }

  /** Whether a `Cookie` header has a session cookie, valid or not. */
  isIn(cookieHeader = ""): boolean {
    return cookieHeader.includes(`${this.#rule.cookie}=`);
  }

  /** Ends the session in a `Cookie` header, if there is one. Answers the `Set-Cookie` header that removes the cookie. */
  end(cookieHeader: string | undefined): string {
    const session = this.verify(cookieHeader);
    for (const [sid, exp] of this.#revoked) if (exp <= this.#now()) this.#revoked.delete(sid);
    if (session) this.#revoked.set(session.sid, session.exp);
    return this.#setCookie("", 0);
  }

  #setCookie(value: string, maxAge: number): string {
    const secure = this.#rule.secure ? "; Secure" : "";
    return `${this.#rule.cookie}=${value}; Path=/; Max-Age=${maxAge}; HttpOnly; SameSite=Strict${secure}`;
  }

  #sign(payload: string): string {
    return createHmac("sha256", this.#key).update(payload).digest("base64url");
  }
}

function cookieValue(header: string | undefined, name: string): string | undefined {
  const prefix = `${name}=`;
  const found = (header ?? "")
    .split(";")
    .map((part) => part.trim())
    .filter((part) => part.startsWith(prefix));
  return found.length === 1 ? found[0]?.slice(prefix.length) : undefined;
}
