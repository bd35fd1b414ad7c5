import type { Exchange } from "../http/listen.ts";

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
  const time = timeNow();
  return format === "json" ? `${JSON.stringify({ time, ...facts })}\n` : `${time} ${message}\n`;
}

const latest = { ms: 0, text: "" };

/** Many lines are of one millisecond. */
function timeNow(): string {
  const ms = Date.now();
  if (latest.ms !== ms) Object.assign(latest, { ms, text: new Date(ms).toISOString() });
  return latest.text;
}

const LONGEST_PATH = 200;

/**
 * Writes one line for a request that is over, with the route where the path is another text. Of what a stranger typed
 * nothing is kept but the method: the path appears only where it is one of the server's, the query never, because people
 * put tokens there.
 */
export function logExchange(log: Log, { request, status, bytes, durationMs }: Exchange): void {
  const { route, authenticated = "no" } = request.noted;
  const facts = {
    request_id: request.id,
    peer: request.peer,
    method: printable(request.method),
    route: route ?? "-",
    path: route === undefined ? "-" : printable(request.path),
    status,
    size_bytes: bytes,
    duration_ms: Math.round(durationMs),
    authenticated,
  };
  const { method, path, size_bytes, duration_ms } = facts;
  const line = `${method} ${path} ${status} bytes=${size_bytes} ms=${duration_ms} auth=${authenticated}`;
  const shape = facts.route === path ? "" : ` route=${facts.route}`;
  log(`${line}${shape} peer=${request.peer} request=${request.id}`, facts);
}

/** Without whatever a terminal could take for more than a letter. */
function printable(text: string): string {
  return text.slice(0, LONGEST_PATH).replace(/[^\x21-\x7e]/g, "?");
}
