import { Failure } from "../core/errors.ts";

/** A date or time as it was written, after its fields were checked (decisions of TOML 1.0 and RFC 3339). */
export class TomlDate {
  readonly kind: "offset date-time" | "local date-time" | "local date" | "local time";
  readonly text: string;

  constructor(kind: TomlDate["kind"], text: string) {
    this.kind = kind;
    this.text = text;
  }
}

/** A place in a TOML text, and the reading of everything that is not a table: blanks, comments, strings, scalars. */
export class TomlCursor {
  readonly text: string;
  at = 0;

  constructor(text: string) {
    this.text = text;
  }

  /** The failure for what stands here (or at `at`), with its line and column in characters, both from 1. */
  failure(expected: string, found?: string, at: number = this.at): Failure {
    const before = this.text.slice(0, at);
    const line = before.split("\n").length;
    const column = [...before.slice(before.lastIndexOf("\n") + 1)].length + 1;
    const what = found ?? describe(this.text.slice(at));
    return new Failure("failed", `line ${line}, column ${column}: expected ${expected}, found ${what}`);
  }

  /** Takes what the sticky expression matches here. */
  match(expression: RegExp): RegExpExecArray | undefined {
    expression.lastIndex = this.at;
    const match = expression.exec(this.text);
    if (match) this.at = expression.lastIndex;
    return match ?? undefined;
  }

  /** Takes a text if it stands here. */
  take(text: string): boolean {
    if (!this.text.startsWith(text, this.at)) return false;
    this.at += text.length;
    return true;
  }

  blanks(): void {
    this.match(/[ \t]*/y);
  }

  /** Takes blanks, line ends and comments. */
  gap(): void {
    do this.rest();
    while (this.match(/\r?\n/y));
  }

  /** Takes what may end a line: blanks, a comment, the line end. */
  lineEnd(): void {
    this.rest();
    if (this.at < this.text.length && !this.match(/\r?\n/y)) throw this.failure("the end of the line");
  }

  private rest(): void {
    this.match(/[ \t]*(?:#[^\x00-\x08\n-\x1f\x7f]*)?/y);
  }

  /** A string in one of the four forms, or undefined where no quote stands. */
  string(): string | undefined {
    if (this.take('"""')) return this.multiline('"');
    if (this.take("'''")) return this.multiline("'");
    return this.line();
  }

  /** A string on one line, or undefined where no quote stands. */
  line(): string | undefined {
    if (this.take("'")) return this.quoted(/[^\x00-\x08\n-\x1f\x7f']*/y, "'");
    if (this.take('"')) return this.quoted(/[^\x00-\x08\n-\x1f\x7f"\\]*/y, '"');
    return undefined;
  }

  private quoted(plain: RegExp, quote: string): string {
    for (let value = ""; ; value += this.escape()) {
      value += this.match(plain)?.[0] ?? "";
      if (this.take(quote)) return value;
      if (this.text[this.at] !== "\\") throw this.failure(`a character of the string or ${quote}`);
    }
  }

  private multiline(quote: '"' | "'"): string {
    this.match(/\r?\n/y);
    const plain =
      quote === '"' ? /(?:[^\x00-\x08\n-\x1f\x7f"\\]|\r?\n)*/y : /(?:[^\x00-\x08\n-\x1f\x7f']|\r?\n)*/y;
    const quotes = quote === '"' ? /"{1,5}/y : /'{1,5}/y;
    for (let value = ""; ; ) {
      value += this.match(plain)?.[0] ?? "";
      const run = this.match(quotes)?.[0] ?? "";
      if (run.length >= 3) return value + run.slice(3);
      value += run;
      if (run !== "") continue;
      if (quote === "'" || this.text[this.at] !== "\\") throw this.failure(`a character of the string or ${quote.repeat(3)}`);
      if (!this.match(/\\[ \t]*\r?\n(?:[ \t]|\r?\n)*/y)) value += this.escape();
    }
  }

  private escape(): string {
    const at = this.at;
    const match = this.match(/\\(?:([btnfr"\\])|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))/y);
    const code = Number.parseInt(match?.[2] ?? match?.[3] ?? "0", 16);
    if (!match || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
      throw this.failure('one of the escapes \\b \\t \\n \\f \\r \\" \\\\ \\uXXXX \\UXXXXXXXX', undefined, at);
    return match[1] === undefined ? String.fromCodePoint(code) : (ESCAPES[match[1]] as string);
  }

  /** A boolean, number, date or time. */
  scalar(): boolean | number | bigint | TomlDate {
    const start = this.at;
    const word = this.match(/[0-9A-Za-z_+:.-]+(?:(?<=^\d{4}-\d\d-\d\d| \d{4}-\d\d-\d\d) \d[0-9A-Za-z_+:.-]*)?/y)?.[0] ?? "";
    const value = readScalar(word);
    if (value === undefined) throw this.failure("a value", undefined, start);
    return value;
  }
}

const ESCAPES: Readonly<Record<string, string>> = {
  b: "\b",
  t: "\t",
  n: "\n",
  f: "\f",
  r: "\r",
  '"': '"',
  "\\": "\\",
};
