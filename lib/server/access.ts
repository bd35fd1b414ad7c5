import type { Exchange } from "../http/listen.ts";

/** Takes what a server has to say: a line for people and, for programs, its facts where it has any. */
export type Log = (message: string, facts?: () => Record<string, unknown>) => void;

/** The forms a log can have. */
export const LOG_FORMATS = ["text", "json"] as const;

/** One entry of the log with its newline, in one of {@link LOG_FORMATS}. */
export function logLine(
  format: (typeof LOG_FORMATS)[number],
  message: string,
  facts: () => Record<string, unknown> = () => ({ message }),
): string {
  const time = timeNow();
  return format === "json" ? `${JSON.stringify({ time, ...facts() })}\n` : `${time} ${message}\n`;
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
  const { id, peer, noted } = request;
  const { route = "-" } = noted;
  const authenticated = noted.refused ?? noted.authenticated ?? "no";
  const method = printable(request.method);
  const path = noted.route === undefined ? "-" : printable(request.path);
  const duration_ms = Math.round(durationMs);
  const shape = route === path ? "" : ` route=${route}`;
  log(
    `${method} ${path} ${status} bytes=${bytes} ms=${duration_ms} auth=${authenticated}${shape} peer=${peer} request=${id}`,
    () => ({ request_id: id, peer, method, route, path, status, size_bytes: bytes, duration_ms, authenticated }),
  );
}

/** Without whatever a terminal could take for more than a letter. */
function printable(text: string): string {
  return text.slice(0, LONGEST_PATH).replace(/[^\x21-\x7e]/g, "?");
}
