import { Failure, messageOf } from "../../core/errors.ts";
import {
  type Command,
  describe,
  type Expression,
  type Pipeline,
  position,
  type Statement,
  type Templates,
} from "./ast.ts";
import { type Token, type TokenKind, tokenize } from "./lex.ts";
import { readNumber, unquote } from "./literal.ts";

/** Blocks and parentheses may be nested this deep. */
const NESTING_LIMIT = 100;

/**
 * Parses a template and those that it defines. `hasFunction` tells which names are functions. Throws `failed`:
 * `template: name:line:column: …`, lines from 1 and columns in bytes from 0, as Go counts them.
 */
export function parseTemplate(name: string, text: string, hasFunction: (name: string) => boolean): Templates {
  return new Parser(name, text, hasFunction).parse();
}

/** What ended a list of statements. */
type Ending = { token: Token; word: "end" | "else" };

class Parser {
  readonly #name: string;
  readonly #text: string;
  readonly #hasFunction: (name: string) => boolean;
  readonly #tokens: Token[];
  readonly #templates: Templates = new Map();
  /** The blocks around the current place, by their first word. */
  readonly #open: Token[] = [];
  #next = 0;
  #variables = ["$"];
  #loops = 0;
  #parentheses = 0;

  constructor(name: string, text: string, hasFunction: (name: string) => boolean) {
    this.#name = name;
    this.#text = text;
    this.#hasFunction = hasFunction;
    this.#tokens = tokenize(text);
  }

  parse(): Templates {
    const body: Statement[] = [];
    while (this.#peek().kind !== "end") {
      if (this.#isDefine()) this.#define();
      else {
        const statement = this.#statement();
        if ("word" in statement) throw this.#failure(`unexpected {{${statement.word}}}`, statement.token);
        body.push(statement);
      }
    }
    this.#add(this.#name, body, this.#peek());
    return this.#templates;
  }

  #failure(message: string, token: Token): Failure {
    return new Failure("failed", `template: ${position(this.#name, this.#text, token.at)}: ${message}`);
  }

