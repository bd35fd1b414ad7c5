import type { LinePlace } from "../bucket/base/line-place.ts";
import { EntryCursor } from "./log-entries.ts";
import type { Mark, OpenedLog } from "./log-index.ts";
import { bytesAsText, type LineFilter, type LineStart, wantedLines } from "./log-lines.ts";

/** A wanted line: its number, where it begins in the log, and its bytes. */
export interface ScannedLine extends LineStart {
  bytes: Buffer;
  /** What was recorded of the line; undefined where nothing was. */
  place: LinePlace | undefined;
  /** How many bytes ops has put before the text. */
  from: number;
  /** When the line was written, in Unix milliseconds; undefined where that is not known. */
  at: number | undefined;
}

/** Which lines a scan wants. */
export interface ScanFilter extends LineFilter {
  /** Only lines that tell of errors. */
  errors: boolean;
}

interface Block {
  mark: Mark;
  bytes: Buffer;
  text: string;
}

const PREFIX_BYTES = 512;

/** Reads the wanted lines of an opened log, block by block; blocks that cannot have any are not read. */
export class LogScan {
  readonly #log: OpenedLog;
  readonly #filter: ScanFilter;
  /** The numbers of the wanted places; undefined where any place is wanted, or where the run has no record. */
  readonly #numbers: ReadonlySet<number> | undefined;
  #block: Block | undefined;
  #places: EntryCursor | undefined;
  readonly #find: ReturnType<typeof wantedLines>;
  /** The bytes read so far. */
  bytes = 0;

  /** Throws `invalid_request` for a text that cannot be searched for. */
  constructor(log: OpenedLog, filter: ScanFilter) {
    const { job, worker } = filter;
    this.#log = log;
    this.#filter = filter;
    this.#numbers = job === undefined && worker === undefined ? undefined : log.index.numbersOf(filter);
    this.#find = wantedLines(filter, this.#numbers && ((start, beginning) => this.#isOfPlace(start, beginning)));
  }

  /** How many blocks the log has. */
  get blocks(): number {
    const { index, lines } = this.#log;
    return lines === 0 ? 0 : index.blockOf(lines) + 1;
  }

  /** The block of a line; -1 before the first line, and the number of blocks behind the last. */
  blockOf(line: number): number {
    if (line > this.#log.lines) return this.blocks;
    return line < 1 ? -1 : this.#log.index.blockOf(line);
  }

  /** Where a block begins; the end of the log for the number behind the last block. */
  begin(block: number): LineStart {
    const { index, lines, size } = this.#log;
    return block < this.blocks ? (index.marks[block] as Mark) : { line: lines + 1, offset: size };
  }

  /** Where a line begins. The line behind the last one begins at the end of the log. */
  async startOf(line: number): Promise<LineStart> {
    const { index, lines } = this.#log;
    if (line > lines) return this.begin(this.blocks);
    const { mark, text } = await this.#read(index.blockOf(line));
    return { line, offset: mark.offset + startIn(text, line - mark.line) };
  }

  /** The numbers and places of the wanted lines of a block, from one line on and before another, in order. */
  async *found(block: number, from: number, before: number): AsyncGenerator<LineStart & { end: number }, void, undefined> {
    const begin = this.begin(block);
    const end = this.begin(block + 1);
    if (!this.#mayHave(block, begin.line, end.line)) return;
    const { text } = await this.#read(block);
    let [line, passed] = [begin.line, 0];
    for (const { start, end } of this.#find(text)) {
      for (let at = text.indexOf("\n", passed); at >= 0 && at < start; at = text.indexOf("\n", at + 1)) line++;
      passed = start;
      if (line >= before) return;
      if (line < from || (this.#filter.errors && !this.#log.index.isError(line))) continue;
      yield { line, offset: begin.offset + start, end: begin.offset + end };
    }
  }

  /** The wanted lines of a block, whole and with what is known of them. */
  async lines(block: number, from: number, before: number): Promise<ScannedLine[]> {
    const { index, places, times } = this.#log;
    const lines: ScannedLine[] = [];
    let cursors: { places: EntryCursor; times: EntryCursor } | undefined;
    for await (const { line, offset, end } of this.found(block, from, before)) {
      const { mark, bytes } = this.#block as Block;
      cursors ??= { places: index.placesFrom(mark, places), times: new EntryCursor(times?.fd, mark.times) };
      const whole = bytes.subarray(offset - mark.offset, end - mark.offset);
      const placed = index.placed(cursors.places.moveTo(offset), bytesAsText(whole.subarray(0, PREFIX_BYTES)));
      lines.push({ line, offset, bytes: whole, ...placed, at: cursors.times.moveTo(offset) });
    }
    return lines;
  }

  #mayHave(block: number, from: number, before: number): boolean {
    const { index } = this.#log;
    if (this.#filter.errors && index.errorsIn(from, before) === 0) return false;
    return this.#numbers === undefined || !this.#numbers.isDisjointFrom((index.marks[block] as Mark).seen);
  }

  async #read(number: number): Promise<Block> {
    const { index, log, places } = this.#log;
    const mark = index.marks[number] as Mark;
    if (this.#block?.mark !== mark) {
      const bytes = Buffer.allocUnsafe(this.begin(number + 1).offset - mark.offset);
      const read = await log?.read(bytes, 0, bytes.length, mark.offset);
      const whole = bytes.subarray(0, read?.bytesRead ?? 0);
      this.bytes += whole.length;
      this.#block = { mark, bytes: whole, text: bytesAsText(whole) };
    }
    this.#places = index.placesFrom(mark, places);
    return this.#block;
  }

  #isOfPlace(start: number, beginning: string): boolean {
    const { mark } = this.#block as Block;
    const number = this.#places?.moveTo(mark.offset + start);
    return (
      number !== undefined && this.#numbers?.has(number) === true && this.#log.index.placed(number, beginning).place !== undefined
    );
  }
}

function startIn(text: string, lines: number): number {
  let start = 0;
  for (let line = 0; line < lines; line++) start = text.indexOf("\n", start) + 1;
  return start;
}
