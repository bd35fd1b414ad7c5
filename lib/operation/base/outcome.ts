import { constants } from "node:os";
import { Failure, type FailureCode, messageOf } from "../../core/errors.ts";
import { countOf, firstOf, inOneLine } from "../../core/plain-text.ts";
import type { Redactor } from "../../core/redact.ts";
import { shortNames } from "../../core/short-names.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { aboutWorkers, WorkerFailure } from "../../transport/base/transport.ts";
import type { OperationContext } from "./context.ts";
import type { Evidence } from "./evidence.ts";
import type { Fleet } from "./fleet.ts";

const MOST_NAMES = 20;

/**
 * How a run went for one allocation or worker. `changed`: the change is made; `ok`: it was only to be found healthy, and
 * was; `skipped`: nothing was to be done; `not_started`: something else failed before; `disabled`: it is switched off, and
 * nothing went wrong there.
 */
export const GRADES = ["failed", "unreachable", "cancelled", "not_started", "changed", "ok", "skipped", "disabled"] as const;
/** One of {@link GRADES}, which go from the worst to the best. */
export type Grade = (typeof GRADES)[number];

/** Why something on a worker did not end well. */
export interface Trouble {
  grade: "failed" | "unreachable" | "cancelled";
  /** For a failed program this includes the last lines of its output, which no other part of a result repeats. */
  message: string;
  /** Where the worker was of no use. */
  failure?: WorkerFailure;
  /** What was found there, where a health check failed. */
  evidence?: Evidence | null;
}

/** The trouble that a thrown value stands for. */
export function troubleOf(error: unknown): Trouble {
  const code = error instanceof Failure ? error.code : "internal";
  const grade = code === "unreachable" || code === "cancelled" ? code : "failed";
  const { reason = messageOf(error) } = (error instanceof ProgramFailure && error.details) || {};
  return { grade, message: reason, ...(error instanceof WorkerFailure && { failure: error }) };
}

/** The troubles of workers, in one sentence for each cause. */
export function causesOf(troubles: ReadonlyMap<string, Trouble>): string[] {
  const causes = Map.groupBy(troubles, ([, { failure, message }]) => failure?.text ?? message);
  return [...causes.values()].map((same) => {
    const [[, { failure, message }]] = same as [[string, Trouble]];
    const hosts = same.map(([host]) => host);
    return failure ? aboutWorkers(failure.text, hosts) : `${shortNames(hosts)}: ${inOneLine(message)}`;
  });
}

/** The exit code of a command that ended by itself, else null; 128 plus the number of the signal where one ended it. */
export function exitCodeOf({ reason, exitCode, signal }: CommandOutcome): number | null {
  if (reason !== "exit") return null;
  return exitCode ?? 128 + (constants.signals[signal as NodeJS.Signals] ?? 0);
}

class ProgramFailure extends Failure {
  declare readonly details: { reason: string };
}

/**
 * The failure of a program: its message has the first and the last line of `reason`; {@link troubleOf} answers all of
 * `reason`.
 */
export function failedWith(code: FailureCode, reason: string): Failure {
  return new ProgramFailure(code, inOneLine(reason), { details: { reason } });
}

/** The worst of some grades; `skipped` without any. */
export function worstOf(grades: readonly Grade[]): Grade {
  return GRADES.find((grade) => grades.includes(grade)) ?? "skipped";
}

/** How many have each grade. */
export function countGrades(grades: readonly Grade[]): Record<Grade, number> {
  const count = { failed: 0, unreachable: 0, cancelled: 0, not_started: 0, changed: 0, ok: 0, skipped: 0, disabled: 0 };
  for (const grade of grades) count[grade]++;
  return count;
}

/** Counts in words, from the best grade to the worst, without zeros: `3 changed, 1 unreachable`. */
export function describeGrades(count: Record<Grade, number>): string {
  const parts = GRADES.toReversed().filter((grade) => count[grade] > 0);
  return parts.map((grade) => `${count[grade]} ${grade.replaceAll("_", " ")}`).join(", ") || "none";
}

/** How a run went on a worker. A worker that cannot be reached is `unreachable`, not `failed`. */
export interface Graded {
  worker: string;
  outcome: Exclude<Grade, "changed" | "skipped" | "disabled">;
  /** One sentence; null where the worker is ok, was not asked or was cancelled. */
  error: string | null;
}

