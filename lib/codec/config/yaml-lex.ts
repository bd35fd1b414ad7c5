/** The first character of plain text: `-`, `?` and `:` only where no blank follows. */
const PLAIN_START = String.raw`(?:[^\s\-?:,\[\]{}#&*!|>'"%@\`]|[-?:](?=[^\s,\[\]{}]))`;
/** Plain text outside of brackets. */
export const BLOCK_PLAIN = new RegExp(String.raw`${PLAIN_START}(?:[^\n:#]|:(?=\S)|(?<=\S)#)*`, "y");
/** Plain text between brackets, which ends at a comma or bracket. */
export const FLOW_PLAIN = new RegExp(String.raw`${PLAIN_START}(?:[^\n:#,\[\]{}]|:(?=[^\s,\[\]{}])|(?<=\S)#)*`, "y");
/** A plain key in front of its colon. */
export const KEY = new RegExp(String.raw`${PLAIN_START}(?:[^\n:#]|:(?=\S)|(?<=\S)#)*?(?=[ \t]*:(?:\s|$))`, "y");
/** What a further line of plain text may hold. */
export const CONTINUED = /(?:[^\n:#]|:(?=\S)|(?<=\S)#)*/y;
/** The colon behind a key. */
export const AFTER_KEY = /[ \t]*:(?=\s|$)/y;
/** Text in double quotes. */
export const DOUBLE = /"[^"\\]*(?:\\[\s\S][^"\\]*)*"/y;
/** Text in single quotes. */
export const SINGLE = /'[^']*(?:''[^']*)*'/y;
/** Line breaks within quotes and the blanks around them, or blanks alone: a search from each blank would be quadratic. */
const FOLD = /(?:[ \t]*\n)+[ \t]*|[ \t]+/;
/** What means something else within single quotes. */
export const IN_SINGLE = new RegExp(`${FOLD.source}|''`, "g");
/** What means something else within double quotes. */
export const IN_DOUBLE = new RegExp(
  String.raw`\\(?:\n[ \t]*|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|${FOLD.source}`,
  "gu",
);
/** The mark of literal or folded text, with the rest of its line. */
export const BLOCK_HEADER = /[|>]([+-])?[ \t]*(?:(?<=[ \t])#[^\n]*)?(?:\n|$)/y;
/** The end of a line, with blanks and a comment before it. */
export const END_OF_LINE = /[ \t]*(?:(?<=\s)#[^\n]*)?(?=\n|$)/y;
/** A plain word that is an integer. */
const YAML_INTEGER = /^[-+]?(?:0|[1-9][0-9]*)$/;
/** A plain word that is a number. */
const YAML_FLOAT = /^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$/;
/** What a letter behind a backslash means, besides `x`, `u` and `U`. */
export const YAML_ESCAPES: Readonly<Record<string, string>> = {
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  '"': '"',
  "/": "/",
  "\\": "\\",
  " ": " ",
  "0": "\0",
};

/** A number or a truth value that JSON writes in another way: `1.10`, `True`. As text it stays as it was written. */
export class WrittenScalar {
  readonly #text: string;
  readonly #value: number | boolean;

  constructor(text: string, value: number | boolean) {
    this.#text = text;
    this.#value = value;
  }

  toString(): string {
    return this.#text;
  }

  toJSON(): number | boolean {
    return this.#value;
  }
}

/** What a plain word stands for. */
export function meaningOf(word: string): string | number | boolean | WrittenScalar | null {
  if (/^(?:~|null|Null|NULL|)$/.test(word)) return null;
  if (/^(?:true|True|TRUE|false|False|FALSE)$/.test(word)) return written(word, word.toLowerCase() === "true");
  const number = Number(word);
  const isNumber = YAML_INTEGER.test(word) ? Number.isSafeInteger(number) : YAML_FLOAT.test(word) && Number.isFinite(number);
  return isNumber ? written(word, number) : word;
}

function written(word: string, value: number | boolean): number | boolean | WrittenScalar {
  return String(value) === word ? value : new WrittenScalar(word, value);
}
