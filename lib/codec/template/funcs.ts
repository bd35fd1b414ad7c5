import { goQuote } from "./literal.ts";

/** The most bytes that a template may put out, and that one string in it may have. */
export const TEXT_LIMIT = 16 * 1024 * 1024;

/**
 * What a template works on. Integers are bigint (64 bits, two's complement, exact), floats are number, null is nil, an
 * array is a list, a struct is a plain object.
 */
export type TemplateValue = string | bigint | number | boolean | null | readonly TemplateValue[] | TemplateStruct;

/** Named fields; asking for any other is an error. */
export interface TemplateStruct {
  readonly [field: string]: TemplateValue;
}

interface ParameterTypes {
  string: string;
  int: bigint;
  "[]string": readonly string[];
  any: TemplateValue;
}

/** The type of a parameter, by its name in error messages. */
export type Parameter = keyof ParameterTypes;

/**
 * A function that templates can call. Its arguments are counted and checked before the call. What it throws becomes an
 * execution error with a position.
 */
export interface TemplateFunction {
  parameters: readonly Parameter[];
  /** True where any number of further values may follow the parameters. */
  rest: boolean;
  call(...args: TemplateValue[]): TemplateValue;
}

type Arguments<P extends readonly Parameter[]> = { [I in keyof P]: ParameterTypes[P[I]] };

/** A function with these parameters. */
export function typed<const P extends readonly Parameter[]>(
  parameters: P,
  body: (...args: Arguments<P>) => TemplateValue,
): TemplateFunction {
  return { parameters, rest: false, call: body as unknown as TemplateFunction["call"] };
}

/** A function with these parameters and any number of further values. */
export function variadic<const P extends readonly Parameter[]>(
  parameters: P,
  body: (...args: [...Arguments<P>, ...TemplateValue[]]) => TemplateValue,
): TemplateFunction {
  return { parameters, rest: true, call: body as unknown as TemplateFunction["call"] };
}

/** What is wrong with the number of arguments, or undefined. */
export function miscount({ parameters, rest }: TemplateFunction, given: number): string | undefined {
  if (rest ? given >= parameters.length : given === parameters.length) return undefined;
  return `want ${rest ? "at least " : ""}${parameters.length} got ${given}`;
}

/** The argument for a parameter, or an Error that says why the value is none. */
export function argumentFor(value: TemplateValue | undefined, parameter: Parameter): TemplateValue | Error {
  if (parameter === "any") return value ?? null;
  if (value === null || value === undefined) return new Error(`invalid value; expected ${parameter}`);
  const type = goTypeName(value);
  return type === parameter ? value : new Error(`wrong type for value; expected ${parameter}; got ${type}`);
}

/** The name of a value's type, as Go names it. */
export function goTypeName(value: NonNullable<TemplateValue>): string {
  if (typeof value === "bigint") return "int";
  if (typeof value === "number") return "float64";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "string") return "string";
  if (!Array.isArray(value)) return "struct";
  return value.every((item) => typeof item === "string") ? "[]string" : "[]interface {}";
}

/** The characters of a text, the items of a list: what a call of a function costs. */
export function sizeOfValue(value: TemplateValue): number {
  return typeof value === "string" || Array.isArray(value) ? value.length : 0;
}

/** The functions of every template besides Go's own (docs/workspace.md, Templates): texts, and 64-bit integers. */
export const WORKSPACE_FUNCTIONS: Readonly<Record<string, TemplateFunction>> = {
  split: typed(["string", "string"], (text, separator) => (separator === "" ? [...text] : text.split(separator))),
  join: typed(["[]string", "string"], joinItems),
  trim: typed(["string"], trimSpace),
  upper: typed(["string"], (text) => mapCharacters(text, (character) => character.toUpperCase())),
  lower: typed(["string"], (text) => mapCharacters(text, (character) => character.toLowerCase())),
  add: typed(["int", "int"], (a, b) => BigInt.asIntN(64, a + b)),
  sub: typed(["int", "int"], (a, b) => BigInt.asIntN(64, a - b)),
  mul: typed(["int", "int"], (a, b) => BigInt.asIntN(64, a * b)),
  div: typed(["int", "int"], divide),
  min: typed(["int", "int"], (a, b) => (a < b ? a : b)),
  max: typed(["int", "int"], (a, b) => (a > b ? a : b)),
  int: typed(["any"], toInteger),
};

function joinItems(items: readonly string[], separator: string): string {
  const length = items.reduce((sum, item) => sum + item.length + separator.length, 0);
  if (length > TEXT_LIMIT + separator.length) throw new Error(`the result has more than ${TEXT_LIMIT} bytes`);
  return items.join(separator);
}

const SPACE =
  " \t\n\v\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";

/** Go's notion of white space: with U+0085, without U+FEFF. */
function trimSpace(text: string): string {
  let [start, end] = [0, text.length];
  while (start < end && SPACE.includes(text[start] as string)) start++;
  while (end > start && SPACE.includes(text[end - 1] as string)) end--;
  return text.slice(start, end);
}

/** Go maps character by character: one that would become several (`ß`) stays as it is. */
function mapCharacters(text: string, change: (character: string) => string): string {
  if (/^[\x00-\x7f]*$/.test(text)) return change(text);
  return Array.from(text, (character) => {
    const changed = change(character);
    return [...changed].length === 1 ? changed : character;
  }).join("");
}

function divide(a: bigint, b: bigint): bigint {
  if (b === 0n) throw new Error("runtime error: integer divide by zero");
  return BigInt.asIntN(64, a / b);
}

function toInteger(value: TemplateValue): bigint {
  if (typeof value === "bigint") return value;
  if (typeof value !== "string") throw new Error("int: expected string or integer");
  const text = trimSpace(value);
  const why = `strconv.Atoi: parsing ${goQuote(text)}`;
  if (!/^[+-]?[0-9]{1,4096}$/.test(text)) throw new Error(`${why}: invalid syntax`);
  const number = BigInt(text.replace("+", ""));
  if (BigInt.asIntN(64, number) !== number) throw new Error(`${why}: value out of range`);
  return number;
}
