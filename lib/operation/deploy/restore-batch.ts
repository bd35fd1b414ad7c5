import type { CatalogJob } from "../../bucket/base/model.ts";
import { beginChange, promote, setGate } from "../../bucket/catalog/promotions.ts";
import type { StagedTree } from "../../bucket/catalog/staging.ts";
import { noteInSync } from "../../bucket/health/health-history.ts";
import { mapAll } from "../../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { counted, inOneLine } from "../../core/plain-text.ts";
import { rolloutBatches } from "../../plan/rollout.ts";
import type { OperationContext } from "../base/context.ts";
import { WORKERS_AT_ONCE } from "../base/fleet.ts";
import { troubleOf } from "../base/outcome.ts";
import { passGate } from "../health/gate.ts";
import { hooksOn } from "../hooks/hooks.ts";
import { noteStep } from "../plan/last-outcomes.ts";
import type { AllocationPlan } from "../plan/plan-job.ts";
import { type AllocationState, hostsOf, idsOf, isSound, workersOf } from "../plan/rollout-state.ts";
import { bringFiles, type Effects, promotedTree } from "../reach/effects.ts";
import { targetHash } from "../reach/target.ts";

/** The means to put a batch back. */
interface Restoring {
  context: OperationContext;
  effects: Effects;
}

/** What is to be put back after the failed gate of a batch. */
interface Failed {
  job: CatalogJob;
  batch: readonly AllocationState[];
  /** The job's other allocations whose files were synced and whose batch had not begun. */
  waiting: readonly AllocationState[];
}

/**
 * Puts the tree and the version that were promoted before a batch back on its workers, all of them at once as the batch
 * was, and runs their gate (docs/deploy.md, After a failed gate); then the promoted files on those that wait for a
 * later batch, where nothing runs. First starts have no promoted files to return to and stay as they are, as do
 * unreachable workers. Answers the failure of the job: the failure of the batch's gate, and on which workers files were
 * put back. Throws only `cancelled`.
 */
export async function restoreBatch(by: Restoring, failed: Failed, failure: unknown): Promise<Failure> {
  const ofBatch = await restore(by, failed.job, failed.batch);
  const ofWaiting = await settleWaiting(by, failed.job, failed.waiting);
  const message = [messageOf(failure), ofBatch, ...ofWaiting].join("; ");
  return new Failure("ErrHealthCheckFailed", message, { cause: failure });
}

/** Puts a batch back, and answers the outcome as a sentence. */
async function restore(by: Restoring, job: CatalogJob, batch: readonly AllocationState[]): Promise<string> {
  const { context, effects } = by;
  const states = batch.filter(({ plan, trouble }) => plan.promoted.hash !== "" && trouble?.grade !== "unreachable");
  if (states.length === 0) return "nothing was promoted there before that could be put back";
  const hosts = hostsOf(states);
  const probed = workersOf(states.filter(({ plan }) => !plan.allocation.disabled));
  let isBack = false;
  noteStep(context, states, "restore");
  try {
    context.log.restores(`${job.name}: puts the previously promoted files back on ${hosts}`, { job: job.name });
    await putBatchBack(by, job, states);
    isBack = true;
    await passGate(context, effects, job, { probed, hooked: workersOf(states) });
    setGate(context.db, job.name, idsOf(states), "passed");
    for (const state of states) state.isBack = true;
    return `what was promoted before was put back on ${hosts} and is healthy there`;
  } catch (error) {
    throwIfCancelled(context.signal);
    context.kv.discard(job.name);
    setGate(context.db, job.name, idsOf(states), "failed");
    const end = isBack ? `was put back on ${hosts}, but is not healthy there` : `could not be put back on ${hosts}`;
    return `what was promoted before ${end}: ${messageOf(error)}`;
  } finally {
    for (const state of states) state.trouble ??= { grade: "failed", message: "put back: its batch was not healthy" };
  }
}

