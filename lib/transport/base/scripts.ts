import { readFileSync } from "node:fs";
import { cancelledFailure, Failure } from "../../core/errors.ts";
import { PROGRAM_ROOT } from "../../core/self.ts";
import { quote } from "../../core/shape.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import type { ScriptOptions, Transport } from "./transport.ts";

/**
 * The shell scripts that run on workers, each of one or more files of lib/transport/scripts: POSIX sh with coreutils,
 * findutils and tar, or with busybox.
 */
const SOURCES = {
  prepare: ["prepare"],
  signal: ["signal"],
  attach: ["attach"],
  look: ["way", "look"],
  receive: ["common", "way", "receive"],
  settle: ["common", "settle"],
  discard: ["common", "way", "discard"],
  vacate: ["common", "vacate"],
  read: ["way", "read"],
  logs: ["way", "logs"],
  joblogs: ["way", "joblogs"],
  runner: ["common", "way", "runner"],
  target: ["way", "target"],
  last: ["way", "last"],
  status: ["way", "status"],
  facts: ["facts"],
  uptime: ["uptime"],
  sysstat: ["sysstat"],
  doctor: ["common", "doctor"],
  authorize: ["authorize"],
} as const;

/** The name of a script. */
type ScriptName = keyof typeof SOURCES;

const texts = new Map<ScriptName, string>();

/** The text of a script without comments and indentation: a worker's shell reads the text byte by byte. */
export function scriptText(name: ScriptName): string {
  const text = texts.get(name) ?? commentedText(name).replace(/^\s*(#.*\n)?/gm, "");
  texts.set(name, text);
  return text;
}

/** The text of a script as its authors wrote it. */
export function commentedText(name: ScriptName): string {
  return SOURCES[name].map((part) => readFileSync(`${PROGRAM_ROOT}lib/transport/scripts/${part}.sh`, "utf8")).join("\n");
}

/**
 * Runs a script on a worker to its end. Throws `unreachable`, `cancelled`, `timeout`, or `failed` with what the worker
 * said where the exit code is not 0; `doing` begins the sentence, as in `Cannot clean up on 10.0.0.7`.
 */
export async function runScriptOn(
  transport: Transport,
  name: ScriptName,
  doing: string,
  options: ScriptOptions & { timeoutMs: number },
): Promise<CommandOutcome> {
  const outcome = await transport.script(scriptText(name), options);
  const { reason, exitCode, signal } = outcome;
  if (reason === "cancelled") throw cancelledFailure();
  if (reason === "timeout") throw new Failure("timeout", `${doing}: the script still ran after ${options.timeoutMs / 1000} s`);
  if (exitCode === 0) return outcome;
  const said = outcome.stderr.trim().replaceAll("\n", "; ").slice(0, 1000);
  const how = signal === null ? `exit code ${exitCode}` : `ended by ${signal}`;
  throw new Failure("failed", `${doing}: ${said || how}`);
}

/**
 * What a script on a worker told as lines of a name, a blank and a value, with `end` at the end. A worker may tell
 * anything: lines of another form, or with control characters, are passed over, and numbers are checked.
 */
export class ScriptAnswer {
  readonly #values: Map<string, string[]>;

  /** Throws `failed` for an answer without its end. */
  constructor(text: string) {
    const lines = text.split("\n");
    if (lines.pop() !== "" || lines.pop() !== "end") throw answerFailure("it is not complete");
    const facts = lines.map((line) => /^([a-z0-9_]+) ([^\p{C}]*)$/u.exec(line) ?? []);
    const named = Map.groupBy(facts, ([, name = ""]) => name);
    this.#values = new Map([...named].map(([name, of]) => [name, of.map(([, , value = ""]) => value.trim())]));
  }

  /** All values of a name, in their order. */
  all(name: string): string[] {
    return this.#values.get(name) ?? [];
  }

  /** The first value of a name, at most 253 characters of it; null where there is none. */
  text(name: string): string | null {
    return this.all(name)[0]?.slice(0, 253) || null;
  }

  /** The first value of a name, a whole number from 1 to `most`. Throws `failed` for any other value. */
  whole(name: string, most: number): number {
    const [number] = this.numbers(name, 1) as [number];
    if (Number.isInteger(number) && number >= 1 && number <= most) return number;
    throw answerFailure(`${number} is not what ${name} can be`);
  }

  /**
   * The numbers at the beginning of the first value of a name, so many of them. Throws `failed` where there are fewer.
   */
  numbers(name: string, count: number): number[] {
    const [value = ""] = this.all(name);
    const numbers = leadingNumbers(value).slice(0, count);
    if (numbers.length < count) throw answerFailure(`${quote(value)} is not what ${name} can be`);
    return numbers;
  }
}

/** The numbers that a text begins with, blanks between them: plain decimals only. */
export function leadingNumbers(text: string): number[] {
  const words = text.split(/\s+/);
  const end = words.findIndex((word) => !/^\d{1,20}(\.\d{1,9})?$/.test(word));
  return words.slice(0, end < 0 ? words.length : end).map(Number);
}

function answerFailure(why: string): Failure {
  return new Failure("failed", `Cannot understand the worker's answer: ${why}`);
}
