import { lineFilter } from "./run-log.js";

const TYPING_MS = 120;
/** How many places a search remembers. */
const MOST_MATCHES = 50_000;
/** The server looks for at most so many bytes. */
const LONGEST_SEARCH_BYTES = 200;

/**
 * The bar that finds text in the whole log, on the server, while the log grows: how many lines hold it, which of them
 * is shown, the next and the one before, and only these lines.
 */
export class FindBar {
  #form;
  #count;
  #options;
  #typing;
  #running = new AbortController();
  /** The first bytes of the lines that were found; which of them is shown; whether all that is there was looked at. */
  #offsets = [];
  #index = -1;
  #complete = false;
  #scope = {};

  /**
   * `log()` answers the log that is shown, `position()` the offset of what is seen, `onChange` hears that another text is
   * looked for, `onGo` gets the offset to show, `onClose` hears that nothing is looked for any more.
   */
  constructor(form, options) {
    [this.#form, this.#count, this.#options] = [form, form.querySelector(".count"), options];
    form.addEventListener("input", ({ target }) => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#change(), target === this.field ? TYPING_MS : 0);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#step(1);
    });
    form.elements.before.addEventListener("click", () => this.#step(-1));
    form.elements.close.addEventListener("click", () => this.#close());
    form.addEventListener("keydown", (event) => this.#key(event));
  }

  get field() {
    return this.#form.elements.text;
  }

  /** What is looked for: `{ text, exact, only }`; the text is empty where nothing is. */
  get sought() {
    const { text, exact, only } = this.#form.elements;
    return {
      text: this.#form.hidden ? "" : text.value,
      ...{ exact: exact.checked, only: only.checked },
    };
  }

  open() {
    const wasOpen = !this.#form.hidden;
    this.#form.hidden = false;
    this.field.select();
    this.field.focus();
    if (!wasOpen && this.field.value !== "") this.#change();
  }

  /** Looks for nothing, as at the beginning. */
  clear() {
    this.#form.hidden = true;
    this.#form.elements.only.checked = false;
    this.#stop();
  }

  /** Looks in another log, or in other lines of it: those of a job or a worker. */
  look(scope) {
    this.#scope = scope;
    this.#start();
  }

  #close() {
    this.clear();
    this.#options.onClose();
  }

  #stop() {
    clearTimeout(this.#typing);
    this.#typing = undefined;
    this.#running.abort();
    [this.#offsets, this.#index, this.#complete] = [[], -1, false];
    this.#count.textContent = "";
  }

  #change() {
    this.#options.onChange();
    this.#start();
  }

  async #start() {
    this.#stop();
    const { text, exact } = this.sought;
    const log = this.#options.log();
    if (text === "" || !log) return;
    if (new TextEncoder().encode(text).length > LONGEST_SEARCH_BYTES) {
      this.#count.textContent = `At most ${LONGEST_SEARCH_BYTES} bytes`;
      return;
    }
    this.#count.textContent = "Searching …";
    this.#running = new AbortController();
    const { signal } = this.#running;
    try {
      await this.#search(log, lineFilter({ ...this.#scope, text, exact }), signal);
    } catch (error) {
      if (!signal.aborted) this.#count.textContent = `The search failed: ${error.message}`;
    }
  }

  /** Goes to the first match from where the log is read; those that are added to the log later only count. */
  async #search(log, { accepts, ...filter }, signal) {
    const position = this.#options.position();
    let settled = false;
    for (let after = { offset: 0, line: 1 }; this.#offsets.length < MOST_MATCHES; ) {
      const growth = log.grown();
      const page = await log.search({ ...filter, after, signal });
      if (signal.aborted) return;
      this.#offsets.push(...page.lines.filter(accepts).map(({ start }) => start));
      const next = this.#offsets.findIndex((offset) => offset >= position);
      this.#complete = page.isLast;
      if (!settled && this.#index < 0 && this.#offsets.length > 0 && (next >= 0 || page.isLast))
        this.#goTo(Math.max(0, next));
      settled ||= page.isLast;
      this.#tell();
      if (page.done) return;
      if (page.isLast) await growth;
      after = page.next;
    }
  }

  #step(by) {
    if (this.#typing !== undefined || this.#running.signal.aborted) return this.#change();
    const { length } = this.#offsets;
    if (length > 0) this.#goTo((this.#index + by + length) % length);
  }

  #goTo(index) {
    this.#index = index;
    this.#tell();
    this.#options.onGo(this.#offsets[index]);
  }

  #tell() {
    const { length } = this.#offsets;
    const more = this.#complete ? "" : length >= MOST_MATCHES ? "+" : " …";
    const all = `${length.toLocaleString("en")}${more}`;
    const place = this.#index < 0 ? all : `${(this.#index + 1).toLocaleString("en")} of ${all}`;
    this.#count.textContent = length > 0 ? place : this.#complete ? "No match" : "Searching …";
  }

  #key(event) {
    if (event.key === "Escape") this.#close();
    else if (event.key === "Enter" && event.shiftKey && event.target === this.field) this.#step(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
