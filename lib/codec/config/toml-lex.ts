import { TextFailure } from "../../core/plain-text.ts";

/** A value that keeps the text it was written as. */
class WrittenValue {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toString(): string {
    return this.text;
  }
}

/** A date, a time or both; the fields are in their ranges (second 60 included). */
export class TomlDate extends WrittenValue {}

/** A float; the `_` between digits are left out of its text (`1.10`, `5e+22`, `inf`). */
export class TomlFloat extends WrittenValue {
  get value(): number {
    return Number(this.text.replace("inf", "Infinity").replace("nan", "NaN"));
  }
}

/** A place in a TOML text. Reads blanks, comments, strings and scalars. */
export class TomlCursor {
  readonly text: string;
  at = 0;

  constructor(text: string) {
    this.text = text;
  }

  /** The failure at this place (or at `at`), with its line and column in characters, both from 1. */
  failure(expected: string, found?: string, at: number = this.at): TextFailure {
    return new TextFailure(this.text, at, `expected ${expected}, found ${found ?? foundToml(this.text.slice(at))}`);
  }

  /** Takes what the sticky expression matches here. */
  match(expression: RegExp): RegExpExecArray | undefined {
    expression.lastIndex = this.at;
    const match = expression.exec(this.text);
    if (match) this.at = expression.lastIndex;
    return match ?? undefined;
  }

  isAt(text: string): boolean {
    return this.text.startsWith(text, this.at);
  }

  /** Takes a text if it stands here. */
  take(text: string): boolean {
    const isHere = this.isAt(text);
    if (isHere) this.at += text.length;
    return isHere;
  }

  blanks(): void {
    this.match(/[ \t]*/y);
  }

  /** Takes blanks, line ends and comments. */
  gap(): void {
    do this.#rest();
    while (this.match(/\r?\n/y));
  }

  /** Takes the end of a line: blanks, a comment, the line break. */
  lineEnd(): void {
    this.#rest();
    if (this.at < this.text.length && !this.match(/\r?\n/y)) throw this.failure("the end of the line");
  }

  #rest(): void {
    this.match(/[ \t]*(?:#[^\x00-\x08\n-\x1f\x7f]*)?/y);
  }

  /** A string in one of the four forms, or undefined where no quote stands. */
  string(): string | undefined {
    if (this.take('"""')) return this.#multiline('"');
    if (this.take("'''")) return this.#multiline("'");
    return this.line();
  }

  /** A string on one line, or undefined where no quote stands. */
  line(): string | undefined {
    if (this.take("'")) return this.#quoted(/[^\x00-\x08\n-\x1f\x7f']*/y, "'");
    if (this.take('"')) return this.#quoted(/[^\x00-\x08\n-\x1f\x7f"\\]*/y, '"');
    return undefined;
  }

  #quoted(plain: RegExp, quote: string): string {
    for (let value = ""; ; value += this.#escape()) {
      value += this.match(plain)?.[0] ?? "";
      if (this.take(quote)) return value;
      if (this.text[this.at] !== "\\") throw this.failure(`text or the closing ${quote}`);
    }
  }

  #multiline(quote: '"' | "'"): string {
    this.match(/\r?\n/y);
    const plain = quote === '"' ? /[^\x00-\x08\x0b-\x1f\x7f"\\]+|\r\n/y : /[^\x00-\x08\x0b-\x1f\x7f']+|\r\n/y;
    const quotes = quote === '"' ? /"{1,5}/y : /'{1,5}/y;
    for (let value = ""; ; ) {
      const text = this.match(plain)?.[0];
      const run = text ?? this.match(quotes)?.[0];
      if (text === undefined && run !== undefined && run.length >= 3) return value + run.slice(3);
      if (run !== undefined) value += run;
      else if (quote === "'" || this.text[this.at] !== "\\") throw this.failure(`text or the closing ${quote.repeat(3)}`);
      else if (!this.match(/\\[ \t]*\r?\n(?:[ \t]|\r?\n)*/y)) value += this.#escape();
    }
  }

