import { formatFloat } from "../config/number.ts";
import { type TemplateStruct, type TemplateValue, typeName } from "./funcs.ts";
import { TEXT_LIMIT } from "./limits.ts";
import { isPrintable, quote } from "./quote.ts";

/** The operands in Go's default form (`%v`), with blanks between two that are not strings. */
export function sprint(values: readonly TemplateValue[]): string {
  const printer = new Printer();
  for (const [at, value] of values.entries()) {
    if (at > 0 && typeof value !== "string" && typeof values[at - 1] !== "string") printer.write(" ");
    printer.value(value, "v", true);
  }
  return printer.text();
}

/** The operands in Go's default form with blanks between them, and a line end. */
export function sprintln(values: readonly TemplateValue[]): string {
  const printer = new Printer();
  for (const [at, value] of values.entries()) {
    if (at > 0) printer.write(" ");
    printer.value(value, "v", true);
  }
  printer.write("\n");
  return printer.text();
}

/** What stands between `%` and the verb. `plusV` and `sharpV` are `+` and `#` before the verb v. */
export interface Flags {
  minus?: boolean;
  plus?: boolean;
  sharp?: boolean;
  space?: boolean;
  zero?: boolean;
  plusV?: boolean;
  sharpV?: boolean;
  width?: number | undefined;
  precision?: number | undefined;
}

/** Collects output of at most {@link TEXT_LIMIT} bytes, formatting values by the current flags. */
export class Printer {
  flags: Flags = {};
  readonly #parts: string[] = [];
  #size = 0;

  text(): string {
    return this.#parts.join("");
  }

  write(text: string): void {
    this.#size += Buffer.byteLength(text);
    if (this.#size > TEXT_LIMIT) throw new Error(`the result has more than ${TEXT_LIMIT} bytes`);
    this.#parts.push(text);
  }

  value(value: TemplateValue, verb: string, top = false): void {
    if (verb === "T" && top && value !== null) this.#string(typeName(value), "s");
    else if (value === null) this.#nil(verb, top);
    else if (typeof value === "boolean") this.#boolean(value, verb);
    else if (typeof value === "bigint") this.#integer(value, verb);
    else if (typeof value === "number") this.#float(value, verb);
    else if (typeof value === "string") this.#string(value, verb);
    else if (typeof value === "function") this.#bad(value, verb, "func");
    else if (Array.isArray(value)) this.#list(value, verb);
    else this.#record(value as TemplateStruct, verb);
  }

  #nil(verb: string, top: boolean): void {
    if (top && verb !== "v" && verb !== "T") this.write(`%!${verb}(<nil>)`);
    else if (top) this.#pad("<nil>");
    else this.write(this.flags.sharpV ? "interface {}(nil)" : "<nil>");
  }

