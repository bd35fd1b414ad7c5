import { type CatalogAllocation, type CatalogJob, catalogAllocations } from "../bucket/catalog.ts";
import { forgetPromotion, promotionsOf, setStopped } from "../bucket/promotions.ts";
import { runAll } from "../core/async.ts";
import { messageOf, throwIfCancelled } from "../core/errors.ts";
import { RUNNER_EXIT } from "../transport/runner.ts";
import { syncTree } from "../transport/sync.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";
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
 * since it was promoted, and removes the files that a sync put there. A disabled allocation is stopped once. Errors
 * stay with their allocation: the next deploy tries again; where the worker has left the bucket they are only told.
 * `jobs` are all of the catalog, whichever the deploy is about.
 */
export async function reconcile(
  context: OperationContext,
  fleet: Fleet,
  jobs: readonly CatalogJob[],
): Promise<Reconciled[]> {
  const due = catalogAllocations(context.db).filter((allocation) => needsStop(context, allocation));
  if (due.length === 0) return [];
  context.log.info(`reconcile: stops what was removed or disabled, ${due.length} in all`);
  const results = await runAll(
    due,
    AT_ONCE,
    (one) => reconcileOne(context, fleet, jobs, one),
    context.signal,
  );
  throwIfCancelled(context.signal);
  return results.map((result, index) => {
    const { id, job, worker, removed } = due[index] as CatalogAllocation;
    const error = result.status === "rejected" ? messageOf(result.reason) : null;
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

async function reconcileOne(
  context: OperationContext,
  fleet: Fleet,
  jobs: readonly CatalogJob[],
  allocation: CatalogAllocation,
): Promise<void> {
  const { id, job, worker } = allocation;
  const transport = await fleet.reach(worker);
  const limit = jobs.find((one) => one.name === job)?.lifecycleTimeoutSeconds ?? LIFECYCLE_LIMIT_SECONDS;
  await makeTarget(context, transport, {
    ...{ job, target: "stop", phase: "reconcile", limitSeconds: limit },
    // Where there is no such folder nothing was ever put, or somebody has cleaned up.
    accepted: [RUNNER_EXIT.missingFolder],
  });
  // Before the files go: if that fails and the allocation comes back, it must not be taken for one that runs.
  setStopped(context.db, job, id, true);
  if (!allocation.removed) return;
  await syncTree(transport, { name: job, folder: `jobs/${job}`, files: [] }, { signal: context.signal });
  forgetPromotion(context.db, job, id);
}
