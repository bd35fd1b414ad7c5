import type { LinePlace } from "../../bucket/base/line-place.ts";
import { EntryCursor, isAbout, isAnyPlace } from "./log-entries.ts";
import type { Mark, OpenedLog } from "./log-index.ts";
import { BEGINNING_BYTES, bytesAsText, type LineFilter, type LineStart, wantedLines } from "./log-lines.ts";

/** A wanted line: its number, where it begins in the log, and its bytes. */
export interface ScannedLine extends LineStart {
  bytes: Buffer;
  /** What was recorded of the line; undefined where nothing was. */
  place: LinePlace | undefined;
  /** How many bytes ops has put before the text. */
  from: number;
  /** When the line was written, in Unix milliseconds; undefined where that is not known. */
  at: number | undefined;
  error: boolean;
}

/** Which lines a scan wants. */
export interface ScanFilter extends LineFilter {
  /** Only lines that tell of errors. */
  errors: boolean;
}

/** A part of the log that is in memory. */
interface Block {
  mark: Mark;
  bytes: Buffer;
  text: string;
  /** The places from the beginning of the block on, for one way through it. */
  places: EntryCursor;
}

/** Reads the wanted lines of an opened log, block by block; a block that cannot have any is not read. */
export class LogScan {
  readonly #log: OpenedLog;
  readonly #filter: ScanFilter;
  /** The numbers of the wanted places; undefined where any place is wanted, or where the run has no record. */
  readonly #numbers: ReadonlySet<number> | undefined;
  readonly #find: ReturnType<typeof wantedLines>;
  #block: Block | undefined;
  /** The bytes read so far. */
  bytes = 0;

  /**
   * Where the run has a record of places, `isWanted` may narrow them beyond the job and the worker of the filter. Throws
   * `invalid_request` for a text that cannot be searched for.
   */
  constructor(log: OpenedLog, filter: ScanFilter, isWanted: (place: LinePlace) => boolean = () => true) {
    const { places } = log.index;
    this.#log = log;
    this.#filter = filter;
    this.#numbers = isAnyPlace(filter) ? undefined : places.numbers((place) => isAbout(place, filter) && isWanted(place));
    const isOfPlace = (start: number, beginning: string) => {
      const { mark, places: cursor } = this.#block as Block;
      const number = cursor.moveTo(mark.offset + start);
      return number !== undefined && this.#numbers?.has(number) === true && places.of(number, beginning).place !== undefined;
    };
    this.#find = wantedLines(filter, this.#numbers && isOfPlace);
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
    if (line > this.#log.lines) return this.begin(this.blocks);
    const { mark, text } = await this.#read(this.blockOf(line));
    let start = 0;
    for (let before = mark.line; before < line; before++) start = text.indexOf("\n", start) + 1;
    return { line, offset: mark.offset + start };
  }

  /** Reads a block, and answers the wanted lines from one line on and before another: their numbers and where they are. */
  async found(number: number, from: number, before: number): Promise<Iterable<LineStart & { end: number }>> {
    if (!this.#mayHave(number)) return [];
    const block = await this.#read(number);
    return this.#found(block, from, before);
  }

  /** The same lines, with what is known of them. */
  async lines(number: number, from: number, before: number): Promise<ScannedLine[]> {
    const { index, places, times } = this.#log;
    const lines: ScannedLine[] = [];
    let cursors: { places: EntryCursor; times: EntryCursor } | undefined;
    for (const { line, offset, end } of await this.found(number, from, before)) {
      const { mark, bytes } = this.#block as Block;
      cursors ??= { places: index.places.cursor(places?.fd, mark.places), times: new EntryCursor(times?.fd, mark.times) };
      const whole = bytes.subarray(offset - mark.offset, end - mark.offset);
      const placed = index.places.of(cursors.places.moveTo(offset), bytesAsText(whole.subarray(0, BEGINNING_BYTES)));
      lines.push({ line, offset, bytes: whole, ...placed, at: cursors.times.moveTo(offset), error: index.isError(line) });
    }
    return lines;
  }

  *#found({ mark, text }: Block, from: number, before: number): Generator<LineStart & { end: number }> {
    let [line, passed] = [mark.line, 0];
    for (const { start, end } of this.#find(text)) {
      for (let at = text.indexOf("\n", passed); at >= 0 && at < start; at = text.indexOf("\n", at + 1)) line++;
      passed = start;
      if (line >= before) return;
      if (line < from || (this.#filter.errors && !this.#log.index.isError(line))) continue;
      yield { line, offset: mark.offset + start, end: mark.offset + end };
    }
  }

  #mayHave(number: number): boolean {
    const { index } = this.#log;
    const [begin, end] = [this.begin(number), this.begin(number + 1)];
    if (this.#filter.errors && index.errorsIn(begin.line, end.line) === 0) return false;
    if (this.#numbers === undefined) return true;
    for (const place of (index.marks[number] as Mark).seen) if (this.#numbers.has(place)) return true;
    return false;
  }

  async #read(number: number): Promise<Block> {
    const { index, log, places } = this.#log;
    const mark = index.marks[number] as Mark;
    if (this.#block?.mark !== mark) {
      const bytes = Buffer.allocUnsafe(this.begin(number + 1).offset - mark.offset);
      const { bytesRead = 0 } = (await log?.read(bytes, 0, bytes.length, mark.offset)) ?? {};
      const whole = bytes.subarray(0, bytesRead);
      this.bytes += bytesRead;
      this.#block = { mark, bytes: whole, text: bytesAsText(whole), places: new EntryCursor(undefined) };
    }
    this.#block.places = index.places.cursor(places?.fd, mark.places);
    return this.#block;
  }
}
