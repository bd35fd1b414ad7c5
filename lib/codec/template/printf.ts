import { type TemplateValue, typeName } from "./funcs.ts";
import { type Flags, Printer } from "./print.ts";

/**
 * Go's Sprintf: verbs `v T t b c d o O q x X U e E f F g G s %`, flags `+ - # 0` and blank, width, precision, `*` and
 * argument indexes. A wrong verb or argument shows in the result: `%!d(string=a)`, `%!s(MISSING)`, `%!(EXTRA int=2)`.
 */
export function sprintf(format: string, values: readonly TemplateValue[]): string {
  return new Formatting(format, values).run();
}

/** Widths, precisions and argument indexes go up to here. */
const LARGEST = 1_000_000;

/** One run of Sprintf over its format. */
class Formatting {
  readonly #printer = new Printer();
  readonly #format: string;
  readonly #values: readonly TemplateValue[];
  #at = 0;
  #next = 0;
  /** Whether an index such as `[3]` was used at all, was the last thing read, and was right. */
  #reordered = false;
  #afterIndex = false;
  #goodIndex = true;

  constructor(format: string, values: readonly TemplateValue[]) {
    this.#format = format;
    this.#values = values;
  }

  run(): string {
    while (this.#at < this.#format.length) {
      const percent = this.#format.indexOf("%", this.#at);
      this.#printer.write(this.#format.slice(this.#at, percent < 0 ? undefined : percent));
      if (percent < 0) break;
      this.#at = percent + 1;
      this.#directive();
    }
    if (!this.#reordered && this.#next < this.#values.length) this.#extra();
    return this.#printer.text();
  }

  #directive(): void {
    const flags = this.#flags();
    this.#printer.flags = flags;
    this.#goodIndex = true;
    this.#index();
    this.#width(flags);
    if (this.#at + 1 < this.#format.length && this.#format[this.#at] === ".") this.#precision(flags);
    if (!this.#afterIndex) this.#index();
    const code = this.#format.codePointAt(this.#at);
    if (code === undefined) this.#printer.write("%!(NOVERB)");
    else this.#verb(String.fromCodePoint(code), flags);
  }

  #verb(verb: string, flags: Flags): void {
    this.#at += verb.length;
    const value = this.#values[this.#next];
    if (verb === "%") this.#printer.write("%");
    else if (!this.#goodIndex) this.#printer.write(`%!${verb}(BADINDEX)`);
    else if (value === undefined) this.#printer.write(`%!${verb}(MISSING)`);
    else {
      const { sharp, plus } = flags;
      if (verb === "v") Object.assign(flags, { sharpV: sharp, sharp: false, plusV: plus, plus: false });
      this.#next++;
      this.#printer.value(value, verb, true);
    }
  }

  #flags(): Flags {
    const flags: Flags = {};
    for (; ; this.#at++) {
      const mark = this.#format[this.#at];
      if (mark === "#") flags.sharp = true;
      else if (mark === "+") flags.plus = true;
      else if (mark === " ") flags.space = true;
      else if (mark === "0") flags.zero = flags.minus !== true;
      else if (mark === "-") Object.assign(flags, { minus: true, zero: false });
      else return flags;
    }
  }

  #width(flags: Flags): void {
    if (this.#format[this.#at] !== "*") {
      flags.width = this.#number();
      if (this.#afterIndex && flags.width !== undefined) this.#goodIndex = false;
      return;
    }
    const width = this.#star();
    if (width === undefined) this.#printer.write("%!(BADWIDTH)");
    if (width !== undefined && width < 0) Object.assign(flags, { minus: true, zero: false });
    flags.width = Math.abs(width ?? 0);
  }

  #precision(flags: Flags): void {
    this.#at++;
    if (this.#afterIndex) this.#goodIndex = false;
    this.#index();
    if (this.#format[this.#at] !== "*") {
      flags.precision = this.#number() ?? 0;
      return;
    }
    const precision = this.#star();
    flags.precision = precision !== undefined && precision >= 0 ? precision : undefined;
    if (flags.precision === undefined) this.#printer.write("%!(BADPREC)");
  }

  /** The integer argument that `*` stands for. */
  #star(): number | undefined {
    this.#at++;
    this.#afterIndex = false;
    const value = this.#values[this.#next];
    if (value !== undefined) this.#next++;
    const isSmall = typeof value === "bigint" && value <= LARGEST && value >= -LARGEST;
    return isSmall ? Number(value) : undefined;
  }

  #number(): number | undefined {
    const digits = /^[0-9]*/.exec(this.#format.slice(this.#at, this.#at + 10))?.[0] ?? "";
    this.#at += digits.length;
    if (digits === "") return undefined;
    if (Number(digits) <= LARGEST) return Number(digits);
    this.#at = this.#format.length;
    return undefined;
  }

  /** Takes an argument index such as `[3]`, counted from 1. */
  #index(): void {
    this.#afterIndex = false;
    if (this.#format[this.#at] !== "[") return;
    this.#reordered = true;
    const close = this.#format.length - this.#at < 3 ? -1 : this.#format.indexOf("]", this.#at);
    const digits = this.#format.slice(this.#at + 1, Math.max(close, this.#at + 1));
    const index = /^[0-9]{1,7}$/.test(digits) ? Number(digits) - 1 : -1;
    this.#at = close < 0 ? this.#at + 1 : close + 1;
    this.#afterIndex = index >= 0;
    if (index >= 0 && index < this.#values.length) this.#next = index;
    else this.#goodIndex = false;
  }

  #extra(): void {
    this.#printer.flags = {};
    this.#printer.write("%!(EXTRA ");
    for (const [at, value] of this.#values.slice(this.#next).entries()) {
      if (at > 0) this.#printer.write(", ");
      if (value !== null) this.#printer.write(`${typeName(value)}=`);
      this.#printer.value(value, "v");
    }
    this.#printer.write(")");
  }
}
