import { Failure } from "../../core/errors.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";
import { type Grade, troubleOf } from "./outcome.ts";

/** How it went on a worker. One that nothing reached has not failed at what it was asked to do. */
export interface Graded {
  worker: string;
  outcome: Exclude<Grade, "changed" | "skipped">;
  /** One sentence, where it is neither ok nor was stopped. */
  error: string | null;
}

const MOST_NAMES = 20;

/** The grade of a worker whose part in a run ended with an error. */
export function gradeOf(error: unknown): Pick<Graded, "outcome" | "error"> {
  const { grade, message } = troubleOf(error);
  return { outcome: grade, error: grade === "cancelled" ? null : message };
}

/**
 * Says how it went on all workers and answers the result. Where one is not ok, or there are other `reasons`, it throws
 * `cancelled`, with what became of the commands, when the run was cancelled, else `failed`, unless that is tolerated;
 * both with the whole result in the details.
 */
export function concludeWorkers<R extends { workers: readonly Graded[] }>(
  { log, signal }: OperationContext,
  fleet: Fleet,
  result: R,
  { reasons = [], isTolerant = false }: { reasons?: readonly string[]; isTolerant?: boolean } = {},
): R {
  const { workers } = result;
  const bad = workers.filter(({ outcome }) => outcome !== "ok");
  const isFine = bad.length + reasons.length === 0;
  if (!isFine && signal.aborted)
    throw new Failure("cancelled", "cancelled", { details: { ...result, cancelled: fleet.cancelReceipts() } });
  for (const { worker, error } of bad) if (error !== null) log.error(`${worker}: ${error}`);
  log.info(`${workers.length - bad.length} of ${workers.length} workers are ok`);
  if (isFine || isTolerant) return result;
  const count = `${bad.length} of ${workers.length} workers are not ok: ${namesOf(bad)}`;
  const sentences = bad.length === 0 ? reasons : [count, ...reasons];
  throw new Failure("failed", sentences.join("; "), { details: result });
}

function namesOf(bad: readonly Graded[]): string {
  const names = bad.slice(0, MOST_NAMES).map(({ worker, outcome }) => `${worker} (${outcome.replace("_", " ")})`);
  const more = bad.length - names.length;
  return names.join(", ") + (more > 0 ? ` and ${more} more` : "");
}
