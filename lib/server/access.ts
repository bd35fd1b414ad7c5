import type { Exchange } from "../http/listen.ts";

const LONGEST_PATH = 200;

/**
 * The line of the access log for one exchange: method, path, status, duration, request, peer. The query is left out,
 * because people put tokens there, and so is whatever a terminal could take for more than a letter.
 */
export function accessLine({ request, status, durationMs }: Exchange): string {
  const path = request.path.slice(0, LONGEST_PATH).replace(/[^\x21-\x7e]/g, "?");
  const method = request.method.slice(0, 20);
  return `${method} ${path} ${status} ${Math.round(durationMs)} ms request=${request.id} peer=${request.peer}`;
}
