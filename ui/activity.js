import { ActivityHead } from "./activity-head.js";
import { RunStream } from "./activity-stream.js";
import { bucketPath } from "./api.js";
import { el, tell } from "./dom.js";
import { size } from "./format.js";
import { LogFile } from "./log-file.js";
import { FindBar } from "./log-find.js";
import { LineIndex } from "./log-index.js";
import { AllLines } from "./log-lines.js";
import { lineFilter, MatchingLines } from "./log-matches.js";
import { LogView } from "./log-view.js";

/** How often it is asked how an active run stands. */
const ASK_MS = 3_000;
const TYPING_MS = 300;
const NEWLINE = 10;

/**
 * The Activity panel: the log of one run at a time, live while the run goes on. `api.call(method, path, options)` makes
 * its requests; `bucketId` is the bucket of the runs, or a function that answers it.
 */
export class ActivityPanel {
  #element;
  #api;
  #bucketId;
  #listeners = [];
  #stream = null;
  #abort = new AbortController();
  #run = null;
  #where = "";
  #file = null;
  #index = null;
  #newLines = 0;
  #drawing = 0;
  #asked = 0;
  #head = new ActivityHead(() => this.#stream.cancel());
  #find = new FindBar({
    log: () => this.#log(),
    position: () => this.#view.position,
    onChange: () => this.#showLines(),
    onGo: (offset) => this.#view.go(offset),
    onClose: () => {
      this.#showLines();
      this.#view.element.focus();
    },
  });
  #view = new LogView({
    href: (offset) => this.#address(offset),
    numberOf: (lines) => this.#numberOf(lines),
    onFollow: () => this.#drawFollow(),
    onProblem: (message) => tell(this.#problem, message),
  });
  #problem = el("p", { class: "error", role: "alert", hidden: true });
  #pill = el("button", {
    type: "button",
    class: "pill",
    hidden: true,
    onclick: () => this.#view.go(Infinity),
  });
  #job = filterField("Job");
  #worker = filterField("Worker");
  #download = el("a", { class: "tool" }, "Download");
  #size = el("span", { class: "size" });
  #copied = el("span", { role: "status" });
  #lines = "";

  constructor(element, { api, bucketId }) {
    this.#element = element;
    this.#api = api;
    this.#bucketId = typeof bucketId === "function" ? bucketId : () => bucketId;
    element.replaceChildren(
      this.#head.element,
      this.#tools(),
      this.#find.element,
      this.#problem,
      el("div", { class: "log" }, this.#view.element, this.#pill),
    );
    element.addEventListener("keydown", (event) => this.#key(event));
    addEventListener("keydown", (event) => this.#findKey(event));
    addEventListener("hashchange", () => this.#followAddress());
  }

  /** `callback` gets `{ runId, status, kind, bucketId }` whenever one of them is another; all are null without a run. */
  onState(callback) {
    this.#listeners.push(callback);
  }

  /** Opens the find bar. */
  find() {
    this.#find.open();
  }

  /** Shows the newest run of the bucket, if there is one. */
  async showLatest() {
    const bucketId = this.#bucketId();
    try {
      const { items } = await this.#api.call("GET", bucketPath(bucketId, "/runs?limit=1"));
      if (items[0] && bucketId === this.#bucketId()) this.show(items[0].id);
    } catch (error) {
      this.#element.hidden = false;
      this.#head.problem(error.message);
    }
  }

  /** Shows a run instead of the one before; the same one goes on. */
  show(runId) {
    const bucketId = this.#bucketId();
    if (this.#stream?.runId === runId && this.#stream.bucketId === bucketId) return this.#followAddress();
    this.close();
    this.#element.hidden = false;
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    this.#stream = new RunStream(this.#api, bucketId, runId, signal, (trouble) =>
      this.#head.problem(trouble),
    );
    this.#tell();
    this.#read(this.#stream).catch((error) => {
      if (!signal.aborted) this.#head.problem(error.message);
    });
  }

  /** Shows nothing. */
  close() {
    this.#abort.abort();
    [this.#stream, this.#run, this.#file, this.#newLines] = [null, null, null, 0];
    this.#find.reset();
    this.#view.clear();
    this.#head.show(null, "");
    this.#head.problem("");
    for (const field of [this.#job, this.#worker]) field.value = "";
    this.#element.hidden = true;
    this.#tell();
  }

  async #read(stream) {
    const [run, bucket] = await Promise.all([
      stream.run(),
      this.#api.call("GET", bucketPath(stream.bucketId)).catch(() => null),
    ]);
    stream.signal.throwIfAborted();
    this.#where = bucket ? `${bucket.project} / ${bucket.name}` : stream.bucketId;
    this.#file = new LogFile(run.log_size_bytes, (from, to) => stream.bytes(from, to));
    this.#index = new LineIndex();
    this.#file.ended = run.status !== "running";
    this.#update(run);
    this.#download.href = stream.path("/activity.log");
    this.#download.download = `${run.kind}-${run.id}.log`;
    this.#lines = "";
    this.#showLines(this.#addressed() ?? Infinity);
    const asking = setInterval(() => this.#ask(stream), ASK_MS);
    stream.signal.addEventListener("abort", () => clearInterval(asking));
    await stream.follow(this.#file, (bytes) => this.#grew(bytes));
    clearInterval(asking);
    this.#grew(new Uint8Array(0));
    const ended = await stream.run();
    stream.signal.throwIfAborted();
    this.#update(ended);
  }

  /** How an active run stands; where that cannot be read, the stream says so. */
  async #ask(stream) {
    if (document.hidden) return;
    const asked = ++this.#asked;
    const run = await this.#api.call("GET", stream.path(), { signal: stream.signal }).catch(() => null);
    if (run?.status === "running" && asked === this.#asked && stream === this.#stream) this.#update(run);
  }

  #update(run) {
    const before = this.#run;
    this.#run = run;
    this.#head.show(run, this.#where);
    if (before?.status !== run.status) this.#tell();
  }

  #tell() {
    const [runId, bucketId] = [this.#stream?.runId ?? null, this.#stream?.bucketId ?? null];
    const state = { runId, status: this.#run?.status ?? null, kind: this.#run?.kind ?? null, bucketId };
    for (const listener of this.#listeners) listener(state);
  }

  #grew(bytes) {
    if (!this.#view.following) for (const byte of bytes) if (byte === NEWLINE) this.#newLines++;
    this.#drawing ||= requestAnimationFrame(() => {
      this.#drawing = 0;
      this.#drawFollow();
      this.#view.grew();
    });
  }

  #drawFollow() {
    if (this.#view.following) this.#newLines = 0;
    this.#pill.hidden = this.#newLines === 0;
    this.#pill.textContent = `↓ ${this.#newLines.toLocaleString("en")} new ${this.#newLines === 1 ? "line" : "lines"}`;
    this.#size.textContent = this.#file ? size(this.#file.size) : "";
  }

  #log() {
    const stream = this.#stream;
    return this.#file && { file: this.#file, index: this.#index, search: (query) => stream.search(query) };
  }

  #numberOf(lines) {
    const { file, index, search } = this.#log();
    return index.place(lines, file.size, search);
  }

  /** Shows the lines that the filters let through, at `offset` or else where the log is read now. */
  #showLines(offset = this.#view.following ? Infinity : (this.#view.markedLine ?? this.#view.position)) {
    if (!this.#file) return;
    const { text, exact, only } = this.#find.sought;
    this.#view.mark(text === "" ? null : { text, exact });
    const filter = { ...this.#scope(), text: only ? text : "", exact };
    const lines = JSON.stringify(lineFilter(filter) && filter);
    if (lines === this.#lines) return;
    this.#lines = lines;
    const found = lineFilter(filter);
    const source = found ? new MatchingLines(this.#log(), found) : new AllLines(this.#file);
    this.#view.show(this.#file, source, offset);
    this.#drawFollow();
  }

  #scope() {
    return { job: this.#job.value.trim(), worker: this.#worker.value.trim() };
  }

  #tools() {
    let typing;
    const narrow = () => {
      this.#showLines();
      this.#find.look(this.#scope());
    };
    for (const field of [this.#job, this.#worker])
      field.addEventListener("input", () => {
        clearTimeout(typing);
        typing = setTimeout(narrow, TYPING_MS);
      });
    const wrap = el("input", { type: "checkbox", checked: true });
    wrap.addEventListener("change", () => this.#view.element.classList.toggle("unwrapped", !wrap.checked));
    const find = el(
      "button",
      { type: "button", "aria-keyshortcuts": "/ Control+F", onclick: () => this.#find.open() },
      "Find",
    );
    const link = el("button", { type: "button", onclick: () => this.#copyAddress() }, "Copy link");
    const parts = [
      find,
      label("Job", this.#job),
      label("Worker", this.#worker),
      label("Wrap", wrap, "check"),
    ];
    return el("div", { class: "tools" }, ...parts, link, this.#download, this.#copied, this.#size);
  }

  #address(offset) {
    return `#/buckets/${this.#stream.bucketId}/runs/${this.#stream.runId}?at=${offset}`;
  }

  /** The place that the page's address names in the log that is shown, or null. */
  #addressed() {
    const [address, at] = location.hash.split("?at=");
    return at && /^\d{1,15}$/.test(at) && this.#address(at).startsWith(address) ? Number(at) : null;
  }

  #followAddress() {
    const offset = this.#file && this.#addressed();
    if (offset !== null) this.#view.go(offset);
  }

  async #copyAddress() {
    if (!this.#file) return;
    const offset = this.#view.markedLine ?? this.#view.position;
    const address = new URL(this.#address(offset), location.href).href;
    try {
      await navigator.clipboard.writeText(address);
      this.#copied.textContent = "Copied";
    } catch {
      // Not allowed, or no https: then the address bar has it.
      location.hash = this.#address(offset);
      this.#copied.textContent = "It is in the address bar";
    }
  }

  #key(event) {
    const isTyping = event.target.matches("input, textarea, select");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.#find.open();
  }

  /** Ctrl+F anywhere on the page; pressed again, it is the browser's. */
  #findKey(event) {
    const isFind = event.key === "f" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
    if (!isFind || !this.#file || this.#find.hasFocus || this.#element.getClientRects().length === 0) return;
    event.preventDefault();
    this.#find.open();
  }
}

function filterField(name) {
  return el("input", {
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: `any ${name.toLowerCase()}`,
  });
}

function label(text, field, kind = null) {
  return el("label", { class: kind }, ...(kind === null ? [text, field] : [field, text]));
}
