import type { Action } from "./changes.ts";
import { type Batch, rolloutBatches, type Widths } from "./rollout.ts";

/** The actions that run a target of the job on the worker. */
const RUNNING: readonly Action[] = ["start", "restart", "reload"];

/** Workers of a job that are changed in the same way, batch after batch. */
export interface Phase {
  /** As in `DEPLOY_PHASE`. */
  phase: "new" | "update" | "job_control";
  /** The target that runs; `job_control` where the job's own hooks do what else targets do. */
  action: "start" | "reload" | "restart" | "job_control";
  batches: Batch[];
}

/** What the phases of a job depend on. */
export interface JobToRollOut extends Widths {
  /** It has hooks for job_control. */
  hasOwnControl: boolean;
}

/** True for what runs a target of the job. */
export function runsTarget(action: Action): boolean {
  return RUNNING.includes(action);
}

/**
 * The phases of a job's rollout (hook-runtime.md, Batching rules): first starts, then reloads, then restarts, each in
 * batches of its own width; where the job's hooks do that instead, one phase over all its workers, those that do not
 * change too. `order` is the KV value `rollout_order`; allocations come in catalog order. Nothing to run: no phase.
 */
export function rolloutPhases(
  job: JobToRollOut,
  allocations: readonly { worker: string; action: Action }[],
  order: string | undefined,
): Phase[] {
  if (!allocations.some(({ action }) => runsTarget(action))) return [];
  const phase = (name: Phase["phase"], action: Phase["action"], width: number): Phase[] => {
    const taking = allocations.filter((one) => action === "job_control" || one.action === action);
    const workers = taking.map(({ worker }) => worker);
    return workers.length === 0 ? [] : [{ phase: name, action, batches: rolloutBatches(order, workers, width) }];
  };
  if (job.hasOwnControl) return phase("job_control", "job_control", job.maxConcurrentUpgrades);
  return [
    ...phase("new", "start", job.maxConcurrentStarts),
    ...phase("update", "reload", job.maxConcurrentUpgrades),
    ...phase("update", "restart", job.maxConcurrentUpgrades),
  ];
}
