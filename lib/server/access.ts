import type { Exchange } from "../http/listen.ts";

/** Writes an entry of the server's log: a sentence for people and, for programs, its facts. */
export type Log = (message: string, facts?: Record<string, unknown>) => void;

/** The forms of the log. */
export type LogFormat = "text" | "json";

/** One entry of the log with its newline, in one of the forms. */
export function logLine(format: LogFormat, message: string, facts: Record<string, unknown> = { message }): string {
  const time = new Date().toISOString();
  return format === "json" ? `${JSON.stringify({ time, ...facts })}\n` : `${time} ${message}\n`;
}

const LONGEST_PATH = 200;

/**
 * Writes one line for a request that is over. The path is shown only where a route takes it, since a stranger may have
 * typed anything, and the query never, since people put tokens there. The route is shown where it differs from the path.
 */
export function logExchange(log: Log, { request, status, bytes, durationMs }: Exchange): void {
  const { id, peer, noted } = request;
  const { route = "-" } = noted;
  const authenticated = noted.refused ?? noted.authenticated ?? "no";
  const method = printable(request.method);
  const path = noted.route === undefined ? "-" : printable(request.path);
  const name = noted.name === undefined ? "" : ` name=${noted.name}`;
  const duration_ms = Math.round(durationMs);
  const shape = route === path ? "" : ` route=${route}`;
  log(
    `${method} ${path} ${status} bytes=${bytes} ms=${duration_ms} auth=${authenticated}${name}${shape} peer=${peer} request=${id}`,
    {
      request_id: id,
      peer,
      method,
      route,
      path,
      status,
      size_bytes: bytes,
      duration_ms,
      authenticated,
      ...(noted.name !== undefined && { name: noted.name }),
    },
  );
}

/** The text with a question mark for each character that a terminal could obey. */
function printable(text: string): string {
  return text.slice(0, LONGEST_PATH).replace(/[^\x21-\x7e]/g, "?");
}
