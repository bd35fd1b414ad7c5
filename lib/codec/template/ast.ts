import { goQuote, type NumberValue } from "./literal.ts";

/** An operand. `at` is its offset in the text, in UTF-16 units. */
export type Expression =
  | { kind: "dot"; at: number }
  | { kind: "nil"; at: number }
  | { kind: "bool"; at: number; value: boolean }
  | { kind: "string"; at: number; value: string; source: string }
  | ({ kind: "number"; at: number } & NumberValue)
  | { kind: "function"; at: number; name: string }
  | { kind: "field"; at: number; names: string[] }
  /** `$x.a.b`: the first name is the variable's, with its `$`. */
  | { kind: "variable"; at: number; names: string[] }
  | { kind: "chain"; at: number; of: Expression; names: string[] }
  | Pipeline;

/** An operand with its arguments: a function with some, or a value alone. */
export interface Command {
  kind: "command";
  at: number;
  words: Expression[];
}

/** Commands, each of which gets the value of the one before as its last argument. */
export interface Pipeline {
  kind: "pipeline";
  at: number;
  /** The variables that get the value: declared by `:=`, or assigned by `=`. */
  variables: { name: string; at: number }[];
  assigns: boolean;
  commands: Command[];
}

/** A piece of text or an action, with the statements inside it. */
export type Statement =
  | { kind: "text"; at: number; text: string }
  | { kind: "action"; at: number; pipeline: Pipeline }
  | { kind: "if" | "with"; at: number; branches: { pipeline: Pipeline; body: Statement[] }[]; otherwise?: Statement[] }
  | { kind: "range"; at: number; pipeline: Pipeline; body: Statement[]; otherwise?: Statement[] }
  | { kind: "template"; at: number; name: string; pipeline?: Pipeline }
  | { kind: "break" | "continue"; at: number };

/** The main template under its name, and the templates that `define` and `block` made. */
export type Templates = Map<string, Statement[]>;

/** `name:line:column` of an offset. */
export function position(name: string, text: string, at: number): string {
  const before = text.slice(0, at);
  const line = before.split("\n").length;
  return `${name}:${line}:${Buffer.byteLength(before.slice(before.lastIndexOf("\n") + 1))}`;
}

/** The source of an operand, command or call, as Go shows it in errors. */
export function sourceOf(node: Expression | Command | Statement): string {
  switch (node.kind) {
    case "dot":
      return ".";
    case "bool":
      return String(node.value);
    case "string":
    case "number":
      return node.source;
    case "function":
      return node.name;
    case "field":
      return `.${node.names.join(".")}`;
    case "variable":
      return node.names.join(".");
    case "chain":
      return `${grouped(node.of)}.${node.names.join(".")}`;
    case "command":
      return node.words.map(grouped).join(" ");
    case "pipeline": {
      const names = node.variables.map((variable) => variable.name).join(", ");
      const commands = node.commands.map(sourceOf).join(" | ");
      return names === "" ? commands : `${names} ${node.assigns ? "=" : ":="} ${commands}`;
    }
    case "template":
      return `{{template ${goQuote(node.name)}${node.pipeline ? ` ${sourceOf(node.pipeline)}` : ""}}}`;
    case "action":
      return `{{${sourceOf(node.pipeline)}}}`;
    default:
      return node.kind;
  }
}

function grouped(node: Expression): string {
  return node.kind === "pipeline" ? `(${sourceOf(node)})` : sourceOf(node);
}
