// Everything that a worker, a hook, a file or a person has said goes through this module before a page shows it: nothing in
// it may hide, turn the direction of what follows, or pass for something else.
import { el } from "./dom.js";

/** What shows nothing or turns the direction: controls but tab and newline, formats, and marks without width but of emoji. */
const HIDDEN = /(?![\t\n]|\ufe0e|\ufe0f)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const NAMES = { 0: "NUL", 7: "BEL", 8: "BS", 13: "CR", 27: "ESC", 127: "DEL" };

function nameOf(mark) {
  const code = mark.codePointAt(0);
  return NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Text as one string, for titles and labels: what cannot be seen is named. */
export function plain(text) {
  return String(text ?? "").replace(HIDDEN, (mark) => `‹${nameOf(mark)}›`);
}

/** Text as content of an element: what cannot be seen is a small boxed name. */
export function said(text) {
  const pieces = [];
  let at = 0;
  const whole = String(text ?? "");
  for (const { index, 0: mark } of whole.matchAll(HIDDEN)) {
    pieces.push(whole.slice(at, index), el("span.mark-name", nameOf(mark)));
    at = index + mark.length;
  }
  return [...pieces, whole.slice(at)];
}

/** The first line of what was said, for one row. */
export function firstLine(text) {
  return String(text ?? "").split("\n", 1)[0];
}

const SGR = /(?:\x1b\[|\x9b)([\d;:]*)m/g;
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };

/** A line of a log as pieces `{ text, classes }`: colours and styles of terminals (SGR) become classes. */
export function styled(text) {
  const [pieces, styles] = [[], new Map()];
  let at = 0;
  const add = (end) => {
    if (end > at) pieces.push({ text: text.slice(at, end), classes: [...styles.values()].join(" ") });
  };
  for (const { index, 0: sequence, 1: numbers } of text.matchAll(SGR)) {
    add(index);
    apply(styles, numbers.split(/[;:]/).map(Number));
    at = index + sequence.length;
  }
  add(text.length);
  return pieces;
}

function apply(styles, codes) {
  while (codes.length > 0) {
    const code = codes.shift();
    const kind = { 3: "fg", 9: "fg", 4: "bg", 10: "bg" }[Math.floor(code / 10)];
    if (code === 0) styles.clear();
    if (code === 22) styles.delete("bold");
    if (STYLES[code]) styles.set(STYLES[code], STYLES[code]);
    else if (STYLES[code - 20]) styles.delete(STYLES[code - 20]);
    else if (kind && code % 10 === 9) styles.delete(kind);
    else if (kind) {
      const colour = code % 10 === 8 ? extended(codes) : code === 90 ? 8 : code % 10;
      if (colour < 9) styles.set(kind, `${kind}${colour}`);
    }
  }
}

/** `5;n` and `2;r;g;b` as the nearest of the eight colours. */
function extended(codes) {
  const kind = codes.shift();
  if (kind === 2) return nearest(...codes.splice(0, 3));
  const n = kind === 5 ? codes.shift() : undefined;
  if (!(n >= 0 && n < 256)) return undefined;
  if (n < 16) return n === 8 ? n : n % 8;
  if (n >= 232) return nearest(...Array(3).fill((n - 232) * 10 + 8));
  return nearest(...[36, 6, 1].map((step) => (Math.floor((n - 16) / step) % 6) * 51));
}

function nearest(...levels) {
  const most = Math.max(...levels);
  return most < 64 ? 0 : levels.reduce((sum, level, bit) => sum | (level > most / 2 ? 1 << bit : 0), 0);
}