  #escape(): string {
    const at = this.at;
    const match = this.match(/\\(?:([btnfr"\\])|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))/y);
    const code = Number.parseInt(match?.[2] ?? match?.[3] ?? "0", 16);
    if (!match || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
      throw this.failure('one of the escapes \\b \\t \\n \\f \\r \\" \\\\ \\uXXXX \\UXXXXXXXX', undefined, at);
    return match[1] === undefined ? String.fromCodePoint(code) : (TOML_ESCAPES[match[1]] as string);
  }

  /** A boolean, number, date or time. */
  scalar(): boolean | number | bigint | TomlFloat | TomlDate {
    const start = this.at;
    let word = this.match(/[0-9A-Za-z_+:.-]+/y)?.[0] ?? "";
    if (/^\d{4}-\d\d-\d\d$/.test(word)) word += this.match(/ \d[0-9A-Za-z_+:.-]*/y)?.[0] ?? "";
    const value = word === "true" || word === "false" ? word === "true" : (number(word) ?? date(word));
    if (value === undefined)
      throw this.failure("a value (text in quotes, a number, true, false, a date, [ or {)", undefined, start);
    if (typeof value !== "bigint" || BigInt.asIntN(64, value) === value) return value;
    throw this.failure("an integer of 64 bits", undefined, start);
  }
}

const TOML_ESCAPES: Record<string, string> = { b: "\b", t: "\t", n: "\n", f: "\f", r: "\r", '"': '"', "\\": "\\" };

function foundToml(rest: string): string {
  if (rest === "") return "the end of the text";
  if (/^\r?\n/.test(rest)) return "the end of the line";
  const [word = ""] = /^[0-9A-Za-z_+:.-]{1,40}|^\\?./su.exec(rest) ?? [];
  const code = word.charCodeAt(0);
  return code < 0x20 || code === 0x7f ? `U+${code.toString(16).toUpperCase().padStart(4, "0")}` : JSON.stringify(word);
}

const TOML_INTEGER = /^(?:[+-]?(?:0|[1-9](?:_?\d)*)|0x[0-9a-fA-F](?:_?[0-9a-fA-F])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*)$/;
const TOML_FLOAT = /^[+-]?(?:(?:0|[1-9](?:_?\d)*)(?:\.\d(?:_?\d)*)?(?:[eE][+-]?\d(?:_?\d)*)?|inf|nan)$/;

/** An integer as a number where that is exact, else as a bigint of any size; or a float. */
function number(word: string): number | bigint | TomlFloat | undefined {
  const digits = word.replaceAll("_", "");
  if (TOML_INTEGER.test(word)) {
    const value = digits.startsWith("-") ? -BigInt(digits.slice(1)) : BigInt(digits.replace("+", ""));
    return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  }
  return TOML_FLOAT.test(word) ? new TomlFloat(digits) : undefined;
}

const TOML_TIME = /^(\d{4}-\d\d-\d\d)?([Tt ]?)(\d\d:\d\d:\d\d(?:\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?$/;

function date(word: string): TomlDate | undefined {
  const [, day, separator, time, offset] = TOML_TIME.exec(word) ?? [];
  const both = day !== undefined && time !== undefined;
  if ((separator !== "") !== both || (offset !== undefined && !both)) return undefined;
  if (day !== undefined && !isDay(day)) return undefined;
  if (time !== undefined && !/^(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)/.test(time)) return undefined;
  if (offset !== undefined && !/^(?:[Zz]|.(?:[01]\d|2[0-3]):[0-5]\d)$/.test(offset)) return undefined;
  return day === undefined && time === undefined ? undefined : new TomlDate(word);
}

/** Whether the calendar has this day: Node reads a wrong day as no time, or as the time of another day. */
function isDay(text: string): boolean {
  const time = Date.parse(text);
  return !Number.isNaN(time) && new Date(time).toISOString().startsWith(text);
}
