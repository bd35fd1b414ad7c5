import type { Failure } from "../../core/errors.ts";
import type { PlacedValue } from "./json.ts";
import { TomlCursor, type TomlDate, type TomlFloat } from "./toml-lex.ts";

/** An integer is a number where a double holds it exactly, else a bigint; a float keeps how it was written. */
export type TomlValue = string | number | bigint | boolean | TomlFloat | TomlDate | TomlValue[] | TomlTable;

/** A table, without a prototype: every key is the text's own. */
export interface TomlTable {
  [key: string]: TomlValue;
}

/** Arrays and inline tables may be nested, and keys dotted, this deep. */
const MOST_TOML_LEVELS = 100;

/**
 * Reads a TOML 1.0 document; a byte order mark at its start is passed over. Throws `failed` with the line and column (in
 * characters, from 1) of whatever breaks a rule, nesting over 100 levels and unpaired surrogates included.
 */
export function parseToml(text: string): TomlTable {
  return new TomlReader(text).read();
}

/** The places of all keys of a text that {@link parseToml} accepts; of a list only its own. */
export function placesInToml(text: string): PlacedValue {
  const reader = new TomlReader(text);
  return reader.placed(reader.read(), 0);
}

/**
 * How a table was made, which decides where keys may be added: `implicit` on the way to a header, by its `header`, by a
 * `dotted` key (open to keys of the same section), or `inline` (closed).
 */
interface Origin {
  kind: "implicit" | "header" | "dotted" | "inline";
  section: TomlTable;
}

class TomlReader {
  readonly #cursor: TomlCursor;
  readonly #origins = new WeakMap<TomlTable, Origin>();
  /** The arrays that `[[…]]` made; all others are closed. */
  readonly #tableArrays = new WeakSet<TomlValue[]>();
  /** Where each key of a table stands first. */
  readonly #places = new WeakMap<TomlTable, Map<string, number>>();

  constructor(text: string) {
    this.#cursor = new TomlCursor(text);
    if (text.isWellFormed()) return;
    const lone = text.search(/\p{Surrogate}/u);
    throw this.#cursor.failure("Unicode text", "half of a surrogate pair", lone);
  }

  read(): TomlTable {
    const cursor = this.#cursor;
    const root = this.#table("header");
    let section = root;
    cursor.take("\ufeff");
    for (cursor.gap(); cursor.at < cursor.text.length; cursor.gap()) {
      if (cursor.isAt("[")) section = this.#header(root);
      else this.#pair(section, 0);
      cursor.lineEnd();
    }
    return root;
  }

  /** A table that was read, with the places of its keys. */
  placed(table: TomlTable, at: number): PlacedValue {
    const members = [...(this.#places.get(table) ?? [])].map(([key, place]) => {
      const value = table[key];
      return { key, value: isTable(value) ? this.placed(value, place) : { at: place, members: [] } };
    });
    return { at, members };
  }

