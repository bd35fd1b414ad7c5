import { decodeUtf8 } from "../../core/plain-text.ts";
import { goTypeName, type TemplateFunction, type TemplateValue, typed, variadic } from "./funcs.ts";
import { isPrintable } from "./literal.ts";
import { sprint, sprintf, sprintln } from "./print.ts";

/** Go's notion of truth: not the zero of its type, not nil, not empty; a struct always. */
export function isTrue(value: TemplateValue | undefined): boolean {
  if (value === null || value === undefined) return false;
  if (typeof value === "number") return value !== 0;
  if (typeof value === "string" || Array.isArray(value)) return value.length > 0;
  return typeof value === "object" || Boolean(value);
}

/** Go's functions that are not plain calls: `and` and `or` evaluate no more operands than they need. */
export const SPECIAL_FORMS: ReadonlySet<string> = new Set(["and", "or", "call"]);

/** Go's other functions. */
export const BUILTINS: Readonly<Record<string, TemplateFunction>> = {
  not: typed(["any"], (value) => !isTrue(value)),
  eq: variadic(["any"], (first, ...others) => {
    if (others.length === 0) throw new Error("missing argument for comparison");
    return others.some((other) => equals(first, other));
  }),
  ne: typed(["any", "any"], (a, b) => !equals(a, b)),
  lt: typed(["any", "any"], isLess),
  le: typed(["any", "any"], (a, b) => isLess(a, b) || equals(a, b)),
  gt: typed(["any", "any"], (a, b) => !(isLess(a, b) || equals(a, b))),
  ge: typed(["any", "any"], (a, b) => !isLess(a, b)),
  len: typed(["any"], lengthOfValue),
  index: variadic(["any"], elementOf),
  slice: variadic(["any"], sliceOf),
  print: variadic([], (...values) => sprint(values)),
  printf: variadic(["string"], (format, ...values) => sprintf(format, values)),
  println: variadic([], (...values) => sprintln(values)),
  html: variadic([], (...values) => escapeHtml(shownOperands(values))),
  js: variadic([], (...values) => escapeJs(shownOperands(values))),
  urlquery: variadic([], (...values) => escapeQuery(shownOperands(values))),
};

/** Go's `call` of the value that `name` stands for. No value of a template is a function, so that it always fails. */
export function refuseCall(name: string, value: TemplateValue): never {
  throw new Error(value === null ? "call of nil" : `non-function ${name} of type ${goTypeName(value)}`);
}

function equals(a: TemplateValue, b: TemplateValue): boolean {
  if (a === null || b === null) return a === b;
  for (const value of [a, b]) if (typeof value === "object") throw new Error(`non-comparable type ${goTypeName(value)}`);
  if (typeof a === typeof b) return a === b;
  throw new Error("incompatible types for comparison");
}

function isLess(a: TemplateValue, b: TemplateValue): boolean {
  if (typeof a === "string" && typeof b === "string") return Buffer.compare(Buffer.from(a), Buffer.from(b)) < 0;
  if (typeof a === "bigint" && typeof b === "bigint") return a < b;
  if (typeof a === "number" && typeof b === "number") return a < b;
  const isBasic = (value: TemplateValue) => typeof value !== "object";
  const differ = isBasic(a) && isBasic(b) && typeof a !== typeof b;
  throw new Error(`${differ ? "incompatible types" : "invalid type"} for comparison`);
}

function lengthOfValue(value: TemplateValue): bigint {
  if (value === null) throw new Error("len of nil pointer");
  if (typeof value === "string") return BigInt(Buffer.byteLength(value));
  if (Array.isArray(value)) return BigInt(value.length);
  throw new Error(`len of type ${goTypeName(value)}`);
}

function elementOf(value: TemplateValue, ...indexes: TemplateValue[]): TemplateValue {
  if (value === null) throw new Error("index of untyped nil");
  return indexes.reduce(elementAt, value);
}

function elementAt(value: TemplateValue, index: TemplateValue): TemplateValue {
  if (value === null) throw new Error("index of untyped nil");
  const items: ArrayLike<TemplateValue | number> | undefined =
    typeof value === "string" ? Buffer.from(value) : Array.isArray(value) ? value : undefined;
  if (!items) throw new Error(`can't index item of type ${goTypeName(value)}`);
  const item = items[indexOf(index, items.length - 1)] ?? null;
  return typeof value === "string" ? BigInt(item as number) : item;
}

function indexOf(index: TemplateValue, last: number): number {
  if (index === null) throw new Error("cannot index slice/array with nil");
  if (typeof index !== "bigint") throw new Error(`cannot index slice/array with type ${goTypeName(index)}`);
  if (index < 0n || index > BigInt(last)) throw new Error(`index out of range: ${index}`);
  return Number(index);
}

function sliceOf(value: TemplateValue, ...indexes: TemplateValue[]): TemplateValue {
  if (value === null) throw new Error("slice of untyped nil");
  if (indexes.length > 3) throw new Error(`too many slice indexes: ${indexes.length}`);
  if (typeof value === "string" && indexes.length === 3) throw new Error("cannot 3-index slice a string");
  const items = typeof value === "string" ? Buffer.from(value) : Array.isArray(value) ? value : undefined;
  if (!items) throw new Error(`can't slice item of type ${goTypeName(value)}`);
  const [from = 0, to = items.length, most = to] = indexes.map((index) => indexOf(index, items.length));
  if (from > to) throw new Error(`invalid slice index: ${from} > ${to}`);
  if (to > most) throw new Error(`invalid slice index: ${to} > ${most}`);
  const part = items.slice(from, to);
  const text = Buffer.isBuffer(part) ? decodeUtf8(part) : part;
  if (text === undefined) throw new Error("the slice would cut a character in two");
  return text;
}

/** The operands as `print` shows them, but nil as `<no value>`. */
function shownOperands(values: TemplateValue[]): string {
  return sprint(values.map((value) => value ?? "<no value>"));
}

const HTML: Readonly<Record<string, string>> = { '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;" };

function escapeHtml(text: string): string {
  return text.replace(/[\0"'&<>]/g, (character) => HTML[character] ?? "\ufffd");
}

function escapeJs(text: string): string {
  return text.replace(/[\\'"<>&=]|[^ -~]/gu, (character) => {
    if (/[\\'"]/.test(character)) return `\\${character}`;
    if (character === "\x7f" || (character > "\x7f" && isPrintable(character))) return character;
    return `\\u${(character.codePointAt(0) as number).toString(16).toUpperCase().padStart(4, "0")}`;
  });
}

function escapeQuery(text: string): string {
  const encoded = encodeURIComponent(text.toWellFormed()).replaceAll("%20", "+");
  return encoded.replace(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}
