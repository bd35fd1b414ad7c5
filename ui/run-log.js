import { bucketPath, call, pause } from "./api.js";

const WAIT_S = 30;
const RETRY_MS = [500, 1_000, 2_000, 5_000];
const TAIL_BYTES = 1024 * 1024;
// What one search of the server looks at.
const SEARCH_BYTES = 32 * 1024 * 1024;
const PAGE = 500;
// Text that no log holds: a search for it only counts lines.
const NOWHERE = "\u{10fffd}\u{10fffc}\u{10fffd}";
const FIRST_SPAN_BYTES = 256 * 1024;
const NEWLINE = 10;
// A longer line is shown in pieces of one to two times this size.
const PIECE_BYTES = 4096;
const STEP_BYTES = 16 * 1024;
const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];

/** The log of one run on the server; `signal` ends what it asks for. */
export class RunLog {
  /** In bytes, as far as is known. */
  size = 0;
  #tail = new Uint8Array(0);
  // Where lines begin, as far as searches have told.
  #places = [{ offset: 0, line: 1 }];
  #growth = Promise.withResolvers();

  /** `onTrouble(why)` hears that the server does not answer, and the empty text once it does. */
  constructor(bucketId, runId, signal, onTrouble) {
    Object.assign(this, { bucketId, runId, signal, onTrouble });
  }

  /** Of the run in the API. */
  path(rest = "") {
    return bucketPath(this.bucketId, `/runs/${this.runId}${rest}`);
  }

  /** The run; asks until the server answers. */
  run() {
    return this.#persistently(this.path());
  }

  /** Reads what is added until the run has ended; `onBytes` hears each piece. */
  async follow(onBytes) {
    for (let done = false; !done; ) {
      const chunk = await this.#persistently(this.path(`/logs?after=${this.size}&timeout=${WAIT_S}`));
      const bytes = encoder.encode(chunk.data);
      if (bytes.length > 0) this.append(bytes, chunk.next);
      onBytes(bytes);
      ({ done } = chunk);
    }
  }

  /** Takes what was added up to `next`. What was not UTF-8 has changed on its way: it is read again. */
  append(bytes, next) {
    const isExact = bytes.length === next - this.size;
    const kept = this.#tail.subarray(Math.max(0, this.#tail.length + bytes.length - TAIL_BYTES));
    this.#tail = new Uint8Array(isExact ? kept.length + bytes.length : 0);
    if (isExact) this.#tail.set(kept);
    if (isExact) this.#tail.set(bytes, kept.length);
    this.size = next;
    this.#growth.resolve();
    this.#growth = Promise.withResolvers();
  }

  /** Resolves when the log grows. */
  grown() {
    return this.#growth.promise;
  }

  /** The bytes between two offsets. */
  async read(from, to) {
    const tailStart = this.size - this.#tail.length;
    if (from >= tailStart || from === to) return this.#tail.slice(from - tailStart, to - tailStart);
    const headers = { Range: `bytes=${from}-${to - 1}` };
    const { signal } = this;
    return new Uint8Array(
      await call("GET", this.path("/activity.log"), { headers, signal, as: "arrayBuffer" }),
    );
  }

  /** Lines with a text from the place `{ offset, line }` on to `until`; `isLast`: of what is there, `done`: of all there will be. */
  async search({ q, exact, after, until, limit = PAGE, signal = this.signal }) {
    const from = `${after.offset}.${after.line}`;
    const query = new URLSearchParams({ q, case: exact, after: from, limit, ...(until && { until }) });
    const answer = await call("GET", this.path(`/logs/search?${query}`), { signal });
    const [offset, line] = answer.next.split(".").map(Number);
    const lines = answer.matches.map((match, index, all) => ({
      ...{ start: match.offset, end: all[index + 1]?.offset ?? offset },
      ...{ text: match.text, number: match.line },
    }));
    this.#learn({ offset, line });
    const isLast = offset === after.offset || offset >= this.size || answer.done;
    return { lines, next: { offset, line }, isLast, done: answer.done };
  }

  /** `{ offset, line }` of the line that holds an offset. */
  async place(offset) {
    let place = this.#places.findLast((one) => one.offset <= offset);
    for (let isLast = place.offset === offset; !isLast; ) {
      const { next } = await this.search({ q: NOWHERE, exact: true, after: place, until: offset, limit: 1 });
      isLast = next.offset === place.offset || offset - place.offset <= SEARCH_BYTES;
      place = next;
    }
    return place;
  }

  #learn(place) {
    const before = this.#places.findLastIndex(({ offset }) => offset <= place.offset);
    if (place.offset - this.#places[before].offset > FIRST_SPAN_BYTES)
      this.#places.splice(before + 1, 0, place);
  }

