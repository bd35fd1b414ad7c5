import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";

const END = "end";

/**
 * What a script on a worker told as lines of a name, a blank and a value, with `end` at the end. A worker may tell
 * anything: lines of another form, or with control characters, are passed over, and numbers are numbers.
 */
export class ScriptAnswer {
  readonly #values = new Map<string, string[]>();

  /** Throws `failed` for an answer without its end. */
  constructor(text: string) {
    const lines = text.split("\n");
    if (lines.pop() !== "" || lines.pop() !== END) throw trouble("it is not complete");
    for (const line of lines) {
      const [, name = "", value = ""] = /^([a-z0-9_]+) ([^\p{C}]*)$/u.exec(line) ?? [];
      const values = this.#values.get(name);
      if (values) values.push(value.trim());
      else this.#values.set(name, [value.trim()]);
    }
  }

  /** All values of a name, in their order. */
  all(name: string): string[] {
    return this.#values.get(name) ?? [];
  }

  /** The first value of a name, at most 253 characters of it; undefined where there is none. */
  text(name: string): string | undefined {
    return this.all(name)[0]?.slice(0, 253) || undefined;
  }

  /** The first value of a name, a whole number from 1 to `most`. Throws `failed` where it is none. */
  whole(name: string, most: number): number {
    const [number = 0] = this.numbers(name, 1);
    if (Number.isInteger(number) && number >= 1 && number <= most) return number;
    throw trouble(`${number} is not what ${name} can be`);
  }

  /** The numbers at the beginning of the first value of a name, so many of them. Throws `failed` without them. */
  numbers(name: string, count: number): number[] {
    const [value = ""] = this.all(name);
    const numbers = numbersOf(value).slice(0, count);
    if (numbers.length < count) throw trouble(`${quote(value)} is not what ${name} can be`);
    return numbers;
  }
}

/** The numbers that a text begins with, blanks between them: plain decimals only. */
export function numbersOf(text: string): number[] {
  const words = text.split(/\s+/);
  const end = words.findIndex((word) => !/^\d{1,20}(\.\d{1,9})?$/.test(word));
  return words.slice(0, end < 0 ? words.length : end).map(Number);
}

function trouble(why: string): Failure {
  return new Failure("failed", `Cannot understand the worker's answer: ${why}`);
}
