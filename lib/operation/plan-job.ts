import { type CatalogAllocation, type CatalogJob, catalogFiles } from "../bucket/catalog.ts";
import { type Promotion, promotionsOf } from "../bucket/promotions.ts";
import { type StagedTree, stageAllocation } from "../bucket/staging.ts";
import { type Decision, decide, isComplete, isGateOpen } from "../plan/changes.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";

/** What a deploy means to do with one allocation. */
export interface AllocationPlan {
  allocation: CatalogAllocation;
  promoted: Promotion;
  tree: StagedTree;
  /** What `.UpdateSeq` was for it. */
  updateSeq: number;
  decision: Decision;
}

/** What a deploy means to do with one job. */
export interface JobPlan {
  job: CatalogJob;
  allocations: AllocationPlan[];
  /** At least one allocation changes or has a gate to pass. */
  needsWork: boolean;
}

/** The jobs that a job's hooks demand. */
export function upstreamOf(job: CatalogJob): string[] {
  return [...new Set(job.hooks.map((hook) => hook.demandJob).filter((name) => name !== ""))];
}

/** The jobs that a job demands, directly or through others. */
export function allUpstreamOf(job: CatalogJob, jobs: readonly CatalogJob[]): string[] {
  const found = new Set(upstreamOf(job));
  // What is added on the way is visited too.
  for (const name of found)
    for (const upstream of jobs.filter((one) => one.name === name).flatMap(upstreamOf)) found.add(upstream);
  return [...found];
}

/**
 * Plans a job from the catalog and what was promoted: renders every non-removed allocation and decides what happens to
 * it. An allocation is rendered with the update sequence of its last sync, and with `updateSeq` only if it then has to
 * change: else what shows the sequence would differ for ever. Nothing is read from `tmp/`, nothing is written. Throws `failed` for a template that cannot be rendered.
 */
export function planJob(
  context: OperationContext,
  fleet: Fleet,
  job: CatalogJob,
  allocations: readonly CatalogAllocation[],
  updateSeq: number,
  force: boolean,
): JobPlan {
  const files = catalogFiles(context.db, job.name);
  const promotionOf = promotionsOf(context.db, job.name);
  const planWith = (allocation: CatalogAllocation, promoted: Promotion, updateSeq: number) => {
    const fields = templateFields(context, fleet, allocation, promoted, updateSeq);
    const tree = stageAllocation(files, fields, upstreamOf(job), context.kv, job.secretMode);
    const target = { hash: tree.hash, version: allocation.newVersion, files: tree.digests };
    const decision = decide({ disabled: allocation.disabled, promoted, target }, job, force);
    return { allocation, promoted, tree, updateSeq, decision };
  };
  const plans = allocations.map((allocation): AllocationPlan => {
    const promoted = promotionOf(allocation.id);
    const last = promoted.updateSeq || updateSeq;
    const plan = planWith(allocation, promoted, last);
    const changes = plan.decision.action !== "skip" && last !== updateSeq;
    return changes ? planWith(allocation, promoted, updateSeq) : plan;
  });
  return {
    job,
    allocations: plans,
    needsWork: plans.some((plan) => plan.decision.action !== "skip" || hasOpenGate(plan)),
  };
}

/** True for an active allocation that is as it should be but whose gate has not been passed. */
export function hasOpenGate(plan: AllocationPlan): boolean {
  const { allocation, promoted, tree } = plan;
  const target = { hash: tree.hash, version: allocation.newVersion, files: tree.digests };
  return !allocation.disabled && isComplete(promoted, target) && isGateOpen(promoted);
}

/** What templates of an allocation are told beside the KV store. */
export function templateFields(
  context: OperationContext,
  fleet: Fleet,
  allocation: CatalogAllocation,
  promoted: Promotion,
  updateSeq: number,
) {
  const worker = fleet.worker(allocation.worker);
  const bucketPath = `${worker.root}/${context.run.bucketId}`;
  return {
    AllocationID: allocation.id,
    Job: allocation.job,
    CurrentVersion: promoted.version,
    NewVersion: allocation.newVersion,
    BucketID: context.run.bucketId,
    WorkerID: worker.id,
    WorkerIP: allocation.worker,
    Labels: worker.labels,
    UpdateSeq: updateSeq,
    BucketPath: bucketPath,
    JobPath: `${bucketPath}/jobs/${allocation.job}`,
  };
}
