import type { CatalogAllocation, CatalogJob } from "../bucket/catalog.ts";
import { runLayout } from "../bucket/layout.ts";
import { type PlanBasis, planBasis } from "../bucket/plan-basis.ts";
import { promotionsOf } from "../bucket/promotions.ts";
import { Failure, messageOf, throwIfCancelled } from "../core/errors.ts";
import { writeAtomic } from "../core/files.ts";
import type { ChangeOptions } from "../plan/changes.ts";
import {
  type DeployPlan,
  type PlannedAllocation,
  type PlannedJob,
  plannedPhases,
} from "../plan/deploy-plan.ts";
import type { OperationContext } from "./context.ts";
import { type DeployScope, wavesOf } from "./deploy-scope.ts";
import { describePlan } from "./describe-plan.ts";
import type { Effects } from "./effects.ts";
import type { Fleet } from "./fleet.ts";
import { hooksOn } from "./hooks.ts";
import { allUpstreamOf } from "./job-facts.ts";
import { type JobPlan, planJob, plannedFrom } from "./plan-job.ts";
import { dueForReconcile } from "./reconcile.ts";

/** What a dry run is told. */
export interface DryRunOptions extends ChangeOptions {
  /** Runs the hooks for pre_deploy, with `DRY_RUN=1`, and drops what they store. */
  withHooks: boolean;
}

/**
 * Plans a deploy as the deploy itself would, and carries out none of it: no worker is reached, nothing is stored, and
 * no hook runs, except those for pre_deploy where that is asked for. The plan is told in Activity between two banners,
 * left as `plan.json` in the run's folder and answered. Throws `failed` with the plan in the details where the deploy
 * could not do a part of it.
 */
export async function dryRun(
  context: OperationContext,
  fleet: Fleet,
  effects: Pick<Effects, "hooks">,
  scope: DeployScope,
  options: DryRunOptions,
): Promise<DeployPlan> {
  const { log, layout, run, kv } = context;
  log.info("PLAN: a dry run, no worker is changed");
  try {
    const plan = await new DryRun(context, fleet, effects, scope, options).plan();
    const text = log.redactor.apply(`${JSON.stringify(plan, null, 2)}\n`);
    await writeAtomic(runLayout(layout, run.id).plan, text);
    for (const line of describePlan(plan)) log.info(line);
    log.info("PLAN: the end of a dry run, no worker was changed");
    return concluded(plan);
  } finally {
    kv.discard();
  }
}

function concluded(plan: DeployPlan): DeployPlan {
  const failed = plan.waves.flatMap(({ jobs }) => jobs).filter(({ outcome }) => outcome === "failed");
  if (failed.length === 0) return plan;
  const reasons = failed.map(({ job, reason }) => `${job}: ${reason}`);
  throw new Failure("failed", `the deploy would not be complete: ${reasons.join("; ")}`, { details: plan });
}

class DryRun {
  readonly #context: OperationContext;
  readonly #fleet: Fleet;
  readonly #effects: Pick<Effects, "hooks">;
  readonly #scope: DeployScope;
  readonly #options: DryRunOptions;
  readonly #failed = new Set<string>();
  readonly #basis: PlanBasis;
  #updateSeq: number;

  constructor(
    context: OperationContext,
    fleet: Fleet,
    effects: Pick<Effects, "hooks">,
    scope: DeployScope,
    options: DryRunOptions,
  ) {
    this.#context = context;
    this.#fleet = fleet;
    this.#effects = effects;
    this.#scope = scope;
    this.#options = options;
    this.#basis = planBasis(context.db);
    this.#updateSeq = this.#basis.update_seq;
  }

