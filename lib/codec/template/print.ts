import { formatFloat } from "../config/number.ts";
import { goTypeName, TEXT_LIMIT, type TemplateStruct, type TemplateValue } from "./funcs.ts";
import { goQuote } from "./literal.ts";

/** Widths and precisions go up to here. */
const MOST_PRINT_WIDTH = 1_000_000;
const BASES: Readonly<Record<string, number>> = { v: 10, d: 10, b: 2, o: 8, x: 16, X: 16 };
/** What the flag `#` puts before an integer. */
const BASE_MARKS: Readonly<Record<string, string>> = { b: "0b", o: "0", x: "0x", X: "0X" };

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
  printer.between("", values, "\n", (value) => printer.value(value, "v", true));
  return printer.text();
}

/**
 * The parts of `%[flags][width][.precision][[index]]verb`; each may be missing, a lone `.` is the precision 0. Numbers of 20
 * digits are over every limit. A longer search for `]` would take quadratic time in a format of many `%[`.
 */
const DIRECTIVE = /%([-+# 0]*)(\*|\d{1,20})?(?:\.(\*|\d{0,20}))?(?:\[([^\]]{0,20})\])?(.)?/gsu;

/**
 * Go's Sprintf: the verbs `v T t b c d o q U x X e E f F g G s %`, the flags `+ - 0`, blank, and `#` with `b o x X q`; width,
 * precision, `*`, and an argument index before the verb (`%[1]s`). A wrong verb or argument shows in the result:
 * `%!d(string=a)`, `%!s(MISSING)`, `%!(EXTRA int=2)`. Throws an Error for `#` with other verbs, for a width or precision
 * over 1,000,000 (of a float over 100) and for a result over {@link TEXT_LIMIT}.
 */
export function sprintf(format: string, values: readonly TemplateValue[]): string {
  const printer = new Printer();
  let [done, next, isReordered] = [0, 0, false];
  /** A width or precision as it is written or, for `*`, the next argument. */
  const amountOf = (text: string | undefined, complaint: string) => {
    const value = text === "*" ? values[next++] : BigInt(text ?? 0);
    if (typeof value !== "bigint") printer.write(complaint);
    else if (value > MOST_PRINT_WIDTH || value < -MOST_PRINT_WIDTH)
      throw new Error(`the width or precision ${value} is more than ${MOST_PRINT_WIDTH}`);
    else return text === undefined ? undefined : Number(value);
    return undefined;
  };
  for (const match of format.matchAll(DIRECTIVE)) {
    const [directive, marks = "", width, precision, index, verb] = match;
    printer.write(format.slice(done, match.index));
    done = match.index + directive.length;
    const columns = amountOf(width, "%!(BADWIDTH)");
    const digits = amountOf(precision === "" ? "0" : precision, "%!(BADPREC)") ?? -1;
    printer.flags = { marks, width: columns, precision: digits < 0 ? undefined : digits };
    isReordered ||= index !== undefined;
    const isKnown = index === undefined || (/^\d+$/.test(index) && Number(index) >= 1 && Number(index) <= values.length);
    if (index !== undefined && isKnown) next = Number(index) - 1;
    if (marks.includes("#") && !"boxXq%".includes(verb ?? "")) throw new Error("the flag # goes with b, o, x, X and q only");
    const value = values[next];
    if (verb === undefined) printer.write("%!(NOVERB)");
    else if (verb === "%") printer.write("%");
    else if (!isKnown) printer.write(`%!${verb}(BADINDEX)`);
    else if (value === undefined) printer.write(`%!${verb}(MISSING)`);
    else {
      next++;
      printer.value(value, verb, true);
    }
  }
  printer.write(format.slice(done));
  if (!isReordered && next < values.length) printer.extra(values.slice(next));
  return printer.text();
}

/** What stands between `%` and the verb. `marks` are the flags as they are written. */
const NO_FLAGS: { marks: string; width?: number | undefined; precision?: number | undefined } = { marks: "" };

/** Collects output of at most {@link TEXT_LIMIT} bytes, formatting values by the current flags. */
class Printer {
  flags = NO_FLAGS;
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

  /** `top` is true for an operand, false for an element of a list or struct. */
  value(value: TemplateValue, verb: string, top = false): void {
    if (value === null) this.#nil(verb, top);
    else if (verb === "T" && top) this.#pad(goTypeName(value));
    else if (typeof value === "boolean") this.#boolean(value, verb);
    else if (typeof value === "bigint") this.#integer(value, verb);
    else if (typeof value === "number") this.#float(value, verb);
    else if (typeof value === "string") this.#string(value, verb);
    else if (Array.isArray(value)) this.between("[", value, "]", (item) => this.value(item, verb));
    else this.#struct(value as TemplateStruct, verb);
  }

  /** The arguments that no verb has taken. */
  extra(values: readonly TemplateValue[]): void {
    this.flags = NO_FLAGS;
    this.write("%!(EXTRA ");
    for (const [at, value] of values.entries()) {
      if (at > 0) this.write(", ");
      if (value !== null) this.write(`${goTypeName(value)}=`);
      this.value(value, "v");
    }
    this.write(")");
  }

  #has(mark: string): boolean {
    return this.flags.marks.includes(mark);
  }

  /** Whether numbers are filled with zeros. */
  get #isZeroed(): boolean {
    return this.#has("0") && !this.#has("-") && (this.flags.width ?? 0) >= 0;
  }

  #nil(verb: string, top: boolean): void {
    if (!top) this.write("<nil>");
    else if (verb === "v" || verb === "T") this.#pad("<nil>");
    else this.write(`%!${verb}(<nil>)`);
  }

  #wrongVerb(value: NonNullable<TemplateValue>, verb: string): void {
    this.write(`%!${verb}(${goTypeName(value)}=`);
    this.value(value, "v");
    this.write(")");
  }

  #boolean(value: boolean, verb: string): void {
    if (verb === "t" || verb === "v") this.#pad(String(value));
    else this.#wrongVerb(value, verb);
  }

  /** A struct, as `%+v` with the names of its fields. */
  #struct(value: TemplateStruct, verb: string): void {
    const hasNames = verb === "v" && this.#has("+");
    this.between("{", Object.entries(value), "}", ([name, field]) => {
      if (hasNames) this.write(`${name}:`);
      this.value(field, verb);
    });
  }

  /** Writes what stands around items, and the items with blanks between them. */
  between<T>(open: string, items: readonly T[], close: string, show: (item: T) => void): void {
    this.write(open);
    for (const [at, item] of items.entries()) {
      if (at > 0) this.write(" ");
      show(item);
    }
    this.write(close);
  }

  #string(value: string, verb: string): void {
    const { precision } = this.flags;
    const text = precision === undefined ? value : [...value].slice(0, precision).join("");
    if (/[xX]/.test(verb) && /[# ]/.test(this.flags.marks))
      throw new Error(`with %${verb} the flags # and blank need an integer`);
    const hex = () => Buffer.from(value).subarray(0, precision).toString("hex");
    if (verb === "s" || verb === "v") this.#pad(text);
    else if (verb === "x") this.#pad(hex());
    else if (verb === "X") this.#pad(hex().toUpperCase());
    else if (verb !== "q") this.#wrongVerb(value, verb);
    else if (this.#has("#") && !/[\x00-\x08\n-\x1f\x7f`\ufeff]/.test(text)) this.#pad(`\`${text}\``);
    else this.#pad(goQuote(text, this.#has("+")));
  }

  #integer(value: bigint, verb: string): void {
    const isCharacter = value >= 0n && value <= 0x10ffffn && !(value >= 0xd800n && value <= 0xdfffn);
    const character = isCharacter ? String.fromCodePoint(Number(value)) : "\ufffd";
    const base = BASES[verb];
    if (base !== undefined) this.#digits(value, base, verb);
    else if (verb === "c") this.#pad(character);
    else if (verb === "q") this.#pad(goQuote(character, this.#has("+"), "'"));
    else if (verb === "U") this.#pad(`U+${value.toString(16).toUpperCase().padStart(4, "0")}`);
    else this.#wrongVerb(value, verb);
  }

  #digits(value: bigint, base: number, verb: string): void {
    const { precision, width = 0 } = this.flags;
    const sign = this.#sign(value < 0n, verb);
    const least = precision ?? (this.#isZeroed ? width - sign.length : 0);
    const plain = (value < 0n ? -value : value).toString(base).padStart(least, "0");
    const digits = verb === "X" ? plain.toUpperCase() : plain;
    const mark = this.#has("#") && !(verb === "o" && digits.startsWith("0")) ? BASE_MARKS[verb] : "";
    this.#pad(precision === 0 && value === 0n ? "" : sign + mark + digits, " ");
  }

  #float(value: number, verb: string): void {
    if (!"veEfFgG".includes(verb)) return void this.#wrongVerb(value, verb);
    const { precision, width = 0 } = this.flags;
    const text = formatFloat(value, (verb === "v" ? "g" : verb.toLowerCase()) as "e" | "f" | "g", precision);
    const digits = (verb === "E" || verb === "G" ? text.toUpperCase() : text).replace(/^-/, "");
    const sign = this.#sign(text.startsWith("-"), verb);
    this.#pad(sign + digits.padStart(this.#isZeroed ? width - sign.length : 0, "0"), " ");
  }

  #sign(isNegative: boolean, verb: string): string {
    if (isNegative) return "-";
    // With the verb v, `+` asks for the names of fields.
    if (this.#has("+") && verb !== "v") return "+";
    return this.#has(" ") ? " " : "";
  }

  /** Fills up to the width, at the end where the flag `-` or a negative width says so. */
  #pad(text: string, filling = this.#isZeroed ? "0" : " "): void {
    const { width = 0 } = this.flags;
    const missing = filling.repeat(Math.max(0, Math.abs(width) - (width === 0 ? 0 : [...text].length)));
    this.write(this.#has("-") || width < 0 ? text + missing : missing + text);
  }
}
