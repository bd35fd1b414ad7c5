import { fstatSync } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { type Layout, runLayout } from "../../bucket/base/layout.ts";
import { TROUBLE_HINT, tellsTrouble } from "../../core/trouble-lines.ts";
import { readRecord, runNotFound } from "../record.ts";
import { EntryCursor, NEWLINE, Places } from "./log-entries.ts";
import { bytesAsText, openLog, wholeLines } from "./log-lines.ts";

/** So many lines or bytes, whichever comes first, are a block: to find a line, one block is read. */
const BLOCK = { lines: 1_024, bytes: 64 * 1024 };
/** So many runs have their index kept. */
const MOST_INDEXES = 8;
/** So much of a line is searched for words of trouble. */
const SEARCHED_BYTES = 4_096;

/** Where a block begins: its first line, the byte, and the entries beside the log that hold there. */
export interface Mark {
  line: number;
  offset: number;
  places: number;
  times: number;
  /** The numbers of the places of the block's lines. */
  seen: Iterable<number>;
}

/** The files of a run that is read; undefined where there is none. */
interface LogFiles {
  log: FileHandle | undefined;
  places: FileHandle | undefined;
  times: FileHandle | undefined;
}

/** The log of a run as far as it has whole lines, opened to be read. */
export type OpenedLog = Awaited<ReturnType<typeof openIndexed>>;

/** What is known of the lines of a log: where blocks of lines begin, and which lines tell of errors. Grows with the log. */
export class LogIndex {
  /** The blocks; the end of the lines that are known follows the last one. */
  readonly marks: Mark[] = [];
  lines = 0;
  size = 0;
  readonly places = new Places();
  #errors = new Uint8Array(1024);
  #growing: Promise<void> = Promise.resolve();

  /** Takes what the log has gained up to `size`; the last line without a newline only where the run has ended. */
  async grow(files: LogFiles, size: number, ended: boolean): Promise<void> {
    this.#growing = this.#growing.catch(() => {}).then(() => this.#grow(files, size, ended));
    await this.#growing;
  }

