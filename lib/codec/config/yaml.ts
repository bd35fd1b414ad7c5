import { Failure } from "../../core/errors.ts";
import { TextFailure } from "../../core/plain-text.ts";
import { quote } from "../../core/shape.ts";
import {
  AFTER_KEY,
  BLOCK_HEADER,
  BLOCK_PLAIN,
  CONTINUED,
  DOUBLE,
  END_OF_LINE,
  FLOW_PLAIN,
  IN_DOUBLE,
  IN_SINGLE,
  KEY,
  meaningOf,
  SINGLE,
  WrittenScalar,
  YAML_ESCAPES,
} from "./yaml-lex.ts";

/** A value of a YAML document; a mapping has no prototype: every key is the text's own. */
export type YamlValue = string | number | boolean | null | WrittenScalar | YamlValue[] | { [key: string]: YamlValue };

/** For the mappings of a document: where each entry stands in its text, from the key to the end of the value. */
export type YamlPlaces = Map<YamlValue, ReadonlyMap<string, readonly [start: number, end: number]>>;

/** Lists and mappings may be nested this deep. */
const MOST_YAML_LEVELS = 100;
/** The most characters of a document. */
const MOST_YAML_CHARACTERS = 1024 * 1024;

/**
 * Reads one YAML document, as people write settings of Prometheus: block and flow lists and mappings, plain, quoted,
 * literal (`|`) and folded (`>`) text, comments. Plain words mean what YAML 1.2's core schema says, and keep how they are
 * written ({@link WrittenScalar}); an integer that a double does not hold stays text. Throws a {@link TextFailure} for whatever else is there: anchors, aliases, tags,
 * directives, a second document, the end mark `...`, a key twice, plain text over several lines in brackets, a number
 * behind `|` or `>`, deeper lines in folded text, tabs as indentation, more than 100 levels. `places` takes the places of
 * all entries in the text without a byte order mark and with `\n` as its line ends.
 */
export function parseYaml(text: string, places?: YamlPlaces): YamlValue {
  if (text.length > MOST_YAML_CHARACTERS)
    throw new Failure("failed", `it has ${text.length} characters, at most ${MOST_YAML_CHARACTERS} are read`);
  return new YamlReader(readableYaml(text), places).read();
}

/** The entries of a mapping by key. */
type Entries = Map<string, { value: YamlValue; place: readonly [start: number, end: number] }>;

/** The text that places are counted in. */
export function readableYaml(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(/^\ufeff/, "");
}

class YamlReader {
  readonly #text: string;
  readonly #places: YamlPlaces | undefined;
  #at = 0;
  #depth = 0;

  constructor(text: string, places?: YamlPlaces) {
    this.#text = text;
    this.#places = places;
  }

