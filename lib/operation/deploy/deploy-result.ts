import type { CatalogAllocation } from "../../bucket/base/model.ts";
import { inOneLine } from "../../core/plain-text.ts";
import type { PlanDifference } from "../../plan/deploy-plan.ts";
import type { WaveProgress } from "../../run/progress.ts";
import type { Evidence } from "../base/evidence.ts";
import type { CancelReceipts } from "../base/fleet.ts";
import { concluded, countGrades, describeGrades, type Grade, toldOnce, worstOf } from "../base/outcome.ts";
import { type AllocationState, allocationGrade } from "../plan/rollout-state.ts";
import type { Reconciled } from "./reconcile.ts";

/** How a deploy went for one allocation; `action` is null where it was not planned. */
interface AllocationResult {
  worker: string;
  action: string | null;
  outcome: Grade;
  error: string | null;
  /** Why an adoption has left it alone. */
  reason?: string;
  /** What was found there, where its health check failed. */
  evidence?: Evidence;
}

/** How a deploy went for one job. */
export interface JobResult {
  job: string;
  wave: number;
  outcome: "deployed" | "skipped" | "failed" | "cancelled" | "not_started";
  reason: string;
  duration_ms: number;
  allocations: AllocationResult[];
  /** The batch in which an unfinished rollout stopped. */
  stopped_in?: { batch: number; batches: number };
  /** Its health gate failed; `reason` says what was put back. */
  gate_failed?: true;
}

/** The result of a deploy run. */
export interface DeployResult {
  /** By wave. */
  jobs: JobResult[];
  /** How many jobs of each wave ended how. */
  waves: WaveProgress[];
  reconciled: Reconciled[];
  /** The worst outcome of each worker that the deploy was about. */
  workers: { worker: string; outcome: Grade }[];
  /** How many allocations and workers have each outcome. */
  summary: { allocations: Record<Grade, number>; workers: Record<Grade, number> };
  /** How long each step took, in the order of their ends. */
  steps: { step: string; duration_ms: number }[];
  update_seq: number;
  /** Of a deploy that carried out a plan: the plan's options, and where the deploy's own hooks led to other changes. */
  plan?: { force: boolean; sync_only: boolean; adopt: boolean; differences: PlanDifference[] };
  /** A sentence for each service that may be stopped and was not started again; absent without any. */
  left_down?: string[];
  /** Only of a cancelled deploy: the receipts of the commands that were running. */
  cancelled?: CancelReceipts;
}

/** Allocations of a job that was not rolled out. `errors` says on which workers something went wrong. */
export function leftOut(
  allocations: readonly CatalogAllocation[],
  errors: ReadonlyMap<string, string> = new Map(),
): AllocationResult[] {
  return allocations.map(({ worker, disabled }) => {
    const error = errors.get(worker) ?? null;
    const left = disabled ? "disabled" : "not_started";
    return { worker, action: null, outcome: error === null ? left : "failed", error };
  });
}

/** How far an allocation came. */
export function allocationResult(state: AllocationState): AllocationResult {
  const { allocation, decision, differs = [] } = state.plan;
  const { message: error = null, evidence } = state.trouble ?? {};
  return {
    worker: allocation.worker,
    action: differs.length > 0 ? "leave" : decision.action,
    outcome: allocationGrade(state),
    error,
    ...(differs.length > 0 && { reason: decision.reason }),
    ...(evidence && { evidence }),
  };
}

/** Completes a result with the outcome of each worker and the number of each outcome. */
export function deployResult({ jobs, reconciled, ...rest }: Omit<DeployResult, "workers" | "summary">): DeployResult {
  const found = [...jobs.flatMap(({ job, allocations }) => allocations.map((one) => ({ ...one, job }))), ...reconciled];
  // A disabled allocation that reconcile has stopped is one of its job, too.
  const all = [...new Map(found.map((one) => [`${one.job}@${one.worker}`, one])).values()];
  const byWorker = Map.groupBy(all, ({ worker }) => worker);
  const workers = [...byWorker].map(([worker, own]) => ({ worker, outcome: worstOf(own.map(({ outcome }) => outcome)) }));
  const summary = {
    allocations: countGrades(all.map(({ outcome }) => outcome)),
    workers: countGrades(workers.map(({ outcome }) => outcome)),
  };
  return { jobs, reconciled, workers, summary, ...rest };
}

/** What a deploy tells in Activity at its end. */
export function describeResult({ jobs, summary }: DeployResult): string[] {
  const count = (outcome: JobResult["outcome"]) => jobs.filter((job) => job.outcome === outcome).length;
  const outcomes = ["deployed", "skipped", "failed", "not_started"] as const;
  return [
    `jobs: ${outcomes.map((one) => `${count(one)} ${one.replace("_", " ")}`).join(", ")}`,
    `workers: ${describeGrades(summary.workers)}; allocations: ${describeGrades(summary.allocations)}`,
  ];
}

/** Answers the result of a deploy in which nothing went wrong. Else throws `failed` with the result in the details. */
export function concludeDeploy(result: DeployResult): DeployResult {
  const failed = result.jobs.filter((job) => job.outcome === "failed");
  const left = toldOnce(result.left_down ?? []);
  const wrong = [
    ...failed.map((job) => `${job.job}: ${job.reason}`),
    ...result.reconciled.flatMap(({ job, worker, error }) => (error === null ? [] : [`${job}@${worker}: ${inOneLine(error)}`])),
  ];
  return concluded(result, "the deploy is not complete", wrong.length > 0 ? [...wrong, ...left] : []);
}
