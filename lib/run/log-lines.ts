import type { FileHandle } from "node:fs/promises";
import { Failure } from "../core/errors.ts";
import { openRegular, unlessMissing } from "../core/files.ts";

/** Which lines of a run's Activity are wanted: those that everything given holds for. */
export interface LineFilter {
  /** Literal text that the line has: 1 to 200 bytes, without line breaks. */
  text?: string | undefined;
  /** Letters of the text must have the same case. */
  matchCase: boolean;
  /** The job that the line is about, by its whole name. */
  job?: string | undefined;
  /** The worker that the line is about, by its whole name. */
  worker?: string | undefined;
}

/** A line in a text: where it begins and ends, its newline not counted, and where what was looked for stands. */
export interface FoundLine {
  start: number;
  end: number;
  at: number;
}

const MOST_TEXT_BYTES = 200;
/** The most that a line can have before it counts as two. */
export const MOST_LINE_BYTES = 32 * 1024 * 1024;
const PIECE_BYTES = 1024 * 1024;
/** Room for the longest names and what may stand before them. */
const BEGINNING_BYTES = 512;
const NEWLINE = 0x0a;

/** What may stand before the place of a line. */
const MARKS = /^(?:\x1b\[[\d;]*m|[\t\r ]|error: |warning: )*/;
/** `job@worker | output`, `worker ! error`, `job@worker: …`, `job: …`. */
const PLACE = /^(?:([^@\s]+)@)?(\S+?)(?: [|!]|: )/;

/** The bytes of a log as a text in which each is one character, so that places in it are offsets in bytes. */
export function bytesAsText(bytes: Buffer): string {
  return bytes.toString("latin1");
}

/**
 * Finds the lines that are wanted, all where nothing is asked for. Bytes are compared: what is not UTF-8 does no harm.
 * Throws `invalid_request` for a text that cannot be looked for.
 */
export class WantedLines {
  readonly #pattern: RegExp;
  readonly #job: string | undefined;
  readonly #worker: string | undefined;

  constructor({ text, matchCase, job, worker }: LineFilter) {
    if (text !== undefined && (text === "" || Buffer.byteLength(text) > MOST_TEXT_BYTES || /[\r\n]/.test(text)))
      throw new Failure("invalid_request", `q: expected 1 to ${MOST_TEXT_BYTES} bytes on one line`);
    const place = [job, worker].filter((name) => name !== undefined).join("@");
    this.#pattern = patternOf(text ?? place, matchCase || text === undefined);
    this.#job = job;
    this.#worker = worker;
  }

  /** Those among whole lines, given by {@link bytesAsText}. */
  *in(text: string): Generator<FoundLine> {
    for (let from = 0; from < text.length; ) {
      this.#pattern.lastIndex = from;
      const at = this.#pattern.exec(text)?.index;
      if (at === undefined) return;
      const start = at === from ? from : text.lastIndexOf("\n", at - 1) + 1;
      const newline = text.indexOf("\n", at);
      const end = newline < 0 ? text.length : newline;
      from = end + 1;
      if (this.#isOfPlace(text.slice(start, Math.min(end, start + BEGINNING_BYTES)))) yield { start, end, at };
    }
  }

  /** What a line is about is told by its beginning alone, in time that grows with its length. */
  #isOfPlace(beginning: string): boolean {
    const [job, worker] = [this.#job, this.#worker];
    if (job === undefined && worker === undefined) return true;
    const [, ofJob, name] = PLACE.exec(beginning.replace(MARKS, "")) ?? [];
    const isOfJob = job === (ofJob ?? (worker === undefined ? name : undefined));
    return (job === undefined || isOfJob) && (worker === undefined || worker === name);
  }
}

/** Of each letter whose case does not matter all forms are looked for. */
function patternOf(text: string, matchCase: boolean): RegExp {
  const parts = [...text].map((letter) => {
    const forms = matchCase ? [letter] : [letter, letter.toLowerCase(), letter.toUpperCase()];
    return `(?:${[...new Set(forms)].map((form) => RegExp.escape(bytesAsText(Buffer.from(form)))).join("|")})`;
  });
  return new RegExp(parts.join(""), "g");
}

/** Opens a file of a run; undefined for one that is not there or no regular file, which has said nothing. */
export async function openLog(file: string): Promise<FileHandle | undefined> {
  try {
    return await unlessMissing(openRegular(file));
  } catch (error) {
    if (error instanceof Failure && error.code === "file_not_found") return undefined;
    throw error;
  }
}

/**
 * The lines of a file between two bytes, the first the beginning of a line, in pieces of whole lines of about 1 MiB. What
 * follows the last newline is among them only where `isEnd` says that it is the end. A line of 32 MiB counts as one that
 * ends there. Each piece holds until the next is asked for.
 */
export async function* wholeLines(
  handle: FileHandle,
  from: number,
  end: number,
  isEnd: boolean,
): AsyncGenerator<Buffer, void, undefined> {
  let buffer = Buffer.allocUnsafe(Math.min(PIECE_BYTES, end - from));
  for (let at = from; at < end; ) {
    const { bytesRead } = await handle.read(buffer, 0, Math.min(buffer.length, end - at), at);
    if (bytesRead === 0) return;
    const reachesEnd = at + bytesRead >= end;
    const lines = buffer.subarray(0, bytesRead).lastIndexOf(NEWLINE) + 1;
    const length = lines || ((isEnd && reachesEnd) || bytesRead === MOST_LINE_BYTES ? bytesRead : 0);
    if (length > 0) yield buffer.subarray(0, length);
    else if (reachesEnd) return;
    else buffer = Buffer.allocUnsafe(Math.min(2 * buffer.length, MOST_LINE_BYTES));
    at += length;
  }
}
