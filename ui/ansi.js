// SGR, then all other escape sequences.
const SEQUENCE =
  /(?:\x1b\[|\x9b)([\d;:]*)m|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])(?:[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c))?|\x1b[ -/]*[0-~]?/g;
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const UNSEEN = /[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A line as pieces `{ text, classes }`. */
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

/** Text in which nothing is hidden. */
export function visible(text) {
  return text.replace(UNSEEN, (mark) => {
    const code = mark.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? "␡" : `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
  });
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

// `5;n` and `2;r;g;b` as the nearest colour.
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
