// Escape sequences: SGR with its numbers, then every other kind; one without an end loses only its beginning.
const SEQUENCE =
  /(?:\x1b\[|\x9b)([\d;:]*)m|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])(?:[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c))?|\x1b[ -/]*[0-~]?/g;
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const ENDS = {
  22: "bold dim",
  23: "italic",
  24: "underline",
  27: "inverse",
  29: "strike",
  39: "fg",
  49: "bg",
};
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A line of output as pieces `{ text, classes }`: SGR becomes classes, other escape sequences are dropped. */
export function styled(text) {
  const [pieces, styles] = [[], new Map()];
  let at = 0;
  const add = (end) => {
    const classes = [...styles.values()].join(" ");
    if (end > at) pieces.push({ text: visible(text.slice(at, end)), classes });
  };
  for (const { index, 0: sequence, 1: numbers } of text.matchAll(SEQUENCE)) {
    add(index);
    if (numbers !== undefined) apply(styles, numbers.split(/[;:]/).map(Number));
    at = index + sequence.length;
  }
  add(text.length);
  return pieces;
}

/** Text whose control characters and marks of direction can be seen: none looks like another. */
export function visible(text) {
  return text
    .replace(/[\x00-\x08\x0a-\x1f]/g, (control) => String.fromCharCode(0x2400 + control.charCodeAt(0)))
    .replace(/\x7f/g, "\u2421")
    .replace(/[\x80-\x9f]/g, "\ufffd")
    .replace(DIRECTIONS, (mark) => `‹U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

function apply(styles, codes) {
  while (codes.length > 0) {
    const code = codes.shift();
    const kind = { 3: "fg", 9: "fg", 4: "bg", 10: "bg" }[Math.floor(code / 10)];
    if (code === 0) styles.clear();
    else if (STYLES[code]) styles.set(STYLES[code], STYLES[code]);
    else if (ENDS[code]) for (const style of ENDS[code].split(" ")) styles.delete(style);
    else if (kind) {
      const colour = code % 10 === 8 ? extended(codes) : code === 90 ? 8 : code % 10;
      if (colour < 9) styles.set(kind, `${kind}${colour}`);
    }
  }
}

// `5;n` and `2;r;g;b`: the nearest of the eight colours, or grey (8).
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