  async #persistently(path) {
    for (let failures = 0; ; failures++) {
      try {
        const answer = await call("GET", path, { signal: this.signal });
        this.onTrouble("");
        return answer;
      } catch (error) {
        if (this.signal.aborted || (error.status !== 0 && !(error.status >= 500))) throw error;
        const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
        this.onTrouble(`${error.message}. Trying again every ${Math.max(1, wait / 1000)} s.`);
        await pause(wait, this.signal);
        this.signal.throwIfAborted();
      }
    }
  }
}

/** All lines of a log: `{ start, end, text, open, continued }`; `open` has no end yet, `continued` is a piece of the one before. */
export class AllLines {
  #log;

  constructor(log) {
    this.#log = log;
  }

  /** At most `most` lines from an offset on; `next` is where they go on. */
  async after(offset, most) {
    const { size } = this.#log;
    const to = Math.min(offset + STEP_BYTES, size);
    const lines = await this.#between(offset, to, (spans) => spans.slice(0, most));
    const next = lines.at(-1)?.end ?? offset;
    return { lines, next, done: next >= to && to === size };
  }

  /** At most `most` lines before an offset; `done` with the first of the log. */
  async before(offset, most) {
    const from = Math.max(0, offset - STEP_BYTES);
    const lastOnes = (spans) => spans.filter(([, end]) => end <= offset).slice(-most);
    const lines = await this.#between(from, offset, lastOnes);
    return { lines, done: lines.length === 0 || lines[0].start === 0 };
  }

  /** The number of the line at an offset. */
  async number(offset) {
    return (await this.#log.place(offset)).line;
  }

  async #between(from, to, pick) {
    const { size } = this.#log;
    // Far enough before to see where the first piece begins.
    const base = Math.max(0, (Math.floor(from / PIECE_BYTES) - 4) * PIECE_BYTES);
    const until = Math.min(size, to + 3 * PIECE_BYTES);
    const bytes = await this.#log.read(base, until);
    const starts = startsIn(bytes, base);
    const ends = [...starts.slice(1), ...(until === size ? [size] : [])];
    const spans = [];
    for (const [index, end] of ends.entries())
      if (end > from && starts[index] < to) spans.push([starts[index], end]);
    return pick(spans).map(([start, end]) => lineOf(bytes, base, start, end));
  }
}

function lineOf(bytes, base, start, end) {
  const own = bytes.subarray(start - base, end - base);
  const open = own.at(-1) !== NEWLINE;
  const text = decoder.decode(open ? own : own.subarray(0, -1)).replace(/\r$/, "");
  return { start, end, text, open, continued: start > 0 && bytes[start - base - 1] !== NEWLINE };
}

// A piece begins at each multiple of PIECE_BYTES with as many bytes of its line before it: so it is told without the
// beginning of the line. `base` is such a multiple.
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

/** What the server is asked for, and which of its lines are meant (`job@worker | …`); null for all lines. */
export function lineFilter({ job = "", worker = "", text = "", exact = false }) {
  if (job === "" && worker === "" && text === "") return null;
  const prefix = worker === "" ? `${job}@` : `${job}@${worker} |`;
  const accepts = (line) => {
    const [, ofJob, ofWorker] = /^(?:\x1b\[[\d;]*m)*([^@\s|]*)@(\S+) \|/.exec(line.text) ?? [];
    return (job === "" || job === ofJob) && (worker === "" || worker === ofWorker);
  };
  return { q: text === "" ? prefix : text, exact: text === "" || exact, accepts };
}

/** The lines that a filter lets through, read as {@link AllLines}. */
export class MatchingLines {
  #log;
  #filter;

  constructor(log, filter) {
    [this.#log, this.#filter] = [log, filter];
  }

  async after(offset, most) {
    const lines = [];
    let place = await this.#log.place(offset);
    for (let isLast = false; !isLast && lines.length <= most; ) {
      const page = await this.#log.search({ ...this.#filter, after: place });
      lines.push(...page.lines.filter(this.#filter.accepts));
      [place, isLast] = [page.next, page.isLast];
    }
    const done = lines.length <= most;
    return { lines: lines.slice(0, most), next: done ? place.offset : lines[most].start, done };
  }

  async before(offset, most) {
    let [lines, to] = [[], offset];
    for (let span = FIRST_SPAN_BYTES; to > 0 && lines.length <= most; span *= 2) {
      const from = await this.#log.place(Math.max(0, to - span));
      lines = [...(await this.#between(from, to)), ...lines];
      to = from.offset;
    }
    return { lines: lines.slice(-most), done: to === 0 && lines.length <= most };
  }

  async #between(from, to) {
    const lines = [];
    for (let [place, isLast] = [from, false]; !isLast && place.offset < to; ) {
      const page = await this.#log.search({ ...this.#filter, after: place, until: to });
      lines.push(...page.lines.filter(this.#filter.accepts));
      [place, isLast] = [page.next, page.isLast];
    }
    return lines;
  }
}
