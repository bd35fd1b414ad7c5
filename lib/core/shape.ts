import type { Problem } from "./errors.ts";
import { misspelt, nearest } from "./nearest.ts";

/** A JSON Schema fragment; the same shapes that check input describe it in openapi.yaml. */
export type Schema = Record<string, unknown>;

/** Receives what is wrong. A `warning` does not make the value unusable; an `unknown` key is an error, but in an answer. */
export type Report = (path: string, message: string, severity?: "error" | "warning" | "unknown") => void;

/** Turns an unknown value into a typed one. After an error was reported the returned value must not be used. */
export interface Shape<T> {
  readonly schema: Schema;
  check(value: unknown, path: string, report: Report): T;
  /** Present when the field may be missing: the value it then has. */
  readonly absent?: () => T;
}

/** The type that a shape yields. */
export type Infer<S> = S extends Shape<infer T> ? T : never;

/** The outcome of a check: the value where there are no problems. */
export type Checked<T> = { ok: true; value: T; warnings: Problem[] } | { ok: false; problems: Problem[]; warnings: Problem[] };

const MOST_PROBLEMS = 100;

/**
 * Checks a value against a shape and collects the problems, at most 100, each with its path (`a/b/0`, empty for the
 * whole); likewise the warnings. An answer may come from a newer version: keys that are unknown are no problem there.
 */
export function check<T>(shape: Shape<T>, value: unknown, { isAnswer = false } = {}): Checked<T> {
  const problems: Problem[] = [];
  const warnings: Problem[] = [];
  const result = shape.check(value, "", (path, message, severity = "error") => {
    if (severity === "unknown" && isAnswer) return;
    const found = severity === "warning" ? warnings : problems;
    if (found.length < MOST_PROBLEMS) found.push({ path, message });
  });
  return problems.length === 0 ? { ok: true, value: result, warnings } : { ok: false, problems, warnings };
}

/** The value of a text of JSON; undefined for any other text. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The value of a text of JSON that has this shape; undefined for any other text. */
export function valueIn<T>(shape: Shape<T>, text: string): T | undefined {
  const checked = check(shape, parsedJson(text));
  return checked.ok ? checked.value : undefined;
}

/** The type of a JSON value in words. A float or date of TOML stands for itself. */
export function typeName(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return isObject(value) ? "an object" : String(value);
  if (typeof value === "number") return Number.isInteger(value) ? "an integer" : "a number";
  return `a ${typeof value}`;
}

