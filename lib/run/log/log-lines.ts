import type { FileHandle } from "node:fs/promises";
import { type Layout, runLayout } from "../../bucket/base/layout.ts";
import type { WrittenTo } from "../../bucket/base/line-place.ts";
import { Failure } from "../../core/errors.ts";
import { openRegular, unlessMissing } from "../../core/files.ts";
import type { RunRecord } from "../record.ts";
import { EntryCursor, NEWLINE, recordedPlaces } from "./log-entries.ts";

/** Which lines of a run's Activity are wanted: lines that match every field that is set. */
export interface LineFilter {
  /** Literal text in the line: 1 to 200 bytes, without line breaks. */
  text?: string | undefined;
  /** Letters of the text must have the same case. */
  matchCase: boolean;
  /** The job that the line is about, by its whole name. */
  job?: string | undefined;
  /** The worker that the line is about, by its whole name. */
  worker?: string | undefined;
  /** Where the line was written to; `ops` for what ops tells. */
  stream?: WrittenTo | undefined;
}

/** A line in a text: where the line begins, where it ends before its newline, and where the match in the line begins. */
interface FoundLine {
  start: number;
  end: number;
  at: number;
}

const MOST_TEXT_BYTES = 200;
/** A longer line counts as two. */
export const MOST_LINE_BYTES = 32 * 1024 * 1024;
const PIECE_BYTES = 1024 * 1024;
/** So much of a line is searched for the names at its beginning. */
export const BEGINNING_BYTES = 512;

