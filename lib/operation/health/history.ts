import { noteHealth, type Observation } from "../../bucket/health/health-history.ts";
import type { OperationContext } from "../base/context.ts";

/** How a worker or an allocation was found in a run. */
interface Found {
  worker: string;
  outcome: string;
  error?: string | null;
}

const HEALTH: Readonly<Record<string, string>> = { ok: "healthy", failed: "unhealthy", unreachable: "unreachable" };
const REACH: Readonly<Record<string, string>> = {
  ok: "reachable",
  in_sync: "reachable",
  drifted: "reachable",
  unreachable: "unreachable",
};

/** The health of the allocations of a job; what was not looked at is left out. */
export function healthOf(job: string, allocations: readonly Found[]): Observation[] {
  return observations(allocations, HEALTH, { job, aspect: "health" });
}

/** Whether workers could be reached; a worker that answered with an error tells nothing. */
export function reachOf(workers: readonly Found[]): Observation[] {
  return observations(workers, REACH, { job: "", aspect: "reach" });
}

/** Keeps what a run found; secrets in reasons are masked. */
export function keepHealth({ db, run, log }: Pick<OperationContext, "db" | "run" | "log">, found: readonly Observation[]): void {
  const masked = found.map((one) => ({ ...one, reason: log.redactor.sentence(one.reason) }));
  noteHealth(db, run.id, masked);
}

function observations(
  all: readonly Found[],
  states: Readonly<Record<string, string>>,
  about: Pick<Observation, "job" | "aspect">,
): Observation[] {
  return all.flatMap(({ worker, outcome, error }) => {
    const state = states[outcome];
    return state === undefined ? [] : [{ ...about, worker, state, reason: error ?? "" }];
  });
}
