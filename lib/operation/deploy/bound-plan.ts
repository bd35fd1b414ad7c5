import { validPlan } from "../../bucket/catalog/plan-basis.ts";
import { Failure } from "../../core/errors.ts";
import { type DeployPlan, type PlanDifference, planDifferences } from "../../plan/deploy-plan.ts";
import type { FileDrift } from "../../transport/files/compare.ts";
import type { OperationContext } from "../base/context.ts";
import { type AllocationPlan, type JobPlan, plannedFrom } from "../plan/plan-job.ts";
import type { DriftEffects } from "../reach/tree-drift.ts";

const MOST_NAMED = 20;

/** The plan of a dry run that a deploy carries out. */
export interface BoundPlan {
  readonly jobs: string[];
  readonly options: DeployPlan["options"];
  /** Where this deploy does otherwise than planned, as far as that is known by now. */
  readonly differences: PlanDifference[];
  /**
   * Says which files of an allocation were changed by hand since the plan was made: promoted files, and files in the way
   * of new ones. A worker that gave no answer to the dry run is compared with what was promoted.
   */
  movedOn(effects: DriftEffects, plan: AllocationPlan): Promise<string | undefined>;
  /** Tells where a job is not as planned. That is due to the hooks of this deploy, and no reason to stop. */
  compare(plan: JobPlan): void;
}

/** The plan of a run. Throws `run_not_found`, or `plan_stale` where anything it was made from has moved. */
export function boundPlanOf({ layout, db, log }: OperationContext, runId: string): BoundPlan {
  return boundPlan(log, validPlan(layout, db, runId) as DeployPlan);
}

/** This plan, to be carried out. */
export function boundPlan(log: Pick<OperationContext["log"], "warn">, plan: DeployPlan): BoundPlan {
  const jobs = plan.waves.flatMap((wave) => wave.jobs);
  const differences: PlanDifference[] = [];
  return {
    jobs: jobs.map(({ job }) => job),
    options: plan.options,
    differences,
    async movedOn(effects, { allocation, promoted, tree }) {
      const { job, worker } = allocation;
      const found = await effects.drift(worker, new Map([[job, promoted.files]]));
      const known = jobs.find((one) => one.job === job)?.allocations.find((one) => one.worker === worker);
      const told = known?.drift?.files ?? [];
      const isOurs = ({ state, path }: FileDrift) => state !== "extra" || tree.digests[path] !== undefined;
      const isNew = ({ path, state, sha256 }: FileDrift) =>
        !told.some((one) => one.path === path && one.state === state && one.sha256 === sha256);
      const moved = (found.get(job)?.files ?? []).filter((file) => isOurs(file) && isNew(file));
      if (moved.length === 0) return undefined;
      const paths = moved.slice(0, MOST_NAMED).map(({ path }) => path);
      return `changed by hand: ${paths.join(", ")}`;
    },
    compare({ job, allocations }) {
      const found = planDifferences(plan, job.name, allocations.map(plannedFrom));
      for (const { worker, files } of found) log.warn(`${job.name}@${worker}: not as planned: ${files.join(", ")}`);
      differences.push(...found);
    },
  };
}

/** What ends a job whose files were changed by hand since the plan was made; each file is named with its worker. */
export function staleFiles(drifted: readonly string[]): Failure {
  const message = `the plan does not hold any more, nothing was done: ${drifted.join("; ")}`;
  return new Failure("plan_stale", message);
}
