import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from "node:crypto";
import { check, integer, object, oneOf, string } from "../core/shape.ts";

/** control-plane.md, Resources: the browser's session cookie. */
export const SESSION_COOKIE = "ops_server_session";
/** control-plane.md, Limits: a browser session lasts 12 hours, in milliseconds. */
export const SESSION_MS = 12 * 60 * 60 * 1000;

/** What a cookie says; times in milliseconds since 1970. */
export interface Session {
  sid: string;
  iat: number;
  exp: number;
}

const PAYLOAD = object({
  use: oneOf(SESSION_COOKIE),
  sid: string({ min: 1, max: 64 }),
  iat: integer(),
  exp: integer(),
});
const KEY_BYTES = 32;

/**
 * Issues and checks session cookies, `base64url(payload).base64url(HMAC-SHA256)`. The key is made at start, so a
 * restart ends all sessions; it is derived with the cookie's name, so that no other cookie can stand in for this one.
 */
export class Sessions {
  readonly #key: Buffer;
  readonly #secure: boolean;
  readonly #now: () => number;
  /** Ids that were signed out, with the time from which their cookie is void anyway. */
  readonly #revoked = new Map<string, number>();

  constructor(options: { secure: boolean; key?: Buffer; now?: () => number }) {
    const key = options.key ?? randomBytes(KEY_BYTES);
    this.#key = Buffer.from(hkdfSync("sha256", key, "", SESSION_COOKIE, KEY_BYTES));
    this.#secure = options.secure;
    this.#now = options.now ?? Date.now;
  }

  /** A new session and the `Set-Cookie` header that gives it to the browser. */
  issue(): { session: Session; cookie: string } {
    const iat = this.#now();
    const session = { sid: randomBytes(16).toString("base64url"), iat, exp: iat + SESSION_MS };
    const payload = Buffer.from(JSON.stringify({ use: SESSION_COOKIE, ...session })).toString("base64url");
    return { session, cookie: this.#setCookie(`${payload}.${this.#sign(payload)}`, SESSION_MS / 1000) };
  }

  /** The valid session in a `Cookie` header; undefined when it is forged, expired, signed out or given twice. */
  verify(cookieHeader: string | undefined): Session | undefined {
    const [payload, signature, ...rest] = cookieValue(cookieHeader)?.split(".") ?? [];
    if (payload === undefined || signature === undefined || rest.length > 0) return undefined;
    if (!equal(signature, this.#sign(payload))) return undefined;
    const checked = check(PAYLOAD, JSON.parse(Buffer.from(payload, "base64url").toString()));
    if (!checked.ok || checked.value.exp <= this.#now() || this.#revoked.has(checked.value.sid))
      return undefined;
    const { sid, iat, exp } = checked.value;
    return { sid, iat, exp };
  }

  /** Refuses this session from now on. */
  revoke(session: Session): void {
    for (const [sid, exp] of this.#revoked) if (exp <= this.#now()) this.#revoked.delete(sid);
    this.#revoked.set(session.sid, session.exp);
  }

  /** The `Set-Cookie` header that takes the cookie away. */
  clearing(): string {
    return this.#setCookie("", 0);
  }

  #setCookie(value: string, maxAge: number): string {
    const secure = this.#secure ? "; Secure" : "";
    return `${SESSION_COOKIE}=${value}; Path=/; Max-Age=${maxAge}; HttpOnly; SameSite=Strict${secure}`;
  }

  #sign(payload: string): string {
    return createHmac("sha256", this.#key).update(payload).digest("base64url");
  }
}

function cookieValue(header: string | undefined): string | undefined {
  const prefix = `${SESSION_COOKIE}=`;
  const found = (header ?? "")
    .split(";")
    .map((part) => part.trim())
    .filter((part) => part.startsWith(prefix));
  return found.length === 1 ? found[0]?.slice(prefix.length) : undefined;
}

function equal(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
