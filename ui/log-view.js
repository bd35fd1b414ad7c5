import { styled, visible } from "./ansi.js";
import { drawList, el } from "./dom.js";

const STEP = 120;
const KEPT = 600;
// Browsers limit the height of what is scrolled.
const MOST_PX = 4_000_000;
const PX_PER_BYTE = 0.2;
const NEAR_PX = 24;
// So far behind the end, lines are skipped.
const SKIPPED_BYTES = 64 * 1024;
const PLACE = /^[^\s|]+ ([|!]) /;

/** A window on a log: lines between two spaces for the rest. */
export class LogView {
  following = true;
  pointed = [];
  #element;
  #window = el("div.window");
  #spaces = [el("div"), el("div")];
  #options;
  #log = null;
  #source = null;
  #find = null;
  #lines = [];
  #ends = { first: true, last: true };
  #next = 0;
  #scrolledTo = 0;
  // What was read for an earlier turn is dropped.
  #turn = 0;
  #wanted = null;
  #settling = null;
  #hasGrown = false;
  #asking = false;
  #unsettled = false;

  constructor(element, options) {
    [this.#element, this.#options] = [element, options];
    element.tabIndex = 0;
    element.replaceChildren(this.#spaces[0], this.#window, this.#spaces[1]);
    element.addEventListener("scroll", () => this.#scrolled());
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("click", (event) => this.#extend(event));
    new ResizeObserver(() => this.#resized()).observe(element);
  }

  show(log, source, offset) {
    [this.#log, this.#source, this.#wanted] = [log, source, 0];
    return this.go(offset);
  }

  clear() {
    this.#turn++;
    [this.#source, this.#wanted, this.pointed] = [null, null, []];
    this.#draw([]);
  }

  mark(find) {
    this.#find = find;
    this.#draw();
  }

  /** To lines; for Infinity to the end. */
  async go(offset, last = offset) {
    const toEnd = offset === Infinity;
    this.follow(toEnd);
    this.pointed = toEnd ? [] : [offset, last];
    this.#draw();
    if (toEnd || this.#wanted !== null || !this.#lines.some((line) => this.#isPointed(line)))
      this.#want(toEnd ? this.#log.size : offset);
    await this.#settle();
    if (!toEnd) this.#bringIn();
    await this.#settle();
  }

  get position() {
    return this.#lines[this.#firstSeen()]?.start ?? 0;
  }

  grew() {
    this.#hasGrown = true;
    return this.#settle();
  }

  #takeGrowth() {
    [this.#ends.last, this.#hasGrown] = [false, false];
    if (this.#lines.at(-1)?.open) this.#next = this.#lines.pop().start;
    if (this.following && this.#log.size - this.#next > SKIPPED_BYTES) this.#want(this.#log.size);
  }

  #resized() {
    if (!this.#source || this.#element.clientHeight === 0) return;
    this.#draw();
    this.#settle();
  }

  #isPointed({ start, end }) {
    const [first, last] = this.pointed;
    return start <= last && first < end;
  }

  follow(now) {
    if (this.following === now) return;
    this.following = now;
    this.#options.onFollow();
  }

  // Browsers tell late of a scroll.
  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.#element;
    const moved = scrollTop - this.#scrolledTo;
    this.#scrolledTo = scrollTop;
    if (moved < 0) this.follow(false);
    else if (moved > 0 && this.#ends.last && scrollHeight - scrollTop - clientHeight < NEAR_PX)
      this.follow(true);
    if (moved !== 0) this.#settle();
  }

  #key(event) {
    const place = { Home: 0, End: Infinity }[event.key];
    if (place === undefined || event.target !== this.#element || !this.#source) return;
    event.preventDefault();
    this.go(place);
  }

  #extend(event) {
    const row = event.target.closest(".number")?.parentNode;
    if (!event.shiftKey || !row || this.pointed.length === 0) return;
    event.preventDefault();
    const { start } = this.#lines[[...this.#window.children].indexOf(row)];
    const ends = [this.pointed[0], start].sort((a, b) => a - b);
    location.hash = this.#options.href(...ends);
  }

  #want(offset) {
    this.#turn++;
    this.#wanted = offset;
  }

  #settle() {
    this.#unsettled = true;
    this.#settling ??= this.#work().finally(() => {
      this.#settling = null;
    });
    return this.#settling;
  }

  async #work() {
    for (let isMore = true; isMore || this.#unsettled; ) {
      this.#unsettled = false;
      const turn = this.#turn;
      try {
        isMore = await this.#improve(turn);
        this.#options.onProblem("");
      } catch (error) {
        isMore = turn !== this.#turn;
        if (error.name !== "AbortError" && !isMore) this.#options.onProblem(error.message);
      }
    }
  }

  async #improve(turn) {
    const { scrollTop, clientHeight } = this.#element;
    if (!this.#source || clientHeight === 0) return false;
    if (this.#hasGrown && this.#ends.last) this.#takeGrowth();
    const { offsetTop, offsetHeight } = this.#window;
    const above = scrollTop - offsetTop;
    const below = offsetTop + offsetHeight - scrollTop - clientHeight;
    const isAway = !this.following && (above < -clientHeight || below < -clientHeight);
    const share = scrollTop / Math.max(1, this.#element.scrollHeight - clientHeight);
    if (this.#wanted === null && isAway) this.#want(Math.floor(share * this.#log.size));
    if (this.#wanted !== null) await this.#place(this.#wanted, this.#turn);
    else if (below < clientHeight && !this.#ends.last) await this.#extendDown(turn);
    else if (above < clientHeight && !this.#ends.first) await this.#extendUp(turn);
    else return false;
    return true;
  }

  async #place(offset, turn) {
    const { size } = this.#log;
    let found = offset < size ? await this.#source.after(offset, STEP) : { lines: [] };
    const fromEnd = found.lines.length === 0;
    if (fromEnd) found = { ...(await this.#source.before(offset, STEP)), next: size };
    if (turn !== this.#turn) return;
    const { lines, done, next } = found;
    this.#wanted = null;
    this.#ends = { first: fromEnd ? done : offset === 0, last: fromEnd || done };
    this.#hasGrown ||= size !== this.#log.size;
    this.#next = next;
    this.#draw(lines);
    this.#scrollTo(fromEnd ? this.#element.scrollHeight : this.#window.offsetTop);
  }

  async #extendDown(turn) {
    const { lines, done, next } = await this.#source.after(this.#next, STEP);
    this.#scrolled();
    if (turn !== this.#turn) return;
    [this.#ends.last, this.#next] = [done, next];
    const all = [...this.#lines, ...lines];
    if (all.length > KEPT) this.#ends.first = false;
    this.#draw(all.slice(-KEPT));
  }

  async #extendUp(turn) {
    const { lines, done } = await this.#source.before(this.#lines[0]?.start ?? this.#next, STEP);
    this.#scrolled();
    if (turn !== this.#turn) return;
    this.#ends.first = done;
    const all = [...lines, ...this.#lines];
    if (all.length > KEPT && !this.following) {
      [this.#ends.last, this.#next] = [false, all[KEPT].start];
      all.length = KEPT;
    }
    this.#draw(all);
  }

  // What is seen stays where it is, unless the end is followed.
  #draw(lines = this.#lines) {
    const first = this.#firstSeen();
    const [seen, top] = [this.#lines[first]?.start, this.#window.children[first]?.offsetTop];
    this.#lines = lines;
    this.#number();
    const items = lines.map((line) => ({ ...line, isPointed: this.#isPointed(line), find: this.#find }));
    drawList(this.#window, items, (line) => this.#row(line));
    this.#space(0, this.#ends.first, lines[0]?.start ?? 0);
    this.#space(1, this.#ends.last, this.#log ? this.#log.size - this.#next : 0);
    const row = this.#window.children[lines.findIndex(({ start }) => start === seen)];
    if (this.following) this.#scrollTo(this.#element.scrollHeight);
    else if (row) this.#scrollTo(this.#element.scrollTop + row.offsetTop - top);
  }

  #space(index, isEnd, bytes) {
    const px = Math.max(
      2 * this.#element.clientHeight,
      bytes * Math.min(PX_PER_BYTE, MOST_PX / this.#log?.size),
    );
    this.#spaces[index].style.height = isEnd ? "0" : `${px}px`;
  }

  #scrollTo(px) {
    this.#element.scrollTop = px;
    this.#scrolledTo = this.#element.scrollTop;
  }

  #firstSeen() {
    const { scrollTop } = this.#element;
    return [...this.#window.children].findIndex((row) => row.offsetTop + row.offsetHeight > scrollTop);
  }

  #bringIn() {
    const row = this.#window.querySelector(".pointed");
    if (!row) return;
    const { scrollTop, clientHeight } = this.#element;
    const isSeen = row.offsetTop > scrollTop && row.offsetTop < scrollTop + clientHeight - NEAR_PX;
    if (!isSeen) this.#scrollTo(Math.max(0, row.offsetTop - clientHeight / 3));
  }

  #number() {
    const lines = this.#lines;
    if (lines[0]?.start === 0) lines[0].number = 1;
    const known = lines.findIndex(({ number }) => number !== undefined);
    if (known < 0) return this.#ask(lines[0]);
    const begun = lines.slice(0, known + 1).filter(({ continued }) => !continued);
    let number = lines[known].number - begun.length;
    for (const line of lines) {
      line.number ??= line.continued ? number : number + 1;
      ({ number } = line);
    }
  }

  async #ask(line) {
    if (!line || this.#asking) return;
    this.#asking = true;
    line.number = (await this.#log.place(line.start).catch(() => ({}))).line;
    this.#asking = false;
    if (line.number !== undefined || !this.#lines.includes(line)) this.#draw();
  }

  #row({ start, text, number, continued, isPointed, find }) {
    const [place = "", sign] = PLACE.exec(text) ?? [];
    const pieces = styled(text.slice(place.length)).map((piece) =>
      el("span", { class: piece.classes || null }, marked(piece.text, find)),
    );
    const title = `The address of ${number ? `line ${number}` : "this line"}`;
    return el(
      isPointed ? "div.line.pointed" : "div.line",
      el(
        "a.number",
        { href: this.#options.href(start), title, tabindex: -1 },
        continued ? "↪" : (number ?? "·"),
      ),
      el(
        sign === "!" ? "span.text.stderr" : "span.text",
        place !== "" && el("span.place", marked(visible(place), find)),
        pieces,
      ),
    );
  }
}

function marked(text, find) {
  if (find === null) return text;
  const parts = text.split(new RegExp(`(${RegExp.escape(find.text)})`, find.exact ? "g" : "gi"));
  return parts.map((part, index) => (index % 2 === 1 ? el("mark", part) : part));
}
