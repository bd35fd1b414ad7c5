import { el } from "./dom.js";
import { LineWindow } from "./log-window.js";

/** How many lines are read at once, and how many stay on the page. */
const STEP = 120;
const KEPT = 480;
/** The height of the room that is scrolled in; browsers have a limit for it. */
const MOST_PX = 4_000_000;
const NEAR_PX = 24;
/** So far behind the end, what lies between is skipped. */
const SKIPPED_BYTES = 64 * 1024;

/**
 * A window on a log of any length: only the lines around what is seen are on the page. A place in the scroll bar is a
 * place in the bytes of the log, so nothing before it needs to be read; near what is seen, lines have their real
 * heights. At the end it follows what is added, until somebody scrolls up.
 */
export class LogView {
  element;
  following = true;
  #room = el("div", { class: "room" });
  #window;
  #source = null;
  #file = null;
  #atStart = true;
  #atEnd = true;
  #top = 0;
  #height = 0;
  /** Where to read on after the last line. */
  #next = 0;
  #pxPerByte = 0;
  #scrolledTo = 0;
  /** Another number for each place that is shown: what was asked for an earlier one is dropped. */
  #turn = 0;
  /** The place to show, `{ offset, top }`, while its lines are not there yet. */
  #wanted = null;
  #placing = false;
  #hasGrown = false;
  #settling = false;
  #unsettled = false;
  #options;