  read(): YamlValue {
    if (/---(?=\s|$)/y.test(this.#text)) this.#at = 3;
    const value = this.#block(-1, false);
    this.#skip();
    if (this.#at < this.#text.length) this.#fail("this belongs to nothing: look at the indentation above it");
    return value;
  }

  /** The value that stands deeper than `parent`; a list below a key may stand as deep as the key. */
  #block(parent: number, isBelowKey: boolean): YamlValue {
    this.#skip();
    const column = this.#column();
    const isList = this.#looksAt(/-(?=\s|$)/y);
    if (this.#at >= this.#text.length || column < parent || (column === parent && !(isList && isBelowKey))) return null;
    return this.#nested(() => {
      if (isList) return this.#list(column);
      if (this.#isKey()) return this.#mapping(column);
      return this.#inline(parent);
    });
  }

  #list(column: number): YamlValue[] {
    const items: YamlValue[] = [];
    do {
      this.#at++;
      items.push(this.#block(column, false));
    } while (this.#isNext(column) && this.#looksAt(/-(?=\s|$)/y));
    return items;
  }

  #mapping(column: number): YamlValue {
    const entries: Entries = new Map();
    do {
      const start = this.#at;
      if (!this.#isKey()) this.#fail("expected a key with a colon and a blank behind it");
      const key = this.#newKey(KEY, entries);
      this.#take(AFTER_KEY);
      const value = this.#looksAt(END_OF_LINE) ? this.#block(column, true) : this.#inline(column);
      entries.set(key, { value, place: [start, this.#at] });
    } while (this.#isNext(column));
    return this.#mappingOf(entries);
  }

  /** True where the next entry stands in this column. Refuses an entry that stands deeper. */
  #isNext(column: number): boolean {
    this.#skip();
    if (this.#at >= this.#text.length || this.#column() < column) return false;
    if (this.#column() > column) this.#fail("this belongs to nothing: look at the indentation above it");
    return true;
  }

  /** A value in the line of its key or dash. */
  #inline(parent: number): YamlValue {
    this.#take(/[ \t]*/y);
    const first = this.#text[this.#at] ?? "";
    if (first === "|" || first === ">") return this.#blockText(parent);
    if (!`"'[{`.includes(first)) return this.#plain(parent);
    const value = this.#flow();
    if (!this.#looksAt(END_OF_LINE)) this.#fail("nothing may follow the value in its line");
    return value;
  }

  /** Plain text, with the deeper lines that continue it. */
  #plain(parent: number): YamlValue {
    let text = this.#word(BLOCK_PLAIN);
    for (;;) {
      if (!this.#looksAt(END_OF_LINE)) this.#fail('": " in text needs quotes around it');
      const [next, blank = "", indent = ""] = this.#peek(/\n((?:[ \t]*\n)*)( *)(?=[^ \t\n#])/y) ?? [];
      if (next === undefined || indent.length <= parent) return meaningOf(text);
      this.#at += next.length;
      const breaks = blank.split("\n").length - 1;
      text += (breaks === 0 ? " " : "\n".repeat(breaks)) + this.#word(CONTINUED);
    }
  }

  /** Literal (`|`) or folded (`>`) text: the lines that stand deeper than `parent`, as deep as the first of them. */
  #blockText(parent: number): string {
    const isFolded = this.#text[this.#at] === ">";
    const [, chomping] = this.#take(BLOCK_HEADER, "expected the end of the line after | or >, which take + or - only");
    const lines: string[] = [];
    let indent: number | undefined;
    while (this.#at < this.#text.length) {
      const [line] = this.#peek(/[^\n]*/y) as RegExpExecArray;
      const blanks = line.search(/[^ ]|$/);
      if (blanks < line.length) {
        indent ??= blanks;
        if (blanks < indent || blanks <= parent) break;
        if (isFolded && blanks > indent) this.#fail("a line of text behind > stands deeper than the first: use |");
      }
      lines.push(line.slice(indent ?? blanks));
      this.#at = Math.min(this.#at + line.length + 1, this.#text.length);
    }
    const body = lines.join("\n").replace(/\n*$/, "");
    const said = isFolded ? body.replace(/(?<=[^\n])\n(\n*)/g, (_, more: string) => more || " ") : body;
    if (chomping === "-") return said;
    const ends = lines.length - body.split("\n").length + 1;
    return said + "\n".repeat(chomping === "+" ? ends : Math.min(body.length, 1));
  }

  /** Quoted text, or a list or mapping in brackets. */
  #flow(): YamlValue {
    const first = this.#text[this.#at] ?? "";
    if (first === '"' || first === "'") return this.#quoted();
    if (first === "[") return this.#nested(() => this.#flowList());
    if (first === "{") return this.#nested(() => this.#flowMapping());
    return meaningOf(this.#word(FLOW_PLAIN));
  }

  #flowList(): YamlValue[] {
    const items: YamlValue[] = [];
    this.#between("]", () => items.push(this.#flow()));
    return items;
  }

  #flowMapping(): YamlValue {
    const entries: Entries = new Map();
    this.#between("}", () => {
      const start = this.#at;
      const key = this.#newKey(FLOW_PLAIN, entries);
      this.#skip();
      this.#take(/:/y, "expected a colon");
      this.#skip();
      const value = this.#looksAt(/[,}]/y) ? null : this.#flow();
      entries.set(key, { value, place: [start, this.#at] });
    });
    return this.#mappingOf(entries);
  }

  /** Entries with commas up to the closing bracket; a comma may follow the last one. */
  #between(end: string, entry: () => void): void {
    do {
      this.#at++;
      this.#skip();
      if (this.#text[this.#at] === end) break;
      entry();
      this.#skip();
    } while (this.#text[this.#at] === ",");
    if (this.#text[this.#at] !== end) this.#fail(`expected , or ${end}`);
    this.#at++;
  }

  #mappingOf(entries: Entries): YamlValue {
    const values = [...entries].map(([key, { value }]): [string, YamlValue] => [key, value]);
    const mapping = Object.assign(Object.create(null) as { [key: string]: YamlValue }, Object.fromEntries(values));
    this.#places?.set(mapping, new Map([...entries].map(([key, { place }]) => [key, place])));
    return mapping;
  }

  #isKey(): boolean {
    const before = this.#at;
    const [key] = this.#read(KEY) ?? this.#read(DOUBLE) ?? this.#read(SINGLE) ?? [];
    const isKey = key !== undefined && !key.includes("\n") && this.#looksAt(AFTER_KEY);
    this.#at = before;
    return isKey;
  }

  #newKey(plain: RegExp, entries: Entries): string {
    const key = /["']/.test(this.#text[this.#at] ?? "") ? this.#quoted() : this.#word(plain);
    if (entries.has(key)) this.#fail(`the key ${quote(key)} is there twice`);
    return key;
  }

  #quoted(): string {
    const pattern = this.#text[this.#at] === "'" ? SINGLE : DOUBLE;
    const [quoted] = this.#take(pattern, "the quotes are not closed");
    const text = quoted.slice(1, -1);
    if (pattern === SINGLE) return text.replace(IN_SINGLE, (found) => (found === "''" ? "'" : foldedLineEnd(found)));
    return text.replace(IN_DOUBLE, (found, ...groups) => {
      const [x, u, U, one] = groups;
      if (!found.startsWith("\\")) return foldedLineEnd(found);
      if (found.startsWith("\\\n")) return "";
      const code = Number.parseInt(x ?? u ?? U ?? "0", 16);
      const said = one === undefined && code <= 0x10ffff ? String.fromCodePoint(code) : YAML_ESCAPES[one];
      return said ?? this.#fail(`${found} is no escape that YAML has`);
    });
  }

  #word(pattern: RegExp): string {
    const why = "expected a value: text that begins with one of & * ! | > % @ ` ? or - needs quotes around it";
    return this.#take(pattern, why)[0].trimEnd();
  }

  /** Passes over blanks, comments and line ends. */
  #skip(): void {
    while (this.#read(/ +|[ \t]+(?=\n|$)|\n|(?<![^\s])#[^\n]*/y));
    if (this.#text[this.#at] === "\t") this.#fail("a tab is no indentation");
  }

  #column(): number {
    return this.#at - this.#text.lastIndexOf("\n", this.#at) - 1;
  }

  #nested<T>(work: () => T): T {
    if (++this.#depth > MOST_YAML_LEVELS) this.#fail(`nested over ${MOST_YAML_LEVELS} levels`);
    const value = work();
    this.#depth--;
    return value;
  }

  #peek(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.#text);
  }

  #looksAt(pattern: RegExp): boolean {
    return this.#peek(pattern) !== null;
  }

  #read(pattern: RegExp): RegExpExecArray | undefined {
    const found = this.#peek(pattern);
    if (!found) return undefined;
    this.#at += found[0].length;
    return found;
  }

  #take(pattern: RegExp, why = ""): RegExpExecArray {
    return this.#read(pattern) ?? this.#fail(why);
  }

