const NEWLINE = 10;
/** A line that is longer is shown in pieces of one to two times this size. */
export const PIECE_BYTES = 4096;
const STEP_BYTES = 32 * 1024;
const decoder = new TextDecoder();

/**
 * A line, or a piece of one: `start` and `end` are byte offsets, `text` is without the line's end, `continued` says
 * that it goes on with the line of the piece before, `open` that its end has not been written yet.
 */

/** All lines of a log, read from any offset in either direction. */
export class AllLines {
  /** They follow each other without a gap. */
  contiguous = true;
  #file;

  constructor(file) {
    this.#file = file;
  }

  /** The line at an offset and those after it, at most `most`; `done` when the last one is the log's last, else they go on at `next`. */
  async after(offset, most) {
    const to = Math.min(offset + STEP_BYTES, this.#file.size);
    const lines = (await this.#between(offset, to)).slice(0, most);
    const next = lines.at(-1)?.end ?? offset;
    return { lines, next, done: next >= to && to === this.#file.size };
  }

  /** The lines before an offset where one begins, at most `most`; `done` when the first one is the log's first. */
  async before(offset, most) {
    const lines = await this.#between(Math.max(0, offset - STEP_BYTES), offset);
    const whole = lines.filter(({ end }) => end <= offset).slice(-most);
    return { lines: whole, done: whole.length === 0 || whole[0].start === 0 };
  }

  /** The lines that have a byte between two offsets. */
  async #between(from, to) {
    const { size } = this.#file;
    // Far enough before to see where the first line, or its piece, begins.
    const base = Math.max(0, (Math.floor(from / PIECE_BYTES) - 4) * PIECE_BYTES);
    const until = Math.min(size, to + 3 * PIECE_BYTES);
    const bytes = await this.#file.read(base, until);
    const starts = startsIn(bytes, base);
    const ends = [...starts.slice(1), ...(until === size ? [size] : [])];
    const lines = [];
    for (const [index, end] of ends.entries())
      if (end > from && starts[index] < to) lines.push(lineOf(bytes, base, starts[index], end));
    return lines;
  }
}

function lineOf(bytes, base, start, end) {
  const own = bytes.subarray(start - base, end - base);
  const open = own.at(-1) !== NEWLINE;
  const text = decoder.decode(open ? own : own.subarray(0, -1)).replace(/\r$/, "");
  return { start, end, text, open, continued: start > 0 && bytes[start - base - 1] !== NEWLINE };
}

/**
 * The offsets in some bytes where a line begins or a piece of a long one. A piece begins at each multiple of
 * PIECE_BYTES that has as many bytes of its line before it, or at the next whole character: so it can be told without
 * knowing where the line begins. `base` is the offset of the bytes, such a multiple itself.
 */
function startsIn(bytes, base) {
  const starts = [];
  for (let at = 0; at < bytes.length; ) {
    const newline = bytes.indexOf(NEWLINE, at);
    const end = newline < 0 ? bytes.length : newline + 1;
    if (at > 0 || base === 0) starts.push(base + at);
    for (let cut = (Math.ceil(at / PIECE_BYTES) + 1) * PIECE_BYTES; cut < end; cut += PIECE_BYTES) {
      const start = characterAt(bytes, cut);
      if (start < end) starts.push(base + start);
    }
    at = end;
  }
  return starts;
}

function characterAt(bytes, index) {
  let at = index;
  while (at < index + 3 && (bytes[at] & 0xc0) === 0x80) at++;
  return at;
}
