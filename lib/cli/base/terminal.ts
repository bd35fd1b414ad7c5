import { visibleLines } from "./table.ts";

/**
 * Writes text to stdout with control characters escaped, in a pipe too: the text may quote a server, a worker or a
 * file. Colours come from `painted`, which gets escaped text.
 */
export function toStdout(text: string, painted: (text: string) => string = (same) => same): void {
  process.stdout.write(painted(visibleLines(text)));
}

/** Writes text to stderr in the same way. */
export function toStderr(text: string): void {
  process.stderr.write(visibleLines(text));
}
