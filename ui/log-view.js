import { styled, visible } from "./ansi.js";
import { el } from "./dom.js";

const STEP = 120;
const KEPT = 600;
// Browsers have a limit for the height of what is scrolled.
const MOST_PX = 4_000_000;
const NEAR_PX = 24;
// So far behind the end, what lies between is skipped.
const SKIPPED_BYTES = 64 * 1024;
const PLACE = /^[^\s|]+ ([|!]) /;

/** A window on a log of any length: lines between two spaces for the rest. `options`: `href`, `onFollow`, `onProblem`. */
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
  #pxPerByte = 0;
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
    [this.#source, this.#wanted, this.#lines, this.pointed] = [null, null, [], []];
    this.#window.replaceChildren();
  }

  mark(find) {
    this.#find = find;
    this.#change(() => this.#window.replaceChildren(...this.#lines.map((line) => this.#row(line))));
  }

  /** Points at the lines from an offset to `last`; for Infinity follows the end. */
  async go(offset, last = offset) {
    const toEnd = offset === Infinity;
    this.follow(toEnd);
    this.pointed = toEnd ? [] : [offset, last];
    for (const [index, row] of [...this.#window.children].entries())
      row.classList.toggle("pointed", this.#isPointed(this.#lines[index]));
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
    const last = this.#lines.at(-1);
    [this.#ends.last, this.#hasGrown] = [false, false];
    if (last?.open) this.#next = last.start;
    if (last?.open) this.#drop(-1, 1);
    if (this.following && this.#log.size - this.#next > SKIPPED_BYTES) this.#want(this.#log.size);
  }

  #resized() {
    if (!this.#source || this.#element.clientHeight === 0) return;
    this.#change(() => {});
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
    const isPlain = event.target === this.#element && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (!isPlain || !this.#source || (event.key !== "Home" && event.key !== "End")) return;
    event.preventDefault();
    this.go(event.key === "End" ? Infinity : 0);
  }

  // With Shift, a click on a number points at all lines from the one that was pointed at.
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
    while (this.#unsettled) {
      this.#unsettled = false;
      for (let isMore = true; isMore && this.#source && this.#element.clientHeight > 0; ) {
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
  }

  async #improve(turn) {
    if (this.#hasGrown && this.#ends.last) this.#takeGrowth();
    const { scrollTop, clientHeight } = this.#element;
    const { offsetTop, offsetHeight } = this.#window;
    const above = scrollTop - offsetTop;
    const below = offsetTop + offsetHeight - scrollTop - clientHeight;
    const isAway = !this.following && (above < -clientHeight || below < -clientHeight);
    if (this.#wanted === null && isAway) this.#want(this.#offsetAt(scrollTop));
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
    this.#lines = [];
    this.#window.replaceChildren();
    this.#pxPerByte = 0;
    this.#change(() => this.#add(lines, "append"));
    const bytes = Math.max(1, next - (lines[0]?.start ?? 0));
    this.#pxPerByte = Math.min(this.#window.offsetHeight / bytes, MOST_PX / Math.max(1, size));
    this.#change(() => {});
    this.#scrollTo(fromEnd ? this.#element.scrollHeight : this.#window.offsetTop);
  }

  async #extendDown(turn) {
    const { lines, done, next } = await this.#source.after(this.#next, STEP);
    if (turn !== this.#turn) return;
    [this.#ends.last, this.#next] = [done, next];
    this.#change(() => {
      this.#add(lines, "append");
      const tooMany = this.#lines.length - KEPT;
      if (tooMany <= 0) return;
      this.#drop(0, tooMany);
      this.#ends.first = false;
    });
  }

  async #extendUp(turn) {
    const { lines, done } = await this.#source.before(this.#lines[0]?.start ?? this.#next, STEP);
    if (turn !== this.#turn) return;
    this.#ends.first = done;
    this.#change(() => {
      this.#add(lines, "prepend");
      if (this.#lines.length <= KEPT || this.following) return;
      this.#next = this.#lines[KEPT].start;
      this.#drop(KEPT, Infinity);
      this.#ends.last = false;
    });
  }

  #add(lines, how) {
    this.#lines = how === "append" ? [...this.#lines, ...lines] : [...lines, ...this.#lines];
    this.#window[how](...lines.map((line) => this.#row(line)));
    this.#number();
  }

  #drop(from, count) {
    for (const row of [...this.#window.children].slice(from).slice(0, count)) row.remove();
    this.#lines.splice(from, count);
  }

  // What is seen stays where it is, unless the end is followed.
  #change(change) {
    const seen = this.#window.children[this.#firstSeen()];
    const top = seen?.offsetTop;
    change();
    this.#space(0, this.#ends.first, this.#lines[0]?.start ?? 0);
    this.#space(1, this.#ends.last, this.#log ? this.#log.size - this.#next : 0);
    if (this.following) this.#scrollTo(this.#element.scrollHeight);
    else if (seen?.isConnected) this.#scrollTo(this.#element.scrollTop + seen.offsetTop - top);
  }

  #space(index, isEnd, bytes) {
    const px = isEnd ? 0 : Math.max(2 * this.#element.clientHeight, bytes * this.#pxPerByte);
    this.#spaces[index].style.height = `${px}px`;
  }

  #scrollTo(px) {
    this.#element.scrollTop = px;
    this.#scrolledTo = this.#element.scrollTop;
  }

  #offsetAt(scrollTop) {
    const share = scrollTop / Math.max(1, this.#element.scrollHeight - this.#element.clientHeight);
    return Math.min(this.#log.size, Math.floor(share * this.#log.size));
  }

  #firstSeen() {
    const { scrollTop } = this.#element;
    return [...this.#window.children].findIndex((row) => row.offsetTop + row.offsetHeight > scrollTop);
  }

  #bringIn() {
    const row = this.#window.querySelector(".pointed");
    if (!row) return;
    const { scrollTop, clientHeight } = this.#element;
    const bottom = row.offsetTop + Math.min(row.offsetHeight, 100);
    const isSeen = row.offsetTop > scrollTop + NEAR_PX && bottom < scrollTop + clientHeight;
    if (!isSeen) this.#scrollTo(Math.max(0, row.offsetTop - clientHeight / 3));
  }

  #number() {
    const lines = this.#lines;
    if (lines[0]?.start === 0) lines[0].number = 1;
    const known = lines.findIndex(({ number }) => number !== undefined);
    if (known < 0) return this.#ask(lines[0]);
    for (let at = known + 1; at < lines.length; at++)
      lines[at].number ??= lines[at - 1].number + (lines[at].continued ? 0 : 1);
    for (let at = known - 1; at >= 0; at--)
      lines[at].number = lines[at + 1].number - (lines[at + 1].continued ? 0 : 1);
    for (const [index, row] of [...this.#window.children].entries()) showNumber(row, lines[index]);
  }

  async #ask(line) {
    if (!line || this.#asking) return;
    this.#asking = true;
    line.number = await this.#source.number(line.start).catch(() => undefined);
    this.#asking = false;
    if (line.number !== undefined || !this.#lines.includes(line)) this.#number();
  }

  #row(line) {
    const [place = "", sign] = PLACE.exec(line.text) ?? [];
    const text = styled(line.text.slice(place.length)).map((piece) =>
      el("span", { class: piece.classes || null }, marked(piece.text, this.#find)),
    );
    if (place !== "") text.unshift(el("span.place", marked(visible(place), this.#find)));
    const number = el("a.number", { href: this.#options.href(line.start), tabindex: -1 });
    const row = el("div.line", number, el(sign === "!" ? "span.text.stderr" : "span.text", text));
    row.classList.toggle("pointed", this.#isPointed(line));
    showNumber(row, line);
    return row;
  }
}

function showNumber({ firstChild: place }, { number, continued }) {
  const shown = continued ? "↪" : (number ?? "·");
  if (place.textContent === String(shown)) return;
  place.textContent = shown;
  place.title = `The address of ${number ? `line ${number}` : "this line"}`;
}

function marked(text, find) {
  if (find === null) return text;
  const parts = text.split(new RegExp(`(${RegExp.escape(find.text)})`, find.exact ? "g" : "gi"));
  return parts.map((part, index) => (index % 2 === 1 ? el("mark", part) : part));
}
