import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { catalogFiles } from "../../bucket/catalog/catalog.ts";
import { type Promotion, promotionsOf } from "../../bucket/catalog/promotions.ts";
import { type StagedTree, stageAllocation } from "../../bucket/catalog/staging.ts";
import { type ChangeOptions, type Decision, decide, isComplete, isGateOpen } from "../../plan/changes.ts";
import { type PlannedAllocation, plannedAllocation } from "../../plan/deploy-plan.ts";
import { type Phase, rolloutPhases } from "../../plan/rollout.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";
import { hooksOn } from "../hooks/hooks.ts";
import { templateFields, upstreamOf } from "../hooks/job-facts.ts";

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
  /** What runs, batch after batch. */
  phases: Phase[];
  /** Why nothing of it may run; its files are synced all the same. */
  refused: string | undefined;
  /** At least one allocation changes or has a gate to pass. */
  needsWork: boolean;
}

/**
 * Plans a job from the catalog and what was promoted: renders every non-removed allocation and decides what happens to
 * it. An allocation is rendered with the update sequence of its last sync, and with `updateSeq` only if it then has to
 * change; else what shows the sequence would differ for ever. Nothing is read from `tmp/`, and nothing is written.
 * Throws `failed` for a template that cannot be rendered.
 */
export function planJob(
  { context, fleet, options }: { context: OperationContext; fleet: Fleet; options: ChangeOptions },
  job: CatalogJob,
  allocations: readonly CatalogAllocation[],
  updateSeq: number,
): JobPlan {
  const files = catalogFiles(context.db, job.name);
  const promotionOf = promotionsOf(context.db, job.name);
  const planWith = (allocation: CatalogAllocation, promoted: Promotion, updateSeq: number) => {
    const fields = templateFields(context, fleet, allocation, promoted, updateSeq);
    const tree = stageAllocation(files, fields, upstreamOf(job), context.kv, job.secretMode);
    const target = { hash: tree.hash, version: allocation.newVersion, files: tree.digests };
    const force = options.force && (options.forced?.has(allocation.id) ?? true);
    const state = { disabled: allocation.disabled, promoted, target };
    const decision = decide(state, job, { ...options, force });
    return { allocation, promoted, tree, updateSeq, decision };
  };
  const plans = allocations.map((allocation): AllocationPlan => {
    const promoted = promotionOf(allocation.id);
    const last = promoted.updateSeq || updateSeq;
    const plan = planWith(allocation, promoted, last);
    const changes = plan.decision.action !== "skip" && last !== updateSeq;
    return changes ? planWith(allocation, promoted, updateSeq) : plan;
  });
  const needsWork = plans.some((plan) => plan.decision.action !== "skip" || hasOpenGate(plan));
  return { job, allocations: plans, needsWork, ...phasesOf(context, job, plans, options) };
}

/** What is to run for the decisions about a job's allocations. */
function phasesOf(
  { kv }: OperationContext,
  job: CatalogJob,
  plans: readonly AllocationPlan[],
  { syncOnly }: ChangeOptions,
): Pick<JobPlan, "phases" | "refused"> {
  const actions = plans.map(({ allocation, decision }) => ({ worker: allocation.worker, action: decision.action }));
  const starts = actions.filter(({ action }) => action === "start").map(({ worker }) => worker);
  const order = kv.get(`ops/job/${job.name}`, "rollout_order");
  const hasOwnControl = hooksOn(job, "job_control").length > 0;
  return {
    phases: rolloutPhases({ ...job, hasOwnControl }, actions, order),
    refused:
      syncOnly && starts.length > 0
        ? `job ${job.name} was never started on ${starts.join(", ")}: deploy it without sync_only first`
        : undefined,
  };
}

/** An allocation's part of a plan as it is told. */
export function plannedFrom(plan: AllocationPlan): PlannedAllocation {
  const { allocation, decision, promoted, tree } = plan;
  const target = { hash: tree.hash, version: allocation.newVersion, files: tree.digests };
  return plannedAllocation(allocation.worker, decision, promoted, target, hasOpenGate(plan));
}

/** True for an active allocation that is as it should be but whose gate has not been passed. */
export function hasOpenGate(plan: AllocationPlan): boolean {
  const { allocation, promoted, tree } = plan;
  const target = { hash: tree.hash, version: allocation.newVersion, files: tree.digests };
  return !allocation.disabled && isComplete(promoted, target) && isGateOpen(promoted);
}
