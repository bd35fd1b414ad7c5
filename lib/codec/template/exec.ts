import { Failure, messageOf } from "../../core/errors.ts";
import { type Command, type Expression, type Pipeline, position, type Statement, sourceOf, type Templates } from "./ast.ts";
import { BUILTINS, isTrue, refuseCall } from "./builtins.ts";
import {
  argumentFor,
  goTypeName,
  miscount,
  type Parameter,
  sizeOfValue,
  TEXT_LIMIT,
  type TemplateFunction,
  type TemplateStruct,
  type TemplateValue,
  WORKSPACE_FUNCTIONS,
} from "./funcs.ts";
import { goQuote } from "./literal.ts";
import { parseTemplate } from "./parse.ts";
import { sprint } from "./print.ts";

/** Templates may call each other this deep. */
const CALL_LIMIT = 100;
/** Blocks, calls and parentheses of one execution may be nested this deep in all. */
const BLOCK_LIMIT = 1000;
/**
 * One execution takes at most this many steps: nested loops and branching calls would go on for years. A statement is
 * one; a function takes more for long texts and lists.
 */
const STEP_LIMIT = 5_000_000;
/** So many characters or items a function makes, or is given, in one step. */
const [STEP_MAKES, STEP_TAKES] = [32, 1024];

/** What an operand yields; undefined is Go's "no value", which a missing key of a map gives. */
type Value = TemplateValue | undefined;
type Node = Expression | Command | Statement;
type Jump = "break" | "continue" | undefined;

type Access = Extract<Expression, { kind: "field" | "variable" | "chain" }>;

/** A function's name with its arguments: the words behind the name and, in a pipeline, the value of the command before. */
interface FunctionCall {
  name: Extract<Expression, { kind: "function" }>;
  /** What errors name. */
  node: Command | Expression;
  words: readonly Expression[];
  piped: readonly Value[];
}

/** What an execution works on: the template, parsed, and the functions that it may call. */
interface Program {
  name: string;
  text: string;
  templates: Templates;
  functions: ReadonlyMap<string, TemplateFunction>;
}

/**
 * Renders a template in the language of Go's text/template, with the functions of docs/workspace.md and those given here.
 * Throws `failed` with `template: <name>:<line>:<column>: …` for what cannot be parsed or executed; nothing is returned
 * then. Bounds: 16 MiB of output, 100 nested template calls, 1,000 nested blocks, 5 million steps. Not supported: range over
 * an integer, complex and hexadecimal floating numbers, text that is not Unicode.
 */
export function renderTemplate(
  name: string,
  text: string,
  dot: TemplateValue,
  functions: Record<string, TemplateFunction>,
): string {
  const known = new Map(Object.entries({ ...BUILTINS, ...WORKSPACE_FUNCTIONS, ...functions }));
  const templates = parseTemplate(name, text, Object.keys(functions));
  return new TemplateExecution({ name, text, templates, functions: known }).run(dot);
}

class TemplateExecution {
  readonly #own: Program;
  readonly #output: string[] = [];
  #size = 0;
  #depth = 0;
  #steps = 0;
  /** The template that runs now, how many calls led to it, and its variables, the innermost last. */
  #current: string;
  #calls = 0;
  #variables: { name: string; value: Value }[] = [];

  constructor(own: Program) {
    this.#own = own;
    this.#current = own.name;
  }

  run(dot: TemplateValue): string {
    this.#variables = [{ name: "$", value: dot ?? undefined }];
    this.#body(dot ?? undefined, this.#own.templates.get(this.#own.name) ?? []);
    return this.#output.join("");
  }

