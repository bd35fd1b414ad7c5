import { Failure } from "../../core/errors.ts";
import { position } from "./ast.ts";
import { goQuote, isPrintable } from "./literal.ts";

type Mark = "{{" | "}}" | "(" | ")" | "|" | "=" | ":=";
type Word = "identifier" | "keyword" | "field" | "variable" | "bool" | "number" | "character" | "string";
/** What a token is. `keyword` covers the control words, `nil` and the lone dot; `error` ends the list early. */
type TokenKind = Mark | Word | "text" | "space" | "other" | "error" | "end";

/** A piece of a template: its text (for `error` the message) and its offset in UTF-16 units. */
export interface Token {
  kind: TokenKind;
  text: string;
  at: number;
}

const KEYWORDS = new Set("block break continue define else end if nil range template with".split(" "));

/** The tokens of a template as its parser reads them, and the failures that name their place. */
export class Tokens {
  readonly #name: string;
  readonly #text: string;
  readonly #tokens: Token[];
  /** The index of the next token; setting it back unreads. */
  next = 0;

  constructor(name: string, text: string) {
    this.#name = name;
    this.#text = text;
    this.#tokens = new Lexer(text).run();
  }

  /** The next token; the last one, `end` or `error`, again and again. */
  peek(): Token {
    return this.#tokens[Math.min(this.next, this.#tokens.length - 1)] as Token;
  }

  take(): Token {
    const token = this.peek();
    this.next++;
    return token;
  }

  /** Passes over blanks; the token behind them stays next. */
  skipSpace(): Token {
    while (this.peek().kind === "space") this.next++;
    return this.peek();
  }

  /** Passes over blanks and takes the token behind them. */
  takeNonSpace(): Token {
    this.skipSpace();
    return this.take();
  }

  expect(kind: TokenKind, context: string): Token {
    const token = this.takeNonSpace();
    if (token.kind !== kind) throw this.unexpected(token, context);
    return token;
  }

  /** True where an action of this control word starts. */
  startsWith(word: string): boolean {
    const [open, ...rest] = this.#tokens.slice(this.next, this.next + 3);
    const first = rest[0]?.kind === "space" ? rest[1] : rest[0];
    return open?.kind === "{{" && first?.kind === "keyword" && first.text === word;
  }

  line(token: Token): number {
    return this.#text.slice(0, token.at).split("\n").length;
  }

  failure(message: string, token: Pick<Token, "at">): Failure {
    return new Failure("failed", `template: ${position(this.#name, this.#text, token.at)}: ${message}`);
  }

  unexpected(token: Token, context: string): Failure {
    if (token.kind === "error") return this.failure(token.text, token);
    const text = token.text.length > 10 ? `${goQuote(token.text.slice(0, 10))}...` : goQuote(token.text);
    const shown = token.kind === "end" ? "EOF" : token.kind === "keyword" ? `<${token.text}>` : text;
    return this.failure(`unexpected ${shown} in ${context}`, token);
  }
}

/**
 * Cuts a template into tokens, ending with `end` or, at what no rule allows, `error`. White space beside `{{- ` and ` -}}`
 * and comments are gone; blanks inside actions stay, because they separate operands.
 */
class Lexer {
  readonly #text: string;
  readonly #tokens: Token[] = [];
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  run(): Token[] {
    while (this.#plain() && (this.#comment() ?? this.#action()));
    return this.#tokens;
  }

  /** Takes the text up to the next action and its opening braces; false at the end. */
  #plain(): boolean {
    const start = this.#at;
    const open = this.#text.indexOf("{{", start);
    const plain = this.#text.slice(start, open < 0 ? undefined : open);
    const trims = /^-[ \t\r\n]/.test(this.#text.slice(open + 2, open + 4));
    const kept = open >= 0 && trims ? trimEnd(plain) : plain;
    if (kept !== "") this.#tokens.push({ kind: "text", text: kept, at: start });
    if (open < 0) return this.#stop("end", "", this.#text.length);
    this.#tokens.push({ kind: "{{", text: "{{", at: open });
    this.#at = open + (trims ? 4 : 2);
    return true;
  }

  /** Takes a comment with its closing braces; undefined where there is none. */
  #comment(): boolean | undefined {
    if (!this.#text.startsWith("/*", this.#at)) return undefined;
    const { at } = this.#tokens.pop() as Token;
    const close = this.#text.indexOf("*/", this.#at + 2);
    if (close < 0) return this.#stop("error", "unclosed comment", at);
    this.#at = close + 2;
    return this.#closing() || this.#stop("error", "comment ends before closing delimiter", at);
  }

  /** Takes closing braces and the white space that they trim. */
  #closing(): boolean {
    return this.#match(/[ \t\r\n]-\}\}[ \t\r\n]*|\}\}/y) !== undefined;
  }