  #bad(value: TemplateValue, verb: string, shown?: string): void {
    this.write(`%!${verb}(${typeName(value)}=`);
    if (shown === undefined) this.value(value, "v");
    else this.write(shown);
    this.write(")");
  }

  #list(items: readonly TemplateValue[], verb: string): void {
    const { sharpV } = this.flags;
    this.write(sharpV ? `${typeName(items)}{` : "[");
    for (const [at, item] of items.entries()) {
      if (at > 0) this.write(sharpV ? ", " : " ");
      this.value(item, verb);
    }
    this.write(sharpV ? "}" : "]");
  }

  #record(value: ReadonlyMap<string, TemplateValue> | TemplateStruct, verb: string): void {
    const isMap = value instanceof Map;
    const { sharpV, plusV } = this.flags;
    const entries: [string, TemplateValue][] = isMap ? sortedEntries(value) : Object.entries(value);
    this.write(sharpV ? `${typeName(value)}{` : isMap ? "map[" : "{");
    for (const [at, [key, item]] of entries.entries()) {
      if (at > 0) this.write(sharpV ? ", " : " ");
      if (isMap) this.value(key, verb);
      else if (plusV || sharpV) this.write(key);
      if (isMap || plusV || sharpV) this.write(":");
      this.value(item, verb);
    }
    this.write(sharpV || !isMap ? "}" : "]");
  }

  #boolean(value: boolean, verb: string): void {
    if (verb === "t" || verb === "v") this.#pad(String(value));
    else this.#bad(value, verb);
  }

  #string(value: string, verb: string): void {
    const { precision, sharp, sharpV, plus } = this.flags;
    const text = precision === undefined ? value : [...value].slice(0, precision).join("");
    if (verb === "x" || verb === "X") this.#pad(this.#bytes(value, verb));
    else if (verb === "s" || (verb === "v" && !sharpV)) this.#pad(text);
    else if (verb === "q" || verb === "v") {
      const raw = sharp && !/[\x00-\x08\n-\x1f\x7f`\ufeff]/.test(text);
      this.#pad(raw ? `\`${text}\`` : quote(text, plus));
    } else this.#bad(value, verb);
  }

  #bytes(value: string, verb: "x" | "X"): string {
    const { precision, sharp, space } = this.flags;
    const bytes = Buffer.from(value).subarray(0, precision);
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0"));
    const pairs = verb === "X" ? hex.map((pair) => pair.toUpperCase()) : hex;
    const mark = sharp && bytes.length > 0 ? `0${verb}` : "";
    return space ? pairs.map((pair) => mark + pair).join(" ") : mark + pairs.join("");
  }

  #integer(value: bigint, verb: string): void {
    const unsigned = BigInt.asUintN(64, value);
    const valid = unsigned <= 0x10ffffn && !(unsigned >= 0xd800n && unsigned <= 0xdfffn);
    const character = valid ? String.fromCodePoint(Number(unsigned)) : "\ufffd";
    const base = BASES[verb];
    if (base !== undefined) this.#digits(value, base, verb);
    else if (verb === "c") this.#pad(character);
    else if (verb === "q") this.#pad(quote(character, this.flags.plus, "'"));
    else if (verb === "U") this.#unicode(unsigned, valid ? character : "");
    else this.#bad(value, verb);
  }

  #unicode(unsigned: bigint, character: string): void {
    const digits = unsigned
      .toString(16)
      .toUpperCase()
      .padStart(Math.max(this.flags.precision ?? 4, 4), "0");
    const shown = this.flags.sharp && character !== "" && isPrintable(character) ? ` '${character}'` : "";
    this.#pad(`U+${digits}${shown}`, true);
  }

  #digits(value: bigint, base: number, verb: string): void {
    const { precision, width, zero, plus, space, sharp } = this.flags;
    const sign = value < 0n ? "-" : plus ? "+" : space ? " " : "";
    const least = precision ?? (zero && width !== undefined ? width - sign.length : 0);
    const plain = (value < 0n ? -value : value).toString(base).padStart(least, "0");
    const digits = verb === "X" ? plain.toUpperCase() : plain;
    const octal = base === 8 && !digits.startsWith("0") ? "0" : "";
    const mark = verb === "O" ? `0o${sharp ? octal : ""}` : sharp ? (base === 8 ? octal : (MARKS[verb] ?? "")) : "";
    this.#pad(precision === 0 && value === 0n ? "" : sign + mark + digits, true);
  }

  #float(value: number, verb: string): void {
    if (!/^[vbgGxXfFeE]$/.test(verb)) this.#bad(value, verb);
    else if (!Number.isFinite(value)) this.#signed(String(value).replace("Infinity", "Inf"));
    else this.#finite(value, verb);
  }

  #finite(value: number, verb: string): void {
    const kind = (verb === "v" ? "g" : verb.toLowerCase()) as "b" | "e" | "f" | "g" | "x";
    const precision = this.flags.precision ?? (kind === "f" || kind === "e" ? 6 : -1);
    const text = formatFloat(value, kind, precision);
    const number = /[GEX]/.test(verb) ? text.toUpperCase() : text;
    this.#signed(this.flags.sharp && verb !== "b" ? withPoint(number, verb, precision) : number);
  }

  #signed(text: string): void {
    const { plus, space, zero, width = 0 } = this.flags;
    const digits = text.replace(/^-/, "");
    const sign = text !== digits ? "-" : space && !plus ? " " : plus || text === "Inf" ? "+" : "";
    if (/^[IN]/.test(digits)) this.#pad(sign + digits, true);
    else this.#pad(zero && sign !== "" ? sign + digits.padStart(width - 1, "0") : sign + digits);
  }

  /** Fills up to the width: with zeros where the flag says so, unless `blanks`. */
  #pad(text: string, blanks = false): void {
    const { width = 0, minus, zero } = this.flags;
    const missing = width === 0 ? 0 : width - [...text].length;
    const filling = missing > 0 ? (zero && !blanks ? "0" : " ").repeat(missing) : "";
    this.write(minus ? text + filling : filling + text);
  }
}

const BASES: Readonly<Record<string, number>> = { v: 10, d: 10, b: 2, o: 8, O: 8, x: 16, X: 16 };
const MARKS: Readonly<Record<string, string>> = { b: "0b", x: "0x", X: "0X" };

/** The entries of a map in the order of its keys' bytes. */
export function sortedEntries(map: ReadonlyMap<string, TemplateValue>): [string, TemplateValue][] {
  return [...map].sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

/** What the flag `#` adds to a float: the decimal point always, and for `g` and `x` the zeros at the end. */
function withPoint(text: string, verb: string, precision: number): string {
  let digits = /[vgGx]/.test(verb) ? (precision < 0 ? 6 : precision) : 0;
  const end = text.search(/[xX]/.test(verb) ? /[pP]/ : /[eE]/);
  const [head, tail] = end < 0 ? [text, ""] : [text.slice(0, end), text.slice(end)];
  digits -= head.replace("-", "").replace(".", "").replace(/^0+/, "").length;
  if (head.includes(".")) return head + "0".repeat(Math.max(digits, 0)) + tail;
  if (/^-?0$/.test(head)) digits--;
  return `${head}.${"0".repeat(Math.max(digits, 0))}${tail}`;
}