  /** The number of the block in which a line is. */
  blockOf(line: number): number {
    let [low, high] = [0, this.marks.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.marks[middle] as Mark).line > line) high = middle;
      else low = middle + 1;
    }
    return Math.max(0, low - 1);
  }

  /** The first line that tells of an error; there must be one. */
  firstError(): number {
    const byte = this.#errors.findIndex((bits) => bits !== 0);
    return 8 * byte + Math.log2((this.#errors[byte] as number) & -(this.#errors[byte] as number));
  }

  /** True for a line that tells of an error. */
  isError(line: number): boolean {
    return (((this.#errors[line >> 3] ?? 0) >> (line & 7)) & 1) === 1;
  }

  /** How many lines from `from` on and before `to` tell of errors. */
  errorsIn(from: number, to: number): number {
    let count = 0;
    for (let line = from; line < to; line++)
      if ((line & 7) === 0 && this.#errors[line >> 3] === 0) line += 7;
      else if (this.isError(line)) count++;
    return count;
  }

  async #grow({ log, places, times }: LogFiles, size: number, ended: boolean): Promise<void> {
    if (!log || size <= this.size) return;
    const last = this.marks.at(-1);
    const cursors = { places: this.places.cursor(places?.fd, last?.places), times: new EntryCursor(times?.fd, last?.times) };
    // Small texts are quick to make: a large one would have memory of its own.
    for await (const piece of wholeLines(log, this.size, size, ended))
      for (let from = 0; from < piece.length; ) {
        const cut = piece.subarray(0, from + BLOCK.bytes).lastIndexOf(NEWLINE) + 1;
        const to = cut > from ? cut : piece.indexOf(NEWLINE, from) + 1 || piece.length;
        this.#take(bytesAsText(piece.subarray(from, to)), cursors);
        from = to;
      }
  }

  #take(text: string, cursors: { places: EntryCursor; times: EntryCursor }): void {
    const base = this.size;
    let hint = nextHint(text, 0);
    for (let start = 0; start < text.length; ) {
      const newline = text.indexOf("\n", start);
      const end = newline < 0 ? text.length : newline;
      const line = this.lines + 1;
      this.#mark(line, base + start, cursors);
      if (hint < end) {
        const number = cursors.places.moveTo(base + start, this.#seen);
        if (this.#tellsError(number, text.slice(start, Math.min(end, start + SEARCHED_BYTES)))) this.#setError(line);
        hint = nextHint(text, end);
      }
      this.lines = line;
      start = end + 1;
    }
    this.size = base + text.length;
    cursors.places.moveTo(this.size - 1, this.#seen);
  }

  #seen = new Set<number>();

  #mark(line: number, offset: number, { places, times }: { places: EntryCursor; times: EntryCursor }): void {
    const last = this.marks.at(-1);
    if (last && line - last.line < BLOCK.lines && offset - last.offset < BLOCK.bytes) return;
    if (last) {
      places.moveTo(offset - 1, this.#seen);
      last.seen = Uint32Array.from(this.#seen);
    }
    this.#seen = new Set();
    const number = places.moveTo(offset);
    if (number !== undefined) this.#seen.add(number);
    times.moveTo(offset);
    this.marks.push({ line, offset, places: places.position, times: times.position, seen: this.#seen });
  }

  #tellsError(number: number | undefined, text: string): boolean {
    const { place, from } = this.places.of(number, text);
    if (place?.stream === "ops" || place?.stream === "restore") return false;
    if (place?.stream === "error") return text.startsWith("error: ");
    return tellsTrouble(text.slice(from));
  }

  #setError(line: number): void {
    const byte = line >> 3;
    if (byte >= this.#errors.length) {
      const more = new Uint8Array(2 * byte);
      more.set(this.#errors);
      this.#errors = more;
    }
    this.#errors[byte] = (this.#errors[byte] as number) | (1 << (line & 7));
  }
}

function nextHint(text: string, from: number): number {
  TROUBLE_HINT.lastIndex = from;
  return TROUBLE_HINT.exec(text)?.index ?? Number.POSITIVE_INFINITY;
}

/** The indexes of the runs whose logs were read last. */
const kept = new Map<string, { index: LogIndex; file: number }>();

/** Opens the log of a run and learns what the log has gained. Throws `run_not_found`. */
export async function openIndexed(layout: Layout, runId: string) {
  // The status is read first: the log of a run that has ended grows no more.
  const record = readRecord(layout, runId);
  if (!record) throw runNotFound(runId);
  const { activity, activityPlaces, activityTimes } = runLayout(layout, runId);
  await using opening = new AsyncDisposableStack();
  const log = opening.use(await openLog(activity));
  // At once: an index is never longer than its log, however many read at a time.
  const found = log && fstatSync(log.fd);
  const index = indexOf(activity, found?.ino ?? 0, found?.size ?? 0);
  // Opened after the size was read: the lines up to there have their places and times.
  const places = opening.use(await openLog(activityPlaces));
  const times = opening.use(await openLog(activityTimes));
  await index.grow({ log, places, times }, found?.size ?? 0, record.status !== "running");
  const files = opening.move();
  const { lines, size } = index;
  // Lines and size are the end when the log was opened.
  return { record, index, log, places, times, lines, size, [Symbol.asyncDispose]: () => files.disposeAsync() };
}

function indexOf(activity: string, file: number, size: number): LogIndex {
  const known = kept.get(activity);
  kept.delete(activity);
  const isSame = known && known.file === file && known.index.size <= size;
  const one = isSame ? known : { index: new LogIndex(), file };
  kept.set(activity, one);
  for (const [oldest] of kept) if (kept.size > MOST_INDEXES) kept.delete(oldest);
  return one.index;
}
