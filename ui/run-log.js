import { bucketPath, call, pause } from "./api.js";

const WAIT_S = 30;
const [RETRY_MS, MOST_RETRY_MS] = [500, 5_000];
const TAIL_BYTES = 1024 * 1024;
const PAGE = 500;
// Text that no log holds: a search for it only counts lines.
const NOWHERE = "\u{10fffd}\u{10fffc}\u{10fffd}";
const FIRST_SPAN_BYTES = 256 * 1024;
const NEWLINE = 10;
const END = 1e12;
// Of longer lines.
const PIECE_BYTES = 4096;
const STEP_BYTES = 16 * 1024;
// `job@worker | output`, `worker ! error`, `error: job@worker: …`, `job: …`.
const PLACE = /^(?:\x1b\[[\d;]*m|\s|error: |warning: )*(?:([^@\s]+)@)?(\S+?)(?: [|!]|: )/;
const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];

/** The log of one run on the server. */
export class RunLog {
  size = 0;
  #tail = new Uint8Array(0);
  #places = [{ offset: 0, line: 1 }];
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
    const options = { headers: { Range: `bytes=${from}-${to - 1}` }, signal: this.signal, as: "arrayBuffer" };
    return new Uint8Array(await call("GET", this.path("/activity.log"), options));
  }

  /** Lines with a text; `isLast` where no more are there yet. */
  async search({ q, exact, after, until = END, limit = PAGE, signal = this.signal }) {
    const from = `${after.offset}.${after.line}`;
    const query = new URLSearchParams({ q, case: exact, after: from, until, limit });
    const answer = await call("GET", this.path(`/logs/search?${query}`), { signal });
    const [offset, line] = answer.next.split(".").map(Number);
    const lines = answer.matches.map(({ offset: start, line: number, text }) => ({
      ...{ start, end: start + 1, number, text },
    }));
    if (offset - this.#places.at(-1).offset > FIRST_SPAN_BYTES) this.#places.push({ offset, line });
    return { lines, next: { offset, line }, isLast: offset === after.offset || offset >= this.size };
  }

  /** Where the line at an offset begins, and its number. */
  async place(offset) {
    let place = this.#places.findLast((one) => one.offset <= offset);
    for (let before = -1; before < place.offset && place.offset < offset; ) {
      before = place.offset;
      const page = await this.search({ q: NOWHERE, exact: true, after: place, until: offset, limit: 1 });
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

class Lines {
  constructor(log, filter) {
    Object.assign(this, { log, filter });
  }
}

/** All lines of a log. */
export class AllLines extends Lines {
  async after(offset, most) {
    const { size } = this.log;
    const to = Math.min(offset + STEP_BYTES, size);
    const lines = (await this.#between(offset, to)).slice(0, most);
    const next = lines.at(-1)?.end ?? offset;
    return { lines, next, done: next >= to && to === size };
  }

  async before(offset, most) {
    const from = Math.max(0, offset - STEP_BYTES);
    const lines = (await this.#between(from, offset)).filter(({ end }) => end <= offset).slice(-most);
    return { lines, done: lines.length === 0 || lines[0].start === 0 };
  }

  async #between(from, to) {
    const { size } = this.log;
    // The first piece may begin before.
    const base = Math.max(0, (Math.floor(from / PIECE_BYTES) - 4) * PIECE_BYTES);
    const until = Math.min(size, to + 3 * PIECE_BYTES);
    const bytes = await this.log.read(base, until);
    const starts = startsIn(bytes, base);
    const ends = [...starts.slice(1), ...(until === size ? [size] : [])];
    return ends
      .map((end, index) => lineOf(bytes, base, starts[index], end))
      .filter(({ start, end }) => end > from && start < to);
  }
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

/** What to ask the server for, and which answers are meant; null for all. */
export function lineFilter({ job = "", worker = "", text = "", exact = false }) {
  const place = [job, worker].filter(Boolean).join("@");
  if (place + text === "") return null;
  const accepts = (line) => {
    const [, ofJob, name] = PLACE.exec(line.text) ?? [];
    const isOfJob = job === (ofJob ?? (worker === "" ? name : undefined));
    return (job === "" || isOfJob) && (worker === "" || worker === name);
  };
  return { q: text === "" ? place : text, exact: text === "" || exact, accepts };
}

/** The lines that a filter lets through. */
export class MatchingLines extends Lines {
  async after(offset, most) {
    const { lines, place } = await this.#between(await this.log.place(offset), undefined, most);
    const done = lines.length <= most;
    return { lines: lines.slice(0, most), next: done ? place.offset : lines[most].start, done };
  }

  async before(offset, most) {
    let [lines, to] = [[], offset];
    for (let span = FIRST_SPAN_BYTES; to > 0 && lines.length <= most; span *= 2) {
      const from = await this.log.place(Math.max(0, to - span));
      lines = [...(await this.#between(from, to, Infinity)).lines, ...lines];
      to = from.offset;
    }
    return { lines: lines.slice(-most), done: to === 0 && lines.length <= most };
  }

  async #between(place, to, most) {
    const lines = [];
    for (let isLast = false; !isLast && lines.length <= most && !(place.offset >= to); ) {
      const page = await this.log.search({ ...this.filter, after: place, until: to });
      lines.push(...page.lines.filter(this.filter.accepts));
      [place, isLast] = [page.next, page.isLast];
    }
    return { lines, place };
  }
}
