import { createHmac, hash, hkdfSync, randomBytes, timingSafeEqual } from "node:crypto";
import { openController } from "../core/async.ts";
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

/** How many sessions of one token there are at most: a further one ends the oldest. */
const MOST_SESSIONS = 200;

/** Who opens a session, and from where. */
export interface SessionHolder {
  /** The name of the token. */
  name: string;
  /** The id of the token; undefined for the server's own. */
  token: string | undefined;
  /** Ends the session. */
  ends?: AbortSignal | undefined;
  address: string;
  /** What the client says that it is, for people: never a proof. */
  agent: string;
}

/** A session; times in milliseconds since 1970. */
export interface Session extends SessionHolder {
  sid: string;
  iat: number;
  exp: number;
  lastUsed: number;
  /** Is aborted when the session is ended. */
  ends: AbortSignal;
}

const PAYLOAD = object({ use: string(), sid: string(), iat: integer(), exp: integer() });
const SESSION_KEY_BYTES = 32;

/** One kind of session. */
interface SessionRule {
  cookie: SessionCookie;
  lifetimeMs: number;
  /** Whether the browser may send it over TLS only. */
  secure: boolean;
}

/**
 * Issues and checks the session cookies of one kind, `base64url(payload).base64url(HMAC-SHA256)`. Sessions and key are kept
 * in memory alone, so a restart ends all sessions. Each kind derives its own key with the cookie's name, and the name is
 * signed too: no cookie can stand in for one of another kind.
 */
export class Sessions {
  readonly #rule: SessionRule;
  readonly #key: Buffer;
  readonly #now: () => number;
  /** By their ids, the oldest first. */
  readonly #open = new Map<string, { session: Session; controller: AbortController }>();

  constructor(rule: SessionRule, key: Buffer = randomBytes(SESSION_KEY_BYTES), now: () => number = Date.now) {
    this.#rule = rule;
    this.#key = Buffer.from(hkdfSync("sha256", key, "", rule.cookie, SESSION_KEY_BYTES));
    this.#now = now;
  }

  /** A new session and the `Set-Cookie` header that gives it to the browser. The session ends with `holder.ends`. */
  issue({ ends, ...holder }: SessionHolder): { session: Session; cookie: string } {
    const { cookie: use, lifetimeMs } = this.#rule;
    const iat = this.#now();
    // Hexadecimal: a command line takes an id that begins with `-` for a flag.
    const claim = { sid: randomBytes(16).toString("hex"), iat, exp: iat + lifetimeMs };
    const controller = openController();
    const session = { ...holder, ...claim, lastUsed: iat, ends: controller.signal };
    const others = this.list().filter(({ token }) => token === holder.token);
    if (others.length >= MOST_SESSIONS) this.endById(others[0]?.sid ?? "");
    this.#open.set(session.sid, { session, controller });
    ends?.addEventListener("abort", () => this.endById(session.sid), { signal: controller.signal });
    const payload = Buffer.from(JSON.stringify({ use, ...claim })).toString("base64url");
    return { session, cookie: this.#setCookie(`${payload}.${this.#sign(payload)}`, lifetimeMs / 1000) };
  }

  /** The valid session in a `Cookie` header; undefined when it is forged, expired, ended or given twice. */
  verify(cookieHeader: string | undefined): Session | undefined {
    const [payload, signature, ...rest] = cookieValue(cookieHeader, this.#rule.cookie)?.split(".") ?? [];
    if (payload === undefined || signature === undefined || rest.length > 0) return undefined;
    if (!equalText(signature, this.#sign(payload))) return undefined;
    const checked = check(PAYLOAD, JSON.parse(Buffer.from(payload, "base64url").toString()));
    if (!checked.ok || checked.value.use !== this.#rule.cookie) return undefined;
    const { session } = this.#open.get(checked.value.sid) ?? {};
    if (!session || checked.value.exp <= this.#now()) return undefined;
    session.lastUsed = this.#now();
    return session;
  }

  /** Whether a `Cookie` header has a session cookie, valid or not. */
  isIn(cookieHeader = ""): boolean {
    return cookieHeader.includes(`${this.#rule.cookie}=`);
  }

  /** Ends the session in a `Cookie` header, if there is one. Answers the `Set-Cookie` header that removes the cookie. */
  end(cookieHeader: string | undefined): string {
    const session = this.verify(cookieHeader);
    if (session) this.endById(session.sid);
    return this.#setCookie("", 0);
  }

  /** All sessions that go on, the oldest first. */
  list(): Session[] {
    const now = this.#now();
    for (const [sid, { session }] of this.#open) if (session.exp <= now) this.endById(sid);
    return [...this.#open.values()].map(({ session }) => session);
  }

  /** Ends a session with all that goes on in it; false where there is none. */
  endById(sid: string): boolean {
    const found = this.#open.get(sid);
    this.#open.delete(sid);
    found?.controller.abort();
    return found !== undefined;
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
