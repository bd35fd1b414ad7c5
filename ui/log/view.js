// The lines in sight and some around them, between two empty spaces that stand for all others.
import { el } from "../base/dom.js";
import { folded, rowsOf } from "./fold.js";
import { arrange } from "./row.js";
import { isFilter } from "./source.js";

/** So many lines are read at a time, and so many rows are on the page at most. */
const [STEP, KEPT] = [200, 600];
/** Before a line that is gone to, some are read too. */
const BACK = 60;
const ROW_PX = 18;
/** Browsers limit the height of what is scrolled. */
const MOST_PX = 8_000_000;
const NEAR_PX = 24;

/** @typedef {import("./fold.js").Row} Row */

/** The list of lines, which follows the end of a log or stays where a person is. */
export class LogView {
  following = true;
  /** The first and the last line that are chosen; none at first. @type {number[]} */
  chosen = [];
  /** The total when the end was left. */
  leftAt = 0;
  #list = el("div.lines");
  #spaces = [el("div"), el("div")];
  /** @type {import("./source.js").LogSource | null} */
  #source = null;
  /** @type {import("./source.js").Filter} */
  #filter = {};
  #fold = { equal: true, places: false };
  /** @type {Row[]} */
  #rows = [];
  /** The rows are all lines from `first` on, before `next`. */
  #first = 1;
  #next = 1;
  /** Lines that a person has opened, and where the view has been led. @type {number[][]} */
  #opened = [];
  /** @type {number | null} */
  #wanted = null;
  /** What was read for an earlier turn is dropped. */
  #turn = 0;
  /** @type {Promise<void> | null} */
  #work = null;
  #isUnsettled = false;
  #scrolledTo = 0;
  #height = 0;

