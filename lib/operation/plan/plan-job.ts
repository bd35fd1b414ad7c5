import type { Database } from "../../bucket/base/database.ts";
import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { catalogAllocations, catalogFiles, catalogJobs } from "../../bucket/catalog/catalog.ts";
import { allocationsNamed, jobsNamed } from "../../bucket/catalog/choices.ts";
import { type Promotion, promotionsOf } from "../../bucket/catalog/promotions.ts";
import { type StagedTree, stageAllocation } from "../../bucket/catalog/staging.ts";
import { monitoringFor } from "../../bucket/prometheus/monitoring.ts";
import {
  type ChangeOptions,
  type Decision,
  decide,
  decideAdoption,
  isComplete,
  isGateOpen,
  type Target,
} from "../../plan/changes.ts";
import { type PlannedAllocation, type PlannedFile, plannedFiles } from "../../plan/deploy-plan.ts";
import { type Phase, rolloutPhases } from "../../plan/rollout.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";
import { templateFields, upstreamOf } from "../hooks/hook-script.ts";
import { hooksOn } from "../hooks/hooks.ts";

/** What a deploy means to do with one allocation. */
export interface AllocationPlan {
  allocation: CatalogAllocation;
  promoted: Promotion;
  tree: StagedTree;
  /** What is to be promoted. */
  target: Target;
  /** The value of `.UpdateSeq` in its files. */
  updateSeq: number;
  decision: Decision;
  /** In an adoption: the files that differ on the worker, from those there to the wanted ones. */
  differs?: PlannedFile[];
}

/** What a deploy means to do with one job. */
export interface JobPlan {
  job: CatalogJob;
  allocations: AllocationPlan[];
  /** What runs, batch after batch. */
  phases: Phase[];
  /** Why nothing of the job may run. Its files are synced all the same. */
  refused: string | undefined;
  /** At least one allocation changes or has a gate to pass. */
  needsWork: boolean;
}

/**
 * Plans a job from the catalog and what was promoted: renders these allocations and decides what happens to each. An
 * allocation is rendered with the update sequence of its last sync, and with `updateSeq` only where it changes then. Else
 * files that show the sequence would differ in every deploy. What may be adopted is rendered as it would be when the
 * version is promoted. Nothing is read from `tmp/`, and nothing is written. Throws `failed` for a template that cannot be
 * rendered.
 */
export function planJob(
  by: { context: OperationContext; fleet: Fleet; options: ChangeOptions },
  job: CatalogJob,
  allocations: readonly CatalogAllocation[],
  updateSeq: number,
): JobPlan {
  const { context, options } = by;
  const files = catalogFiles(context.db, job.name);
  const given = { upstream: upstreamOf(job), kv: context.kv, monitoring: monitoringFor(context.db, context.kv, job, files) };
  const promotionOf = promotionsOf(context.db, job.name);
  const planWith = (allocation: CatalogAllocation, promoted: Promotion, updateSeq: number) => {
    const rendered = options.adopt ? { ...promoted, version: allocation.newVersion } : promoted;
    const fields = templateFields(by, allocation, rendered, updateSeq);
    const tree = stageAllocation(files, { fields, ...given }, job.secretMode);
    const target = { hash: tree.hash, version: allocation.newVersion, files: tree.digests };
    const force = options.force && (options.forced?.has(allocation.id) ?? true);
    const state = { disabled: allocation.disabled, promoted, target };
    const isKnown = promoted.synced !== "" || promoted.unfinished;
    const decision = options.adopt ? decideAdoption({ ...state, isKnown }) : decide(state, job, { ...options, force });
    return { allocation, promoted, tree, target, updateSeq, decision };
  };
  const plans = allocations.map((allocation): AllocationPlan => {
    const promoted = promotionOf(allocation.id);
    const last = promoted.updateSeq || updateSeq;
    const plan = planWith(allocation, promoted, last);
    const changes = plan.decision.action !== "skip" && last !== updateSeq;
    return changes ? planWith(allocation, promoted, updateSeq) : plan;
  });
  const needsWork = plans.some((plan) => plan.decision.action !== "skip" || (!options.adopt && hasOpenGate(plan)));
  return { job, allocations: plans, needsWork, ...phasesOf(context, job, plans, options) };
}

