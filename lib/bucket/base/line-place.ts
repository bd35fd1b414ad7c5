/** What a line of Activity is about. */
export interface About {
  job?: string | undefined;
  worker?: string | undefined;
}

/**
 * Where a line of Activity comes from: an output of a program on a worker, or ops itself, which tells something (`ops`) or
 * tells an error (`error`). The place is recorded when the line is written and never read from the line's text.
 */
export interface LinePlace extends About {
  stream: "stdout" | "stderr" | "ops" | "error";
}

/** What stands before each line of a place: `job@worker | `, `worker ! `, or nothing before a line of ops. */
export function prefixOf({ job, worker, stream }: LinePlace): string {
  if (stream === "ops" || stream === "error") return "";
  return `${job === undefined ? "" : `${job}@`}${worker} ${stream === "stderr" ? "!" : "|"} `;
}
