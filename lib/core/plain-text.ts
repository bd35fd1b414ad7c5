import { Failure, messageOf } from "./errors.ts";
import { isClosing, reasonLine } from "./trouble-lines.ts";

/** Sequences that a terminal would obey: CSI, OSC, and other escapes. */
const SEQUENCES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;
const REPLACEMENT = "\ufffd";

/**
 * Text of unknown origin as lines that are harmless wherever they are shown: escape sequences are left out, any other
 * control character is replaced. At most the last `lines`, each cut to `length` characters.
 */
export function plainLines(text: string, limits: { lines: number; length: number }): string[] {
  if (text === "") return [];
  const all = text.replace(/\n$/, "").split(/\r?\n/);
  return all.slice(-limits.lines).map((line) => plainLine(line, limits.length));
}

/** One line of {@link plainLines}. */
export function plainLine(text: string, length: number): string {
  const plain = text
    .replace(SEQUENCES, "")
    .replaceAll("\t", "  ")
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, REPLACEMENT);
  return plain.length > length ? `${plain.slice(0, length)}…`.toWellFormed() : plain;
}

const STRICT_UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Bytes as text, a byte order mark included; undefined where they are not UTF-8. */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return STRICT_UTF8.decode(bytes);
  } catch {
    return undefined;
  }
}

/** The line and the column (in characters, but for a byte order mark) of a place in a text, both from 1. */
export function lineAndColumn(text: string, at: number): { line: number; column: number } {
  const before = text.slice(0, at).replace(/^\ufeff/, "");
  return { line: before.split("\n").length, column: [...before.slice(before.lastIndexOf("\n") + 1)].length + 1 };
}

/** What a reader of a text refuses: `place` is such as `line 2, column 5`, and `what` is wrong there. */
export class TextFailure extends Failure {
  readonly place: string;
  readonly what: string;

  constructor(text: string, at: number, what: string) {
    const { line, column } = lineAndColumn(text, at);
    const place = `line ${line}, column ${column}`;
    super("failed", `${place}: ${what}`);
    this.place = place;
    this.what = what;
  }
}

/** What a reader of a text has thrown; `place` is empty where the error does not say it. */
export function textProblem(error: unknown): Pick<TextFailure, "place" | "what"> {
  return error instanceof TextFailure ? error : { place: "", what: messageOf(error) };
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A number of bytes in the largest unit of which there is at least one: `12 B`, `1.5 KiB`, `64 MiB`. */
export function byteSize(bytes: number): string {
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(bytes) / 10)));
  const value = bytes / 1024 ** power;
  return `${value < 10 && power > 0 ? value.toFixed(1) : Math.round(value)} ${UNITS[power]}`;
}

const SHOWN_LIMITS = { lines: 20, length: 400 };
/** More lines are kept than shown, so that a secret of several lines is kept whole and can be masked. */
const KEPT_LINES = 40;
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
    return plainLines(mask(lines.join("\n")), SHOWN_LIMITS);
  }
}

/**
 * A sentence about what failed, with the lines of the program below it; one line where the program printed at most one.
 */
export function withLines(what: string, lines: readonly string[]): string {
  if (lines.length < 2) return [what, ...lines].join(": ");
  return [`${what}:`, ...lines].join("\n");
}

/** A text of {@link withLines} as one line: what failed, and the line of the program that most likely tells why. */
export function inOneLine(text: string): string {
  const [first = "", ...rest] = text.split("\n");
  if (rest.length === 0) return first;
  return `${first} ${reasonLine(rest.map((line) => ({ text: line })))?.text.trim()}`;
}

/** How many of some things are in a state, up to the verb: `0 of 1 worker is`, `2 of 3 workers are`. */
export function countOf(part: number, all: number, thing: string): string {
  return `${part} of ${counted(all, thing)} ${all === 1 ? "is" : "are"}`;
}

/** The first so many names, and how many more there are: `a, b and 3 more`. */
export function firstOf(names: readonly string[], most: number): string {
  const more = names.length > most ? ` and ${names.length - most} more` : "";
  return names.slice(0, most).join(", ") + more;
}

/** A number of things: `1 job`, `2 jobs`. */
export function counted(number: number, thing: string): string {
  return `${number} ${thing}${number === 1 ? "" : "s"}`;
}
