import type { CatalogAllocation } from "../../bucket/base/model.ts";
import { catalogAllocations, catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { dropUnusedContents, removeUnnamedContents } from "../../bucket/catalog/contents.ts";
import { forgetPromotion, promotionsOf } from "../../bucket/catalog/promotions.ts";
import { allocationNamespace } from "../../bucket/kv/kv-access.ts";
import { mapAll } from "../../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import { faultPoint } from "../../core/self.ts";
import { parametersOf } from "../../run/protocol.ts";
import { discardJob, vacate } from "../../transport/files/sync.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { type CancelReceipts, Fleet, WORKERS_AT_ONCE } from "../base/fleet.ts";
import { concluded, endCancelled } from "../base/outcome.ts";
import { type Noted, noteBegun, noteOutcomes, outcomeOf as outcomeOfError } from "../plan/last-outcomes.ts";

/**
 * What became of a removed allocation: `removed` from its worker and forgotten; `abandoned`: forgotten, though its worker,
 * which has left the bucket, could not be cleaned; still known, for the next gc: `not_stopped` (deploy first),
 * `unreachable`, `failed`.
 */
interface Collected {
  job: string;
  worker: string;
  outcome: "removed" | "abandoned" | "not_stopped" | "unreachable" | "failed";
  error: string | null;
}

/** The result of a gc run. */
interface GcResult {
  allocations: Collected[];
  /** Rows of deleted keys and old versions that went. */
  purged_kv_rows: number;
  /** How many files went that no promoted tree has any more. */
  dropped_contents: number;
  /** Only of a run that was cancelled. */
  cancelled?: CancelReceipts;
}

/**
 * Cleans up (docs/operate.md, Clean-up). Removes the files and the rows of removed allocations that a deploy has stopped.
 * The variables and secrets of a job go with its last allocation, the rows about a worker that left the bucket with the
 * last allocation there. Then deleted keys and old versions are purged. On each worker the files go first and then, in
 * one transaction, the rows about them, so that after a kill the next gc can repeat the work. Throws `failed` at the end
 * where a worker answered but could not be cleaned, `cancelled` when it was cancelled, both with the result in the details.
 */
export const collectGarbage: Operation = async (context, params) => {
  const { retain_days } = parametersOf("gc", params);
  const { db, kv, log, signal } = context;
  await using fleet = new Fleet(context, catalogWorkers(db));
  const result: GcResult = { allocations: [], purged_kv_rows: 0, dropped_contents: 0 };
  try {
    const removed = catalogAllocations(db).filter((one) => one.removed);
    const workers = [...Map.groupBy(removed, (one) => one.worker)];
    const clean = async ([host, due]: [string, CatalogAllocation[]]) => {
      result.allocations.push(...(await cleanWorker({ context, fleet }, host, due)));
      const done = result.allocations.length;
      context.progress.report({ phase: "gc", done, total: removed.length });
    };
    await mapAll(workers, WORKERS_AT_ONCE, clean, signal);
    db.transaction(() => {
      result.purged_kv_rows = kv.purge(retain_days);
      result.dropped_contents = dropUnusedContents(db);
    });
    faultPoint("gc: dropped");
    await removeUnnamedContents(db);
    log.info(gcSummary(result));
  } catch (error) {
    endCancelled(signal, fleet, error, () => result);
  }
  const failed = result.allocations.filter(({ outcome }) => outcome === "failed");
  const errors = failed.map(({ job, worker, error }) => `${job}@${worker}: ${error}`);
  return concluded(result, "the clean-up is not complete", errors);
};

/** What a gc works with. */
interface Gc {
  context: OperationContext;
  fleet: Fleet;
}

/** Removes the removed allocations from one worker, and forgets those that are gone. */
async function cleanWorker(gc: Gc, host: string, due: readonly CatalogAllocation[]): Promise<Collected[]> {
  const { context, fleet } = gc;
  const hasLeft = fleet.worker(host).removed;
  const running = new Set(due.filter((one) => mayStillRun(context, one)));
  // A worker that left is cleaned as a whole, and only once nothing runs there any more.
  const ready = hasLeft && running.size > 0 ? [] : due.filter((one) => !running.has(one));
  const waiting = due.filter((one) => !ready.includes(one));
  const clean = hasLeft ? vacateWorker : discardJobs;
  const cleaned = ready.length === 0 ? [] : await cleanAndNote(context, ready, () => clean(gc, host, ready));
  const [notStopped, workerLeft] = [
    "no deploy has stopped it since it was removed",
    "the worker has left the bucket, and no deploy has stopped all that ran there",
  ];
  const reasonOf = (one: CatalogAllocation) => (running.has(one) ? notStopped : workerLeft);
  const kept = waiting.map((one) => collected(one, "not_stopped", `${reasonOf(one)}: deploy first`));
  const outcomes = [...kept, ...cleaned];
  const isDone = (one: CatalogAllocation) =>
    cleaned.some(({ job, outcome }) => job === one.job && (outcome === "removed" || outcome === "abandoned"));
  forgetAllocations(context, host, ready.filter(isDone));
  for (const { job, worker, outcome, error } of outcomes)
    if (error === null) context.log.info(`${job} on ${worker}: ${outcome}`, { job, worker });
    else context.log.warn(`${job} on ${worker}: ${outcome.replace("_", " ")}: ${error}`, { job, worker });
  return outcomes;
}

/** Cleans allocations with `clean`, and records the outcome of those that could not be removed. */
async function cleanAndNote(
  context: OperationContext,
  ready: readonly CatalogAllocation[],
  clean: () => Promise<Collected[]>,
): Promise<Collected[]> {
  const ids = ready.map(({ id }) => id);
  noteBegun(context, ids, "gc");
  try {
    const cleaned = await clean();
    const idOf = (job: string) => ready.find((one) => one.job === job)?.id ?? "";
    const left = cleaned.flatMap(({ job, outcome, error: reason }): Noted[] =>
      outcome === "failed" || outcome === "unreachable" ? [{ id: idOf(job), action: "gc", outcome, reason }] : [],
    );
    noteOutcomes(context, left);
    return cleaned;
  } catch (error) {
    const outcome = { action: "gc", ...outcomeOfError(error) };
    const outcomes = ids.map((id) => ({ id, ...outcome }));
    noteOutcomes(context, outcomes);
    throw error;
  }
}

/** True for an allocation that may still run on its worker: only a deploy stops it, with its hooks. */
function mayStillRun({ db }: OperationContext, { job, id }: CatalogAllocation): boolean {
  const { hash, unfinished, stopped, stopping } = promotionsOf(db, job)(id);
  return (hash !== "" || unfinished) && (!stopped || stopping);
}

async function vacateWorker(gc: Gc, host: string, due: readonly CatalogAllocation[]): Promise<Collected[]> {
  const { log, signal } = gc.context;
  try {
    if (!(await vacate(await gc.fleet.open(host), signal)))
      log.warn(`${host}: its folder stays, since another worker of the bucket uses it now`, { worker: host });
    return due.map((one) => collected(one, "removed", null));
  } catch (error) {
    throwIfCancelled(signal);
    return due.map((one) => collected(one, "abandoned", messageOf(error)));
  }
}

async function discardJobs(gc: Gc, host: string, due: readonly CatalogAllocation[]): Promise<Collected[]> {
  const { signal } = gc.context;
  const outcomes: Collected[] = [];
  for (const one of due) {
    try {
      await discardJob(await gc.fleet.open(host), one.job, signal);
      outcomes.push(collected(one, "removed", null));
    } catch (error) {
      throwIfCancelled(signal);
      const isUnreachable = error instanceof Failure && error.code === "unreachable";
      outcomes.push(collected(one, isUnreachable ? "unreachable" : "failed", messageOf(error)));
    }
  }
  return outcomes;
}

function collected({ job, worker }: CatalogAllocation, outcome: Collected["outcome"], error: string | null): Collected {
  return { job, worker, outcome, error };
}

/** Deletes the rows of allocations, and of jobs and workers without another allocation: all of them or none. */
function forgetAllocations({ db, kv }: OperationContext, host: string, gone: readonly CatalogAllocation[]): void {
  if (gone.length === 0) return;
  const clear = (namespace: string) => kv.sync(namespace, new Map());
  const hasRows = (column: "job" | "worker_ip", value: string) =>
    db.get(`SELECT 1 FROM allocations WHERE ${column} = ?`, value) !== undefined;
  try {
    db.transaction(() => {
      for (const { id, job } of gone) {
        db.run("DELETE FROM allocations WHERE alloc_id = ?", id);
        forgetPromotion(db, job, id);
        db.run("DELETE FROM last_outcome WHERE alloc_id = ?", id);
        clear(allocationNamespace(job, host));
        if (!hasRows("job", job))
          for (const kind of ["ops/job", "vars/bucket/job", "vars/job", "secrets/job"]) clear(`${kind}/${job}`);
      }
      const [isPresent] = db.all("SELECT 1 FROM worker WHERE worker_ip = ? AND removed = 0", host);
      if (!isPresent && !hasRows("worker_ip", host)) forgetWorker(db, clear, host);
      kv.flush();
    });
  } catch (error) {
    kv.discard();
    throw error;
  }
}

function forgetWorker(db: OperationContext["db"], clear: (namespace: string) => void, host: string): void {
  for (const namespace of [`ops/worker/${host}`, `ops/worker/${host}/tags`]) clear(namespace);
  for (const table of ["worker_labels", "worker_tags", "worker_facts", "worker"])
    db.run(`DELETE FROM ${table} WHERE worker_ip = ?`, host);
}

function gcSummary({ allocations, purged_kv_rows, dropped_contents }: GcResult): string {
  const done = allocations.filter(({ outcome }) => outcome === "removed" || outcome === "abandoned").length;
  return `${done} of ${allocations.length} removed allocations are gone, ${counted(purged_kv_rows, "row")} of the KV store and ${counted(dropped_contents, "file")} of earlier deploys purged`;
}
