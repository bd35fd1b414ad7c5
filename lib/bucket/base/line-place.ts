/** The stream of a program on a worker that a line came from; `ops` for a line of ops itself. */
export type WrittenTo = "stdout" | "stderr" | "ops";

/** What a line of Activity is about. */
export interface About {
  job?: string | undefined;
  worker?: string | undefined;
}

/**
 * Where a line of Activity comes from: an output of a program on a worker, or ops itself, which tells something (`ops`),
 * an error (`error`), or that a batch of the job is put back from there on (`restore`). The place is recorded when the
 * line is written and never read from the line's text.
 */
export interface LinePlace extends About {
  stream: "stdout" | "stderr" | OpsStream;
}

/** What ops itself tells. */
export type OpsStream = "ops" | "error" | "restore";

/** True for a line that ops itself tells. */
export function isOfOps(place: LinePlace): boolean {
  return writtenTo(place) === "ops";
}

/** The stream that the lines of a place came from. */
export function writtenTo(place: LinePlace): WrittenTo {
  return place.stream === "stdout" || place.stream === "stderr" ? place.stream : "ops";
}

/** What stands before each line of a place: `job@worker | `, `worker ! `, or nothing before a line of ops. */
export function prefixOf(place: LinePlace): string {
  const { job, worker, stream } = place;
  if (isOfOps(place)) return "";
  return `${job === undefined ? "" : `${job}@`}${worker} ${stream === "stderr" ? "!" : "|"} `;
}