/** Joins a path and a key; a key that would not read as one part of a path is put in quotes. */
export function join(path: string, key: string | number): string {
  const part = typeof key === "number" || /^[^\s/"\p{C}]{1,100}$/u.test(key) ? key : quote(key);
  return path === "" ? String(part) : `${path}/${part}`;
}

/** A string; `pattern` must match as a whole and is explained by `means`. Lengths count UTF-16 units. */
export function string(rule: { pattern?: RegExp; means?: string; max?: number; min?: number } = {}): Shape<string> {
  return {
    schema: definedKeys({ type: "string", pattern: rule.pattern?.source, maxLength: rule.max, minLength: rule.min }),
    check(value, path, report) {
      if (typeof value !== "string") report(path, `expected a string, found ${typeName(value)}`);
      else if (rule.min !== undefined && value.length < rule.min)
        report(path, rule.min === 1 ? "must not be empty" : `must have at least ${rule.min} characters`);
      else if (rule.max !== undefined && value.length > rule.max) report(path, `must have at most ${rule.max} characters`);
      else if (rule.pattern && value.match(rule.pattern)?.[0] !== value)
        report(path, `expected ${rule.means ?? `text that matches ${rule.pattern}`}, found ${quote(value)}`);
      return value as string;
    },
  };
}

/** True for what people say about something: one line of at most 200 characters that is not blank. */
export function isNote(text: string): boolean {
  return /^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u.test(text) && /\S/.test(text);
}

/** One of a fixed list of strings. */
export function oneOf<const T extends string>(...names: T[]): Shape<T> {
  return {
    schema: { type: "string", enum: names },
    check(value, path, report) {
      if (!names.includes(value as T)) report(path, `expected one of ${names.join(", ")}, found ${show(value)}`);
      return value as T;
    },
  };
}

/** A whole number within bounds (both inclusive). */
export function integer(rule: { min?: number; max?: number } = {}): Shape<number> {
  return {
    schema: definedKeys({ type: "integer", minimum: rule.min, maximum: rule.max }),
    check(value, path, report) {
      if (typeof value !== "number" || !Number.isSafeInteger(value)) report(path, `expected an integer, found ${show(value)}`);
      else if ((rule.min !== undefined && value < rule.min) || (rule.max !== undefined && value > rule.max))
        report(path, `expected a number ${bounds(rule)}, found ${value}`);
      return value as number;
    },
  };
}

function bounds(rule: { min?: number; max?: number }): string {
  if (rule.max === undefined) return `of at least ${rule.min}`;
  return rule.min === undefined ? `of at most ${rule.max}` : `from ${rule.min} to ${rule.max}`;
}

/** `true` or `false`. */
export function boolean(): Shape<boolean> {
  return {
    schema: { type: "boolean" },
    check(value, path, report) {
      if (typeof value !== "boolean") report(path, `expected true or false, found ${show(value)}`);
      return value as boolean;
    },
  };
}

/** A list of one kind of item, at most `max` of them. */
export function list<T>(item: Shape<T>, rule: { max?: number; min?: number } = {}): Shape<T[]> {
  return {
    schema: definedKeys({ type: "array", items: item.schema, maxItems: rule.max, minItems: rule.min }),
    check(value, path, report) {
      if (!Array.isArray(value)) {
        report(path, `expected a list, found ${typeName(value)}`);
        return [];
      }
      if (rule.max !== undefined && value.length > rule.max)
        report(path, `expected at most ${rule.max} items, found ${value.length}`);
      if (rule.min !== undefined && value.length < rule.min)
        report(path, `expected at least ${rule.min} ${rule.min === 1 ? "item" : "items"}, found ${value.length}`);
      return value.map((entry, index) => item.check(entry, join(path, index), report));
    },
  };
}

/** An object whose keys are free (but match `key`) and whose values are of one kind. */
export function record<T>(value: Shape<T>, rule: { key?: RegExp; means?: string } = {}): Shape<Record<string, T>> {
  return {
    schema: definedKeys({
      type: "object",
      additionalProperties: value.schema,
      propertyNames: rule.key && { pattern: rule.key.source },
    }),
    check(input, path, report) {
      if (!isObject(input)) {
        report(path, `expected an object, found ${typeName(input)}`);
        return {};
      }
      const result: Record<string, T> = Object.create(null);
      for (const [key, entry] of Object.entries(input)) {
        if (rule.key && !rule.key.test(key)) report(join(path, key), `expected ${rule.means ?? rule.key} as name`);
        result[key] = value.check(entry, join(path, key), report);
      }
      return result;
    },
  };
}

/** A schema without the keys that a rule leaves undefined. */
function definedKeys(schema: Schema): Schema {
  return Object.fromEntries(Object.entries(schema).filter(([, value]) => value !== undefined));
}

type Fields = Record<string, Shape<unknown>>;
type ObjectOf<F extends Fields> = { [K in keyof F]: Infer<F[K]> };

/** How an object treats unknown keys and combinations of keys. */
interface ObjectRule {
  /**
   * `refuse` (default) makes an unknown key an error, `warn` a warning, `judge` an error where it misspells a known
   * key, else a warning; all name the nearest known key.
   */
  unknown?: "refuse" | "warn" | "judge";
  /** Keys compare without case and `null` means absent, as Go's JSON reads the files of a workspace. */
  lenient?: boolean;
  /** Older names of fields: each is accepted with a warning. */
  aliases?: Record<string, string>;
  /** Pairs of fields of which only one may be given. */
  exclusive?: readonly (readonly [string, string])[];
  /** Pairs of truth values of which the first may only be true where the second is. */
  needs?: readonly (readonly [string, string])[];
  /** A field beside which all others are as if they were not given. */
  alone?: string;
}

/** The names of an object's fields, and how it treats all others. */
interface KnownKeys {
  names: readonly string[];
  rule: ObjectRule;
}

/** An object with the given fields; a field without `absent` is required. */
export function object<F extends Fields>(fields: F, rule: ObjectRule = {}): Shape<ObjectOf<F>> {
  const names = Object.keys(fields);
  const required = names.filter((name) => fields[name]?.absent === undefined);
  const others = names.filter((name) => name !== rule.alone);
  const alone = rule.alone === undefined ? [] : others.map((name) => [name, rule.alone]);
  const exclusive = [...(rule.exclusive ?? []), ...alone];
  return {
    schema: {
      type: "object",
      properties: Object.fromEntries([
        ...Object.entries(fields).map(([name, shape]) => [name, shape.schema]),
        ...Object.entries(rule.aliases ?? {}).map(([older, name]) => [older, { ...fields[name]?.schema, deprecated: true }]),
      ]),
      ...(required.length > 0 && { required }),
      additionalProperties: rule.unknown === "warn",
      ...(exclusive.length > 0 && { allOf: exclusive.map((pair) => ({ not: { required: pair } })) }),
    },
    check(value, path, report) {
      // What is no object counts as an empty one: whoever checks further finds the values of absent fields.
      const isGiven = isObject(value);
      if (!isGiven) report(path, `expected an object, found ${typeName(value)}`);
      const given = recognise(isGiven ? value : {}, { names, rule }, path, report);
      const isSaid = (name: string) => given.has(name) && given.get(name) !== fields[name]?.absent?.();
      for (const [one, other] of rule.exclusive ?? [])
        if (isSaid(one) && isSaid(other)) report(join(path, other), `excludes ${one}: give one of the two`);
      const result: Record<string, unknown> = {};
      for (const [name, shape] of Object.entries(fields)) {
        const found = given.get(name);
        if (found !== undefined) result[name] = shape.check(found, join(path, name), report);
        else if (shape.absent) result[name] = shape.absent();
        else if (isGiven) report(join(path, name), "is missing");
      }
      if (rule.alone !== undefined && given.has(rule.alone))
        for (const name of given.keys())
          if (name !== rule.alone && isSaid(name)) report(join(path, name), `excludes ${rule.alone}: give one of the two`);
      for (const [one, other] of rule.needs ?? [])
        if (result[one] === true && result[other] !== true) report(join(path, one), `goes only with ${other}`);
      return result as ObjectOf<F>;
    },
  };
}

/** The given fields under their present names, which go before older ones; reports older names and unknown keys. */
function recognise(value: object, { names, rule }: KnownKeys, path: string, report: Report): Map<string, unknown> {
  const aliases = new Map(Object.entries(rule.aliases ?? {}));
  const given = new Map<string, unknown>();
  const said = Object.entries(value).filter(([, entry]) => entry !== undefined && !(rule.lenient && entry === null));
  const inCase = (key: string) => (rule.lenient ? key.toLowerCase() : key);
  const keys = new Set(said.map(([key]) => inCase(key)));
  for (const [key, entry] of said) {
    const alias = aliases.get(inCase(key));
    const isBoth = alias !== undefined && keys.has(alias);
    const counts = isBoth ? ", which is there too and counts" : "";
    if (alias !== undefined) report(join(path, key), `is an older name of ${alias}${counts}`, "warning");
    const name = alias ?? names.find((one) => inCase(one) === inCase(key));
    if (name !== undefined && !isBoth) given.set(name, entry);
    else if (name === undefined) reportUnknown(key, { names: [...names, ...aliases.keys()], rule }, path, report);
  }
  return given;
}

function reportUnknown(key: string, { names, rule }: KnownKeys, path: string, report: Report): void {
  const { unknown = "refuse", aliases = {} } = rule;
  const meant = unknown === "judge" ? misspelt(key, names) : undefined;
  const close = meant ?? nearest(key, names);
  const hint = close === undefined ? "" : `; did you mean ${quote(aliases[close] ?? close)}?`;
  const mistake = meant === undefined ? "warning" : "error";
  report(join(path, key), `is not a known field${hint}`, unknown === "refuse" ? "unknown" : mistake);
}

/** A value of this shape, or null. */
export function nullable<T>(shape: Shape<T>): Shape<T | null> {
  return {
    schema: { anyOf: [shape.schema, { type: "null" }] },
    check: (value, path, report) => (value === null ? null : shape.check(value, path, report)),
  };
}

/** The field may be missing; then it is `undefined`. */
export function optional<T>(shape: Shape<T>): Shape<T | undefined> {
  return { ...shape, absent: () => undefined };
}

/** The field may be missing; then it has this value. */
export function withDefault<T>(shape: Shape<T>, value: T): Shape<T> {
  const isShared = typeof value === "object";
  const absent = () => (isShared ? structuredClone(value) : value);
  return { ...shape, schema: { ...shape.schema, default: value }, absent };
}

/** The same as {@link withDefault} for a value whose checked form is not what a file would hold. */
export function otherwise<T>(shape: Shape<T>, value: T): Shape<T> {
  return { ...withDefault(shape, value), schema: shape.schema };
}

/** The same shape, whose value `take` checks further and converts. */
export function refined<T, U>(shape: Shape<T>, take: (value: T, path: string, report: Report) => U): Shape<U> {
  return { schema: shape.schema, check: (value, path, report) => take(shape.check(value, path, report), path, report) };
}

/** A shape with a description for openapi.yaml. */
export function described<T>(shape: Shape<T>, description: string): Shape<T> {
  return { ...shape, schema: { ...shape.schema, description } };
}

/** A shape with an example for openapi.yaml. */
export function withExample<T>(shape: Shape<T>, example: T): Shape<T> {
  return { ...shape, schema: { ...shape.schema, examples: [example] } };
}

/** A shape of a value that is written and never read back: what is kept of a request has a fingerprint in its place. */
export function secret<T>(shape: Shape<T>): Shape<T> {
  return { ...shape, schema: { ...shape.schema, writeOnly: true } };
}

/** A value that is checked elsewhere, or a field of an answer that only openapi.yaml describes. */
export function anything(schema: Schema = {}): Shape<unknown> {
  return { schema, check: (value) => value };
}

/** True for a JSON object, and for no instance of a class. */
export function isObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}

/** Text in double quotes, with control characters escaped and at most 100 characters of it. */
export function quote(text: string): string {
  const quoted = JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text);
  return quoted.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, escaped);
}

function escaped(character: string): string {
  return character.replace(/[\s\S]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A value in a message: text and numbers as they are, anything else by its type. */
export function show(value: unknown): string {
  return typeof value === "string" ? quote(value) : typeof value === "number" ? String(value) : typeName(value);
}
