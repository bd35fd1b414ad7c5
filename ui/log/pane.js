// The log with its tools: which lines are shown, how, and the way through them.
import { address, keepQuery, link } from "../base/api.js";
import { button, el } from "../base/dom.js";
import { count, number, tell } from "../base/text.js";
import { ask } from "../parts/dialog.js";
import { logEdge } from "./edge.js";
import { logFind } from "./find.js";
import { rowOf, seenNames, timeOf } from "./row.js";
import { isFilter } from "./source.js";
import { keptLooks, toolsOf } from "./tools.js";
import { LogView } from "./view.js";

const EDGE_MS = 2_000;
const COPIED_BYTES = 8 * 1024 * 1024;
const NO_FILTER = { job: "", worker: "", stream: "", errors: false, only: false };

/** The log of a run: its head and tools, its lines, and the marks of its errors. */
export class LogPane {
  /** @type {import("./source.js").LogSource | null} */
  source = null;
  /** @type {any} */
  run = null;
  /** What of the log is counted: errors and matches, in parts. */
  /** @type {any} */
  map = null;
  isSearching = false;
  isWhole = false;
  /** The names of project and bucket. */
  where = "";
  filter = { ...NO_FILTER };
  /** @type {any} */
  looks = keptLooks();
  #names = seenNames();
  #mapping = { turn: 0, at: 0, timer: 0 };
  #shape = "";
  #cut = 0;
  #isDrawing = false;
  #problem = el("p.error", { role: "alert", hidden: true });
  #pill = button("", () => this.view.go(Infinity), { class: "small pill", hidden: true });
  #tools;
  #edge = logEdge((line) => this.view.go(line, { choose: false }));

