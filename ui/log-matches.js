import { AllLines } from "./log-lines.js";

const PAGE = 500;
/** How many places a search remembers. */
export const MOST_MATCHES = 50_000;
const FIRST_SPAN_BYTES = 256 * 1024;
/** The server looks for at most so many bytes. */
export const LONGEST_SEARCH_BYTES = 200;

/**
 * What the server is asked for, and what is looked at here, to find the lines of a job, a worker and with a text;
 * null when nothing is asked for. Lines of commands on workers begin with `job@worker |`.
 */
export function lineFilter({ job = "", worker = "", text = "", exact = false }) {
  if (job === "" && worker === "" && text === "") return null;
  const prefix = worker === "" ? `${job}@` : `${job}@${worker} |`;
  const accepts = (line) => {
    const [, ofJob, ofWorker] = /^(?:\x1b\[[\d;]*m)*([^@\s|]*)@(\S+) \|/.exec(line) ?? [];
    return (job === "" || job === ofJob) && (worker === "" || worker === ofWorker);
  };
  return { q: text === "" ? prefix : text, exact: text === "" || exact, accepts };
}

/** The lines of a log that a filter lets through, read from any offset in either direction. */
export class MatchingLines {
  contiguous = false;
  #log;
  #all;
  #filter;

  /** `log` is `{ file, index, search }`; `search({ q, exact, after, limit })` asks the server. */
  constructor(log, filter) {
    this.#log = log;
    this.#all = new AllLines(log.file);
    this.#filter = filter;
  }

  /** As AllLines has it. */
  async after(offset, most) {
    const lines = [];
    let place = await this.#placeAt(offset);
    for (let isLast = false; !isLast && lines.length <= most; ) {
      const page = await this.#page(place);
      lines.push(...page.lines);
      [place, isLast] = [page.next, page.isLast];
    }
    const done = lines.length <= most;
    return { lines: lines.slice(0, most), next: done ? place.offset : lines[most].start, done };
  }

  /** As AllLines has it: looks at a span before the offset, and at ever longer ones while that holds too few. */
  async before(offset, most) {
    let found = [];
    let to = offset;
    for (let span = FIRST_SPAN_BYTES; to > 0 && found.length <= most; span *= 2) {
      const from = await this.#placeAt(Math.max(0, to - span));
      if (from.offset < to) found = [...(await this.#between(from, to)), ...found];
      to = Math.max(0, to - span);
    }
    return { lines: found.slice(-most), done: to === 0 && found.length <= most };
  }

  async #between(from, to) {
    const lines = [];
    for (let place = from; place.offset < to; ) {
      const page = await this.#page(place);
      lines.push(...page.lines.filter(({ start }) => start < to));
      if (page.isLast) break;
      place = page.next;
    }
    return lines;
  }

  /** The first line that begins at an offset or after it; its number is null where it is not known. */
  async #placeAt(offset) {
    const known = this.#log.index.before(offset);
    if (known.offset === offset) return known;
    const { lines } = await this.#all.after(offset, Number.POSITIVE_INFINITY);
    const line = lines.find(({ start, continued }) => start >= offset && !continued);
    return { offset: line?.start ?? lines.at(-1)?.end ?? offset, line: null };
  }

  async #page({ offset, line }) {
    const { q, exact, accepts } = this.#filter;
    const after = `${offset}.${line ?? 1}`;
    const { matches, next } = await this.#log.search({ q, exact, after, limit: PAGE });
    const [nextOffset, nextLine] = next.split(".").map(Number);
    const lines = matches.map((match, index) => ({
      start: match.offset,
      end: matches[index + 1]?.offset ?? nextOffset,
      text: match.text,
      number: line === null ? undefined : match.line,
    }));
    return {
      lines: lines.filter(({ text }) => accepts(text)),
      next: { offset: nextOffset, line: line === null ? null : nextLine },
      isLast: next === after || nextOffset >= this.#log.file.size,
    };
  }
}

/**
 * Finds all lines with a text in a log while it grows; `onChange` is called whenever more were found. `offsets` are their
 * first bytes, `complete` says that all that is there has been looked at.
 */
export class Search {
  offsets = [];
  complete = false;

  async run({ log: { file, index, search }, filter, signal, onChange }) {
    const { q, exact, accepts } = filter;
    for (let after = "0.1"; !signal.aborted && this.offsets.length < MOST_MATCHES; ) {
      const growth = file.grown();
      const { matches, next, scanned_to, done } = await search({ q, exact, after, limit: PAGE, signal });
      if (signal.aborted) return;
      index.learn(next);
      for (const { offset, text } of matches) if (accepts(text)) this.offsets.push(offset);
      this.complete = done || next === after || scanned_to >= file.size;
      onChange();
      if (done) return;
      if (this.complete) await growth;
      after = next;
    }
  }
}
