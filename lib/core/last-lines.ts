import { plainLines } from "./plain-text.ts";

const SHOWN = { lines: 20, length: 400 };
/** More lines are kept than shown, so that a secret of several lines is kept whole and can be masked. */
const KEPT_LINES = 40;
/** The closing lines of make after a failed target; they do not say why the target failed. */
const CLOSING = /^\S*make(?:\[\d+\])?: \*\*\* /;
/** The lines that Node prints after the message of an error. */
const TRACE = /^ +at |^Node\.js v/;

/**
 * Collects the last lines of a program's output. The last closing line of make is kept too, for a program that prints
 * nothing else.
 */
export class LastLines {
  readonly #lines: string[] = [];
  #closing = "";

  /** Adds a line, given without its newline. */
  add(line: string): void {
    if (line.trim() === "") return;
    if (isClosing(line)) this.#closing = line;
    else this.#lines.push(line);
    if (this.#lines.length > KEPT_LINES) this.#lines.shift();
  }

  /** At most the last 20 lines, masked and without control characters. */
  shown(mask: (text: string) => string): string[] {
    const lines = this.#lines.length > 0 ? this.#lines : [this.#closing];
    return plainLines(mask(lines.join("\n")), SHOWN);
  }
}

/** True for a line that make itself adds when a target has failed. */
export function isClosing(line: string): boolean {
  return CLOSING.test(line);
}

/**
 * A sentence about what failed, with the lines of the program below it; one line where the program printed at most one.
 */
export function withLines(what: string, lines: readonly string[]): string {
  if (lines.length < 2) return [what, ...lines].join(": ");
  return [`${what}:`, ...lines].join("\n");
}

/** A text of {@link withLines} as one line: what failed, and the last line of the program. */
export function inOneLine(text: string): string {
  const [first = "", ...rest] = text.split("\n");
  if (rest.length === 0) return first;
  return `${first} ${(rest.findLast((line) => !TRACE.test(line)) ?? rest.at(-1) ?? "").trim()}`;
}