  async plan(): Promise<DeployPlan> {
    const { force, syncOnly, withHooks } = this.#options;
    const due = dueForReconcile(this.#context.db, this.#scope.allocations, () => false).due;
    const waves: DeployPlan["waves"] = [];
    for (const [seq, jobs] of wavesOf(this.#scope.jobs)) {
      throwIfCancelled(this.#context.signal);
      const planned = await this.#wave(jobs);
      waves.push({ seq, update_seq: this.#updateSeq, jobs: planned });
    }
    return {
      ...{ basis: this.#basis, build_seq: this.#basis.build_seq, update_seq: this.#basis.update_seq },
      options: { force, sync_only: syncOnly, with_hooks: withHooks },
      reconcile: due.map(({ allocation: { job, worker }, action }) => ({ job, worker, action })),
      waves,
    };
  }

  async #wave(jobs: readonly CatalogJob[]): Promise<PlannedJob[]> {
    const planned: PlannedJob[] = [];
    const before = this.#updateSeq;
    for (const job of jobs) planned.push((await this.#stopped(job)) ?? this.#job(job, before));
    if (!planned.some(({ outcome }) => outcome === "roll_out")) return planned;
    // As the deploy does it: what changes is rendered with the sequence of its wave.
    this.#updateSeq++;
    return planned.map((one, index) =>
      one.outcome === "roll_out" ? this.#job(jobs[index] as CatalogJob, this.#updateSeq) : one,
    );
  }

  /** A job that is not planned: because of what it demands, or because of its own hooks. */
  async #stopped(job: CatalogJob): Promise<PlannedJob | undefined> {
    const upstream = allUpstreamOf(job, this.#scope.all).find((name) => this.#failed.has(name));
    if (upstream !== undefined)
      return this.#unplanned(job, "not_started", `job ${upstream}, which it demands, would fail`);
    if (!this.#options.withHooks) return undefined;
    try {
      await this.#effects.hooks({ kind: "pre_deploy", job, variables: { DRY_RUN: "1" } });
      return undefined;
    } catch (error) {
      throwIfCancelled(this.#context.signal);
      this.#context.kv.discard(job.name);
      return this.#unplanned(job, "failed", messageOf(error));
    }
  }

  #job(job: CatalogJob, updateSeq: number): PlannedJob {
    try {
      return this.#planned(
        planJob(this.#context, this.#fleet, job, this.#own(job), updateSeq, this.#options),
      );
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.code !== "ErrKeyMissing") return this.#unplanned(job, "failed", error.message);
      const reason = `unknown until pre_deploy: ${error.message}${this.#warning(job)}`;
      return this.#unplanned(job, "roll_out", reason);
    }
  }

  #planned(plan: JobPlan): PlannedJob {
    const { job, needsWork, refused, phases, allocations } = plan;
    if (refused !== undefined) this.#failed.add(job.name);
    const done = allocations.length === 0 ? "no allocations" : "already promoted";
    return {
      ...this.#facts(job),
      outcome: refused !== undefined ? "failed" : needsWork ? "roll_out" : "skip",
      reason: refused ?? (needsWork ? "needs work" : done),
      phases: plannedPhases(phases),
      allocations: allocations.map(plannedFrom),
    };
  }

  #unplanned(job: CatalogJob, outcome: PlannedJob["outcome"], reason: string): PlannedJob {
    if (outcome !== "roll_out") this.#failed.add(job.name);
    const promotionOf = promotionsOf(this.#context.db, job.name);
    const allocations = this.#own(job).map(({ id, worker, newVersion }): PlannedAllocation => {
      const { hash, version } = promotionOf(id);
      const to = { hash: null, version: newVersion };
      const why = outcome === "roll_out" ? "unknown until pre_deploy" : "not planned";
      return {
        ...{ worker, action: "unknown", reason: why, is_gate_open: false },
        ...{ from: { hash, version }, to, files: [] },
      };
    });
    return { ...this.#facts(job), outcome, reason, phases: [], allocations };
  }

  #facts(job: CatalogJob): Pick<PlannedJob, "job" | "version" | "pre_deploy"> {
    return { job: job.name, version: job.version, pre_deploy: hooksOn(job, "pre_deploy") };
  }

  /** Nobody but a hook writes keys in a deploy. */
  #warning(job: CatalogJob): string {
    const names = new Set([job.name, ...allUpstreamOf(job, this.#scope.all)]);
    const writers = this.#scope.all.filter(
      (one) => names.has(one.name) && hooksOn(one, "pre_deploy").length > 0,
    );
    return writers.length > 0 ? "" : "; neither it nor what it demands has a hook that could write the key";
  }

  #own(job: CatalogJob): CatalogAllocation[] {
    return this.#scope.present.get(job.name) ?? [];
  }
}
