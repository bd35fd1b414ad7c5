import { fixedDecimals, shortestFloat } from "../config/number.ts";
import { goTypeName, TEXT_LIMIT, type TemplateValue } from "./funcs.ts";
import { goQuote } from "./literal.ts";

/** Widths and precisions go up to here. */
const MOST_PRINT_WIDTH = 1_000_000;
const BASES: Readonly<Record<string, number>> = { v: 10, d: 10, x: 16, X: 16 };

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

const VERBS = "v s q d x X f t T %";
/** `%[flags][width][.precision]verb`; each part may be missing. */
const DIRECTIVE = new RegExp(`%([-+0]*)(\\d+)?(?:\\.(\\d*))?([${VERBS.replaceAll(" ", "")}])?`, "g");

/**
 * Go's Sprintf, as far as files of settings need it: the verbs `v s q d x X f t T %`, the flags `-`, `0` and, with `d x X f`,
 * `+`, width, and precision (of a float with `f` only). An argument of a wrong type, missing or too many shows in the result:
 * `%!d(string=a)`, `%!s(MISSING)`, `%!(EXTRA int=2)`. Throws an Error for anything else behind `%`, for a width or precision
 * over 1,000,000 (of a float over 100) and for a result over {@link TEXT_LIMIT}.
 */
export function sprintf(format: string, values: readonly TemplateValue[]): string {
  const printer = new Printer();
  let [done, next] = [0, 0];
  for (const match of format.matchAll(DIRECTIVE)) {
    const [directive, marks = "", width, precision, verb] = match;
    printer.write(format.slice(done, match.index));
    done = match.index + directive.length;
    if (verb === undefined || (marks.includes("+") && !"dxXf".includes(verb)))
      throw new Error(
        `printf does not know ${goQuote(format.slice(match.index, verb === undefined ? done + 1 : done))}: its verbs are ${VERBS}`,
      );
    printer.flags = { marks, width: amountOf(width), precision: amountOf(precision) };
    const value = values[next];
    if (verb === "%") printer.write("%");
    else if (value === undefined) printer.write(`%!${verb}(MISSING)`);
    else {
      next++;
      printer.value(value, verb, true);
    }
  }
  printer.write(format.slice(done));
  if (next < values.length) printer.extra(values.slice(next));
  return printer.text();
}

/** A width or precision as it is written. */
function amountOf(text: string | undefined): number | undefined {
  if (Number(text) > MOST_PRINT_WIDTH) throw new Error(`the width or precision ${text} is more than ${MOST_PRINT_WIDTH}`);
  return text === undefined ? undefined : Number(text);
}

/** What stands between `%` and the verb. `marks` are the flags as they are written. */
interface Flags {
  marks: string;
  width: number | undefined;
  precision: number | undefined;
}

const NO_FLAGS: Readonly<Flags> = { marks: "", width: undefined, precision: undefined };

/** Collects output of at most {@link TEXT_LIMIT} bytes, formatting values by the current flags. */
class Printer {
  flags: Flags = { ...NO_FLAGS };
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
    else this.between("{", Object.values(value), "}", (field) => this.value(field, verb));
  }

  /** The arguments that no verb has taken. */
  extra(values: readonly TemplateValue[]): void {
    this.flags = { ...NO_FLAGS };
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
    return this.#has("0") && !this.#has("-");
  }

  #nil(verb: string, top: boolean): void {
    if (!top) this.write("<nil>");
    else if (verb === "v" || verb === "T") this.#pad("<nil>");
    else this.write(`%!${verb}(<nil>)`);
  }

  #wrongVerb(value: TemplateValue, verb: string): void {
    this.write(`%!${verb}(${goTypeName(value)}=`);
    this.value(value, "v");
    this.write(")");
  }

  #boolean(value: boolean, verb: string): void {
    if (verb === "t" || verb === "v") this.#pad(String(value));
    else this.#wrongVerb(value, verb);
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
    const hex = () => Buffer.from(value).subarray(0, precision).toString("hex");
    if (verb === "s" || verb === "v") this.#pad(text);
    else if (verb === "x") this.#pad(hex());
    else if (verb === "X") this.#pad(hex().toUpperCase());
    else if (verb === "q") this.#pad(goQuote(text));
    else this.#wrongVerb(value, verb);
  }

  #integer(value: bigint, verb: string): void {
    const base = BASES[verb];
    if (base === undefined) return void this.#wrongVerb(value, verb);
    const { precision, width = 0 } = this.flags;
    const sign = this.#sign(value < 0n);
    const least = precision ?? (this.#isZeroed ? width - sign.length : 0);
    const digits = (value < 0n ? -value : value).toString(base).padStart(least, "0");
    const shown = verb === "X" ? digits.toUpperCase() : digits;
    this.#pad(precision === 0 && value === 0n ? "" : sign + shown, " ");
  }

  #float(value: number, verb: string): void {
    if (verb !== "v" && verb !== "f") return void this.#wrongVerb(value, verb);
    const { precision, width = 0 } = this.flags;
    if (verb === "v" && precision !== undefined) throw new Error("%v of a float takes no precision: give %f");
    const text = verb === "v" ? shortestFloat(value) : fixedDecimals(value, precision ?? 6);
    const sign = this.#sign(text.startsWith("-"));
    const digits = text.replace(/^-/, "");
    this.#pad(sign + (this.#isZeroed ? digits.padStart(width - sign.length, "0") : digits), " ");
  }

  #sign(isNegative: boolean): string {
    if (isNegative) return "-";
    return this.#has("+") ? "+" : "";
  }

  /** Fills up to the width, at the end where the flag `-` says so. */
  #pad(text: string, filling = this.#isZeroed ? "0" : " "): void {
    const { width = 0 } = this.flags;
    const missing = filling.repeat(Math.max(0, width - (width === 0 ? 0 : [...text].length)));
    this.write(this.#has("-") ? text + missing : missing + text);
  }
}