  #match(expression: RegExp): string | undefined {
    expression.lastIndex = this.#at;
    const match = expression.exec(this.#text)?.[0];
    this.#at += match?.length ?? 0;
    return match;
  }

  #stop(kind: "error" | "end", text: string, at: number): false {
    this.#tokens.push({ kind, text, at });
    return false;
  }

  #push(kind: TokenKind, text: string): true {
    this.#tokens.push({ kind, text, at: this.#at - text.length });
    return true;
  }

  #action(): boolean {
    const { at: open } = this.#tokens.at(-1) as Token;
    for (let depth = 0; ; ) {
      const start = this.#at;
      if (this.#closing()) {
        if (depth > 0) return this.#stop("error", "unclosed left paren", start);
        this.#tokens.push({ kind: "}}", text: "}}", at: start });
        return true;
      }
      if (start >= this.#text.length) return this.#stop("error", "unclosed action", open);
      if (!this.#token()) return false;
      depth += Number(this.#text[start] === "(") - Number(this.#text[start] === ")");
    }
  }

  #token(): boolean {
    const start = this.#at;
    for (const [kind, pattern] of PIECES) {
      const piece = this.#match(pattern);
      if (piece !== undefined) return this.#push(kind ?? (piece as TokenKind), piece);
    }
    if (/[+\-0-9]|\.[0-9]/y.test(this.#text.slice(start, start + 2))) return this.#number();
    const word = this.#match(/[.$]?[\p{L}\p{Nd}_]+|[.$]/uy);
    if (word !== undefined) return this.#word(word);
    return this.#unknown();
  }

  #number(): boolean {
    const start = this.#at;
    const number = this.#match(
      /[+-]?(?:0[xX][0-9a-fA-F_]*|0[oO][0-7_]*|0[bB][01_]*|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)/y,
    );
    const next = this.#match(/[\p{L}\p{Nd}_+-]/uy);
    if (next === undefined) return this.#push("number", number as string);
    return this.#stop("error", `bad number syntax: ${goQuote(number + next)}`, start);
  }

  #word(word: string): boolean {
    const next = String.fromCodePoint(this.#text.codePointAt(this.#at) ?? 0x20);
    if (!/[ \t\r\n.,|:()]/.test(next) && !this.#text.startsWith("}}", this.#at))
      return this.#stop("error", `bad character ${codePoint(next)}`, this.#at);
    if (word === "." || KEYWORDS.has(word)) return this.#push("keyword", word);
    if (word === "true" || word === "false") return this.#push("bool", word);
    return this.#push(word[0] === "." ? "field" : word[0] === "$" ? "variable" : "identifier", word);
  }

  #unknown(): boolean {
    const start = this.#at;
    const next = String.fromCodePoint(this.#text.codePointAt(start) ?? 0);
    if (UNFINISHED[next] !== undefined) return this.#stop("error", UNFINISHED[next], start);
    if (!/[!-~]/.test(next)) return this.#stop("error", `unrecognized character in action: ${codePoint(next)}`, start);
    this.#at++;
    return this.#push("other", next);
  }
}

/** What most tokens look like; a mark is its own kind. */
const PIECES: readonly [kind: TokenKind | undefined, pattern: RegExp][] = [
  ["space", /[ \t\r\n]+?(?=[ \t\r\n]-\}\}|[^ \t\r\n]|$)/y],
  [undefined, /:=|[=|()]/y],
  ["string", /"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"|`[^`]*`/y],
  ["character", /'[^'\\\n]*(?:\\[^\n][^'\\\n]*)*'/y],
];

/** What is wrong where one of these characters begins no token. */
const UNFINISHED: Readonly<Record<string, string>> = {
  '"': "unterminated quoted string",
  "`": "unterminated raw quoted string",
  "'": "unterminated character constant",
  ":": "expected :=",
};

/** Not a regular expression: its tries at every blank would take n² steps. */
function trimEnd(text: string): string {
  let end = text.length;
  while (end > 0 && " \t\r\n".includes(text[end - 1] as string)) end--;
  return text.slice(0, end);
}

/** A character as its code point and, where it can be seen, itself: `U+0040 '@'`. */
function codePoint(character: string): string {
  const hex = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
  return isPrintable(character) ? `U+${hex} '${character}'` : `U+${hex}`;
}
