/** A text as a Go string literal; `ascii` escapes everything else too. */
export function quote(text: string, ascii = false, mark = '"'): string {
  const characters = Array.from(text.toWellFormed(), (character) => {
    if (character === mark || character === "\\") return `\\${character}`;
    const isPlain = ascii ? /[ -~]/.test(character) : isPrintable(character);
    return isPlain ? character : (NAMED[character] ?? escapeOf(character.codePointAt(0) as number));
  });
  return mark + characters.join("") + mark;
}

/** Go's idea of a character that shows: letters, marks, numbers, punctuation, symbols and the ASCII blank. */
export function isPrintable(character: string): boolean {
  return /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u.test(character);
}

const NAMED: Readonly<Record<string, string>> = {
  "\x07": "\\a",
  "\b": "\\b",
  "\f": "\\f",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\v": "\\v",
};

function escapeOf(code: number): string {
  const hex = code.toString(16);
  if (code < 0x80) return `\\x${hex.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}
