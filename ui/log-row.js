import { styled } from "./ansi.js";
import { el } from "./dom.js";

/**
 * One line of a log as an element: its number, which is the address of the line, and its text. `find` is the text to
 * mark in it, or null. Whatever stands in the line stays text.
 */
export function row(line, { href, find }) {
  const number = el("a", { class: "number", href: href(line.start), tabindex: "-1" });
  const text = el("span", { class: "text" });
  for (const piece of styled(line.text)) {
    const parts = find === null ? [piece.text] : found(piece.text, find);
    // Every second part is one that was looked for.
    const nodes = parts.map((part, index) => (index % 2 === 1 ? el("mark", {}, part) : part));
    if (piece.classes === "") text.append(...nodes);
    else text.append(el("span", { class: piece.classes }, ...nodes));
  }
  const element = el("div", { class: line.continued ? "line continued" : "line" }, number, text);
  return element;
}

/** Writes the number of a line where it is known; the pieces of a long line have one together. */
export function showNumber(element, line) {
  const number = line.continued ? "↪" : line.number === undefined ? "·" : String(line.number);
  const place = element.firstChild;
  if (place.textContent === number) return;
  place.textContent = number;
  place.title = line.number === undefined ? "The address of this line" : `The address of line ${line.number}`;
}

function found(text, { text: sought, exact }) {
  const escaped = sought.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  return text.split(new RegExp(`(${escaped})`, exact ? "g" : "gi"));
}
