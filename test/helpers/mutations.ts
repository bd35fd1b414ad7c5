// Finds the places of a source where a small change should make a test fail, with the changed text and its kind.
import type { AnyNode } from "acorn";
import { childrenOf, syntaxOf } from "./syntax.ts";

/** What a mutant takes away. All kinds but `other` are protected: tests must notice every mutant of these. */
export type Kind = "guard" | "check" | "flush" | "clean-up" | "other";

/** One change to one source. */
export interface Mutation {
  start: number;
  end: number;
  becomes: string;
  kind: Kind;
}

type Branch = Extract<AnyNode, { type: "IfStatement" }>;

/** The protected kinds of calls, by the last part of the name that is called; the first match counts. */
const CALLS: [Kind, RegExp][] = [
  ["flush", /^(?:sync$|f(?:data)?sync|flush|writeFlushed)/],
  ["check", /^(?:check|assert|require|ensure|verify|validate|refuse|reject|forbid|demand|expect|throw)/i],
  [
    "clean-up",
    /^(?:close|remove|release|clear|rm|unlink|kill|end|destroy|dispose|delete|abort|stop|forget|discard|free|cancel|reset|drop|leave$|off$)/i,
  ],
];
const SWAPS: Record<string, string> = {
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
  "===": "!==",
  "!==": "===",
  "&&": "||",
  "||": "&&",
  "+": "-",
  "-": "+",
};
/** Before a time in milliseconds or a number of bytes. It becomes nought: one more or less is nothing that a test could see. */
const AMOUNT = /(?:_MS|Ms|_BYTES|Bytes)\s*[=:]\s*$/;
/** A number from this one on becomes nought too. */
const LARGE = 1_000;
const LEAVES = new Set(["ReturnStatement", "ThrowStatement", "ContinueStatement", "BreakStatement"]);

/** Every mutation of a TypeScript source, in the order of its text. */
export function mutationsOf(source: string): Mutation[] {
  const { text, program } = syntaxOf(source);
  const found: Mutation[] = [];
  const visit = (node: AnyNode, parent: AnyNode) => {
    found.push(...changes(node, parent, text));
    for (const child of childrenOf(node)) visit(child, node);
  };
  visit(program, program);
  return found.sort((a, b) => a.start - b.start || a.end - b.end);
}

function changes(node: AnyNode, parent: AnyNode, text: string): Mutation[] {
  const put = (at: AnyNode, becomes: string, kind: Kind = "other") => {
    return { start: at.start, end: at.end, becomes, kind };
  };
  const not = (test: AnyNode) => put(test, `!(${text.slice(test.start, test.end)})`);
  switch (node.type) {
    case "IfStatement":
      return [put(node.test, "true"), put(node.test, "false", kindOf(node)), not(node.test)];
    case "ConditionalExpression":
      return [not(node.test)];
    case "WhileStatement":
      return [put(node.test, "false")];
    case "ExpressionStatement":
      return callOf(node) ? [put(node, ";", kindOf(node))] : [];
    case "ThrowStatement":
      return parent.type === "IfStatement" ? [] : [put(node, ";", "check")];
    case "TryStatement":
      return node.finalizer ? [put(node.finalizer, "{}", "clean-up")] : [];
    case "BinaryExpression":
    case "LogicalExpression":
      return swapped(node, text);
    case "UnaryExpression":
      return node.operator === "!" && parent.type !== "IfStatement"
        ? [put(node, text.slice(node.argument.start, node.argument.end))]
        : [];
    case "Literal":
      return literals(node, text).map((becomes) => put(node, becomes));
    case "ArrayExpression":
      return node.elements.flatMap((entry) => (entry ? [without(entry, text)] : []));
    case "ObjectExpression":
      return node.properties.map((entry) => without(entry, text));
    default:
      return [];
  }
}

function swapped(node: Extract<AnyNode, { operator: string; left: unknown }>, text: string): Mutation[] {
  const becomes = SWAPS[node.operator];
  if (!becomes) return [];
  const start = text.indexOf(node.operator, node.left.end);
  return [{ start, end: start + node.operator.length, becomes, kind: "other" }];
}

/** What a number, a truth or a pattern may become. */
function literals(node: Extract<AnyNode, { type: "Literal" }>, text: string): string[] {
  const { value, raw = "" } = node;
  if (typeof value === "boolean") return [String(!value)];
  if (typeof value === "number") {
    if (value >= LARGE || (value >= 10 && AMOUNT.test(text.slice(0, node.start)))) return ["0"];
    return value === 0 ? ["1"] : [String(value + 1), String(value - 1)];
  }
  if (!node.regex) return [];
  const wider = raw.replace(/(\{(?:\d+,)?)(\d+)\}/, (_, before, most) => `${before}${Number(most) + 1}}`);
  return [wider, raw.replace(/^\/\^/, "/"), raw.replace(/\$(?=\/[a-z]*$)/, "")].filter((one) => one !== raw);
}

/** An entry of a list or of options goes, with the comma after it. */
function without(entry: AnyNode, text: string): Mutation {
  const comma = /^\s*,/.exec(text.slice(entry.end));
  return { start: entry.start, end: entry.end + (comma?.[0].length ?? 0), becomes: "", kind: "other" };
}

/** The kind of a statement that is taken away. An `if` that throws is a check, one that leaves is a guard. */
function kindOf(node: AnyNode): Kind {
  if (node.type === "IfStatement") return node.alternate ? "other" : kindOfBody(node);
  const name = nameOf(callOf(node));
  return CALLS.find(([, names]) => names.test(name))?.[0] ?? "other";
}

function kindOfBody({ consequent }: Branch): Kind {
  const body = consequent.type === "BlockStatement" ? consequent.body : [consequent];
  const last = body.at(-1);
  if (last && LEAVES.has(last.type)) return last.type === "ThrowStatement" ? "check" : "guard";
  return body.length === 1 && last ? kindOf(last) : "other";
}

/** The call that a statement consists of, behind `await` and `void`. */
function callOf(node: AnyNode): Extract<AnyNode, { type: "CallExpression" }> | undefined {
  if (node.type === "ExpressionStatement" || node.type === "ChainExpression") return callOf(node.expression);
  if (node.type === "AwaitExpression" || node.type === "UnaryExpression") return callOf(node.argument);
  return node.type === "CallExpression" && node.callee.type !== "Super" ? node : undefined;
}

function nameOf(call: ReturnType<typeof callOf>): string {
  const callee = call?.callee;
  if (callee?.type === "Identifier") return callee.name;
  if (callee?.type !== "MemberExpression") return "";
  return "name" in callee.property ? callee.property.name : "";
}
