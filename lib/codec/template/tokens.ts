import { Failure } from "../../core/errors.ts";
import { position } from "./ast.ts";
import { type Token, type TokenKind, tokenize } from "./lex.ts";
import { quote } from "./quote.ts";

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
    this.#tokens = tokenize(text);
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

  failure(message: string, token: Token): Failure {
    return new Failure("failed", `template: ${position(this.#name, this.#text, token.at)}: ${message}`);
  }

  unexpected(token: Token, context: string): Failure {
    if (token.kind === "error") return this.failure(token.text, token);
    const text = token.text.length > 10 ? `${quote(token.text.slice(0, 10))}...` : quote(token.text);
    const shown = token.kind === "end" ? "EOF" : token.kind === "keyword" ? `<${token.text}>` : text;
    return this.failure(`unexpected ${shown} in ${context}`, token);
  }
}
