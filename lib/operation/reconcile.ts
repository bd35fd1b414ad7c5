import { type CatalogAllocation, type CatalogJob, catalogAllocations } from "../bucket/catalog.ts";
import { forgetPromotion, promotionsOf, setStopped } from "../bucket/promotions.ts";
import { runAll } from "../core/async.ts";
import { messageOf, throwIfCancelled } from "../core/errors.ts";
import { RUNNER_EXIT } from "../transport/runner.ts";
import { syncTree } from "../transport/sync.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";
import { type HookSession, hooksOn, scriptErrors } from "./hooks.ts";
import { makeTarget } from "./target.ts";

const AT_ONCE = 32;
const LIFECYCLE_LIMIT_SECONDS = 900;

/** One allocation that reconcile looked after. */
export interface Reconciled {
  job: string;
  worker: string;
  action: "stop" | "remove";
  error: string | null;
}

/**
 * The first step of a deploy, once for all jobs (hook-runtime.md, Deploy order 1): stops what was removed or disabled
 * since it was promoted, runs the hooks for after_allocation_stopped, and removes the files that a sync put there. A
 * disabled allocation is stopped once. Errors stay with their allocation: the next deploy tries again; where the worker
 * has left the bucket they are only told. `jobs` are all of the catalog, whichever the deploy is about.
 */
export async function reconcile(
  context: OperationContext,
  fleet: Fleet,
  hooks: HookSession,
  jobs: readonly CatalogJob[],
): Promise<Reconciled[]> {
  const due = catalogAllocations(context.db).filter((allocation) => needsStop(context, allocation));
  if (due.length === 0) return [];
  context.log.info(`reconcile: stops what was removed or disabled, ${due.length} in all`);
  const errors = new Map<CatalogAllocation, string>();
  await step(context, due, errors, (one) => stop(context, fleet, jobs, one));
  for (const job of jobs)
    await runStopped(
      context,
      hooks,
      job,
      due.filter((one) => one.job === job.name && !errors.has(one)),
      errors,
    );
  await step(context, due, errors, (one) => finish(context, fleet, one));
  return due.map((one) => {
    const { id, job, worker, removed } = one;
    const error = errors.get(one) ?? null;
    if (error !== null) context.log.warn(`reconcile of ${job} on ${worker}: ${error}`);
    const gone = error !== null && removed && fleet.worker(worker).removed;
    // What became of it is not known: if the worker ever comes back, it is to be started there.
    if (gone) setStopped(context.db, job, id, true);
    return { job, worker, action: removed ? "remove" : "stop", error: gone ? null : error };
  });
}

function needsStop(context: OperationContext, allocation: CatalogAllocation): boolean {
  if (!allocation.removed && !allocation.disabled) return false;
  const promoted = promotionsOf(context.db, allocation.job)(allocation.id);
  const known = promoted.hash !== "" || promoted.unfinished;
  return known && (allocation.removed || !promoted.stopped);
}

/** One step for all that had no error before it. */
async function step(
  { signal }: OperationContext,
  due: readonly CatalogAllocation[],
  errors: Map<CatalogAllocation, string>,
  work: (one: CatalogAllocation) => Promise<void>,
): Promise<void> {
  const left = due.filter((one) => !errors.has(one));
  const results = await runAll(left, AT_ONCE, work, signal);
  throwIfCancelled(signal);
  results.forEach((result, index) => {
    if (result.status === "rejected") errors.set(left[index] as CatalogAllocation, messageOf(result.reason));
  });
}

async function stop(
  context: OperationContext,
  fleet: Fleet,
  jobs: readonly CatalogJob[],
  allocation: CatalogAllocation,
): Promise<void> {
  const { id, job, worker, removed } = allocation;
  const transport = await fleet.reach(worker);
  const limit = jobs.find((one) => one.name === job)?.lifecycleTimeoutSeconds ?? LIFECYCLE_LIMIT_SECONDS;
  await makeTarget(context, transport, {
    ...{ job, target: "stop", phase: "reconcile", limitSeconds: limit },
    // Where there is no such folder nothing was ever put, or somebody has cleaned up.
    accepted: [RUNNER_EXIT.missingFolder],
  });
  // Before the files go: if that fails and the allocation comes back, it must not be taken for one that runs.
  if (removed) setStopped(context.db, job, id, true);
}

/** The hooks that follow a stop. What they store is kept; where one failed, all are repeated by the next deploy. */
async function runStopped(
  { kv, signal }: OperationContext,
  hooks: HookSession,
  job: CatalogJob,
  stopped: readonly CatalogAllocation[],
  errors: Map<CatalogAllocation, string>,
): Promise<void> {
  if (stopped.length === 0 || hooksOn(job, "after_allocation_stopped").length === 0) return;
  try {
    await hooks.run({ kind: "stopped", job, workers: stopped.map((one) => one.worker) });
  } catch (error) {
    throwIfCancelled(signal);
    const own = scriptErrors(error);
    for (const one of stopped) errors.set(one, own.get(one.worker) ?? messageOf(error));
  } finally {
    kv.flush(job.name);
  }
}

async function finish(
  context: OperationContext,
  fleet: Fleet,
  { id, job, worker, removed }: CatalogAllocation,
): Promise<void> {
  // A disabled one only now: until its hooks have run, the next deploy has to see to it.
  if (!removed) return setStopped(context.db, job, id, true);
  const transport = await fleet.reach(worker);
  await syncTree(transport, { name: job, folder: `jobs/${job}`, files: [] }, { signal: context.signal });
  forgetPromotion(context.db, job, id);
}
