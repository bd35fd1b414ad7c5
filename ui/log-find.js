import { el } from "./dom.js";
import { LONGEST_SEARCH_BYTES, lineFilter, MOST_MATCHES, Search } from "./log-matches.js";

const TYPING_MS = 120;

/**
 * The bar that finds text in the whole log, on the server, while the log grows: how many lines hold it, which of them
 * is shown, the next and the one before, and only these lines.
 */
export class FindBar {
  element;
  #field = el("input", {
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: "200",
    "aria-label": "Find in the log",
  });
  #exact = el("input", { type: "checkbox" });
  #only = el("input", { type: "checkbox" });
  #count = el("span", { class: "count", role: "status" });
  #options;
  #typing;
  #running = new AbortController();
  #search = null;
  #index = -1;
  /** Whether all that was there when the search began has been looked at. */
  #settled = false;
  #scope = {};

  /**
   * `log()` answers the log that is shown, `position()` the offset of what is seen, `onChange` hears that another text is looked for,
   * `onGo` gets the offset to show, `onClose` that nothing is looked for any more.
   */
  constructor(options) {
    this.#options = options;
    const button = (label, title, onclick) =>
      el("button", { type: "button", title, "aria-label": title, onclick }, label);
    this.element = el(
      "div",
      { class: "find", role: "search", hidden: true },
      this.#field,
      this.#count,
      button("↑", "The match before (Shift+Enter)", () => this.#step(-1)),
      button("↓", "The next match (Enter)", () => this.#step(1)),
      el("label", {}, this.#exact, "Match case"),
      el("label", {}, this.#only, "Only these lines"),
      button("✕", "Close the find bar (Escape)", () => this.close()),
    );
    this.#field.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#change(), TYPING_MS);
    });
    for (const box of [this.#exact, this.#only]) box.addEventListener("change", () => this.#change());
    this.element.addEventListener("keydown", (event) => this.#key(event));
  }

  /** True while the keyboard is in the field of the bar. */
  get hasFocus() {
    return document.activeElement === this.#field;
  }

  /** What is looked for: `{ text, exact, only }`; the text is empty where nothing is. */
  get sought() {
    return {
      text: this.element.hidden ? "" : this.#field.value,
      exact: this.#exact.checked,
      only: this.#only.checked,
    };
  }

  open() {
    const wasOpen = !this.element.hidden;
    this.element.hidden = false;
    this.#field.select();
    this.#field.focus();
    if (!wasOpen && this.#field.value !== "") this.#change();
  }

  close() {
    this.reset();
    this.#options.onClose();
  }

  /** Looks for nothing, as at the beginning. */
  reset() {
    this.element.hidden = true;
    this.#only.checked = false;
    this.#stop();
  }

  /** Looks in another log, or in other lines of it: those of a job or a worker. */
  look(scope) {
    this.#scope = scope;
    this.#start();
  }

  #stop() {
    clearTimeout(this.#typing);
    this.#typing = undefined;
    this.#running.abort();
    this.#search = null;
    [this.#index, this.#settled] = [-1, false];
    this.#count.textContent = "";
  }

  #change() {
    this.#options.onChange();
    this.#start();
  }

  #start() {
    this.#stop();
    const { text, exact } = this.sought;
    const log = this.#options.log();
    if (text === "" || !log) return;
    if (new TextEncoder().encode(text).length > LONGEST_SEARCH_BYTES) {
      this.#count.textContent = `At most ${LONGEST_SEARCH_BYTES} bytes`;
      return;
    }
    this.#running = new AbortController();
    const { signal } = this.#running;
    const search = new Search();
    this.#search = search;
    this.#count.textContent = "Searching …";
    const filter = lineFilter({ ...this.#scope, text, exact });
    const position = this.#options.position();
    search.run({ log, filter, signal, onChange: () => this.#found(position) }).catch((error) => {
      if (!signal.aborted) this.#count.textContent = `The search failed: ${error.message}`;
    });
  }

  /** Goes to the first match from where the log is read; those that are added to the log later only count. */
  #found(position) {
    const { offsets, complete } = this.#search;
    const next = offsets.findIndex((offset) => offset >= position);
    if (this.#index < 0 && !this.#settled && offsets.length > 0 && (next >= 0 || complete))
      this.#goTo(Math.max(0, next));
    this.#settled ||= complete;
    this.#tell();
  }

  #step(by) {
    if (this.#typing !== undefined || !this.#search) return this.#change();
    const { length } = this.#search.offsets;
    if (length > 0) this.#goTo((this.#index + by + length) % length);
  }

  #goTo(index) {
    this.#index = index;
    this.#tell();
    this.#options.onGo(this.#search.offsets[index]);
  }

  #tell() {
    const { offsets, complete } = this.#search;
    const all = `${offsets.length.toLocaleString("en")}${complete ? "" : offsets.length >= MOST_MATCHES ? "+" : " …"}`;
    if (offsets.length === 0) this.#count.textContent = complete ? "No match" : "Searching …";
    else
      this.#count.textContent = this.#index < 0 ? all : `${(this.#index + 1).toLocaleString("en")} of ${all}`;
  }

  #key(event) {
    if (event.key === "Escape") this.close();
    else if (event.key === "Enter" && event.target === this.#field) this.#step(event.shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
