// The log of a run, read from the server by the numbers of its lines. The newest lines are kept, all others are read when
// they come in sight.
import { bucketPath, get, pause, queryOf, request } from "../base/api.js";

/** A question for new lines waits that long on the server, may take that much longer, and is asked again after that. */
const [POLL_S, POLL_SLACK_MS, LOG_RETRY_MS] = [20, 5_000, 2_000];
/** So many lines are read at the end, and kept. So far behind the end, what lies between is not read. */
const [TAIL, KEPT_LINES, SKIPPED] = [200, 1_000, 2_000];
/** A log of a million lines is searched within a second; a slow disk may take longer. */
const SEARCH_MS = 30_000;

/**
 * A line. The place (`job`, `worker`, `stream`) is from the record of the run, never from the text.
 * @typedef {{ line: number, offset: number, at: string | null, job: string | null, worker: string | null,
 *   stream: string | null, error: boolean, text: string, length: number }} Line
 *
 * Which lines are wanted: those that match every field that is set.
 * @typedef {{ q?: string, case?: boolean, job?: string, worker?: string, stream?: string, errors?: boolean }} Filter
 */

/** Reads the lines of a run from the server. */
export class LogSource {
  total = 0;
  size = 0;
  done = false;
  /** @type {Line[]} the newest lines, without a gap up to the last */
  #recent = [];
  #cursor = "";
  #ending = new AbortController();

  /** @param {string} bucketId @param {string} runId */
  constructor(bucketId, runId) {
    this.bucketId = bucketId;
    this.runId = runId;
  }

  get signal() {
    return this.#ending.signal;
  }

  /** The newest line. */
  get newest() {
    return this.#recent.at(-1);
  }

  /** A path of the API, below the run. */
  path(rest = "", query = {}) {
    const asked = queryOf(query);
    return bucketPath(this.bucketId, `/runs/${this.runId}${rest}${asked.size > 0 ? `?${asked}` : ""}`);
  }

  /** Reads the end of the log. */
  async open() {
    this.#recent = [];
    this.#take(await this.#ask({ tail: true, limit: TAIL }));
  }

  /** Ends all reading. */
  close() {
    this.#ending.abort();
  }

  /**
   * Reads what is added until the run has ended, but not in a page that nobody sees. After a failure the reading goes on
   * where it was.
   * @param {(added: Line[]) => void} grew
   * @param {(trouble: string) => void} tell
   */
  async follow(grew, tell) {
    while (!this.done && !this.signal.aborted) {
      await shownPage(this.signal);
      try {
        const query = { after: this.#cursor, limit: KEPT_LINES, timeout: POLL_S };
        const answer = await this.#ask(query, POLL_S * 1000 + POLL_SLACK_MS);
        const added = this.#take(answer);
        tell("");
        if (this.total - (this.newest?.line ?? 0) > SKIPPED) await this.open();
        if (added.length > 0 || this.done) grew(added);
      } catch (error) {
        if (this.signal.aborted) return;
        tell(`${error.message}. Trying again.`);
        await pause(LOG_RETRY_MS, this.signal);
      }
    }
  }

  /**
   * Lines from a number on; `next` is the number from which the reading goes on.
   * @param {number} line @param {number} limit @param {Filter} [filter]
   * @returns {Promise<{ lines: Line[], next: number }>}
   */
  async after(line, limit, filter = {}) {
    if (line > this.total) return { lines: [], next: line };
    const at = isFilter(filter) ? -1 : line - this.#recent[0]?.line;
    if (at >= 0) {
      const lines = this.#recent.slice(at, at + limit);
      return { lines, next: line + lines.length };
    }
    const { lines, scanned_line: next } = await this.#ask({ from: line, limit, ...filter });
    return { lines, next };
  }

  /**
   * Lines before a number; `first` is the number from which on they are all that there are.
   * @param {number} line @param {number} limit @param {Filter} [filter]
   * @returns {Promise<{ lines: Line[], first: number }>}
   */
  async before(line, limit, filter = {}) {
    if (line <= 1) return { lines: [], first: 1 };
    const at = isFilter(filter) ? 0 : line - this.#recent[0]?.line;
    if (at > 0) {
      const lines = this.#recent.slice(0, at).slice(-limit);
      return { lines, first: lines[0].line };
    }
    const { lines, scanned_line: first } = await this.#ask({ before: line, limit, ...filter });
    return { lines, first };
  }

  /**
   * The next line with what is looked for, or the one before; past the end it goes on at the other end.
   * @param {Filter} filter @param {number} line @param {number} by 1 or -1
   * @returns {Promise<Line | undefined>}
   */
  async seek(filter, line, by) {
    const ways = by > 0 ? [line + 1, 1] : [line, this.total + 1];
    for (const start of ways)
      for (let at = start; by > 0 ? at <= this.total : at > 1; ) {
        /** @type {any} */
        const found = by > 0 ? await this.after(at, 1, filter) : await this.before(at, 1, filter);
        if (found.lines.length > 0) return found.lines[0];
        at = found.next ?? found.first;
      }
    return undefined;
  }

  /** Errors and matches, counted in 160 parts of the log. @param {Filter} filter */
  async map(filter) {
    return await get(this.path("/logs/map", filter), { signal: this.signal, limitMs: SEARCH_MS });
  }

  /** Bytes of the log as text. */
  async bytes(from, to) {
    const headers = { Range: `bytes=${from}-${to - 1}` };
    const blob = await request("GET", this.path("/activity.log"), { headers, as: "blob", signal: this.signal });
    return await blob.text();
  }

  #ask(query, limitMs = SEARCH_MS) {
    return get(this.path("/logs/lines", query), { signal: this.signal, limitMs });
  }

  #take({ lines, next, total, size_bytes: size, done }) {
    Object.assign(this, { total: Math.max(this.total, total), size, done });
    this.#cursor = next;
    const added = lines.filter(({ line }) => line > (this.newest?.line ?? 0));
    this.#recent = [...this.#recent, ...added].slice(-KEPT_LINES);
    return added;
  }
}

/** Whether anything is filtered. */
export function isFilter(filter) {
  return queryOf(filter).size > 0;
}

/** Waits until somebody can see the page. */
async function shownPage(signal) {
  while (document.hidden && !signal.aborted)
    await new Promise((resolve) => {
      const look = new AbortController();
      const end = () => resolve(look.abort());
      document.addEventListener("visibilitychange", end, { signal: look.signal });
      signal.addEventListener("abort", end, { signal: look.signal });
    });
}
