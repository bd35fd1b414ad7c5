import { plainLines } from "./plain-text.ts";

const SHOWN = { lines: 20, length: 400 };
/** More than is shown, so that a secret of several lines is whole, and found. */
const KEPT_LINES = 40;
/** How make closes when a target has failed; that tells nothing about why it did. */
const CLOSING = /^\S*make(?:\[\d+\])?: \*\*\* /;
/** What Node puts behind the message of an error. */
const TRACE = /^ +at |^Node\.js v/;

/** The last lines of what a program says. Of make's closing lines the last is kept for where it says nothing else. */
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

  /** At most the last 20 of them, masked and harmless wherever they are shown. */
  shown(mask: (text: string) => string): string[] {
    const lines = this.#lines.length > 0 ? this.#lines : [this.#closing];
    return plainLines(mask(lines.join("\n")), SHOWN);
  }
}

/** True for a line that make itself adds when a target has failed. */
export function isClosing(line: string): boolean {
  return CLOSING.test(line);
}

/** What failed, and below it what the program said; one line where it said no more than that. */
export function withLines(what: string, lines: readonly string[]): string {
  if (lines.length < 2) return [what, ...lines].join(": ");
  return [`${what}:`, ...lines].join("\n");
}

/** A text of {@link withLines} as one line: what failed, and the last thing that the program said. */
export function inOneLine(text: string): string {
  const [first = "", ...rest] = text.split("\n");
  if (rest.length === 0) return first;
  return `${first} ${(rest.findLast((line) => !TRACE.test(line)) ?? rest.at(-1) ?? "").trim()}`;
}
