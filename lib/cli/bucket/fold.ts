import { isObject } from "../../core/shape.ts";
import type { CommandResult } from "../../operation/control/run-command.ts";
import { visibleLines } from "../base/terminal.ts";

/** Workers on which a command had the same outcome and output. */
interface Fold {
  workers: string[];
  /** The outcome in words. */
  how: string;
  output: string;
}

/** Groups by outcome and output, the smallest group first; among equal sizes groups that succeeded come last. */
export function foldWorkers(results: readonly CommandResult[]): Fold[] {
  const groups = Map.groupBy(results, (result) =>
    JSON.stringify([result.outcome, reasonOf(result), result.output, result.output_sha256]),
  );
  const folds = [...groups.values()].map((same) => {
    const [first] = same as [CommandResult];
    const why = same.length === 1 ? first.error : reasonOf(first);
    const how = first.outcome.replace("_", " ") + (why === null ? "" : `: ${why}`);
    return { workers: same.map(({ worker }) => worker), how, output: first.output };
  });
  return folds.sort((a, b) => a.workers.length - b.workers.length || Number(a.how === "ok") - Number(b.how === "ok"));
}

/** The reason of a failure; null where it names its worker, since such reasons differ only in that name. */
function reasonOf({ worker, error }: CommandResult): string | null {
  return error?.includes(worker) ? null : error;
}

/** The text that `ops run_command --fold` prints; empty for a run without workers. */
export function foldedText(result: unknown): string {
  if (!isObject(result) || !Array.isArray(result.workers)) return "";
  const texts = foldWorkers(result.workers as CommandResult[]).map(({ workers, how, output }) => {
    const count = workers.length === 1 ? "" : ` (${workers.length} workers)`;
    return `--- ${shortNames(workers)}${count}: ${how}\n${output}`;
  });
  return visibleLines(texts.join(""));
}

const NUMBER = /\d{1,15}/g;

/**
 * Names in short: names that differ in one number only become one, `10.0.0.[1-9,12]` or `db[01-03].example`, in the place
 * of the first of them.
 */
export function shortNames(names: readonly string[]): string {
  const parts = names.map((name) =>
    [...name.matchAll(NUMBER)].map(({ 0: number, index }) => ({
      prefix: name.slice(0, index),
      number,
      suffix: name.slice(index + number.length),
    })),
  );
  const frequency = new Map<string, number>();
  for (const part of parts.flat()) frequency.set(keyOf(part), (frequency.get(keyOf(part)) ?? 0) + 1);
  const groups = new Map<string, Part[]>();
  for (const [index, candidates] of parts.entries()) {
    const count = (part: Part) => frequency.get(keyOf(part)) ?? 0;
    const whole = { prefix: names[index] as string, number: "", suffix: "" };
    const best = candidates.reduce<Part>((one, other) => (count(other) >= count(one) ? other : one), whole);
    groups.set(keyOf(best), [...(groups.get(keyOf(best)) ?? []), best]);
  }
  return [...groups.values()].map(groupText).join(",");
}

interface Part {
  prefix: string;
  number: string;
  suffix: string;
}

function keyOf({ prefix, suffix }: Part): string {
  return `${prefix}\0${suffix}`;
}

function groupText(group: readonly Part[]): string {
  const [{ prefix, number, suffix }] = group as [Part];
  if (group.length === 1) return prefix + number + suffix;
  const numbers = group.map((part) => part.number).sort((a, b) => Number(a) - Number(b) || a.length - b.length);
  return `${prefix}[${rangesOf(numbers).join(",")}]${suffix}`;
}

function rangesOf(numbers: readonly string[]): string[] {
  const ranges: [string, string][] = [];
  for (const number of numbers) {
    const last = ranges.at(-1);
    if (last && follows(last[1], number)) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([first, last]) => (first === last ? first : `${first}-${last}`));
}

/** True for consecutive numbers; numbers with leading zeros must have the same length. */
function follows(before: string, after: string): boolean {
  const isPadded = before.startsWith("0") || after.startsWith("0");
  return Number(after) === Number(before) + 1 && (before.length === after.length || !isPadded);
}