/** The grade of a worker whose part in a run ended with an error. */
export function gradeOf(error: unknown): Pick<Graded, "outcome" | "error"> {
  const { grade, message } = troubleOf(error);
  return { outcome: grade, error: grade === "cancelled" ? null : message };
}

/** How a run over workers is concluded. */
interface Conclusion {
  /** The outcome of a good worker, and the words for it. */
  wanted?: { outcome: string; words: string };
  /** What else went wrong. */
  reasons?: readonly string[];
  /** The run succeeds whatever went wrong. */
  isTolerant?: boolean;
  /** The errors of the workers have been told. */
  isTold?: boolean;
}

/**
 * Tells how a run over workers went, and answers its result. Where a worker has not the wanted outcome, or there are
 * other reasons, it throws instead, with the whole result in the details: `cancelled`, with what became of the commands,
 * where the run was cancelled; else `failed`, unless the run is tolerant. The error names the first 20 such workers.
 */
export function concludeWorkers<R extends { workers: readonly { worker: string; outcome: string; error: string | null }[] }>(
  { log, signal }: OperationContext,
  fleet: Fleet,
  result: R,
  conclusion: Conclusion = {},
): R {
  const { wanted = { outcome: "ok", words: "ok" }, reasons = [], isTolerant = false, isTold = false } = conclusion;
  const { workers } = result;
  const bad = workers.filter(({ outcome }) => outcome !== wanted.outcome);
  const isFine = bad.length + reasons.length === 0;
  if (!isFine && signal.aborted)
    throw new Failure("cancelled", "cancelled", { details: { ...result, cancelled: fleet.cancelReceipts() } });
  if (!isTold) for (const { worker, error } of bad) if (error !== null) log.error(`${worker}: ${error}`, { worker });
  log.info(`${countOf(workers.length - bad.length, workers.length, "worker")} ${wanted.words}`);
  if (isFine || isTolerant) return result;
  const names = bad.map(({ worker, outcome }) => `${worker} (${outcome.replace("_", " ")})`);
  const count = `${countOf(bad.length, workers.length, "worker")} not ${wanted.words}: ${firstOf(names, MOST_NAMES)}`;
  const sentences = bad.length === 0 ? reasons : [count, ...reasons];
  throw new Failure("failed", sentences.join("; "), { details: result });
}

/** Sentences like `web@10.0.0.1: not started`, of which equal ones become one that names the first 20 places. */
export function toldOnce(sentences: readonly string[]): string[] {
  const places = new Map<string, string[]>();
  for (const sentence of sentences) {
    const [place = "", what = ""] = sentence.split(/: (.*)/s);
    const known = places.get(what);
    if (known) known.push(place);
    else places.set(what, [place]);
  }
  return [...places].map(([what, own]) => `${firstOf(own, MOST_NAMES)}: ${what}`);
}

/** Answers a result of which nothing is wrong. Else throws `what` with the sentences, and the whole result in the details. */
export function concluded<R>(result: R, what: string, wrong: readonly string[], code: FailureCode = "failed"): R {
  if (wrong.length === 0) return result;
  throw new Failure(code, `${what}: ${wrong.join("; ")}`, { details: result });
}

/**
 * Throws `cancelled` in place of the error that ended a cancelled run. The details are the result so far and what became
 * of the commands on the workers. Any other error is thrown on.
 */
export function endCancelled(signal: AbortSignal, fleet: Fleet, error: unknown, resultSoFar: () => object): never {
  if (!signal.aborted) throw error;
  const details = { ...resultSoFar(), cancelled: fleet.cancelReceipts() };
  throw new Failure("cancelled", "cancelled", { details, cause: error });
}

/** The fields of a result whose text may quote a command, a file or a template. */
const TEXT = /(?:^|_)(?:diff|errors?|evidence|lines|message|note|output|reasons?|warnings)$/;

/**
 * A result as JSON, for the record and for HTTP. Its texts are masked. Its names are not, because a bound plan and a
 * retry use them.
 */
export function masked(result: unknown, redactor: Redactor): unknown {
  const mask = (value: unknown, isText: boolean): unknown => {
    if (typeof value === "string") return isText ? redactor.sentence(value) : value;
    if (Array.isArray(value)) return value.map((one) => mask(one, isText));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, mask(one, TEXT.test(name))]));
  };
  return mask(JSON.parse(JSON.stringify(result ?? null)), false);
}
