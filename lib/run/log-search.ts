import { type FileHandle, open } from "node:fs/promises";
import { type Layout, runLayout } from "../bucket/layout.ts";
import { Failure, hasErrno } from "../core/errors.ts";
import { readRecord } from "./record.ts";

/** What is searched for: literal text, its first match of a line. */
export interface LogQuery {
  /** At most 200 bytes, without line breaks. */
  text: string;
  /** Letters must have the same case. */
  matchCase: boolean;
  /** `next` of the answer before; undefined for the beginning. */
  after?: string | undefined;
  /** Only lines that end before this byte; undefined for all. */
  until?: number | undefined;
  limit: number;
}

/** A line of activity.log with the text in it. */
export interface LogMatch {
  /** Counted from 1. */
  line: number;
  /** The byte at which the line begins. */
  offset: number;
  /** The line; of a long one the part around the text. */
  text: string;
}

/** What a part of a log holds of the text. */
export interface LogMatches {
  matches: LogMatch[];
  /** Where to go on, to be sent as `after`. */
  next: string;
  /** The byte up to which the log was searched. */
  scanned_to: number;
  /** The run has ended and all of its log was searched. */
  done: boolean;
}

const MOST_TEXT_BYTES = 200;
/** One call looks at no more; also the most that a line can have before it counts as two. */
const CALL_BYTES = 32 * 1024 * 1024;
const PIECE_BYTES = 1024 * 1024;
const SHOWN_BYTES = 2_000;
const NEWLINE = 0x0a;

/**
 * Searches the Activity of a run, which may still grow: a line counts once it is complete or the run has ended. One call
 * looks at up to 32 MiB. Throws `run_not_found`, and `invalid_request` for a text or a place that cannot be.
 */
export async function searchLog(layout: Layout, runId: string, query: LogQuery): Promise<LogMatches> {
  const place = placeOf(query.after);
  const pattern = patternOf(query);
  // The status first: once a run has ended its log grows no more.
  const record = await readRecord(layout, runId);
  if (!record) throw new Failure("run_not_found", `run ${runId} does not exist`);
  const ended = record.status !== "running";
  const handle = await openLog(runLayout(layout, runId).activity);
  try {
    const { size } = (await handle?.stat()) ?? { size: 0 };
    if (place.offset > size) throw wrongPlace();
    const search = new Search(pattern, query.limit, place);
    const end = Math.min(size, place.offset + CALL_BYTES, Math.max(place.offset, query.until ?? size));
    if (handle) await searchUpTo(handle, search, end, ended && end === size);
    const { matches, line, offset } = search;
    return { matches, next: `${offset}.${line}`, scanned_to: offset, done: ended && offset === size };
  } finally {
    await handle?.close();
  }
}

async function openLog(file: string): Promise<FileHandle | undefined> {
  try {
    return await open(file, "r");
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** Reads piece by piece; what follows the last newline is read again with the next piece, unless it is the end. */
async function searchUpTo(handle: FileHandle, search: Search, end: number, isEnd: boolean): Promise<void> {
  let buffer = Buffer.allocUnsafe(Math.min(PIECE_BYTES, end - search.offset));
  while (!search.isFull && search.offset < end) {
    const wanted = Math.min(buffer.length, end - search.offset);
    const { bytesRead } = await handle.read(buffer, 0, wanted, search.offset);
    if (bytesRead === 0) return;
    const piece = buffer.subarray(0, bytesRead);
    const reachesEnd = search.offset + bytesRead >= end;
    const lines = piece.lastIndexOf(NEWLINE) + 1;
    if (lines > 0) search.take(piece.subarray(0, lines));
    else if ((isEnd && reachesEnd) || bytesRead === CALL_BYTES) search.take(piece);
    else if (reachesEnd) return;
    else buffer = Buffer.allocUnsafe(Math.min(2 * buffer.length, CALL_BYTES));
  }
}

function placeOf(after: string | undefined): { offset: number; line: number } {
  if (after === undefined) return { offset: 0, line: 1 };
  const [, offset = "", line = ""] = /^(\d{1,15})\.([1-9]\d{0,14})$/.exec(after) ?? [];
  if (offset === "") throw wrongPlace();
  return { offset: Number(offset), line: Number(line) };
}

function wrongPlace(): Failure {
  return new Failure("invalid_request", "after: expected `next` of an earlier answer about this log");
}

/**
 * Bytes are compared, each as one character: then places are byte offsets, and what is not UTF-8 does no harm. Of each
 * letter whose case does not matter all forms are looked for.
 */
function patternOf({ text, matchCase }: LogQuery): RegExp {
  if (text === "" || Buffer.byteLength(text) > MOST_TEXT_BYTES || /[\r\n]/.test(text))
    throw new Failure("invalid_request", `q: expected 1 to ${MOST_TEXT_BYTES} bytes on one line`);
  const parts = [...text].map((letter) => {
    const forms = matchCase ? [letter] : [letter, letter.toLowerCase(), letter.toUpperCase()];
    return `(?:${[...new Set(forms)].map((form) => RegExp.escape(bytesAsText(Buffer.from(form)))).join("|")})`;
  });
  return new RegExp(parts.join(""), "g");
}

function bytesAsText(bytes: Buffer): string {
  return bytes.toString("latin1");
}

/** Goes through a log line by line, counting them. */
class Search {
  readonly matches: LogMatch[] = [];
  readonly #pattern: RegExp;
  readonly #limit: number;
  /** What was taken so far ends before this byte and this line. */
  offset: number;
  line: number;

  constructor(pattern: RegExp, limit: number, place: { offset: number; line: number }) {
    this.#pattern = pattern;
    this.#limit = limit;
    this.offset = place.offset;
    this.line = place.line;
  }

  get isFull(): boolean {
    return this.matches.length === this.#limit;
  }

  /** Takes whole lines, up to the one that fills the answer. */
  take(piece: Buffer): void {
    const text = bytesAsText(piece);
    let at = 0;
    const skipTo = (place: number) => {
      this.line += newlinesIn(piece, at, place);
      at = place;
    };
    this.#pattern.lastIndex = 0;
    for (let found = this.#pattern.exec(text); found && !this.isFull; found = this.#pattern.exec(text)) {
      const start = text.lastIndexOf("\n", found.index) + 1;
      const newline = text.indexOf("\n", found.index);
      const end = newline < 0 ? piece.length : newline;
      skipTo(start);
      const shown = shownPart(piece.subarray(start, end), found.index - start);
      this.matches.push({ line: this.line, offset: this.offset + start, text: shown });
      skipTo(Math.min(end + 1, piece.length));
      this.#pattern.lastIndex = at;
    }
    if (!this.isFull) skipTo(piece.length);
    this.offset += at;
  }
}

function newlinesIn(bytes: Buffer, from: number, to: number): number {
  let count = 0;
  for (let at = from; at < to; at++) if (bytes[at] === NEWLINE) count++;
  return count;
}

/** The part of a line around a place, cut between characters. */
function shownPart(line: Buffer, place: number): string {
  if (line.length <= SHOWN_BYTES) return line.toString();
  const from = Math.max(0, Math.min(place - SHOWN_BYTES / 4, line.length - SHOWN_BYTES));
  const part = line.subarray(from, from + SHOWN_BYTES).toString();
  return `${from > 0 ? "…" : ""}${part.replace(/^\ufffd+|\ufffd+$/g, "")}${from + SHOWN_BYTES < line.length ? "…" : ""}`;
}
