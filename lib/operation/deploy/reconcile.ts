import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { beginChange, forgetPromotion, setStopped } from "../../bucket/catalog/promotions.ts";
import { mapAll } from "../../core/async.ts";
import { throwIfCancelled } from "../../core/errors.ts";
import { counted, inOneLine } from "../../core/plain-text.ts";
import { RUNNER_EXIT } from "../../transport/ask/runner.ts";
import type { OperationContext } from "../base/context.ts";
import { WORKERS_AT_ONCE } from "../base/fleet.ts";
import { type Trouble, troubleOf } from "../base/outcome.ts";
import { hooksOn, scriptErrors } from "../hooks/hooks.ts";
import { noteBegun, noteOutcomes, outcomeOf } from "../plan/last-outcomes.ts";
import type { Due } from "../plan/plan-job.ts";
import type { Effects } from "../reach/effects.ts";
import type { WantedTarget } from "../reach/target.ts";

const LIFECYCLE_LIMIT_SECONDS = 900;

/** One allocation that reconcile looked after. */
export interface Reconciled {
  job: string;
  worker: string;
  action: "stop" | "remove";
  outcome: "changed" | Trouble["grade"];
  error: string | null;
}

/**
 * The first step of a deploy, once for all jobs (hook-runtime.md, Deploy order 1): stops what is due, runs the hooks for
 * after_allocation_stopped, and removes the files that a sync put there. Errors stay with their allocation, and the next
 * deploy tries again; errors on a worker that has left the bucket are only told. `jobs` are all of the catalog,
 * whichever jobs the deploy is about. Throws only `cancelled`.
 */
export async function reconcile(
  context: OperationContext,
  effects: Effects,
  jobs: readonly CatalogJob[],
  due: readonly Due[],
): Promise<Reconciled[]> {
  const { log, signal } = context;
  if (due.length === 0) return [];
  log.info(`reconcile: stops ${counted(due.length, "removed or disabled allocation")}`);
  const troubles = new Map<Due, Trouble>();
  const sound = () => due.filter((one) => !troubles.has(one));
  const onAll = async (work: (one: Due) => Promise<void>) => {
    const attempt = (one: Due) => work(one).catch((error: unknown) => troubles.set(one, troubleOf(error)));
    await mapAll(sound(), WORKERS_AT_ONCE, attempt, signal);
  };
  await onAll((one) => stop(context, effects, jobs, one));
  for (const job of jobs) {
    const stopped = sound().filter(({ allocation }) => allocation.job === job.name);
    for (const [one, trouble] of await runStopped(context, effects, job, stopped)) troubles.set(one, trouble);
  }
  await onAll((one) => clear(context, effects, one.allocation));
  return due.map((one) => noteEnd(context, one, troubles.get(one)));
}

function noteEnd(context: OperationContext, { allocation, action, isGone }: Due, trouble?: Trouble): Reconciled {
  const { id, job, worker } = allocation;
  const outcome = trouble?.grade ?? "changed";
  if (trouble) context.log.warn(`reconcile of ${job} on ${worker}: ${inOneLine(trouble.message)}`, allocation);
  // Nobody knows whether the service stands still: if the worker ever comes back, the service is to be started there.
  if (trouble && isGone) setStopped(context.db, job, id, "done");
  noteOutcomes(context, [{ id, action, outcome, reason: trouble?.message ?? "" }]);
  return { job, worker, action, outcome, error: isGone ? null : (trouble?.message ?? null) };
}

async function stop(
  context: OperationContext,
  effects: Effects,
  jobs: readonly CatalogJob[],
  { allocation: { id, job, worker, removed }, action }: Due,
): Promise<void> {
  const known = jobs.find((one) => one.name === job);
  // Noted before the service may stand still: if the allocation comes back, it must not be taken for running.
  setStopped(context.db, job, id, "begun");
  noteBegun(context, [id], action);
  const target: WantedTarget = {
    job,
    worker,
    target: "stop",
    phase: "reconcile",
    limitSeconds: known?.lifecycleTimeoutSeconds ?? LIFECYCLE_LIMIT_SECONDS,
    // Without a folder on the worker nothing was ever put there, or somebody has cleaned up.
    accepted: [RUNNER_EXIT.missingFolder],
  };
  await effects.run(target).catch((error: unknown) => {
    noteOutcomes(context, [{ id, action, ...outcomeOf(error) }]);
    throw error;
  });
  if (removed) setStopped(context.db, job, id, "done");
}

/**
 * Runs the hooks that follow a stop and answers what went wrong. What they store is kept; where one failed, all are
 * repeated by the next deploy.
 */
async function runStopped(
  { kv, signal }: OperationContext,
  effects: Effects,
  job: CatalogJob,
  stopped: readonly Due[],
): Promise<[Due, Trouble][]> {
  if (stopped.length === 0 || hooksOn(job, "after_allocation_stopped").length === 0) return [];
  try {
    await effects.hooks({ kind: "stopped", job, workers: stopped.map(({ allocation }) => allocation.worker) });
    return [];
  } catch (error) {
    throwIfCancelled(signal);
    const own = scriptErrors(error);
    return stopped.map((one) => {
      const message = own.get(one.allocation.worker);
      return [one, message === undefined ? troubleOf(error) : { grade: "failed", message }];
    });
  } finally {
    kv.flush(job.name);
  }
}

async function clear({ db }: OperationContext, effects: Effects, { id, job, worker, removed }: CatalogAllocation): Promise<void> {
  // Only now for a disabled allocation: until its hooks have run, the next deploy has to look after it.
  if (!removed) return setStopped(db, job, id, "done");
  // If the allocation comes back before this is done, its promoted files may be there in part only.
  beginChange(db, job, [id]);
  await effects.sync({ job, worker }, undefined, {});
  forgetPromotion(db, job, id);
}
