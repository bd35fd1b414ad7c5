/** Escape sequences: SGR with its numbers, then every other kind. One that never ends loses only its beginning. */
const SEQUENCE =
  /(?:\x1b\[|\x9b)([\d;:]*)m|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])(?:[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c))?|\x1b[ -/]*[0-~]?/g;
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
/** Which styles a number ends; 39 and 49 end the colours. */
const ENDS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"] };
/** Marks that change the direction of what follows. */
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * A line of output as pieces `{ text, classes }`. Colours and styles (SGR) become classes, every other escape sequence
 * is dropped. Control characters and marks of direction become visible, so that no text looks like another.
 */
export function styled(text) {
  const [pieces, state] = [[], { fg: "", bg: "", styles: new Set() }];
  let at = 0;
  const add = (end) => {
    if (end > at) pieces.push({ text: visible(text.slice(at, end)), classes: classesOf(state) });
  };
  for (const match of text.matchAll(SEQUENCE)) {
    add(match.index);
    if (match[1] !== undefined) apply(state, match[1]);
    at = match.index + match[0].length;
  }
  add(text.length);
  return pieces;
}

/** Text whose control characters and marks of direction can be seen; tabs stay. */
export function visible(text) {
  return text
    .replace(/[\x00-\x08\x0a-\x1f]/g, (control) => String.fromCharCode(0x2400 + control.charCodeAt(0)))
    .replace(/\x7f/g, "\u2421")
    .replace(/[\x80-\x9f]/g, "\ufffd")
    .replace(DIRECTIONS, (mark) => `‹U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

function classesOf({ fg, bg, styles }) {
  return [fg, bg, ...styles].filter((name) => name !== "").join(" ");
}

function apply(state, numbers) {
  const codes = numbers.split(/[;:]/).map(Number);
  while (codes.length > 0) {
    const code = codes.shift();
    if (code === 0) Object.assign(state, { fg: "", bg: "", styles: new Set() });
    else if (STYLES[code]) state.styles.add(STYLES[code]);
    else if (ENDS[code]) for (const style of ENDS[code]) state.styles.delete(style);
    else if (code === 38) state.fg = named("fg", extended(codes), state.fg);
    else if (code === 48) state.bg = named("bg", extended(codes), state.bg);
    else applyColour(state, code);
  }
}

function applyColour(state, code) {
  const base = [100, 90, 40, 30].find((first) => code >= first);
  const [kind, number] = [base === 30 || base === 90 ? "fg" : "bg", code - base];
  if (code === 39 || code === 49) state[kind] = "";
  else if (number < 8) state[kind] = `${kind}${number + (base >= 90 ? 8 : 0)}`;
}

function named(kind, colour, otherwise) {
  return colour === undefined ? otherwise : `${kind}${colour}`;
}

/** `38;5;n` and `38;2;r;g;b`: the nearest of the sixteen colours. */
function extended(codes) {
  const kind = codes.shift();
  if (kind === 2) return nearest(...codes.splice(0, 3));
  if (kind !== 5) return undefined;
  const n = codes.shift();
  if (!(n >= 0 && n < 256)) return undefined;
  if (n < 16) return n;
  if (n >= 232) return nearest(...Array(3).fill((n - 232) * 10 + 8));
  const level = (step) => (Math.floor((n - 16) / step) % 6) * 51;
  return nearest(level(36), level(6), level(1));
}

function nearest(red = 0, green = 0, blue = 0) {
  const most = Math.max(red, green, blue);
  if (most < 64) return 0;
  const bits = [red, green, blue].reduce((sum, value, bit) => sum | (value > most / 2 ? 1 << bit : 0), 0);
  return most > 191 ? bits + 8 : bits;
}