  #failure(node: Node, message: string, cause?: unknown): Failure {
    const where = `${position(this.#own.name, this.#own.text, node.at)}: executing ${goQuote(this.#current)}`;
    const source = sourceOf(node);
    const shown = source.length > 200 ? `${source.slice(0, 200)}…` : source;
    return new Failure("failed", `template: ${where} at <${shown}>: ${message}`, { cause });
  }

  #write(node: Node, text: string): undefined {
    this.#size += Buffer.byteLength(text);
    if (this.#size > TEXT_LIMIT) throw this.#failure(node, `the output has more than ${TEXT_LIMIT} bytes`);
    this.#output.push(text);
  }

  #step(node: Node, count = 1): void {
    this.#steps += count;
    if (this.#steps > STEP_LIMIT) throw this.#failure(node, `more than ${STEP_LIMIT} steps were taken`);
  }

  // Statements. The depth is not lowered on failure: nothing runs after one.

  /** Runs statements one level deeper, and answers the jump that ended them early. */
  #body(dot: Value, body: readonly Statement[]): Jump {
    if (++this.#depth > BLOCK_LIMIT && body[0]) throw this.#failure(body[0], `more than ${BLOCK_LIMIT} nested blocks and calls`);
    let jump: Jump;
    for (let at = 0; at < body.length && !jump; at++) jump = this.#statement(dot, body[at] as Statement);
    this.#depth--;
    return jump;
  }

  #statement(dot: Value, statement: Statement): Jump {
    this.#step(statement);
    const mark = this.#variables.length;
    switch (statement.kind) {
      case "text":
        return this.#write(statement, statement.text);
      case "action":
        return this.#action(dot, statement);
      case "template":
        return this.#call(dot, statement);
      case "break":
      case "continue":
        return statement.kind;
      default: {
        const jump = statement.kind === "range" ? this.#range(dot, statement) : this.#choice(dot, statement);
        this.#variables.length = mark;
        return jump;
      }
    }
  }

  #action(dot: Value, action: Extract<Statement, { kind: "action" }>): undefined {
    const value = this.#pipeline(dot, action.pipeline);
    if (action.pipeline.variables.length > 0) return;
    const text = this.#invoke(action.pipeline, "print", () => sprint([value ?? "<no value>"]));
    this.#write(action, String(text));
  }

  #choice(dot: Value, choice: Extract<Statement, { kind: "if" | "with" }>): Jump {
    for (const { pipeline, body } of choice.branches) {
      const value = this.#pipeline(dot, pipeline);
      if (isTrue(value)) return this.#body(choice.kind === "with" ? value : dot, body);
    }
    return choice.otherwise && this.#body(dot, choice.otherwise);
  }

  #range(dot: Value, range: Extract<Statement, { kind: "range" }>): Jump {
    const { variables } = range.pipeline;
    const entries = this.#entries(range.pipeline, this.#pipeline(dot, range.pipeline));
    if (entries.length === 0) {
      const jump = range.otherwise && this.#body(dot, range.otherwise);
      return jump === "continue" ? jump : undefined;
    }
    const mark = this.#variables.length;
    for (const [key, value] of entries) {
      this.#step(range);
      const values = variables.length === 2 ? [key, value] : [value];
      for (const [index, { name }] of variables.entries()) this.#find(name, range.pipeline).value = values[index];
      const jump = this.#body(value, range.body);
      this.#variables.length = mark;
      if (jump === "break") break;
    }
    return undefined;
  }

  /** What range visits: a list with its indexes, and nothing for nil. */
  #entries(pipeline: Pipeline, value: Value): [TemplateValue, TemplateValue][] {
    if (value === null || value === undefined) return [];
    if (Array.isArray(value)) return value.map((item: TemplateValue, index) => [BigInt(index), item]);
    const last = pipeline.commands.at(-1) ?? pipeline;
    const isLiteral = last.kind === "command" && "source" in (last.words[0] ?? {});
    const shown = isLiteral ? sprint([value]) : `a value of type ${goTypeName(value)}`;
    throw this.#failure(last, `range can't iterate over ${shown}`);
  }

  #call(dot: Value, call: Extract<Statement, { kind: "template" }>): undefined {
    const body = this.#own.templates.get(call.name);
    if (!body) throw this.#failure(call, `template ${goQuote(call.name)} not defined`);
    if (this.#calls >= CALL_LIMIT) throw this.#failure(call, `exceeded maximum template depth (${CALL_LIMIT})`);
    const value = call.pipeline && this.#pipeline(dot, call.pipeline);
    const [current, variables] = [this.#current, this.#variables];
    this.#calls++;
    this.#current = call.name;
    this.#variables = [{ name: "$", value }];
    this.#body(value, body);
    [this.#current, this.#variables] = [current, variables];
    this.#calls--;
  }

  // Expressions

  #pipeline(dot: Value, pipeline: Pipeline): Value {
    // The value of each command is the last argument of the next one; the first command gets none.
    let piped: Value[] = [];
    for (const command of pipeline.commands) piped = [this.#command(dot, command, piped) ?? undefined];
    for (const { name } of pipeline.variables) {
      if (pipeline.assigns) this.#find(name, pipeline).value = piped[0];
      else this.#variables.push({ name, value: piped[0] });
    }
    return piped[0];
  }

  #find(name: string, node: Node): { value: Value } {
    const variable = this.#variables.findLast((candidate) => candidate.name === name);
    if (variable) return variable;
    throw this.#failure(node, `undefined variable: ${name}`);
  }

  #command(dot: Value, command: Command, piped: readonly Value[]): Value {
    const [word, ...rest] = command.words as [Expression, ...Expression[]];
    const hasArguments = rest.length + piped.length > 0;
    if (word.kind === "function") return this.#function(dot, { name: word, node: command, words: rest, piped });
    if (word.kind === "field" || word.kind === "chain" || (word.kind === "variable" && word.names.length > 1))
      return this.#access(dot, word, hasArguments);
    if (hasArguments) throw this.#failure(word, `can't give argument to non-function ${sourceOf(word)}`);
    if (word.kind === "nil") throw this.#failure(word, "nil is not a command");
    return this.#value(dot, word);
  }

  /** The value of an operand that takes no arguments. */
  #value(dot: Value, node: Expression): Value {
    switch (node.kind) {
      case "nil":
        return null;
      case "dot":
        return dot;
      case "bool":
      case "string":
        return node.value;
      case "number":
        if (node.isFloat) return node.float;
        if (node.integer !== undefined) return node.integer;
        throw this.#failure(node, `${node.source} overflows int`);
      case "function":
        return this.#function(dot, { name: node, node, words: [], piped: [] });
      case "pipeline":
        return this.#pipeline(dot, node);
      default:
        return this.#access(dot, node, false);
    }
  }

  /** Follows names: `.a.b` from the dot, `$x.a` from a variable, `(…).a` from a value. */
  #access(dot: Value, node: Access, hasArguments: boolean): Value {
    const { names } = node;
    let [value, first] = [dot, 0];
    if (node.kind === "chain") value = this.#value(dot, node.of);
    if (node.kind === "variable") [value, first] = [this.#find(names[0] as string, node).value, 1];
    for (let at = first; at < names.length; at++)
      value = this.#field(node, value, names[at] as string, hasArguments && at === names.length - 1);
    return value;
  }

  #field(node: Expression, value: Value, name: string, hasArguments: boolean): Value {
    if (value === undefined) return undefined;
    if (value === null) throw this.#failure(node, `nil pointer evaluating interface {}.${name}`);
    if (typeof value !== "object" || Array.isArray(value) || !Object.hasOwn(value, name))
      throw this.#failure(node, `can't evaluate field ${name} in type ${goTypeName(value)}`);
    if (hasArguments) throw this.#failure(node, `${name} has arguments but cannot be invoked as function`);
    return (value as TemplateStruct)[name];
  }

  // Calls

  #function(dot: Value, call: FunctionCall): Value {
    const { node, words, piped } = call;
    const { name } = call.name;
    const body = this.#own.functions.get(name);
    const given = words.length + piped.length;
    if (!body && given === 0) throw this.#failure(call.name, `wrong number of args for ${name}: want at least 1 got 0`);
    if (!body && name !== "call") return this.#shortCircuit(dot, name === "or", call);
    const wrong = body && miscount(body, given);
    if (wrong) throw this.#failure(call.name, `wrong number of args for ${name}: ${wrong}`);
    const parameter = (at: number) => body?.parameters[at] ?? "any";
    const values = words.map((argument, at) => this.#argument(dot, argument, parameter(at)));
    for (const value of piped) values.push(this.#checked(value, parameter(words.length), node));
    for (const value of values) this.#step(node, sizeOfValue(value) / STEP_TAKES);
    const refuse = () => refuseCall(sourceOf(words[0] ?? node), values[0] ?? null);
    return this.#invoke(node, name, () => (body ? body.call(...values) : refuse()));
  }

  /** `and` and `or` answer the first operand that decides, and evaluate none after it. */
  #shortCircuit(dot: Value, decisive: boolean, { words, piped }: FunctionCall): Value {
    let value: Value;
    for (const word of words) {
      value = this.#argument(dot, word, "any");
      if (isTrue(value) === decisive) return value;
    }
    return piped.length > 0 ? piped[0] : value;
  }

  #invoke(node: Command | Expression, name: string, work: () => TemplateValue): Value {
    let value: TemplateValue;
    try {
      value = work();
    } catch (error) {
      throw this.#failure(node, `error calling ${name}: ${messageOf(error)}`, error);
    }
    this.#step(node, sizeOfValue(value) / STEP_MAKES);
    if (typeof value !== "string" || value.length <= TEXT_LIMIT) return value;
    throw this.#failure(node, `error calling ${name}: the result has more than ${TEXT_LIMIT} bytes`);
  }

  #argument(dot: Value, node: Expression, parameter: Parameter): TemplateValue {
    if (node.kind === "nil") {
      if (parameter === "any") return null;
      throw this.#failure(node, `cannot assign nil to ${parameter}`);
    }
    if (parameter === "int" && node.kind === "number" && node.integer !== undefined) return node.integer;
    const isLiteral = node.kind === "bool" || node.kind === "string" || node.kind === "number";
    if (!isLiteral || parameter === "any" || parameter === node.kind)
      return this.#checked(this.#value(dot, node), parameter, node);
    const [source, wanted] = [sourceOf(node), parameter === "int" ? "integer" : parameter];
    const isList = parameter === "[]string";
    throw this.#failure(node, isList ? `can't handle ${source} for arg of type []string` : `expected ${wanted}; found ${source}`);
  }

  #checked(value: Value, parameter: Parameter, node: Command | Expression): TemplateValue {
    const argument = argumentFor(value, parameter);
    if (argument instanceof Error) throw this.#failure(node, argument.message);
    return argument;
  }
}