  #note(table: TomlTable, key: string, at: number): void {
    const places = this.#places.get(table) ?? new Map<string, number>();
    if (!places.has(key)) this.#places.set(table, places.set(key, at));
  }

  #table(kind: Origin["kind"], section?: TomlTable): TomlTable {
    const table: TomlTable = Object.create(null);
    this.#origins.set(table, { kind, section: section ?? table });
    return table;
  }

  #header(root: TomlTable): TomlTable {
    const start = this.#cursor.at;
    const close = this.#cursor.take("[[") ? "]]" : "]";
    if (close === "]") this.#cursor.take("[");
    const key = this.#key();
    if (!this.#cursor.take(close)) throw this.#cursor.failure(`"." or "${close}"`);
    const name = key.pop() as string;
    let table = root;
    for (const part of key) table = this.#enter(table, part, start);
    const section = close === "]" ? this.#open(table, name) : this.#append(table, name);
    if (!section) throw this.#taken([...key, name], start);
    this.#note(table, name, start);
    return section;
  }

  /** The table that a part of a header leads to: the last one of an array of tables. */
  #enter(table: TomlTable, part: string, start: number): TomlTable {
    this.#note(table, part, start);
    table[part] ??= this.#table("implicit");
    const found = table[part];
    const next = Array.isArray(found) && this.#tableArrays.has(found) ? found.at(-1) : found;
    if (isTable(next) && this.#origins.get(next)?.kind !== "inline") return next;
    throw this.#taken([part], start);
  }

  #open(table: TomlTable, name: string): TomlTable | undefined {
    table[name] ??= this.#table("implicit");
    const found = table[name];
    const origin = isTable(found) ? this.#origins.get(found) : undefined;
    if (!isTable(found) || origin?.kind !== "implicit") return undefined;
    origin.kind = "header";
    return found;
  }

  #append(table: TomlTable, name: string): TomlTable | undefined {
    if (table[name] === undefined) {
      const array: TomlValue[] = [];
      this.#tableArrays.add(array);
      table[name] = array;
    }
    const found = table[name];
    if (!Array.isArray(found) || !this.#tableArrays.has(found)) return undefined;
    const element = this.#table("header");
    found.push(element);
    return element;
  }

  #key(): string[] {
    const parts: string[] = [];
    do {
      this.#cursor.blanks();
      const part = this.#cursor.line() ?? this.#cursor.match(/[A-Za-z0-9_-]+/y)?.[0];
      if (part === undefined) throw this.#cursor.failure("a key");
      parts.push(part);
      this.#cursor.blanks();
    } while (this.#cursor.take("."));
    if (parts.length > MOST_TOML_LEVELS) throw this.#tooDeep();
    return parts;
  }

  #pair(section: TomlTable, depth: number): void {
    const start = this.#cursor.at;
    const key = this.#key();
    if (!this.#cursor.take("=")) throw this.#cursor.failure('"." or "="');
    this.#cursor.blanks();
    const value = this.#value(depth);
    const name = key.pop() as string;
    let table = section;
    for (const part of key) {
      this.#note(table, part, start);
      table[part] ??= this.#table("dotted", section);
      const next = table[part];
      if (!isTable(next) || !this.#mayExtend(next, section)) throw this.#taken([...key, name], start);
      table = next;
    }
    if (table[name] !== undefined) throw this.#taken([...key, name], start);
    this.#note(table, name, start);
    table[name] = value;
  }

  #mayExtend(table: TomlTable, section: TomlTable): boolean {
    const origin = this.#origins.get(table);
    this.#origins.set(table, { kind: "dotted", section });
    return origin?.kind === "implicit" || (origin?.kind === "dotted" && origin.section === section);
  }

  #value(depth: number): TomlValue {
    if (depth >= MOST_TOML_LEVELS) throw this.#tooDeep();
    if (this.#cursor.take("[")) return this.#array(depth + 1);
    if (this.#cursor.take("{")) return this.#inline(depth + 1);
    return this.#cursor.string() ?? this.#cursor.scalar();
  }

  #array(depth: number): TomlValue[] {
    const values: TomlValue[] = [];
    for (this.#cursor.gap(); !this.#cursor.take("]"); this.#cursor.gap()) {
      values.push(this.#value(depth));
      this.#cursor.gap();
      if (!this.#cursor.take(",") && !this.#cursor.isAt("]")) throw this.#cursor.failure('"," or "]"');
    }
    return values;
  }

  #inline(depth: number): TomlTable {
    const table = this.#table("inline");
    this.#cursor.blanks();
    if (this.#cursor.take("}")) return table;
    do {
      this.#pair(table, depth);
      this.#cursor.blanks();
    } while (this.#cursor.take(","));
    if (!this.#cursor.take("}")) throw this.#cursor.failure('"," or "}"');
    return table;
  }

  #taken(key: string[], start: number): Failure {
    return this.#cursor.failure("a new key", `${JSON.stringify(key.join("."))}, which is defined already`, start);
  }

  #tooDeep(): Failure {
    return this.#cursor.failure(`at most ${MOST_TOML_LEVELS} levels of nesting`);
  }
}

/** True for a table, as opposed to every other value. */
export function isTable(value: TomlValue | undefined): value is TomlTable {
  return typeof value === "object" && Object.getPrototypeOf(value) === null;
}