  /**
   * `href(offset)` is the address of a line, `numberOf(lines)` finds out the number of one of them, `onFollow` hears
   * when following starts or ends, `onProblem` what went wrong and the empty text once that is over.
   */
  constructor(options) {
    this.#options = options;
    this.#window = new LineWindow(options);
    this.#room.append(this.#window.element);
    const about = {
      class: "output",
      role: "log",
      "aria-live": "off",
      "aria-label": "Output of the run",
      tabindex: "0",
    };
    this.element = el("div", { ...about, onscroll: () => this.#scrolled() }, this.#room);
    this.element.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#resized()).observe(this.element);
  }

  /** Shows lines of a log from a place on: an offset, or Infinity for the end, which is then followed. */
  async show(file, source, offset) {
    [this.#file, this.#source] = [file, source];
    this.#want(0);
    await this.go(offset);
  }

  clear() {
    this.#turn++;
    [this.#source, this.#wanted] = [null, null];
    this.#window.replace([]);
    this.#room.style.height = "0";
  }

  /** Text to mark wherever it is seen, `{ text, exact }` or null. */
  mark(find) {
    const { scrollTop } = this.element;
    if (this.#window.mark(find)) this.#scrollTo(scrollTop);
  }

  /** Goes to the line at an offset and points at it, or to the end. */
  async go(offset) {
    const toEnd = offset === Infinity;
    this.#follow(toEnd);
    this.#window.point(toEnd ? -1 : offset);
    if (toEnd || this.#wanted || !this.#window.elementAt(offset))
      this.#want(toEnd ? this.#file.size : offset);
    await this.#settle();
    if (!toEnd) this.#bringIn(offset);
    await this.#settle();
  }

  /** The offset of the first line that can be seen. */
  get position() {
    return this.#window.lineAt(this.element.scrollTop - this.#top)?.start ?? 0;
  }

  /** The line that was last gone to, if any. */
  get markedLine() {
    return this.#window.pointed < 0 ? null : this.#window.pointed;
  }

  /** The log has more than before, or can be read again. */
  async grew() {
    this.#hasGrown = true;
    await this.#settle();
  }

  #follow(now) {
    if (this.following === now) return;
    this.following = now;
    this.#options.onFollow(now);
  }

  #scrolled() {
    const { scrollTop } = this.element;
    const moved = scrollTop - this.#scrolledTo;
    this.#scrolledTo = scrollTop;
    if (moved < 0) this.#follow(false);
    else if (moved > 0 && this.#atEnd && this.#isAtBottom()) this.#follow(true);
    if (moved !== 0) this.#settle();
  }

  #isAtBottom() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    return scrollHeight - scrollTop - clientHeight < NEAR_PX;
  }

  #resized() {
    if (!this.#source || this.element.clientHeight === 0) return;
    this.#arrange();
    if (this.following) this.#scrollTo(this.#height);
    this.#settle();
  }

  #key(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey || !this.#source)
      return;
    if (event.key === "End") this.go(Infinity);
    else if (event.key === "Home") this.#home();
    else return;
    event.preventDefault();
  }

  async #home() {
    this.#follow(false);
    this.#want(0);
    await this.#settle();
  }

  /** Reads and drops lines until there is a screenful beyond both edges of what is seen. */
  async #settle() {
    this.#unsettled = true;
    if (this.#settling) return;
    this.#settling = true;
    while (this.#unsettled && this.#source) {
      this.#unsettled = false;
      while (await this.#guard(() => this.#improve()));
    }
    this.#settling = false;
  }

  async #guard(work) {
    const turn = this.#turn;
    try {
      const result = await work();
      this.#options.onProblem("");
      return result;
    } catch (error) {
      if (error.name !== "AbortError" && turn <= this.#turn) this.#options.onProblem(error.message);
      return false;
    }
  }

  /** Does the next thing that is missing; answers whether there was one. */
  async #improve() {
    const { scrollTop, clientHeight } = this.element;
    if (!this.#source || this.#placing || clientHeight === 0) return false;
    if (this.#wanted) return await this.#place(this.#wanted);
    if (this.#hasGrown) this.#takeGrowth();
    if (this.#wanted) return true;
    const above = scrollTop - this.#top;
    const below = this.#top + this.#window.height - scrollTop - clientHeight;
    if (!this.following && (above < -clientHeight || below < -clientHeight)) {
      this.#want(this.#offsetAt(scrollTop), scrollTop);
      return true;
    }
    if (below < clientHeight && !this.#atEnd) return await this.#extendDown();
    if (above < clientHeight && !this.#atStart) return await this.#extendUp();
    if (this.following) this.#scrollTo(this.#height);
    return false;
  }

  #takeGrowth() {
    this.#hasGrown = false;
    if (!this.#atEnd) return;
    this.#atEnd = false;
    const { last, lines } = this.#window;
    if (last?.open) this.#next = last.start;
    if (last?.open) this.#window.drop(lines.length - 1, lines.length);
    if (this.following && this.#file.size - this.#next > SKIPPED_BYTES) this.#want(this.#file.size);
  }

  /** Asks for other lines than those there are: at a place of the scroll bar, or where that belongs to the offset. */
  #want(offset, top) {
    this.#turn++;
    this.#wanted = { offset, top };
    this.#placing = false;
  }

  async #place({ offset, top }) {
    const [turn, source, { size }] = [this.#turn, this.#source, this.#file];
    this.#placing = true;
    let found;
    let fromEnd = offset >= size;
    try {
      if (!fromEnd) found = await source.after(offset, STEP);
      fromEnd ||= found.lines.length === 0;
      if (fromEnd) found = { ...(await source.before(offset, STEP)), next: size };
    } finally {
      if (turn === this.#turn) this.#placing = false;
    }
    if (turn !== this.#turn) return true;
    this.#wanted = null;
    this.#hasGrown ||= size !== this.#file.size;
    this.#atEnd = fromEnd || found.done;
    this.#atStart = fromEnd ? found.done : offset === 0;
    this.#next = found.next;
    this.#window.replace(found.lines);
    this.#measure(fromEnd ? size : offset, fromEnd, top);
    this.#number(turn);
    return true;
  }

  /** Finds the place in the room for lines that have just been placed. */
  #measure(offset, fromEnd, top) {
    const [{ height, first, last }, { size }, { clientHeight }] = [this.#window, this.#file, this.element];
    const bytes = Math.max(1, (last?.end ?? 0) - (first?.start ?? 0));
    this.#pxPerByte = Math.min(height / bytes, MOST_PX / Math.max(1, size));
    if (top === undefined) this.#height = Math.max(height + clientHeight, size * this.#pxPerByte);
    const place = (offset / Math.max(1, size)) * (this.#height - clientHeight);
    this.#top = top ?? (fromEnd ? Math.max(0, this.#height - height) : place);
    this.#arrange();
    if (top === undefined) this.#scrollTo(fromEnd ? this.#height : this.#top);
  }

  async #extendDown() {
    const [turn, { size }] = [this.#turn, this.#file];
    const { lines, done, next } = await this.#source.after(this.#next, STEP);
    if (turn !== this.#turn) return true;
    this.#hasGrown ||= size !== this.#file.size;
    [this.#atEnd, this.#next] = [done, next];
    this.#window.append(lines);
    this.#dropAbove();
    this.#arrange();
    this.#number(turn);
    if (this.following) this.#scrollTo(this.#height);
    return true;
  }

  async #extendUp() {
    const turn = this.#turn;
    const { lines, done } = await this.#source.before(this.#window.first?.start ?? this.#next, STEP);
    if (turn !== this.#turn) return true;
    this.#atStart = done;
    const before = this.#window.height;
    this.#window.prepend(lines);
    this.#top -= this.#window.height - before;
    this.#dropBelow();
    this.#arrange();
    this.#number(turn);
    return true;
  }

  #dropAbove() {
    const seen = this.element.scrollTop - this.#top - 2 * this.element.clientHeight;
    let count = Math.max(0, this.#window.lines.length - KEPT);
    while (count > 0 && this.#window.topOf(count) > seen && !this.following) count--;
    if (count === 0) return;
    this.#top += this.#window.topOf(count);
    this.#window.drop(0, count);
    this.#atStart = false;
  }

  #dropBelow() {
    const seen = this.element.scrollTop - this.#top + 3 * this.element.clientHeight;
    const { lines } = this.#window;
    let from = Math.min(lines.length, KEPT);
    while (from < lines.length && this.#window.topOf(from) < seen) from++;
    if (this.following || from === lines.length) return;
    this.#next = lines[from].start;
    this.#window.drop(from, lines.length);
    this.#atEnd = false;
  }

  /** Gives the window its place in the room: at its ends where the log ends, with room left where it does not. */
  #arrange() {
    const { height, first } = this.#window;
    const roomAbove = Math.max(2 * this.element.clientHeight, (first?.start ?? 0) * this.#pxPerByte);
    const shift = this.#atStart
      ? -this.#top
      : this.#top < this.element.clientHeight
        ? roomAbove - this.#top
        : 0;
    const scrollTop = this.element.scrollTop + shift;
    this.#top += shift;
    const bottom = this.#top + height;
    this.#height = this.#atEnd
      ? bottom
      : Math.max(this.#height + shift, bottom + 2 * this.element.clientHeight);
    this.#room.style.height = `${this.#height}px`;
    this.#window.element.style.top = `${this.#top}px`;
    if (shift !== 0) this.#scrollTo(scrollTop);
    else this.#scrolledTo = this.element.scrollTop;
  }

  #scrollTo(px) {
    this.element.scrollTop = px;
    this.#scrolledTo = this.element.scrollTop;
  }

  #offsetAt(scrollTop) {
    const share = scrollTop / Math.max(1, this.#height - this.element.clientHeight);
    return Math.min(this.#file.size, Math.floor(share * this.#file.size));
  }

  /** Scrolls a line of the window to where it is well seen, if it is not. */
  #bringIn(offset) {
    const child = this.#window.elementAt(offset);
    if (!child) return;
    const { scrollTop, clientHeight } = this.element;
    const place = this.#top + child.offsetTop;
    const isSeen =
      place > scrollTop + NEAR_PX && place + Math.min(child.offsetHeight, 100) < scrollTop + clientHeight;
    if (!isSeen) this.#scrollTo(Math.max(0, place - clientHeight / 3));
  }

  #number(turn) {
    this.#window.number(this.#source.contiguous, () => turn !== this.#turn);
  }
}
