import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { beginChange, forgetPromotion, setStopped } from "../../bucket/catalog/promotions.ts";
import { runAll } from "../../core/async.ts";
import { throwIfCancelled } from "../../core/errors.ts";
import { inOneLine } from "../../core/plain-text.ts";
import { RUNNER_EXIT } from "../../transport/ask/runner.ts";
import type { OperationContext } from "../base/context.ts";
import { type Trouble, troubleOf } from "../base/outcome.ts";
import { hooksOn, scriptErrors } from "../hooks/hooks.ts";
import { noteBegun, noteOutcomes, outcomeOf } from "../plan/last-outcomes.ts";
import type { Due } from "../plan/plan-job.ts";
import type { Effects } from "../reach/effects.ts";
import type { WantedTarget } from "../reach/target.ts";

const AT_ONCE = 32;
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
 * after_allocation_stopped, and removes the files that a sync put there. Errors stay with their allocation: the next
 * deploy tries again; where the worker has left the bucket they are only told. `jobs` are all of the catalog, whichever
 * the deploy is about.
 */
export async function reconcile(
  context: OperationContext,
  effects: Effects,
  jobs: readonly CatalogJob[],
  due: readonly Due[],
): Promise<Reconciled[]> {
  if (due.length === 0) return [];
  context.log.info(`reconcile: stops what was removed or disabled, ${due.length} in all`);
  const troubles = new Map<Due, Trouble>();
  await step(context, due, troubles, (one) => stop(context, effects, jobs, one));
  for (const job of jobs) {
    const stopped = due.filter((one) => one.allocation.job === job.name && !troubles.has(one));
    await runStopped(context, effects, job, stopped, troubles);
  }
  await step(context, due, troubles, (one) => finish(context, effects, one.allocation));
  return due.map((one) => conclude(context, one, troubles.get(one)));
}

function conclude(context: OperationContext, { allocation, action, isGone }: Due, trouble?: Trouble): Reconciled {
  const { id, job, worker } = allocation;
  if (trouble) context.log.warn(`reconcile of ${job} on ${worker}: ${inOneLine(trouble.message)}`);
  // What became of it is not known: if the worker ever comes back, it is to be started there.
  if (trouble && isGone) setStopped(context.db, job, id, "done");
  noteOutcomes(context, [{ id, action, outcome: trouble?.grade ?? "changed", reason: trouble?.message ?? "" }]);
  const error = isGone ? null : (trouble?.message ?? null);
  return { job, worker, action, outcome: trouble?.grade ?? "changed", error };
}

/** One step for all that had no trouble before it. */
async function step(
  { signal }: OperationContext,
  due: readonly Due[],
  troubles: Map<Due, Trouble>,
  work: (one: Due) => Promise<void>,
): Promise<void> {
  const left = due.filter((one) => !troubles.has(one));
  const results = await runAll(left, AT_ONCE, work, signal);
  throwIfCancelled(signal);
  results.forEach((result, index) => {
    if (result.status === "rejected") troubles.set(left[index] as Due, troubleOf(result.reason));
  });
}

async function stop(
  context: OperationContext,
  effects: Effects,
  jobs: readonly CatalogJob[],
  { allocation: { id, job, worker, removed }, action }: Due,
): Promise<void> {
  const known = jobs.find((one) => one.name === job);
  // Before it may stand still: if it comes back, it must not be taken for one that runs.
  setStopped(context.db, job, id, "begun");
  noteBegun(context, [id], action);
  const target: WantedTarget = {
    job,
    worker,
    target: "stop",
    phase: "reconcile",
    limitSeconds: known?.lifecycleTimeoutSeconds ?? LIFECYCLE_LIMIT_SECONDS,
    // Where there is no such folder nothing was ever put, or somebody has cleaned up.
    accepted: [RUNNER_EXIT.missingFolder],
  };
  await effects.run(target).catch((error: unknown) => {
    noteOutcomes(context, [{ id, action, ...outcomeOf(error) }]);
    throw error;
  });
  if (removed) setStopped(context.db, job, id, "done");
}

/** The hooks that follow a stop. What they store is kept; where one failed, all are repeated by the next deploy. */
async function runStopped(
  { kv, signal }: OperationContext,
  effects: Effects,
  job: CatalogJob,
  stopped: readonly Due[],
  troubles: Map<Due, Trouble>,
): Promise<void> {
  if (stopped.length === 0 || hooksOn(job, "after_allocation_stopped").length === 0) return;
  const workers = stopped.map(({ allocation }) => allocation.worker);
  try {
    await effects.hooks({ kind: "stopped", job, workers });
  } catch (error) {
    throwIfCancelled(signal);
    const own = scriptErrors(error);
    for (const one of stopped) {
      const message = own.get(one.allocation.worker);
      troubles.set(one, message === undefined ? troubleOf(error) : { grade: "failed", message });
    }
  } finally {
    kv.flush(job.name);
  }
}

async function finish(
  { db }: OperationContext,
  effects: Effects,
  { id, job, worker, removed }: CatalogAllocation,
): Promise<void> {
  // A disabled one only now: until its hooks have run, the next deploy has to see to it.
  if (!removed) return setStopped(db, job, id, "done");
  // If it comes back before this is done, what was promoted may be there in part only.
  beginChange(db, job, [id]);
  await effects.sync({ job, worker }, undefined, {});
  forgetPromotion(db, job, id);
}
