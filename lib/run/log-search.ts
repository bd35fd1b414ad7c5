import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { Failure } from "../core/errors.ts";
import { bytesAsText, type LineFilter, MOST_LINE_BYTES, openLog, WantedLines, wholeLines } from "./log-lines.ts";
import { readRecord, runNotFound } from "./record.ts";

/** What is searched for: lines with a text, or about a job or a worker. */
export interface LogQuery extends LineFilter {
  /** `next` of the answer before; undefined or `0` for the beginning. */
  after?: string | undefined;
  /** Only lines that end before this byte; undefined for all. */
  until?: number | undefined;
  limit: number;
}

/** A line of activity.log that is searched for. */
export interface LogMatch {
  /** Counted from 1. */
  line: number;
  /** The byte at which the line begins. */
  offset: number;
  /** The line; of a long one the part around the text. */
  text: string;
}

/** What a part of a log holds of them. */
export interface LogMatches {
  matches: LogMatch[];
  /** Where to go on, to be sent as `after`. */
  next: string;
  /** The byte up to which the log was searched. */
  scanned_to: number;
  /** The run has ended and all of its log was searched. */
  done: boolean;
}

const SHOWN_BYTES = 2_000;
const NEWLINE = 0x0a;

/**
 * Searches the Activity of a run, which may still grow: a line counts once it is complete or the run has ended. One call
 * looks at up to 32 MiB. Throws `run_not_found`, and `invalid_request` for a text or a place that cannot be.
 */
export async function searchLog(layout: Layout, runId: string, query: LogQuery): Promise<LogMatches> {
  const place = placeOf(query.after);
  const { text, job, worker } = query;
  if (text === undefined && job === undefined && worker === undefined)
    throw new Failure("invalid_request", "q: expected a text to search for, or else a job or a worker");
  const wanted = new WantedLines(query);
  // The status first: once a run has ended its log grows no more.
  const record = readRecord(layout, runId);
  if (!record) throw runNotFound(runId);
  const ended = record.status !== "running";
  const handle = await openLog(runLayout(layout, runId).activity);
  try {
    const { size } = (await handle?.stat()) ?? { size: 0 };
    if (place.offset > size) throw wrongPlace();
    const search = new Search(wanted, query.limit, place);
    // One call looks at no more than the longest line.
    const end = Math.min(size, place.offset + MOST_LINE_BYTES, Math.max(place.offset, query.until ?? size));
    if (handle)
      for await (const piece of wholeLines(handle, place.offset, end, ended && end === size))
        if (search.take(piece)) break;
    const { matches, line, offset } = search;
    return { matches, next: `${offset}.${line}`, scanned_to: offset, done: ended && offset === size };
  } finally {
    await handle?.close();
  }
}

function placeOf(after: string | undefined): { offset: number; line: number } {
  if (after === undefined || after === "0") return { offset: 0, line: 1 };
  const [, offset = "", line = ""] = /^(\d{1,15})\.([1-9]\d{0,14})$/.exec(after) ?? [];
  if (offset === "") throw wrongPlace();
  return { offset: Number(offset), line: Number(line) };
}

function wrongPlace(): Failure {
  return new Failure("invalid_request", "after: expected `next` of an earlier answer about this log");
}

/** Goes through a log line by line, counting them. */
class Search {
  readonly matches: LogMatch[] = [];
  readonly #wanted: WantedLines;
  readonly #limit: number;
  /** What was taken so far ends before this byte and this line. */
  offset: number;
  line: number;

  constructor(wanted: WantedLines, limit: number, place: { offset: number; line: number }) {
    this.#wanted = wanted;
    this.#limit = limit;
    this.offset = place.offset;
    this.line = place.line;
  }

  /** Takes whole lines, up to the one that fills the answer; answers whether it is full. */
  take(piece: Buffer): boolean {
    let taken = 0;
    const takeTo = (place: number) => {
      this.line += newlinesIn(piece, taken, place);
      taken = place;
    };
    for (const { start, end, at } of this.#wanted.in(bytesAsText(piece))) {
      takeTo(start);
      const text = shownPart(piece.subarray(start, end), at - start);
      this.matches.push({ line: this.line, offset: this.offset + start, text });
      takeTo(Math.min(end + 1, piece.length));
      if (this.matches.length === this.#limit) break;
    }
    const isFull = this.matches.length === this.#limit;
    if (!isFull) takeTo(piece.length);
    this.offset += taken;
    return isFull;
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
