import { type Layout, runLayout } from "../../bucket/base/layout.ts";
import { Failure } from "../../core/errors.ts";
import { boolean, described, type Infer, integer, list, object, string } from "../../core/shape.ts";
import { readRecord, runNotFound } from "../record.ts";
import { NEWLINE, recordedPlaces } from "./log-entries.ts";
import {
  bytesAsText,
  type LineFilter,
  type LineStart,
  lineStartOf,
  MOST_LINE_BYTES,
  openLog,
  wantedLines,
  wholeLines,
  wrongStart,
} from "./log-lines.ts";

/** Which lines to search for, and where. */
export interface LogQuery extends LineFilter {
  /** `next` of the answer before; undefined or `0` for the beginning. */
  after?: string | undefined;
  /** Only lines that end before this byte; undefined for all. */
  until?: number | undefined;
  limit: number;
}

/** The matches in a part of a log. */
export const LOG_MATCHES = object({
  matches: list(
    object({
      line: described(integer({ min: 1 }), "Counted from 1"),
      offset: described(integer({ min: 0 }), "The byte at which the line begins"),
      text: described(string(), "The line; of one over 2,000 bytes the part around the text"),
    }),
  ),
  next: described(string(), "Where to go on"),
  scanned_to: described(integer({ min: 0 }), "The byte up to which the log was searched"),
  done: described(boolean(), "The run has ended and all of its log was searched"),
});
type LogMatches = Infer<typeof LOG_MATCHES>;

const SHOWN_BYTES = 2_000;

/**
 * Searches the Activity of a run, which may still grow: a line counts once it is complete or the run has ended. One call
 * searches up to 32 MiB. Throws `run_not_found`, and `invalid_request` for a wrong text or place.
 */
export async function searchLog(layout: Layout, runId: string, query: LogQuery): Promise<LogMatches> {
  const place = lineStartOf(query.after);
  const { text, job, worker } = query;
  if (text === undefined && job === undefined && worker === undefined)
    throw new Failure("invalid_request", "q: expected a text to search for, or else a job or a worker");
  // The status is read first: the log of a run that has ended grows no more.
  const record = readRecord(layout, runId);
  if (!record) throw runNotFound(runId);
  const ended = record.status !== "running";
  const { activity, activityPlaces } = runLayout(layout, runId);
  await using files = new AsyncDisposableStack();
  const log = files.use(await openLog(activity));
  const { size } = (await log?.stat()) ?? { size: 0 };
  // Opened after the size was read: the lines up to there have their places.
  const places = files.use(await openLog(activityPlaces));
  if (place.offset > size) throw wrongStart();
  // As many bytes as the longest line, or that line could not be passed.
  const end = Math.min(size, place.offset + MOST_LINE_BYTES, Math.max(place.offset, query.until ?? size));
  const pieces = log ? wholeLines(log, place.offset, end, ended && end === size) : [];
  const { matches, line, offset } = await searchPieces(pieces, query, place, recordedPlaces(places?.fd, query));
  return { matches, next: `${offset}.${line}`, scanned_to: offset, done: ended && offset === size };
}

/** Searches whole lines, and counts them, up to the limit of matches; answers where the search has stopped. */
async function searchPieces(
  pieces: AsyncIterable<Buffer> | Iterable<Buffer>,
  query: LogQuery,
  place: LineStart,
  isOfPlace: ReturnType<typeof recordedPlaces>,
) {
  const matches: LogMatches["matches"] = [];
  let { offset, line } = place;
  const find = wantedLines(query, isOfPlace && ((start, beginning) => isOfPlace(offset + start, beginning)));
  for await (const piece of pieces) {
    let passed = 0;
    const passTo = (to: number) => {
      line += newlinesIn(piece, passed, to);
      passed = to;
    };
    for (const { start, end, at } of find(bytesAsText(piece))) {
      passTo(start);
      const text = shownPart(piece.subarray(start, end), at - start);
      matches.push({ line, offset: offset + start, text });
      passTo(Math.min(end + 1, piece.length));
      if (matches.length === query.limit) return { matches, line, offset: offset + passed };
    }
    passTo(piece.length);
    offset += piece.length;
  }
  return { matches, line, offset };
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
