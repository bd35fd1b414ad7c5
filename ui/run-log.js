import { bucketPath, call, pause, queryOf } from "./api.js";

const WAIT_S = 30;
const [RETRY_MS, MOST_RETRY_MS] = [500, 5_000];
const TAIL_BYTES = 1024 * 1024;
const PAGE = 500;
// Text that no log holds: a search for it only counts lines.
const NOWHERE = "\u{10fffd}\u{10fffc}\u{10fffd}";
const FIRST_SPAN_BYTES = 256 * 1024;
const NEWLINE = 10;
const END = 1e12;
const PIECE_BYTES = 4096;
const LINE_BYTES = 128;
const [FOLD_LINES, FOLD_BYTES] = [2_000, 64 * 1024];
const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];

/** Where a line of output is from: `job@worker | `, `worker ! `. */
export const PLACE = /^(?:([^\s|@]+)@)?([^\s|]+) ([|!]) /;

/** The log of one run on the server. */
export class RunLog {
  size = 0;
  #tail = new Uint8Array(0);
  #places = [{ offset: 0, line: 1 }];
  #times = [];
  #timesRead = 0;
  #timedUntil = 0;
  growth = Promise.withResolvers();

  constructor(bucketId, runId, signal, onTrouble) {
    Object.assign(this, { bucketId, runId, signal, onTrouble });
  }

  path(rest = "") {
    return bucketPath(this.bucketId, `/runs/${this.runId}${rest}`);
  }

  run() {
    return this.#persistently(this.path());
  }

  async follow(onBytes) {
    for (let done = false; !done; ) {
      while (document.hidden && !this.signal.aborted) await pause(RETRY_MS, this.signal);
      const chunk = await this.#persistently(this.path(`/logs?after=${this.size}&timeout=${WAIT_S}`));
      const bytes = encoder.encode(chunk.data);
      if (bytes.length > 0) this.append(bytes, chunk.next);
      onBytes(bytes);
      ({ done } = chunk);
    }
  }

  // What was not UTF-8 has changed on its way: it is read again.
  append(bytes, next) {
    const kept = this.#tail.subarray(Math.max(0, this.#tail.length + bytes.length - TAIL_BYTES));
    this.#tail = new Uint8Array(kept.length + bytes.length);
    this.#tail.set(kept);
    this.#tail.set(bytes, kept.length);
    if (bytes.length !== next - this.size) this.#tail = new Uint8Array(0);
    this.size = next;
    this.growth.resolve();
    this.growth = Promise.withResolvers();
  }

  async read(from, to) {
    const tailStart = this.size - this.#tail.length;
    if (from >= tailStart || from === to) return this.#tail.slice(from - tailStart, to - tailStart);
    return await this.#bytes("/activity.log", from, to - 1);
  }