  /** @param {{ onWhole: () => void, onClose: () => void }} around */
  constructor(around) {
    this.around = around;
    this.view = new LogView({
      rowOf: (row, isChosen) => this.#rowOf(row, isChosen),
      look: () => this.#look(),
      onChange: () => this.draw(),
      onProblem: (message) => this.tell(message),
      onChoose: (lines) => this.#choose(lines),
    });
    this.find = logFind({ pane: this, changed: () => this.#showLines(), leave: () => this.view.element.focus() });
    this.#tools = toolsOf(this);
    const body = el("div.log-body", this.view.element, this.#edge.element, this.#pill);
    this.element = el("section.log", { "aria-label": "Log" }, this.#tools.head, this.#problem, body, this.#tools.foot);
    this.element.own = true;
  }

  /** Shows a log: its end, or the lines that the place says. @param {any} source @param {any} run @param {any} place */
  open(source, run, { line, job = "", worker = "" } = {}) {
    this.clear();
    Object.assign(this, { source, run });
    this.#narrowTo({ job, worker });
    this.#showLines(Infinity);
    if (line) this.goTo(line);
    this.readMap();
  }

  /** Shows the lines of a place, and goes to lines. @param {any} place */
  narrow({ line, job, worker } = {}) {
    if (job !== undefined || worker !== undefined) {
      this.#narrowTo({ job: job ?? "", worker: worker ?? "" });
      if (this.isAddressed()) keepQuery({ job, worker });
      this.#showLines();
      this.readMap();
    }
    if (line) this.goTo(line);
  }

  #narrowTo(place) {
    Object.assign(this.filter, place);
    for (const name of ["job", "worker"]) {
      const field = this.#tools.fields[name];
      if (field.value.trim() !== place[name]) field.value = place[name];
    }
  }

  goTo([first, last = first]) {
    return this.view.go(first, { last });
  }

  clear() {
    clearTimeout(this.#mapping.timer);
    this.#mapping = { turn: this.#mapping.turn + 1, at: 0, timer: 0 };
    Object.assign(this, { source: null, run: null, map: null, isSearching: false });
    Object.assign(this.filter, NO_FILTER);
    [this.#names, this.#shape] = [seenNames(), ""];
    this.find.clear();
    this.view.clear();
    this.tell("");
  }

  /** The run is in another state. */
  update(run) {
    this.run = run;
    this.draw();
  }

  /** The log has grown. */
  grew() {
    this.view.grew();
    this.draw();
    const isDue = this.source.done || Date.now() - this.#mapping.at > EDGE_MS;
    if (isDue) this.readMap();
    else this.#mapping.timer ||= window.setTimeout(() => this.readMap(), EDGE_MS);
  }

  /** Says what is the matter. */
  tell(message) {
    tell(this.#problem, message);
  }

  /** Sets filters. */
  set(changes) {
    Object.assign(this.filter, changes);
    this.#showLines();
    if (changes.stream !== undefined) this.readMap();
    this.draw();
  }

  /** Shows lines in another way. */
  change(looks) {
    Object.assign(this.looks, looks);
    this.#showLines();
    this.view.draw();
    this.draw();
  }

  /** Follows the end, or stays here. */
  follow(isOn) {
    if (isOn) this.view.go(Infinity);
    else this.view.follow(false);
  }

  /** The names of jobs or workers that were seen. @param {"job" | "worker"} name */
  names(name) {
    return [...this.#names.seen[name]].sort();
  }

  /** Counts errors and matches again. */
  async readMap() {
    clearTimeout(this.#mapping.timer);
    const [turn, { source, find }] = [this.#mapping.turn + 1, this];
    this.#mapping = { turn, at: Date.now(), timer: 0 };
    if (!source || !this.element.isConnected) return;
    const { q } = find.state;
    this.isSearching = this.map?.q !== q;
    try {
      const map = await source.map(this.#what("matches"));
      if (turn === this.#mapping.turn) this.map = { ...map, q };
    } catch (error) {
      if (turn === this.#mapping.turn && !source.signal.aborted) this.tell(error.message);
    }
    if (turn !== this.#mapping.turn) return;
    this.isSearching = false;
    find.tell();
    this.draw();
  }

  /** The next line with an error, or the one before. */
  async error(by) {
    const [first] = this.view.seen();
    const found = await this.seek("errors", this.view.chosen[0] ?? (by > 0 ? first - 1 : first), by);
    if (found) await this.view.go(found.line);
  }

  /** The line with the next error or match. @param {"errors" | "matches"} kind */
  async seek(kind, line, by) {
    return await this.source?.seek(this.#what(kind), line, by);
  }

  /** How many matches are before a line. */
  async countBefore(line) {
    const { buckets, lines } = this.map;
    const part = Math.ceil((line * buckets.length) / lines) - 1;
    let found = buckets.slice(0, part).reduce((sum, { matches }) => sum + matches, 0);
    for (let at = 1 + Math.floor((part * lines) / buckets.length); at < line; ) {
      const page = await this.source.after(at, 1_000, this.#what("matches"));
      found += page.lines.filter((one) => one.line < line).length;
      at = page.next;
    }
    return found;
  }

  /** Whose lines are wanted, and those with an error, or with the text that is looked for. */
  #what(kind) {
    const { errors: _, only: __, ...place } = this.filter;
    const { q, case: exact } = this.find.state;
    if (kind === "matches") return { ...place, q, case: q !== "" && exact };
    return kind === "errors" ? { ...place, errors: true } : place;
  }

  /** Asks for the number of a line, and goes there. */
  askForLine() {
    const { total } = this.source;
    const field = el("input", { type: "number", min: 1, max: total, required: true, autofocus: true });
    const fields = el("label.field", el("span", `Line, 1 to ${number(total)}`), field);
    const submit = () => void this.view.go(Math.min(total, Math.max(1, Math.floor(Number(field.value)))));
    ask({ title: "Go to a line", fields, action: "Go", submit });
  }

  /** The address of lines. */
  href(first, last = first) {
    const { bucketId, runId } = this.source;
    const { job, worker } = this.filter;
    return link(bucketId, "runs", [runId], { job, worker, line: rangeOf(first, last) });
  }

  /** Whether the page shows the run's own address. */
  isAddressed() {
    const { bucketId, view, rest } = address();
    return view === "runs" && rest[0] === this.source?.runId && bucketId === this.source.bucketId;
  }

  /** Where the lines of the text, the job and the worker can be had as a file. */
  download() {
    const times = this.looks.times !== "";
    return this.source?.path("/logs/text", { ...this.#filter(), times }) ?? "";
  }

  isNarrowed() {
    return isFilter(this.#filter());
  }

  /** Which lines a person wants to see, besides errors. */
  #filter() {
    return this.#what(this.filter.only && "matches");
  }

  /** The text of the lines that are chosen. */
  async text() {
    const [first, last] = this.view.chosen;
    const [{ offset }] = (await this.source.after(first, 1)).lines;
    const end = await this.#endOf(last);
    if (end - offset > COPIED_BYTES) throw new Error("These lines are too long to be copied. Download the log.");
    return await this.source.bytes(offset, end);
  }

  /** Where a line ends in the log. */
  async #endOf(line) {
    const [behind] = (await this.source.after(line + 1, 1)).lines;
    return behind?.offset ?? this.source.size;
  }

  #showLines(line = this.view.place()) {
    if (!this.source) return;
    const filter = { ...this.#filter(), errors: this.filter.errors };
    const fold = { equal: this.looks.fold, places: this.looks.places };
    const shape = JSON.stringify([filter, fold]);
    if (shape !== this.#shape) this.view.show(this.source, { filter, fold }, line);
    else this.view.draw();
    this.#shape = shape;
    this.draw();
  }

  #choose(lines) {
    if (this.isAddressed()) keepQuery({ line: rangeOf(...lines) });
    this.draw();
  }

  #look() {
    const { q, case: exact } = this.find.state;
    return JSON.stringify([this.looks.times, this.looks.escapes, q, exact, this.#names.seen.cut, this.run?.started_at]);
  }

  #rowOf(row, isChosen) {
    this.#names.add(row);
    const { looks, run } = this;
    return rowOf(row, {
      isChosen,
      href: (line) => this.href(line),
      time: (at) => timeOf(at, looks.times, run?.started_at ?? run?.created_at),
      cut: this.#names.seen.cut,
      escapes: looks.escapes,
      find: this.find.state,
      open: (line) => this.view.open(line),
      whole: (line) => this.#wholeOf(line),
    });
  }

  /** A line is longer in the log than `text`, by what ops put before it. */
  async #wholeOf({ line, offset, text }) {
    const all = await this.source.bytes(offset, await this.#endOf(line));
    return all.slice(Math.max(0, all.indexOf(text.slice(0, -1)))).replace(/\n$/, "");
  }

  /** Draws the tools, once in a frame. */
  draw() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#drawNow();
    });
  }

  #drawNow() {
    const { source, view, looks } = this;
    const { wrap, tint, place, times } = looks;
    const classes = { whole: this.isWhole, wrap, tint, placeless: !place, timeless: times === "" };
    for (const [name, isOn] of Object.entries(classes)) this.element.classList.toggle(name, isOn);
    this.element.style.setProperty("--digits", `${number(source?.total ?? 0).length}ch`);
    this.#tools.draw();
    const added = view.following || !source ? 0 : source.total - view.leftAt;
    this.#pill.hidden = added === 0;
    this.#pill.textContent = `↓ ${count(added, "new line")}`;
    const { cut } = this.#names.seen;
    if (this.#cut !== cut) view.draw();
    this.#cut = cut;
    this.#edge.draw(this.map, source?.total ?? 0, view.seen());
  }
}

/** Lines as an address has them: `1146`, `1146-1150`. */
function rangeOf(first, last) {
  return first === last ? first : `${first}-${last}`;
}
