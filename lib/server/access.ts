import type { Identity } from "../auth/guard.ts";
import type { Exchange } from "../http/listen.ts";
import type { HttpRequest } from "../http/message.ts";

/** Takes what a server has to say: a line for people and, for programs, its facts where it has any. */
export type Log = (message: string, facts?: Record<string, unknown>) => void;

/** The forms a log can have. */
export const LOG_FORMATS = ["text", "json"] as const;

/** One entry of the log with its newline, in one of {@link LOG_FORMATS}. */
export function logLine(
  format: (typeof LOG_FORMATS)[number],
  message: string,
  facts: Record<string, unknown> = { message },
): string {
  const time = new Date().toISOString();
  return format === "json" ? `${JSON.stringify({ time, ...facts })}\n` : `${time} ${message}\n`;
}

type LoggedRequest = Exchange["request"];

const LONGEST_PATH = 200;

/**
 * One line for each request. Of what a stranger typed nothing is kept but the method: the path appears only where it
 * is one of the server's, the query never, because people put tokens there.
 */
export class AccessLog {
  readonly #log: Log;
  readonly #routes = new WeakMap<LoggedRequest, string>();
  readonly #identities = new WeakMap<LoggedRequest, Identity>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** Remembers which entry of the route table, or which file, a request is for; undefined for none. */
  route(request: HttpRequest, route: string | undefined): void {
    if (route !== undefined) this.#routes.set(request, route);
  }

  /** Remembers who makes a request. */
  identity(request: HttpRequest, identity: Identity): void {
    this.#identities.set(request, identity);
  }

  /** Writes the line of a request that is over. */
  record({ request, status, bytes, durationMs }: Exchange): void {
    const route = this.#routes.get(request) ?? "-";
    const identity = this.#identities.get(request);
    const facts = {
      request_id: request.id,
      peer: request.peer,
      method: printable(request.method),
      route,
      path: route === "-" ? "-" : printable(request.path),
      status,
      size_bytes: bytes,
      duration_ms: Math.round(durationMs),
      authenticated: identity ? `${identity.via}${identity.totp ? "+totp" : ""}` : "no",
    };
    const { method, path, size_bytes, duration_ms, authenticated } = facts;
    const line = `${method} ${path} ${status} bytes=${size_bytes} ms=${duration_ms} auth=${authenticated}`;
    this.#log(`${line} peer=${request.peer} request=${request.id}`, facts);
  }
}

/** Without whatever a terminal could take for more than a letter. */
function printable(text: string): string {
  return text.slice(0, LONGEST_PATH).replace(/[^\x21-\x7e]/g, "?");
}
