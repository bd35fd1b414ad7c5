import { createHash, timingSafeEqual } from "node:crypto";
import { Failure } from "../core/errors.ts";
import type { HttpRequest } from "../http/message.ts";
import { Attempts, BEARER_ATTEMPTS } from "./attempts.ts";
import type { Session, Sessions } from "./session.ts";

/** Who makes a request, once that is proven. */
export interface Identity {
  address: string;
  via: "bearer" | "session";
  /** The session of a request that came with a cookie alone. */
  session: Session | undefined;
}

const SAFE_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD"]);

/** Decides who may call. The steps are in the order of decisions: HTTP conventions; whatever is missing means no. */
export class Guard {
  readonly #tokenDigest: Buffer;
  readonly #sessions: Sessions;
  readonly #attempts: Attempts;

  constructor(options: { token: string; sessions: Sessions; now?: () => number }) {
    this.#tokenDigest = digest(options.token);
    this.#sessions = options.sessions;
    this.#attempts = new Attempts(BEARER_ATTEMPTS, options.now);
  }

  /**
   * The identity behind a request. An `Authorization` header decides alone; a cookie beside it is ignored.
   * Throws `rate_limited`, `unauthorized` or `csrf_failed`.
   */
  admit(request: HttpRequest): Identity {
    const { authorization } = request.headers;
    if (authorization !== undefined) return this.#byToken(request, String(authorization));
    const session = this.#sessions.verify(cookieOf(request));
    if (!session) throw unauthorized("sign in, or send Authorization: Bearer <API token>");
    // A browser sends cookies along with requests that other sites cause.
    if (!SAFE_METHODS.has(request.method) && !isOwnRequest(request))
      throw new Failure(
        "csrf_failed",
        "a change by session cookie needs an Origin header of this server and X-Ops-CSRF: 1",
      );
    return { address: request.peer, via: "session", session };
  }

  #byToken(request: HttpRequest, authorization: string): Identity {
    const [, scheme = "", token = ""] = /^(\S+)(?: +(\S+))?$/.exec(authorization.trim()) ?? [];
    if (scheme.toLowerCase() !== "bearer") throw unauthorized("Authorization must be: Bearer <API token>");
    // Before the token is looked at: who may not try gets no answer about it, the right one included.
    const blockedMs = this.#attempts.blockedMs(request.peer);
    if (blockedMs > 0) throw rateLimited(blockedMs);
    if (!timingSafeEqual(digest(token), this.#tokenDigest)) {
      this.#attempts.fail(request.peer);
      throw unauthorized("the API token is wrong");
    }
    return { address: request.peer, via: "bearer", session: undefined };
  }
}

/** The request's `Cookie` header. */
export function cookieOf(request: HttpRequest): string | undefined {
  return request.headers.cookie === undefined ? undefined : String(request.headers.cookie);
}

/** True when a page of this very server made the request: same scheme, host and port, and our own header. */
function isOwnRequest(request: HttpRequest): boolean {
  const origin = originOf(String(request.headers.origin ?? ""));
  const own = originOf(`${request.scheme}://${request.headers.host ?? ""}`);
  return origin !== undefined && origin === own && request.headers["x-ops-csrf"] === "1";
}

/** Scheme, host and port, the default port left out; undefined for anything more, less or else (such as `null`). */
function originOf(text: string): string | undefined {
  return /^https?:\/\/[A-Za-z0-9._:[\]-]+$/.test(text) && URL.canParse(text)
    ? new URL(text).origin
    : undefined;
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function unauthorized(message: string): Failure {
  return new Failure("unauthorized", message);
}

function rateLimited(blockedMs: number): Failure {
  const seconds = Math.max(1, Math.ceil(blockedMs / 1000));
  const details = { retry_after_s: seconds };
  return new Failure(
    "rate_limited",
    `too many wrong API tokens from this address; try again in ${seconds} s`,
    {
      details,
    },
  );
}
