import { messageOf } from "../../core/errors.ts";
import { type Command, type Expression, type Pipeline, type Statement, sourceOf, type Templates } from "./ast.ts";
import { BUILTINS, SPECIAL_FORMS } from "./builtins.ts";
import { WORKSPACE_FUNCTIONS } from "./funcs.ts";
import { type Token, Tokens } from "./lex.ts";
import { goQuote, readNumber, unquote } from "./literal.ts";

/** Blocks and parentheses may be nested this deep. */
const NESTING_LIMIT = 100;

/**
 * Parses a template and those that it defines, which may call Go's functions, those of every template and `functions`.
 * Throws `failed`: `template: name:line:column: …`, lines from 1 and columns in bytes from 0, as Go counts them.
 */
export function parseTemplate(name: string, text: string, functions: readonly string[]): Templates {
  const known = [BUILTINS, WORKSPACE_FUNCTIONS].flatMap(Object.keys);
  return new Parser(name, text, new Set([...known, ...SPECIAL_FORMS, ...functions])).parse();
}

/** What ended a list of statements. */
type Ending = { token: Token; word: "end" | "else" };

class Parser {
  readonly #name: string;
  readonly #functions: ReadonlySet<string>;
  readonly #tokens: Tokens;
  readonly #templates: Templates = new Map();
  /** The blocks around the current place, by their first word. */
  readonly #open: Token[] = [];
  readonly #byKeyword: Readonly<Record<string, (word: Token) => Statement | Ending>> = {
    if: (word) => this.#choice(word, "if"),
    with: (word) => this.#choice(word, "with"),
    range: (word) => this.#range(word),
    template: () => this.#call(),
    block: (word) => this.#block(word),
    break: (word) => this.#jump(word, "break"),
    continue: (word) => this.#jump(word, "continue"),
    else: (word) => this.#else(word),
    end: (token) => {
      this.#tokens.expect("}}", "end");
      return { token, word: "end" };
    },
  };
  #variables = ["$"];
  #loops = 0;
  #parentheses = 0;

  constructor(name: string, text: string, functions: ReadonlySet<string>) {
    this.#name = name;
    this.#functions = functions;
    this.#tokens = new Tokens(name, text);
  }

  parse(): Templates {
    const body: Statement[] = [];
    while (this.#tokens.peek().kind !== "end") {
      if (this.#tokens.startsWith("define")) this.#define();
      else {
        const statement = this.#statement();
        if ("word" in statement) throw this.#tokens.failure(`unexpected {{${statement.word}}}`, statement.token);
        body.push(statement);
      }
    }
    this.#add(this.#name, body, this.#tokens.peek());
    return this.#templates;
  }

  // Statements

  #define(): void {
    this.#tokens.take();
    const word = this.#tokens.takeNonSpace();
    const name = this.#literal(this.#tokens.expect("string", "define clause"), unquote);
    this.#tokens.expect("}}", "define clause");
    this.#add(name, this.#separately(word, "define clause"), word);
  }

  /** The statements up to `end`, with variables and loops of their own. */
  #separately(word: Token, context: string): Statement[] {
    const [variables, loops] = [this.#variables, this.#loops];
    [this.#variables, this.#loops] = [["$"], 0];
    const { body, ending } = this.#body(word);
    if (ending.word !== "end") throw this.#tokens.failure(`unexpected {{else}} in ${context}`, ending.token);
    [this.#variables, this.#loops] = [variables, loops];
    return body;
  }

  /** A template that is only white space may be defined again, and never replaces another. */
  #add(name: string, body: Statement[], token: Token): void {
    const known = this.#templates.get(name);
    if (!known || isBlank(known)) this.#templates.set(name, body);
    else if (!isBlank(body)) throw this.#tokens.failure(`multiple definition of template ${goQuote(name)}`, token);
  }

  #body(word: Token): { body: Statement[]; ending: Ending } {
    this.#open.push(word);
    if (this.#open.length > NESTING_LIMIT) throw this.#tokens.failure(`more than ${NESTING_LIMIT} nested blocks`, word);
    const body: Statement[] = [];
    while (this.#tokens.peek().kind !== "end") {
      const statement = this.#statement();
      if (!("word" in statement)) {
        body.push(statement);
        continue;
      }
      this.#open.pop();
      return { body, ending: statement };
    }
    throw this.#tokens.failure(
      `unexpected EOF: {{${word.text}}} of line ${this.#tokens.line(word)} has no {{end}}`,
      this.#tokens.peek(),
    );
  }

  #statement(): Statement | Ending {
    const token = this.#tokens.take();
    if (token.kind === "text") return { kind: "text", at: token.at, text: token.text };
    if (token.kind !== "{{") throw this.#tokens.unexpected(token, "input");
    const first = this.#tokens.skipSpace();
    const parse = first.kind === "keyword" ? this.#byKeyword[first.text] : undefined;
    if (!parse) return { kind: "action", at: first.at, pipeline: this.#pipeline("command", "}}") };
    this.#tokens.take();
    return parse(first);
  }

  #else(word: Token): Ending {
    const next = this.#tokens.skipSpace();
    const chained = next.kind === "keyword" && (next.text === "if" || next.text === "with");
    if (!chained) this.#tokens.expect("}}", "else");
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
      const next = this.#tokens.peek();
      again = ending.word === "else" && next.kind === "keyword" && next.text === kind;
      if (again) this.#tokens.take();
      else if (ending.word === "else") statement.otherwise = this.#otherwise(word);
    }
    this.#variables.length = variables;
    return statement;
  }

  #otherwise(word: Token): Statement[] {
    const { body, ending } = this.#body(word);
    if (ending.word !== "end") throw this.#tokens.failure("expected end; found {{else}}", ending.token);
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
    const token = this.#tokens.takeNonSpace();
    if (token.kind !== "}}") throw this.#tokens.unexpected(token, `{{${kind}}}`);
    if (this.#loops === 0) throw this.#tokens.failure(`{{${kind}}} outside {{range}}`, word);
    return { kind, at: word.at };
  }

  #call(): Statement {
    const token = this.#tokens.expect("string", "template clause");
    const call: Statement = { kind: "template", at: token.at, name: this.#literal(token, unquote) };
    if (this.#tokens.skipSpace().kind === "}}") this.#tokens.take();
    else call.pipeline = this.#pipeline("template clause", "}}");
    return call;
  }

  #block(word: Token): Statement {
    const token = this.#tokens.expect("string", "block clause");
    const name = this.#literal(token, unquote);
    const pipeline = this.#pipeline("block clause", "}}");
    this.#add(name, this.#separately(word, "block clause"), word);
    return { kind: "template", at: token.at, name, pipeline };
  }

  // Expressions

  #pipeline(context: string, end: "}}" | ")"): Pipeline {
    const { at } = this.#tokens.skipSpace();
    const pipeline: Pipeline = { kind: "pipeline", at, variables: [], assigns: false, commands: [] };
    this.#declarations(pipeline, context);
    for (let token = this.#tokens.skipSpace(); token.kind !== end; token = this.#tokens.skipSpace()) {
      if (!startsOperand(token)) throw this.#tokens.unexpected(token, context);
      pipeline.commands.push(this.#words());
    }
    const closing = this.#tokens.take();
    if (pipeline.commands.length === 0) throw this.#tokens.failure(`missing value for ${context}`, closing);
    for (const [index, command] of pipeline.commands.entries()) {
      const kind = command.words[0]?.kind ?? "nil";
      if (index > 0 && ["bool", "dot", "nil", "number", "string"].includes(kind))
        throw this.#tokens.failure(`non executable command in pipeline stage ${index + 1}`, command);
    }
    return pipeline;
  }

  /** `$x :=`, `$x =`, and in range `$i, $x :=`; anything else that starts with a variable is an operand. */
  #declarations(pipeline: Pipeline, context: string): void {
    const start = this.#tokens.next;
    const variable = this.#tokens.peek();
    if (variable.kind !== "variable") return;
    this.#tokens.take();
    const mark = this.#tokens.skipSpace();
    const isComma = mark.kind === "other" && mark.text === ",";
    if (mark.kind !== "=" && mark.kind !== ":=" && !isComma) {
      this.#tokens.next = start;
      return;
    }
    this.#tokens.take();
    pipeline.variables.push({ name: variable.text, at: variable.at });
    this.#variables.push(variable.text);
    pipeline.assigns = mark.kind === "=";
    if (!isComma) return;
    if (context !== "range" || pipeline.variables.length > 1)
      throw this.#tokens.failure(`too many declarations in ${context}`, mark);
    const next = this.#tokens.skipSpace();
    if (!["variable", "}}", ")"].includes(next.kind)) throw this.#tokens.failure("range can only initialize variables", next);
    this.#declarations(pipeline, context);
  }

  #words(): Command {
    const command: Command = { kind: "command", at: this.#tokens.peek().at, words: [] };
    for (;;) {
      this.#tokens.skipSpace();
      const operand = this.#operand();
      if (operand) command.words.push(operand);
      const token = this.#tokens.take();
      if (token.kind === "space") continue;
      if (token.kind === "}}" || token.kind === ")") this.#tokens.next--;
      else if (token.kind !== "|") throw this.#tokens.unexpected(token, "operand");
      return command;
    }
  }

  #operand(): Expression | undefined {
    const of = this.#term();
    const { at } = this.#tokens.peek();
    const names: string[] = [];
    while (this.#tokens.peek().kind === "field") names.push(this.#tokens.take().text.slice(1));
    if (!of || names.length === 0) return of;
    if (of.kind === "field" || of.kind === "variable") return { ...of, at, names: [...of.names, ...names] };
    if (of.kind === "function" || of.kind === "pipeline") return { kind: "chain", at, of, names };
    throw this.#tokens.failure(`unexpected . after term ${goQuote(sourceOf(of))}`, { at });
  }

  #term(): Expression | undefined {
    const token = this.#tokens.peek();
    if (!startsOperand(token)) return undefined;
    this.#tokens.take();
    const { at, text } = token;
    switch (token.kind) {
      case "identifier":
        if (!this.#functions.has(text)) throw this.#tokens.failure(`function ${goQuote(text)} not defined`, token);
        return { kind: "function", at, name: text };
      case "variable":
        if (this.#variables.includes(text)) return { kind: "variable", at, names: [text] };
        throw this.#tokens.failure(`undefined variable ${goQuote(text)}`, token);
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
      throw this.#tokens.failure(messageOf(error), token);
    }
  }

  #parenthesized(token: Token): Pipeline {
    this.#parentheses++;
    if (this.#parentheses > NESTING_LIMIT) throw this.#tokens.failure(`more than ${NESTING_LIMIT} nested parentheses`, token);
    const pipeline = this.#pipeline("parenthesized pipeline", ")");
    this.#parentheses--;
    return pipeline;
  }
}

function startsOperand(token: Token): boolean {
  if (token.kind === "keyword") return token.text === "." || token.text === "nil";
  return ["identifier", "variable", "field", "bool", "number", "character", "string", "("].includes(token.kind);
}

function isBlank(body: Statement[]): boolean {
  return body.every((statement) => statement.kind === "text" && statement.text.trim() === "");
}
