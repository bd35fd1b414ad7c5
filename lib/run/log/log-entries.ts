import { readSync } from "node:fs";
import { type About, type LinePlace, prefixOf, type WrittenTo, writtenTo } from "../../bucket/base/line-place.ts";

/** The byte that ends a line. */
export const NEWLINE = 0x0a;
const WINDOW_BYTES = 32 * 1024;
const [SPACE, ZERO, NINE] = [0x20, 0x30, 0x39];
/** A number of more digits is no number of ours. */
const MOST_DIGITS = 15;

/**
 * Reads the entries `<byte offset> <number>\n` or `<byte offset> <number> <text>\n` of a file beside a log, in the order of
 * their offsets. An entry that was cut off does not count. A descriptor that is undefined stands for a file without
 * entries. Synchronous: a window of the file holds thousands of entries.
 */
export class EntryCursor {
  /** The number of the entry that holds where the cursor is; undefined before the first entry. */
  value: number | undefined;
  /** The byte of the file at which the entry that holds begins: a cursor that starts there finds the entry again. */
  position: number;
  readonly #descriptor: number | undefined;
  readonly #onText: (value: number, text: string) => void;
  #window: Buffer = Buffer.alloc(0);
  /** Where the window begins in the file, and where the next entry begins in the window. */
  #base: number;
  #at = 0;
  #next: { offset: number; value: number; position: number } | undefined;

  /** Begins at a `position` of an earlier cursor. `onText` gets the texts of entries that are read. */
  constructor(descriptor: number | undefined, position = 0, onText: (value: number, text: string) => void = () => {}) {
    this.#descriptor = descriptor;
    this.#base = position;
    this.position = position;
    this.#onText = onText;
  }

  /** True where no entry follows. */
  get isAtEnd(): boolean {
    this.#next ??= this.#read();
    return this.#next === undefined;
  }

  /** Goes on to a byte of the log, and answers the number that holds there. `passed` gets all numbers on the way. */
  moveTo(offset: number, passed?: Set<number>): number | undefined {
    for (;;) {
      this.#next ??= this.#read();
      if (this.#next === undefined || this.#next.offset > offset) return this.value;
      ({ value: this.value, position: this.position } = this.#next);
      passed?.add(this.#next.value);
      this.#next = undefined;
    }
  }

  #read() {
    for (;;) {
      const end = this.#window.indexOf(NEWLINE, this.#at);
      if (end < 0) {
        if (!this.#fill()) return undefined;
        continue;
      }
      const position = this.#base + this.#at;
      const [offset, behind] = this.#number(this.#at);
      const [value, rest] = this.#number(behind + 1);
      this.#at = end + 1;
      // What is no entry of ours does not count.
      if (offset < 0 || value < 0 || this.#window[behind] !== SPACE) continue;
      if (this.#window[rest] === SPACE) this.#onText(value, this.#window.toString("latin1", rest + 1, end));
      else if (rest !== end) continue;
      return { offset, value, position };
    }
  }

  /** The number at a place of the window, -1 for none, and where the number ends. */
  #number(from: number): [number: number, end: number] {
    let [value, at] = [0, from];
    for (; at - from <= MOST_DIGITS; at++) {
      const byte = this.#window[at] ?? SPACE;
      if (byte < ZERO || byte > NINE) break;
      value = value * 10 + byte - ZERO;
    }
    return [at === from || at - from > MOST_DIGITS ? -1 : value, at];
  }

  /** Reads on; answers whether there was more. */
  #fill(): boolean {
    if (this.#descriptor === undefined) return false;
    const rest = this.#window.subarray(this.#at);
    this.#base += this.#at;
    this.#at = 0;
    const more = Buffer.allocUnsafe(WINDOW_BYTES);
    const length = readSync(this.#descriptor, more, 0, WINDOW_BYTES, this.#base + rest.length);
    this.#window = Buffer.concat([rest, more.subarray(0, length)]);
    return length > 0;
  }
}

/** The places of a run's lines, by their numbers in activity.places, as far as entries were read. */
export class Places {
  readonly #known = new Map<number, { place: LinePlace; prefix: string }>();

  /** A cursor that begins at a position of an earlier cursor and learns the places that it passes. */
  cursor(descriptor: number | undefined, position?: number): EntryCursor {
    return new EntryCursor(descriptor, position, (number, text) => {
      const [stream, job, worker] = text.split(" ").map((name) => (name === "-" ? undefined : name));
      const place = { stream, job, worker } as LinePlace;
      this.#known.set(number, { place, prefix: prefixOf(place) });
    });
  }

  /**
   * The place of a line that begins with this text, and the length of what ops has put before the line's text. A line
   * without the prefix of its place was not written for the place, but by Node: its place is not known.
   */
  of(number: number | undefined, beginning: string): { place: LinePlace | undefined; from: number } {
    const known = number === undefined ? undefined : this.#known.get(number);
    if (!known || !beginning.startsWith(known.prefix)) return { place: undefined, from: 0 };
    return { place: known.place, from: known.prefix.length };
  }

  /** The numbers of the places that are wanted; undefined where the run has no record. */
  numbers(isWanted: (place: LinePlace) => boolean): Set<number> | undefined {
    if (this.#known.size === 0) return undefined;
    return new Set([...this.#known].filter(([, { place }]) => isWanted(place)).map(([number]) => number));
  }
}

/** A job, a worker and a stream; one that is undefined is any. */
type Wanted = About & { stream?: WrittenTo | undefined };

/** True where every place is wanted. */
export function isAnyPlace({ job, worker, stream }: Wanted): boolean {
  return job === undefined && worker === undefined && stream === undefined;
}

/** True for a place of this job, this worker and this stream. */
export function isAbout(place: LinePlace, { job, worker, stream }: Wanted): boolean {
  const isOfStream = stream === undefined || writtenTo(place) === stream;
  return (job === undefined || place.job === job) && (worker === undefined || place.worker === worker) && isOfStream;
}

/**
 * Tells whether the line that begins at a byte of the log, with this text, is of a job, a worker and a stream, by the record of
 * places; to be asked in the order of the lines. Undefined where the run has no record, or where any place is wanted.
 */
export function recordedPlaces(descriptor: number | undefined, about: Wanted) {
  if (isAnyPlace(about)) return undefined;
  const places = new Places();
  const cursor = places.cursor(descriptor);
  if (cursor.isAtEnd) return undefined;
  return (offset: number, beginning: string) => {
    const { place } = places.of(cursor.moveTo(offset), beginning);
    return place !== undefined && isAbout(place, about);
  };
}