  #fail(why: string): never {
    throw new TextFailure(this.#text, this.#at, why);
  }
}

/** The text for line breaks within quotes: a blank for one, and one break less for several. */
function foldedLineEnd(found: string): string {
  return found.includes("\n") ? "\n".repeat(found.split("\n").length - 2) || " " : found;
}

/** Text that needs no quotes: every YAML reader takes it for the same string. */
const SAFE_PLAIN = /^[A-Za-z/$][A-Za-z0-9_$./{}()-]*(?:,? [A-Za-z0-9_$./{}()-]+)*$/;
/** Words that some YAML readers take for a truth value or null. */
const RESERVED_WORD = /^(?:true|false|null|yes|no|on|off|y|n)$/i;

/**
 * A JSON value as block YAML 1.2, two blanks per level, keys in their order. Text is plain where that is safe and in
 * double quotes, as JSON writes it, elsewhere; a {@link WrittenScalar} is as it was. Fields that are `undefined` are left out.
 */
export function toYaml(value: unknown): string {
  return `${yamlLines(value).join("\n")}\n`;
}

function yamlLines(value: unknown): string[] {
  if (Array.isArray(value) && value.length > 0) return value.flatMap((item) => indentedBelow(yamlLines(item), "- "));
  const fields = isFilled(value) ? Object.entries(value).filter(([, entry]) => entry !== undefined) : [];
  if (fields.length > 0) return fields.flatMap(([key, entry]) => yamlField(yamlScalar(key), entry));
  return [yamlScalar(value)];
}

function yamlField(key: string, value: unknown): string[] {
  const below = yamlLines(value);
  const isEmpty = ["{}", "[]"].includes(below[0] ?? "");
  if (!isFilled(value) || isEmpty) return [`${key}: ${below[0]}`];
  return [`${key}:`, ...indentedBelow(below, "  ")];
}

/** True for an object or a list, which is written on lines of its own. */
function isFilled(value: unknown): value is object {
  return typeof value === "object" && value !== null && !(value instanceof WrittenScalar);
}

function indentedBelow(below: string[], first: string): string[] {
  return below.map((line, index) => (index === 0 ? first : "  ") + line);
}

function yamlScalar(value: unknown): string {
  if (value instanceof WrittenScalar) return String(value);
  if (typeof value !== "string") return JSON.stringify(value ?? null);
  return SAFE_PLAIN.test(value) && !RESERVED_WORD.test(value) ? value : JSON.stringify(value);
}
