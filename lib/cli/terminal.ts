import { visibleLines } from "./table.ts";

/**
 * Writes to stdout. Whatever the text quotes (a server, a worker, a file), nothing in it is left that a terminal would
 * obey, in a pipe neither: colours come from `painted`, which gets it so.
 */
export function toStdout(text: string, painted: (text: string) => string = (same) => same): void {
  process.stdout.write(painted(visibleLines(text)));
}

/** Writes to stderr, likewise. */
export function toStderr(text: string): void {
  process.stderr.write(visibleLines(text));
}