/** What runs after these decisions about a job's allocations. */
function phasesOf(
  { kv }: OperationContext,
  job: CatalogJob,
  plans: readonly AllocationPlan[],
  { syncOnly }: ChangeOptions,
): Pick<JobPlan, "phases" | "refused"> {
  const actions = plans.map(({ allocation, decision }) => ({ worker: allocation.worker, action: decision.action }));
  const starts = actions.filter(({ action }) => action === "start").map(({ worker }) => worker);
  const isRefused = syncOnly && starts.length > 0;
  const refused = `job ${job.name} was never started on ${starts.join(", ")}: deploy it without sync_only first`;
  const hasOwnControl = hooksOn(job, "job_control").length > 0;
  const order = kv.get(`ops/job/${job.name}`, "rollout_order");
  const phases = rolloutPhases({ ...job, hasOwnControl }, actions, order);
  return { phases, refused: isRefused ? refused : undefined };
}

/** An allocation's part of a plan. */
export function plannedFrom(plan: AllocationPlan): PlannedAllocation {
  const { allocation, decision, differs, promoted, target } = plan;
  return {
    worker: allocation.worker,
    reason: decision.reason,
    action: plannedAction(plan),
    is_gate_open: hasOpenGate(plan),
    from: { hash: promoted.hash, version: promoted.version },
    to: { hash: target.hash, version: target.version },
    files: differs ?? plannedFiles(promoted.files, target.files),
    drift: null,
  };
}

/** What a plan says of an allocation. An adoption leaves it alone where files differ; without an answer nothing is known. */
function plannedAction({ decision: { action }, differs }: AllocationPlan): PlannedAllocation["action"] {
  if (differs !== undefined && differs.length > 0) return "leave";
  return action === "adopt" && differs === undefined ? "unknown" : action;
}

/** True for an active allocation that is complete but for its gate. */
export function hasOpenGate({ allocation, promoted, target }: AllocationPlan): boolean {
  return !allocation.disabled && isComplete(promoted, target) && isGateOpen(promoted);
}

/** What a deploy is about. */
export type DeployScope = ReturnType<typeof deployScope>;

/**
 * The catalog, and the jobs of it that the deploy is for. Throws `unknown_name` for a job that is not in the catalog.
 */
export function deployScope({ db }: OperationContext, wanted: string[] | undefined) {
  const all = catalogJobs(db);
  const allocations = catalogAllocations(db);
  const kept = allocations.filter((one) => !one.removed);
  const present = Map.groupBy(kept, (one) => one.job);
  return {
    /** All jobs of the catalog. */
    all,
    /** The jobs that are to be deployed. */
    jobs: jobsNamed(all, wanted),
    /** The allocations of all jobs, removed ones too. */
    allocations,
    /** The allocations that are not removed, by job. */
    present,
  };
}

/**
 * The options of a deploy that concern its changes. Throws `unknown_name` for a name in `force_only` that no allocation
 * has.
 */
export function changeOptionsOf(
  { allocations, jobs }: DeployScope,
  asked: { force: boolean; force_only?: string[] | undefined; sync_only: boolean; adopt?: boolean | undefined },
): ChangeOptions {
  const { force, force_only: names, sync_only: syncOnly, adopt = false } = asked;
  if (names === undefined) return { force, syncOnly, adopt };
  const forced = new Set(allocationsNamed(allocations, jobs, names, "force_only").map(({ id }) => id));
  return { force: true, forced, syncOnly };
}

/** The jobs by wave, from the lowest `deployment_seq` up. */
export function wavesOf(jobs: readonly CatalogJob[]): [seq: number, jobs: CatalogJob[]][] {
  const waves = Map.groupBy(jobs, (job) => job.deploymentSeq);
  return [...waves].sort(([a], [b]) => a - b);
}

/** An allocation that reconcile has to look after. */
export interface Due {
  allocation: CatalogAllocation;
  action: "stop" | "remove";
  /** Its worker is no longer in workers.json. */
  isGone: boolean;
}

/**
 * The allocations that were removed or disabled since they were promoted: a disabled allocation until it was stopped, a
 * removed one until its files are gone. `neverDeployed` are those where there is nothing to stop.
 */
export function dueForReconcile(
  db: Database,
  allocations: readonly CatalogAllocation[],
  isGone: (host: string) => boolean,
): { due: Due[]; neverDeployed: CatalogAllocation[] } {
  const due: Due[] = [];
  const neverDeployed: CatalogAllocation[] = [];
  for (const [job, own] of Map.groupBy(allocations, (one) => one.job)) {
    const promotionOf = promotionsOf(db, job);
    for (const allocation of own.filter((one) => one.removed || one.disabled)) {
      const { id, worker, removed } = allocation;
      const { synced, unfinished, stopped, stopping } = promotionOf(id);
      // An allocation that is to be started anew has nothing promoted, but its files are on the worker.
      if (synced === "" && !unfinished) neverDeployed.push(allocation);
      else if (removed || !stopped || stopping)
        due.push({ allocation, action: removed ? "remove" : "stop", isGone: removed && isGone(worker) });
    }
  }
  return { due, neverDeployed };
}
