import { validPlan } from "../../bucket/catalog/plan-basis.ts";
import { Failure } from "../../core/errors.ts";
import { type DeployPlan, type PlanDifference, planDifferences } from "../../plan/deploy-plan.ts";
import type { FileDrift } from "../../transport/files/compare.ts";
import type { OperationContext } from "../base/context.ts";
import { type AllocationPlan, type JobPlan, plannedFrom } from "../plan/plan-job.ts";
import type { DriftEffects } from "../reach/tree-drift.ts";
import type { DeployResult } from "./deploy-result.ts";

/** The plan of a dry run that a deploy carries out. */
export class BoundPlan {
  readonly #log: Pick<OperationContext["log"], "warn">;
  readonly #plan: DeployPlan;
  readonly #differences: PlanDifference[] = [];

  constructor(log: Pick<OperationContext["log"], "warn">, plan: DeployPlan) {
    this.#log = log;
    this.#plan = plan;
  }

  /** The plan of a run. Throws `run_not_found`, or `plan_stale` where anything it was made from has moved. */
  static of({ layout, db, log }: OperationContext, runId: string): BoundPlan {
    return new BoundPlan(log, validPlan(layout, db, runId) as DeployPlan);
  }

  get jobs(): string[] {
    return this.#plan.waves.flatMap(({ jobs }) => jobs.map(({ job }) => job));
  }

  get options(): DeployPlan["options"] {
    return this.#plan.options;
  }

  /**
   * What was changed by hand on a worker since the plan was made: promoted files, and those in the way of new ones. A
   * worker that gave no answer then is compared with what was promoted.
   */
  async movedOn(effects: DriftEffects, { allocation, promoted, tree }: AllocationPlan): Promise<string[]> {
    const { job, worker } = allocation;
    const found = await effects.drift(worker, new Map([[job, promoted.files]]));
    const known = this.#plan.waves.flatMap(({ jobs }) => jobs).find((one) => one.job === job)?.allocations;
    const told = known?.find((one) => one.worker === worker)?.drift?.files ?? [];
    const isOurs = ({ state, path }: FileDrift) => state !== "extra" || tree.digests[path] !== undefined;
    const isNew = ({ path, state, sha256 }: FileDrift) =>
      !told.some((one) => one.path === path && one.state === state && one.sha256 === sha256);
    const files = found.get(job)?.files ?? [];
    return files.filter((file) => isOurs(file) && isNew(file)).map(({ path }) => path);
  }

  /** What the hooks of this deploy have made other than the plan says is told, and no reason to stop. */
  compare({ job, allocations }: JobPlan): void {
    const found = planDifferences(this.#plan, job.name, allocations.map(plannedFrom));
    for (const { worker, files } of found) this.#log.warn(`${job.name}@${worker}: not as planned: ${files.join(", ")}`);
    this.#differences.push(...found);
  }

  /** What the result of the deploy tells about its plan. */
  get result(): DeployResult["plan"] {
    const { force, sync_only } = this.#plan.options;
    return { force, sync_only, differences: this.#differences };
  }
}

/** What ends a job whose files were changed by hand since the plan was made; each of them is named with its worker. */
export function staleFiles(drifted: readonly string[]): Failure {
  const message = `the plan does not hold any more, nothing was done: ${drifted.join("; ")}`;
  return new Failure("plan_stale", message);
}