/** Colours, blanks and levels that may stand before the place of a line. */
const MARKS = /^(?:\x1b\[[\d;]*m|[\t\r ]|error: |warning: )*/;
/** `job@worker | output`, `worker ! error`, `job@worker: …`, `job: …`. */
const PLACE = /^(?:([^@\s]+)@)?(\S+?)(?: ([|!])|: )/;
const STREAMS: Record<string, WrittenTo> = { "|": "stdout", "!": "stderr" };

/** The bytes of a log as a text with one character for each byte: places in the text are offsets in bytes. */
export function bytesAsText(bytes: Buffer): string {
  return bytes.toString("latin1");
}

/** Tells by the record of places whether the line that begins at `start` is of the wanted job and worker. */
export type OfPlace = (start: number, beginning: string) => boolean;

/**
 * The function that finds the wanted lines in a text of whole lines, made by {@link bytesAsText}. An empty filter wants all
 * lines. Where the run has no record of places (`isOfPlace` is not given), the beginning of a line tells its place. Bytes
 * are compared, so a log need not be UTF-8. Throws `invalid_request` for a text that cannot be searched for.
 */
export function wantedLines(filter: LineFilter, isOfPlace?: OfPlace): (lines: string) => Generator<FoundLine> {
  const { text, matchCase, job, worker, stream } = filter;
  if (text !== undefined && (text === "" || Buffer.byteLength(text) > MOST_TEXT_BYTES || /[\r\n]/.test(text)))
    throw new Failure("invalid_request", `q: expected 1 to ${MOST_TEXT_BYTES} bytes on one line`);
  const place = [job, worker].filter((name) => name !== undefined).join("@");
  const isAnywhere = place === "" && stream === undefined && !isOfPlace;
  const isEvery = text === undefined && (place === "" || isOfPlace !== undefined);
  const pattern = patternOf(text ?? place, matchCase || text === undefined);
  const isWanted = isOfPlace ?? ((_, beginning) => beginsWithPlace(beginning, filter));
  return function* (lines) {
    for (let from = 0; from < lines.length; ) {
      pattern.lastIndex = from;
      const at = isEvery ? from : pattern.exec(lines)?.index;
      if (at === undefined) return;
      const start = at === from ? from : lines.lastIndexOf("\n", at - 1) + 1;
      const newline = lines.indexOf("\n", at);
      const end = newline < 0 ? lines.length : newline;
      from = end + 1;
      // Only the beginning of a line is looked at: the time does not grow with the length of the line.
      if (isAnywhere || isWanted(start, lines.slice(start, Math.min(end, start + BEGINNING_BYTES)))) yield { start, end, at };
    }
  };
}

function beginsWithPlace(beginning: string, { job, worker, stream }: LineFilter): boolean {
  const [, ofJob, name, sign = ""] = PLACE.exec(beginning.replace(MARKS, "")) ?? [];
  const isOfJob = job === (ofJob ?? (worker === undefined ? name : undefined));
  const isOfStream = stream === undefined || stream === (STREAMS[sign] ?? "ops");
  return (job === undefined || isOfJob) && (worker === undefined || worker === name) && isOfStream;
}

/** Where a line begins: the byte, and its number. */
export interface LineStart {
  offset: number;
  line: number;
}

/** The place that an answer told as `next`, `<offset>.<line>`; `0` is the beginning. Throws `invalid_request`. */
export function lineStartOf(after: string | undefined): LineStart {
  if (after === undefined || after === "0") return { offset: 0, line: 1 };
  const [, offset = "", line = ""] = /^(\d{1,15})\.([1-9]\d{0,14})$/.exec(after) ?? [];
  if (offset === "") throw wrongStart();
  return { offset: Number(offset), line: Number(line) };
}

/** The error for a place that is not in the log. */
export function wrongStart(): Failure {
  return new Failure("invalid_request", "after: expected `next` of an earlier answer about this log");
}

/** Where case does not matter, the pattern has all forms of each letter. */
function patternOf(text: string, matchCase: boolean): RegExp {
  const parts = [...text].map((letter) => {
    const forms = matchCase ? [letter] : [letter, letter.toLowerCase(), letter.toUpperCase()];
    return `(?:${[...new Set(forms)].map((form) => RegExp.escape(bytesAsText(Buffer.from(form)))).join("|")})`;
  });
  return new RegExp(parts.join(""), "g");
}

/** Opens a log file of a run; undefined where there is none, or where it is no regular file. */
export async function openLog(file: string): Promise<FileHandle | undefined> {
  try {
    return await unlessMissing(openRegular(file));
  } catch (error) {
    if (error instanceof Failure && error.code === "file_not_found") return undefined;
    throw error;
  }
}

/**
 * The lines of a file between two bytes (the first is the beginning of a line), in pieces of whole lines of about 1 MiB.
 * Text after the last newline is a line only where `isEnd` says that the log ends there. A line ends after 32 MiB at the
 * latest. Each piece is valid until the next is asked for.
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

/** Stands before a line whose time is not known. */
const UNKNOWN = "- ";

/**
 * The wanted lines of a run's Activity, whole and byte for byte, to be read once; `close` must be called after that. While
 * the run goes on, only complete lines count. With times, each line begins with the time when it was written, at most
 * about 250 ms later (`2026-11-22T12:00:00.250Z `), or with `- ` where that is not known. Only a piece of the log, of
 * 1 MiB or one line, is in memory. Throws `invalid_request` for a text that cannot be searched for.
 */
export async function openLogText(
  layout: Layout,
  { id, status }: RunRecord,
  filter: LineFilter,
  withTimes: boolean,
): Promise<{ read(): AsyncIterable<Uint8Array>; close(): Promise<void> }> {
  const { activity, activityTimes, activityPlaces } = runLayout(layout, id);
  await using opening = new AsyncDisposableStack();
  const log = opening.use(await openLog(activity));
  const size = (await log?.stat())?.size ?? 0;
  // Opened after the size was read: the bytes up to there have their times and places.
  const times = withTimes ? opening.use(await openLog(activityTimes)) : undefined;
  const places = opening.use(await openLog(activityPlaces));
  const isOfPlace = recordedPlaces(places?.fd, filter);
  let offset = 0;
  const find = wantedLines(filter, isOfPlace && ((start, beginning) => isOfPlace(offset + start, beginning)));
  const time = new EntryCursor(times?.fd);
  const textOf = (piece: Buffer) => {
    const lines = bytesAsText(piece);
    let found = "";
    for (const { start, end } of find(lines)) {
      const ms = withTimes ? time.moveTo(offset + start) : undefined;
      found += (withTimes ? shownTime(ms) : "") + lines.slice(start, end + 1);
    }
    offset += piece.length;
    return Buffer.from(found, "latin1");
  };
  const files = opening.move();
  return {
    async *read() {
      // Also an empty text: only between two pieces can the reader be found gone.
      if (log) for await (const piece of wholeLines(log, 0, size, status !== "running")) yield textOf(piece);
    },
    close: () => files.disposeAsync(),
  };
}

function shownTime(ms: number | undefined): string {
  return ms === undefined ? UNKNOWN : `${new Date(ms).toISOString()} `;
}