  #unexpected(token: Token, context: string): Failure {
    if (token.kind === "error") return this.#failure(token.text, token);
    const text =
      token.text.length > 10 ? `${JSON.stringify(token.text.slice(0, 10))}...` : JSON.stringify(token.text);
    const shown = token.kind === "end" ? "EOF" : token.kind === "keyword" ? `<${token.text}>` : text;
    return this.#failure(`unexpected ${shown} in ${context}`, token);
  }

  // Tokens

  #peek(): Token {
    return this.#tokens[Math.min(this.#next, this.#tokens.length - 1)] as Token;
  }

  #take(): Token {
    const token = this.#peek();
    this.#next++;
    return token;
  }

  #skipSpace(): Token {
    while (this.#peek().kind === "space") this.#next++;
    return this.#peek();
  }

  #takeNonSpace(): Token {
    this.#skipSpace();
    return this.#take();
  }

  #expect(kind: TokenKind, context: string): Token {
    const token = this.#takeNonSpace();
    if (token.kind !== kind) throw this.#unexpected(token, context);
    return token;
  }

  // Statements

  #isDefine(): boolean {
    const [open, ...rest] = this.#tokens.slice(this.#next, this.#next + 3);
    const first = rest[0]?.kind === "space" ? rest[1] : rest[0];
    return open?.kind === "{{" && first?.kind === "keyword" && first.text === "define";
  }

  #define(): void {
    this.#take();
    const word = this.#takeNonSpace();
    const name = this.#literal(this.#expect("string", "define clause"), unquote);
    this.#expect("}}", "define clause");
    this.#add(name, this.#separately(word, "define clause"), word);
  }

  /** The statements up to `end`, with variables and loops of their own. */
  #separately(word: Token, context: string): Statement[] {
    const [variables, loops] = [this.#variables, this.#loops];
    [this.#variables, this.#loops] = [["$"], 0];
    const { body, ending } = this.#body(word);
    if (ending.word !== "end") throw this.#failure(`unexpected {{else}} in ${context}`, ending.token);
    [this.#variables, this.#loops] = [variables, loops];
    return body;
  }

  /** A template that is only white space may be defined again, and never replaces another. */
  #add(name: string, body: Statement[], token: Token): void {
    const known = this.#templates.get(name);
    if (!known || isBlank(known)) this.#templates.set(name, body);
    else if (!isBlank(body))
      throw this.#failure(`multiple definition of template ${JSON.stringify(name)}`, token);
  }

  #body(word: Token): { body: Statement[]; ending: Ending } {
    this.#open.push(word);
    if (this.#open.length > NESTING_LIMIT)
      throw this.#failure(`more than ${NESTING_LIMIT} nested blocks`, word);
    const body: Statement[] = [];
    while (this.#peek().kind !== "end") {
      const statement = this.#statement();
      if (!("word" in statement)) {
        body.push(statement);
        continue;
      }
      this.#open.pop();
      return { body, ending: statement };
    }
    const line = position("", this.#text, word.at).split(":")[1];
    throw this.#failure(`unexpected EOF: {{${word.text}}} of line ${line} has no {{end}}`, this.#peek());
  }

  #statement(): Statement | Ending {
    const token = this.#take();
    if (token.kind === "text") return { kind: "text", at: token.at, text: token.text };
    if (token.kind !== "{{") throw this.#unexpected(token, "input");
    const first = this.#skipSpace();
    if (first.kind !== "keyword") return this.#command(first);
    this.#take();
    switch (first.text) {
      case "if":
      case "with":
        return this.#choice(first, first.text);
      case "range":
        return this.#range(first);
      case "template":
        return this.#call();
      case "block":
        return this.#block(first);
      case "break":
      case "continue":
        return this.#jump(first, first.text);
      case "end":
        return { token: this.#expect("}}", "end"), word: "end" };
      case "else":
        return this.#else(first);
      default:
        this.#next--;
        return this.#command(first);
    }
  }

  #command(first: Token): Statement {
    return { kind: "action", at: first.at, pipeline: this.#pipeline("command", "}}") };
  }

  #else(word: Token): Ending {
    const next = this.#skipSpace();
    const chained = next.kind === "keyword" && (next.text === "if" || next.text === "with");
    if (!chained) this.#expect("}}", "else");
    return { token: word, word: "else" };
  }

  /** `else if` and `else with` continue the same statement, so that a long chain is not a deep nesting. */
  #choice(word: Token, kind: "if" | "with"): Statement {
    const variables = this.#variables.length;
    const statement: Statement = { kind, at: word.at, branches: [] };
    for (let again = true; again; ) {
      const pipeline = this.#pipeline(kind, "}}");
      const { body, ending } = this.#body(word);
      statement.branches.push({ pipeline, body });
      const next = this.#peek();
      again = ending.word === "else" && next.kind === "keyword" && next.text === kind;
      if (again) this.#take();
      else if (ending.word === "else") statement.otherwise = this.#otherwise(word);
    }
    this.#variables.length = variables;
    return statement;
  }

  #otherwise(word: Token): Statement[] {
    const { body, ending } = this.#body(word);
    if (ending.word !== "end") throw this.#failure("expected end; found {{else}}", ending.token);
    return body;
  }

  #range(word: Token): Statement {
    const variables = this.#variables.length;
    const pipeline = this.#pipeline("range", "}}");
    this.#loops++;
    const { body, ending } = this.#body(word);
    this.#loops--;
    const otherwise = ending.word === "else" ? { otherwise: this.#otherwise(word) } : {};
    this.#variables.length = variables;
    return { kind: "range", at: word.at, pipeline, body, ...otherwise };
  }

  #jump(word: Token, kind: "break" | "continue"): Statement {
    const token = this.#takeNonSpace();
    if (token.kind !== "}}") throw this.#unexpected(token, `{{${kind}}}`);
    if (this.#loops === 0) throw this.#failure(`{{${kind}}} outside {{range}}`, word);
    return { kind, at: word.at };
  }

  #call(): Statement {
    const token = this.#expect("string", "template clause");
    const call: Statement = { kind: "template", at: token.at, name: this.#literal(token, unquote) };
    if (this.#skipSpace().kind === "}}") this.#take();
    else call.pipeline = this.#pipeline("template clause", "}}");
    return call;
  }

  #block(word: Token): Statement {
    const token = this.#expect("string", "block clause");
    const name = this.#literal(token, unquote);
    const pipeline = this.#pipeline("block clause", "}}");
    this.#add(name, this.#separately(word, "block clause"), word);
    return { kind: "template", at: token.at, name, pipeline };
  }

  // Expressions

  #pipeline(context: string, end: "}}" | ")"): Pipeline {
    const { at } = this.#skipSpace();
    const pipeline: Pipeline = { kind: "pipeline", at, variables: [], assigns: false, commands: [] };
    this.#declarations(pipeline, context);
    for (let token = this.#skipSpace(); token.kind !== end; token = this.#skipSpace()) {
      if (!startsOperand(token)) throw this.#unexpected(token, context);
      pipeline.commands.push(this.#words());
    }
    const closing = this.#take();
    if (pipeline.commands.length === 0) throw this.#failure(`missing value for ${context}`, closing);
    for (const [index, command] of pipeline.commands.entries()) {
      const kind = command.words[0]?.kind ?? "nil";
      if (index > 0 && ["bool", "dot", "nil", "number", "string"].includes(kind))
        throw this.#failure(`non executable command in pipeline stage ${index + 1}`, {
          ...closing,
          at: command.at,
        });
    }
    return pipeline;
  }

  /** `$x :=`, `$x =`, and in range `$i, $x :=`; anything else that starts with a variable is an operand. */
  #declarations(pipeline: Pipeline, context: string): void {
    const start = this.#next;
    const variable = this.#peek();
    if (variable.kind !== "variable") return;
    this.#take();
    const mark = this.#skipSpace();
    const isComma = mark.kind === "other" && mark.text === ",";
    if (mark.kind !== "=" && mark.kind !== ":=" && !isComma) {
      this.#next = start;
      return;
    }
    this.#take();
    pipeline.variables.push({ name: variable.text, at: variable.at });
    this.#variables.push(variable.text);
    pipeline.assigns = mark.kind === "=";
    if (!isComma) return;
    if (context !== "range" || pipeline.variables.length > 1)
      throw this.#failure(`too many declarations in ${context}`, mark);
    const next = this.#skipSpace();
    if (!["variable", "}}", ")"].includes(next.kind))
      throw this.#failure("range can only initialize variables", next);
    this.#declarations(pipeline, context);
  }

  #words(): Command {
    const command: Command = { kind: "command", at: this.#peek().at, words: [] };
    for (;;) {
      this.#skipSpace();
      const operand = this.#operand();
      if (operand) command.words.push(operand);
      const token = this.#take();
      if (token.kind === "space") continue;
      if (token.kind === "}}" || token.kind === ")") this.#next--;
      else if (token.kind !== "|") throw this.#unexpected(token, "operand");
      if (command.words.length === 0) throw this.#failure("empty command", token);
      return command;
    }
  }

  #operand(): Expression | undefined {
    const of = this.#term();
    const { at } = this.#peek();
    const names: string[] = [];
    while (this.#peek().kind === "field") names.push(this.#take().text.slice(1));
    if (!of || names.length === 0) return of;
    if (of.kind === "field" || of.kind === "variable") return { ...of, at, names: [...of.names, ...names] };
    if (of.kind === "function" || of.kind === "pipeline") return { kind: "chain", at, of, names };
    throw this.#failure(`unexpected . after term ${JSON.stringify(describe(of))}`, {
      kind: "field",
      text: ".",
      at,
    });
  }

  #term(): Expression | undefined {
    const token = this.#peek();
    if (!startsOperand(token)) return undefined;
    this.#take();
    const { at, text } = token;
    switch (token.kind) {
      case "identifier":
        if (!this.#hasFunction(text))
          throw this.#failure(`function ${JSON.stringify(text)} not defined`, token);
        return { kind: "function", at, name: text };
      case "variable":
        if (this.#variables.includes(text)) return { kind: "variable", at, names: [text] };
        throw this.#failure(`undefined variable ${JSON.stringify(text)}`, token);
      case "field":
        return { kind: "field", at, names: [text.slice(1)] };
      case "bool":
        return { kind: "bool", at, value: text === "true" };
      case "number":
      case "character":
        return { kind: "number", at, ...this.#literal(token, readNumber) };
      case "string":
        return { kind: "string", at, value: this.#literal(token, unquote), source: text };
      case "(":
        return this.#parenthesized(token);
      default:
        return { kind: text === "nil" ? "nil" : "dot", at };
    }
  }

  #literal<T>(token: Token, read: (source: string) => T): T {
    try {
      return read(token.text);
    } catch (error) {
      throw this.#failure(messageOf(error), token);
    }
  }

  #parenthesized(token: Token): Pipeline {
    this.#parentheses++;
    if (this.#parentheses > NESTING_LIMIT)
      throw this.#failure(`more than ${NESTING_LIMIT} nested parentheses`, token);
    const pipeline = this.#pipeline("parenthesized pipeline", ")");
    this.#parentheses--;
    return pipeline;
  }
}

function startsOperand(token: Token): boolean {
  if (token.kind === "keyword") return token.text === "." || token.text === "nil";
  return ["identifier", "variable", "field", "bool", "number", "character", "string", "("].includes(
    token.kind,
  );
}

function isBlank(body: Statement[]): boolean {
  return body.every((statement) => statement.kind === "text" && statement.text.trim() === "");
}