/** Brings back files, services and promotions of a batch. Throws the first thing that goes wrong. */
async function putBatchBack(by: Restoring, job: CatalogJob, states: readonly AllocationState[]): Promise<void> {
  const { db, kv, run, signal } = by.context;
  const trees = new Map(states.map(({ plan }) => [plan, promotedTree(by.context, plan.promoted)]));
  beginChange(db, job.name, idsOf(states));
  const hasOwnControl = hooksOn(job, "job_control").length > 0;
  const work = async ([plan, tree]: [AllocationPlan, StagedTree]) => {
    await bringFiles(by, plan.allocation, { tree, updateSeq: plan.promoted.updateSeq }, plan.tree.digests);
    if (!hasOwnControl) await runAgain(by.effects, job, plan, tree);
  };
  await mapAll([...trees], states.length, work, signal);
  if (hasOwnControl) await controlAgain(by, job, states);
  db.transaction(() => {
    for (const { plan } of states) {
      const { version } = plan.promoted;
      promote(db, plan.allocation, version, "pending");
      kv.put(`ops/job/${job.name}/worker/${plan.allocation.worker}`, "version", version);
    }
    kv.flush(job.name);
    noteInSync(db, run.id, job.name, workersOf(states));
  });
}

async function runAgain(
  effects: Effects,
  { name, lifecycleTimeoutSeconds: limitSeconds }: CatalogJob,
  { allocation: { worker, newVersion }, decision, promoted: { version } }: AllocationPlan,
  tree: StagedTree,
): Promise<void> {
  const target = decision.action === "reload" ? "reload" : "restart";
  const env = { CURRENT_VERSION: newVersion, NEW_VERSION: version };
  await effects.run({ job: name, worker, phase: "rollout", hash: targetHash(tree.hash, version), target, limitSeconds, env });
}

/** The same for a job with hooks for job_control, which run instead of the targets. What they wrote is stored in any case. */
async function controlAgain({ context, effects }: Restoring, job: CatalogJob, states: readonly AllocationState[]) {
  const workers = workersOf(states);
  const variables = { NEW_ALLOCATIONS: "", UPDATED_ALLOCATIONS: workers.join(",") };
  const versions = new Map(states.map(({ plan }) => [plan.allocation.worker, plan.promoted.version]));
  const order = context.kv.get(`ops/job/${job.name}`, "rollout_order");
  for (const batch of rolloutBatches(order, workers, workers.length))
    await effects.hooks({ kind: "deploy_control", job, batch, variables, versions }).finally(() => context.kv.flush(job.name));
}

/**
 * Puts the promoted files back on workers whose batch had not begun; the services there run with them already. Answers
 * the outcome in sentences.
 */
async function settleWaiting(by: Restoring, job: CatalogJob, waiting: readonly AllocationState[]): Promise<string[]> {
  const { db, log, run, signal } = by.context;
  const states = waiting.filter(({ plan }) => plan.promoted.hash !== "");
  if (states.length === 0) return [];
  log.info(`${job.name}: puts the promoted files back on ${hostsOf(states)}, where the rollout had not begun`, { job: job.name });
  noteStep(by.context, states, "restore");
  const work = async (state: AllocationState) => {
    const { allocation, promoted, tree } = state.plan;
    try {
      const back = { tree: promotedTree(by.context, promoted), updateSeq: promoted.updateSeq };
      await bringFiles(by, allocation, back, tree.digests);
      // After an earlier deploy was cut off, the service may run with other files than the promoted ones.
      db.transaction(() => {
        if (!promoted.unfinished) promote(db, allocation, promoted.version);
        noteInSync(db, run.id, allocation.job, [allocation.worker]);
      });
      state.isBack = true;
    } catch (error) {
      throwIfCancelled(signal);
      state.trouble = troubleOf(error);
      log.error(`${job.name}@${allocation.worker}: ${inOneLine(state.trouble.message)}`, allocation);
    }
  };
  await mapAll(states, WORKERS_AT_ONCE, work, signal);
  const back = states.filter(isSound).length;
  const lost = states.filter(({ trouble }) => trouble);
  return [
    ...(back > 0 ? [`the promoted files are back on ${counted(back, "worker")} where the rollout had not begun`] : []),
    ...(lost.length > 0 ? [`the promoted files could not be put back on ${hostsOf(lost)}`] : []),
  ];
}