  /**
   * @param {{ rowOf: (row: Row, isChosen: boolean) => any, look: () => string, onChange: () => void,
   *   onProblem: (message: string) => void, onChoose: (lines: number[]) => void }} options `look` changes when rows look different
   */
  constructor(options) {
    this.options = options;
    const label = { tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Lines of the log" };
    this.element = el("div.output", label, this.#spaces[0], this.#list, this.#spaces[1]);
    this.element.own = true;
    this.element.onscroll = () => this.#scrolled();
    this.element.onkeydown = (event) => this.#key(event);
    this.element.onclick = (event) => this.#click(event);
    new ResizeObserver(() => this.#resized()).observe(this.element);
  }

  /** Shows the log from a line on; from its end for Infinity. */
  show(source, { filter, fold }, line) {
    if (line === Infinity) this.chosen = [];
    [this.#source, this.#filter, this.#fold, this.#opened] = [source, filter, fold, []];
    return this.go(line, { choose: false, anew: true });
  }

  /** Shows nothing. */
  clear() {
    this.#turn++;
    [this.#source, this.#wanted, this.chosen] = [null, null, []];
    this.#set([], 1, 1);
    this.follow(true);
  }

  /** To a line, to lines that are then chosen, or for Infinity to the end. */
  async go(line, { last = line, choose = true, anew = false } = {}) {
    const toEnd = line === Infinity;
    this.follow(toEnd);
    if (choose) this.chosen = toEnd ? [] : [line, last];
    if (!toEnd) this.#opened.push([line, line]);
    const isThere = !anew && this.#wanted === null && this.#rows.some((row) => row.line === line && !row.fold);
    if (!isThere) this.#want(line);
    else this.draw();
    await this.#settle();
    if (!toEnd) this.#bringIn(line);
    this.options.onChange();
    await this.#settle();
  }

  /** The line from which the log is to be shown again: Infinity for its end. */
  place() {
    return this.following ? Infinity : (this.chosen[0] ?? this.seen()[0]);
  }

  /** The first and the last line in sight. */
  seen() {
    const { scrollTop, clientHeight } = this.element;
    const [first, last] = [scrollTop, scrollTop + clientHeight - 1].map((px) => this.#rows[this.#rowAt(px)]);
    return [first?.line ?? 0, (last ?? this.#rows.at(-1))?.last ?? 0];
  }

  /** The log has grown. */
  grew() {
    this.#space();
    return this.#settle();
  }

  /** Draws the rows again, with what is seen at the same place. */
  draw() {
    this.#set(this.#rows, this.#first, this.#next);
  }

  /** Keeps the place while `move` puts the log elsewhere on the page: that is no scroll. */
  moved(move) {
    move();
    this.#height = 0;
    this.#resized();
  }

  /** A box that was not on the page, or not shown, has lost its place. */
  #resized() {
    const { clientHeight } = this.element;
    const wasAway = this.#height === 0;
    this.#height = clientHeight;
    if (!this.#source || clientHeight === 0) return;
    if (wasAway) this.element.scrollTop = this.#scrolledTo;
    this.draw();
    this.#settle();
  }

  /** Follows the end, or not any more. */
  follow(now) {
    if (this.following === now) return;
    [this.following, this.leftAt] = [now, this.#source?.total ?? 0];
    this.options.onChange();
  }

  // A browser tells late of a scroll, and scrolls by itself where the box has changed its height.
  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    const moved = scrollTop - this.#scrolledTo;
    if (moved === 0 || clientHeight !== this.#height) return;
    this.#scrolledTo = scrollTop;
    const isEnd = this.#source && this.#next > this.#source.total && scrollHeight - scrollTop - clientHeight < NEAR_PX;
    if (moved < 0) this.follow(false);
    else if (isEnd) this.follow(true);
    this.options.onChange();
    this.#settle();
  }

  #key(event) {
    const place = { Home: 1, End: Infinity }[event.key];
    if (place === undefined || event.target !== this.element || !this.#source) return;
    event.preventDefault();
    this.go(place, { choose: place === Infinity });
  }

  #click(event) {
    const line = Number(event.target.closest(".number")?.dataset.line);
    if (!line || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const [first = line] = event.shiftKey ? this.chosen : [];
    this.chosen = [first, line].sort((one, other) => one - other);
    this.draw();
    this.options.onChoose(this.chosen);
  }

  /** Opens the fold that begins with a line. */
  async open(line) {
    const isMeant = (row) => row.fold !== undefined && row.line === line;
    const fold = this.#rows.find(isMeant);
    if (!fold) return;
    this.follow(false);
    const turn = ++this.#turn;
    const { lines } = await this.#source.after(line, Math.min(fold.count, KEPT - 100), this.#filter);
    const own = lines.filter((one) => one.line <= fold.last);
    const at = this.#rows.findIndex(isMeant);
    if (turn !== this.#turn || at < 0 || own.length === 0) return;
    const end = own.at(-1).line;
    this.#opened.push([line, end]);
    const rest = { ...fold, line: end + 1, count: fold.count - own.length };
    this.#set(this.#rows.toSpliced(at, 1, ...rowsOf(own), ...(rest.count > 0 ? [rest] : [])), this.#first, this.#next);
    this.element.focus({ preventScroll: true });
  }

  #want(line) {
    this.#turn++;
    this.#wanted = line;
  }

  #settle() {
    this.#isUnsettled = true;
    this.#work ??= this.#improveAll().finally(() => (this.#work = null));
    return this.#work;
  }

  async #improveAll() {
    for (let isMore = true; isMore || this.#isUnsettled; ) {
      this.#isUnsettled = false;
      const turn = this.#turn;
      try {
        isMore = await this.#improve(turn);
        this.options.onProblem("");
      } catch (error) {
        isMore = turn !== this.#turn;
        if (error.name !== "AbortError" && !isMore) this.options.onProblem(error.message);
      }
    }
  }

  /** Reads what is missing in sight; answers whether more may be missing. */
  async #improve(turn) {
    const { scrollTop, clientHeight } = this.element;
    if (!this.#source || clientHeight === 0) return false;
    const { offsetTop, offsetHeight } = this.#list;
    const above = scrollTop - offsetTop;
    const below = offsetTop + offsetHeight - scrollTop - clientHeight;
    const missing = this.#source.total + 1 - this.#next;
    const isAway = this.following ? missing > KEPT && !isFilter(this.#filter) : above < -clientHeight || below < -clientHeight;
    if (this.#wanted === null && isAway) this.#want(this.following ? Infinity : this.#lineAt(scrollTop));
    if (this.#wanted !== null) await this.#showFrom(this.#wanted, this.#turn);
    else if (below < clientHeight && missing > 0) await this.#extend(turn, true);
    else if (above < clientHeight && this.#first > 1) await this.#extend(turn, false);
    else return false;
    return true;
  }

  async #showFrom(line, turn) {
    const { total } = this.#source;
    const isFiltered = isFilter(this.#filter);
    const from = Math.max(1, line - (isFiltered ? 0 : BACK));
    const read = line <= total ? await this.#source.after(from, STEP, this.#filter) : { lines: [] };
    let found = { first: from, next: total + 1, ...read };
    if (found.lines.length === 0) found = { ...found, ...(await this.#source.before(total + 1, STEP, this.#filter)) };
    if (turn !== this.#turn) return;
    this.#wanted = null;
    this.#set(rowsOf(found.lines), found.first, found.next);
    if (this.following) return;
    const at = this.#rows.findIndex(({ last }) => last >= line);
    this.#scrollTo(this.#top(at < 0 ? this.#rows.length - 1 : at));
  }

  /** Reads more lines below or above; what is too much goes at the other end, but never the end that is followed. */
  async #extend(turn, isDown) {
    const [source, filter] = [this.#source, this.#filter];
    const reading = isDown ? source.after(this.#next, STEP, filter) : source.before(this.#first, STEP, filter);
    const { lines, ...end } = await reading;
    this.#scrolled();
    if (turn !== this.#turn) return;
    const own = rowsOf(lines);
    const all = folded(isDown ? [...this.#rows, ...own] : [...own, ...this.#rows], this.#how());
    const { first, next } = { first: this.#first, next: this.#next, ...end };
    const more = all.length - KEPT;
    if (more <= 0 || (!isDown && this.following)) this.#set(all, first, next);
    else if (isDown) this.#set(all.slice(more), all[more].line, next);
    else this.#set(all.slice(0, KEPT), first, all[KEPT].line);
  }

  #how() {
    const isOpen = ({ line }) => [this.chosen, ...this.#opened].some(([first, last]) => first <= line && line <= last);
    return { ...this.#fold, isOpen };
  }

  /** Draws rows. What is seen stays where it is, unless the end is followed. */
  #set(rows, first, next) {
    const seen = this.#rowAt(this.element.scrollTop);
    const [anchor, top] = [this.#rows[seen]?.line, this.#top(seen)];
    [this.#rows, this.#first, this.#next] = [folded(rows, this.#how()), first, next];
    const look = this.options.look();
    const before = new Map([...this.#elements()].map((element) => [element.look, element]));
    const elements = this.#rows.map((row) => this.#elementOf(row, look, before));
    arrange(this.#list, elements);
    this.#space();
    this.options.onChange();
    if (this.following) return this.#scrollTo(this.element.scrollHeight);
    const now = anchor === undefined ? -1 : this.#rows.findIndex(({ last }) => last >= anchor);
    if (now >= 0) this.#scrollTo(this.element.scrollTop + this.#top(now) - top);
  }

  /** The element of a row; the one on the page where the row looks the same. */
  #elementOf(row, look, before) {
    const { line, last, fold, count } = row;
    const isChosen = this.chosen.length > 0 && line <= this.chosen[1] && last >= this.chosen[0];
    const own = `${line} ${Boolean(fold)} ${count} ${isChosen} ${look}`;
    return before.get(own) ?? Object.assign(this.options.rowOf(row, isChosen), { look: own });
  }

  /** The two spaces are as high as the lines that they stand for, while a browser can show that. */
  #space() {
    const px = this.#pxPerLine();
    const lines = [this.#first - 1, Math.max(0, (this.#source?.total ?? 0) + 1 - this.#next)];
    for (const [index, count] of lines.entries()) this.#spaces[index].style.height = `${Math.ceil(count * px)}px`;
    if (this.following) this.#scrollTo(this.element.scrollHeight);
  }

  #pxPerLine() {
    const density = isFilter(this.#filter) ? this.#rows.length / Math.max(1, this.#next - this.#first) : 1;
    return Math.min(ROW_PX * density, MOST_PX / Math.max(1, this.#source?.total ?? 0));
  }

  /** The line for a place in one of the spaces. */
  #lineAt(px) {
    const { offsetTop, offsetHeight } = this.#list;
    const perLine = this.#pxPerLine();
    const line = px < offsetTop ? 1 + px / perLine : this.#next + (px - offsetTop - offsetHeight) / perLine;
    return Math.max(1, Math.min(this.#source.total, Math.floor(line)));
  }

  #scrollTo(px) {
    if (this.element.clientHeight === 0) return;
    this.element.scrollTop = px;
    this.#scrolledTo = this.element.scrollTop;
  }

  #top(index) {
    return this.#elements()[index]?.offsetTop ?? 0;
  }

  /** @returns {any} the elements of the rows */
  #elements() {
    return this.#list.children;
  }

  /** The row at a height of what is scrolled; -1 where there is none. */
  #rowAt(px) {
    return [...this.#elements()].findIndex((row) => row.offsetTop + row.offsetHeight > px);
  }

  #bringIn(line) {
    const row = this.#elements()[this.#rows.findIndex(({ last }) => last >= line)];
    if (!row) return;
    const { scrollTop, clientHeight } = this.element;
    const isSeen = row.offsetTop >= scrollTop && row.offsetTop + row.offsetHeight <= scrollTop + clientHeight;
    if (!isSeen || row.offsetTop - scrollTop < NEAR_PX) this.#scrollTo(Math.max(0, row.offsetTop - clientHeight / 3));
  }
}