  async #bytes(path, first, last) {
    const options = { headers: { Range: `bytes=${first}-${last}` }, signal: this.signal, as: "arrayBuffer" };
    return new Uint8Array(await call("GET", this.path(path), options));
  }

  /** Reads the times of what was written since. */
  async readTimes() {
    const [size, from] = [this.size, this.#timesRead];
    if (size === this.#timedUntil) return;
    // From the last newline on: of nothing there is no range.
    const bytes = await this.#bytes("/activity.times", from, "").catch((error) => {
      if (error.status !== 416) throw error;
      return new Uint8Array();
    });
    if (from !== this.#timesRead) return;
    const end = Math.max(0, bytes.lastIndexOf(NEWLINE));
    const lines = decoder.decode(bytes.subarray(0, end)).split("\n").filter(Boolean);
    this.#times.push(...lines.map((line) => line.split(" ").map(Number)));
    this.#timesRead += end;
    this.#timedUntil = size;
  }

  /** The time of a byte; undefined where it is not known. */
  timeAt(offset) {
    if (offset < this.#timedUntil) return this.#times.findLast(([first]) => first <= offset)?.[1];
  }

  /** Lines that match; `isLast` where no more are there yet. */
  async search({ after, until = END, limit = PAGE, signal = this.signal, ...query }) {
    const asked = queryOf({ ...query, after: `${after.offset}.${after.line}`, until, limit });
    const answer = await call("GET", this.path(`/logs/search?${asked}`), { signal });
    const [offset, line] = answer.next.split(".").map(Number);
    const lines = answer.matches.map(({ offset: start, line: number, text }) => ({ start, end: start + 1, number, text }));
    if (offset - this.#places.at(-1).offset > FIRST_SPAN_BYTES) this.#places.push({ offset, line });
    return { lines, next: { offset, line }, isLast: offset === after.offset || offset >= this.size };
  }

  /** Where the line at an offset begins, and its number. */
  async place(offset) {
    let place = this.#places.findLast((one) => one.offset <= offset);
    for (let before = -1; before < place.offset && place.offset < offset; ) {
      before = place.offset;
      const page = await this.search({ q: NOWHERE, case: true, after: place, until: offset, limit: 1 });
      place = page.next;
    }
    return place;
  }

  async #persistently(path) {
    for (let failures = 0; ; failures++) {
      try {
        const answer = await call("GET", path, { signal: this.signal });
        this.onTrouble("");
        return answer;
      } catch (error) {
        if (this.signal.aborted || (error.status !== 0 && !(error.status >= 500))) throw error;
        this.onTrouble(`${error.message}. Trying again …`);
        await pause(Math.min(RETRY_MS * 2 ** failures, MOST_RETRY_MS), this.signal);
        this.signal.throwIfAborted();
      }
    }
  }
}

/** All lines of a log. */
export function allLines(log) {
  async function between(from, to) {
    const { size } = log;
    const base = Math.max(0, (Math.floor(from / PIECE_BYTES) - 4) * PIECE_BYTES);
    const until = Math.min(size, to + 3 * PIECE_BYTES);
    const bytes = await log.read(base, until);
    const starts = startsIn(bytes, base);
    const ends = [...starts.slice(1), ...(until === size ? [size] : [])];
    return ends.map((end, index) => lineOf(bytes, base, starts[index], end)).filter(({ start, end }) => end > from && start < to);
  }
  return {
    async after(offset, most) {
      const { size } = log;
      const to = Math.min(offset + most * LINE_BYTES, size);
      const lines = (await between(offset, to)).slice(0, most);
      const next = lines.at(-1)?.end ?? offset;
      return { lines, next, done: next >= to && to === size };
    },
    async before(offset, most) {
      const found = await between(Math.max(0, offset - most * LINE_BYTES), offset);
      const lines = found.filter(({ end }) => end <= offset).slice(-most);
      return { lines, done: lines.length === 0 || lines[0].start === 0 };
    },
  };
}

function lineOf(bytes, base, start, end) {
  const own = bytes.subarray(start - base, end - base);
  const open = own.at(-1) !== NEWLINE;
  const text = decoder.decode(open ? own : own.subarray(0, -1)).replace(/\r$/, "");
  return { start, end, text, open, continued: start > 0 && bytes[start - base - 1] !== NEWLINE };
}

// Pieces begin at multiples of PIECE_BYTES: they are told without the beginning of their line.
function startsIn(bytes, base) {
  const starts = [];
  for (let at = 0; at < bytes.length; ) {
    const end = bytes.indexOf(NEWLINE, at) + 1 || bytes.length;
    if (at > 0 || base === 0) starts.push(base + at);
    for (let cut = (Math.ceil(at / PIECE_BYTES) + 1) * PIECE_BYTES; cut < end; cut += PIECE_BYTES) {
      let start = cut;
      while (start < cut + 3 && (bytes[start] & 0xc0) === 0x80) start++;
      if (start < end) starts.push(base + start);
    }
    at = end;
  }
  return starts;
}

/** The lines that a query lets through. */
export function matchingLines(log, query) {
  async function between(place, to, most) {
    const lines = [];
    for (let isLast = false; !isLast && lines.length <= most && !(place.offset >= to); ) {
      const page = await log.search({ ...query, after: place, until: to });
      lines.push(...page.lines);
      [place, isLast] = [page.next, page.isLast];
    }
    return { lines, place };
  }
  return {
    async after(offset, most) {
      const { lines, place } = await between(await log.place(offset), undefined, most);
      const done = lines.length <= most;
      return { lines: lines.slice(0, most), next: done ? place.offset : lines[most].start, done };
    },
    async before(offset, most) {
      let [lines, to] = [[], offset];
      for (let span = FIRST_SPAN_BYTES; to > 0 && lines.length <= most; span *= 2) {
        const from = await log.place(Math.max(0, to - span));
        lines = [...(await between(from, to, Infinity)).lines, ...lines];
        to = from.offset;
      }
      return { lines: lines.slice(-most), done: to === 0 && lines.length <= most };
    },
  };
}

/** Lines of one place in a row as one, with `more`. */
export function foldedLines(source, isOpen) {
  // What is at the edge may go on in what was not read.
  function fold({ lines, done }, most) {
    const rows = rowsOf(lines, isOpen);
    const whole = Math.min(most, done ? rows.length : Math.max(1, rows.length - 1));
    return { rows, whole, done: done && whole === rows.length };
  }
  return {
    async after(offset, most) {
      const found = await source.after(offset, FOLD_LINES);
      const { rows, whole, done } = fold(found, most);
      return { lines: rows.slice(0, whole), next: rows[whole]?.start ?? found.next, done };
    },
    async before(offset, most) {
      const { rows, whole, done } = fold(await source.before(offset, FOLD_LINES), most);
      return { lines: rows.slice(-whole), done };
    },
  };
}

function rowsOf(lines, isOpen) {
  const rows = [];
  let before;
  for (const line of lines) {
    const [, job, worker] = PLACE.exec(line.text) ?? [];
    const isFolded = worker && !line.continued && !isOpen(line);
    const group = isFolded && [job, worker, Math.floor(line.start / FOLD_BYTES)].join();
    // What comes next may belong to any: all are open.
    if (!group || group !== before) rows.push({ ...line, more: 0, open: true });
    else Object.assign(rows.at(-1), { end: line.end, more: rows.at(-1).more + 1 });
    before = group;
  }
  return rows;
}
