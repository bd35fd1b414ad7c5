import { el } from "./dom.js";
import { row, showNumber } from "./log-row.js";

/** The lines that are on the page, and their elements. */
export class LineWindow {
  element = el("div", { class: "window" });
  lines = [];
  /** The offset that is pointed at; -1 for none. */
  pointed = -1;
  #find = null;
  #href;
  #numberOf;

  /** `href(offset)` is the address of a line, `numberOf(lines)` finds out the number of one of them. */
  constructor({ href, numberOf }) {
    [this.#href, this.#numberOf] = [href, numberOf];
  }

  get height() {
    return this.element.offsetHeight;
  }

  get first() {
    return this.lines[0];
  }

  get last() {
    return this.lines.at(-1);
  }

  replace(lines) {
    this.lines = lines;
    this.element.replaceChildren(...lines.map((line) => this.#row(line)));
  }

  append(lines) {
    this.lines.push(...lines);
    this.element.append(...lines.map((line) => this.#row(line)));
  }

  prepend(lines) {
    this.lines.unshift(...lines);
    this.element.prepend(...lines.map((line) => this.#row(line)));
  }

  drop(from, to) {
    this.lines.splice(from, to - from);
    for (const child of [...this.element.children].slice(from, to)) child.remove();
  }

  /** How far a line begins below the top of the window. */
  topOf(index) {
    return this.element.children[index].offsetTop;
  }

  /** The line that covers so many pixels below the top of the window, or undefined. */
  lineAt(px) {
    return this.lines[[...this.element.children].findIndex((one) => one.offsetTop + one.offsetHeight > px)];
  }

  /** The element of the line that an offset is in, or undefined. */
  elementAt(offset) {
    return this.element.children[this.lines.findIndex((line) => holds(line, offset))];
  }

  /** Text to mark in all lines, `{ text, exact }` or null; answers whether it is another than before. */
  mark(find) {
    if (JSON.stringify(find) === JSON.stringify(this.#find)) return false;
    this.#find = find;
    this.replace(this.lines);
    return true;
  }

  /** Points at the line that an offset is in. */
  point(offset) {
    this.pointed = offset;
    for (const [index, child] of [...this.element.children].entries())
      child.classList.toggle("pointed", holds(this.lines[index], offset));
  }

  /** Counts on from a number that is known; asks for one where none is, and counts unless `isOld()` by then. */
  async number(contiguous, isOld) {
    if (!contiguous || this.lines.length === 0) return this.#showNumbers();
    if (this.first.start === 0) this.first.number = 1;
    if (!this.lines.some(({ number }) => number !== undefined)) {
      const known = await this.#numberOf(this.lines).catch(() => undefined);
      if (!known || isOld()) return;
      this.#learn(known);
    }
    this.#count();
    this.#showNumbers();
  }

  /** A place lies at the beginning of a line, or after the last one. */
  #learn({ offset, line }) {
    const known = this.lines.find(({ start, continued }) => start === offset && !continued);
    if (known) known.number = line;
    else if (this.last?.end === offset) this.last.number = this.last.open ? line : line - 1;
  }

  #count() {
    const { lines } = this;
    const from = lines.findIndex(({ number }) => number !== undefined);
    if (from < 0) return;
    const step = (index) => (lines[index].continued ? 0 : 1);
    for (let index = from + 1; index < lines.length; index++)
      lines[index].number = lines[index - 1].number + step(index);
    for (let index = from - 1; index >= 0; index--)
      lines[index].number = lines[index + 1].number - step(index + 1);
  }

  #showNumbers() {
    for (const [index, child] of [...this.element.children].entries()) showNumber(child, this.lines[index]);
  }

  #row(line) {
    const element = row(line, { href: this.#href, find: this.#find });
    showNumber(element, line);
    element.classList.toggle("pointed", holds(line, this.pointed));
    return element;
  }
}

function holds({ start, end }, offset) {
  return start <= offset && offset < end;
}
