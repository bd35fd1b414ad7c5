import { runLayout } from "../../bucket/base/layout.ts";
import type { CatalogAllocation, CatalogJob, HookEvent } from "../../bucket/base/model.ts";
import { type PlanBasis, planBasis } from "../../bucket/catalog/plan-basis.ts";
import { promotionsOf } from "../../bucket/catalog/promotions.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { writeAtomic } from "../../core/files.ts";
import type { ChangeOptions, FileDigests } from "../../plan/changes.ts";
import {
  abridged,
  type DeployPlan,
  type PlannedAllocation,
  type PlannedJob,
  plannedPhases,
} from "../../plan/deploy-plan.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";
import { masked } from "../base/masked.ts";
import { hooksOn } from "../hooks/hooks.ts";
import { allUpstreamOf } from "../hooks/job-facts.ts";
import { type DeployScope, wavesOf } from "../plan/deploy-scope.ts";
import { describePlan } from "../plan/describe-plan.ts";
import { PlanDiffs } from "../plan/plan-diffs.ts";
import { addDrift } from "../plan/plan-drift.ts";
import { hasOpenGate, type JobPlan, planJob, plannedFrom } from "../plan/plan-job.ts";
import type { Effects } from "../reach/effects.ts";
import type { DriftEffects, Promoted } from "../reach/tree-drift.ts";
import { dueForReconcile } from "./reconcile.ts";

/** What a dry run is told. */
export interface DryRunOptions extends ChangeOptions {
  /** Runs the hooks for pre_deploy, with `DRY_RUN=1`, and drops what they store. */
  withHooks: boolean;
  /** `forced` as it was asked for, for the plan to say. */
  forceOnly?: string[] | undefined;
}

/** The result of the run names so many files; plan.json names all. */
const MOST_FILES = 2_000;

/** What a dry run does outside the bucket's database. */
type DryRunEffects = Pick<Effects, "hooks"> & DriftEffects;

/**
 * Plans a deploy as the deploy itself would, and carries out none of it: nothing is written on a worker, nothing is
 * stored, and no hook runs, except those for pre_deploy where that is asked for. Each worker is asked once how the
 * files of its jobs are there. The plan is told in Activity between two banners, left as `plan.json` in the run's
 * folder and, with the first 2,000 of its files, answered. Throws `failed` with the plan in the details where the
 * deploy could not do a part of it; a worker that gives no answer is told, and no reason.
 */
export async function dryRun(
  context: OperationContext,
  fleet: Fleet,
  effects: DryRunEffects,
  scope: DeployScope,
  options: DryRunOptions,
): Promise<DeployPlan> {
  const { log, layout, run, kv } = context;
  log.info("PLAN: a dry run, no worker is changed");
  try {
    const plan = await new DryRun(context, fleet, effects, scope, options).plan();
    const text = `${JSON.stringify(masked(plan, log.redactor), null, 2)}\n`;
    await writeAtomic(runLayout(layout, run.id).plan, text);
    for (const line of describePlan(plan)) log.info(line);
    for (const { worker, outcome, error } of plan.unreachable)
      log.warn(`${worker}: ${outcome} now, nothing could be done there: ${error}`);
    return concluded(abridged(plan, MOST_FILES));
  } finally {
    kv.discard();
    log.info("PLAN: the end of a dry run, no worker was changed");
  }
}

function concluded(plan: DeployPlan): DeployPlan {
  const failed = plan.waves.flatMap(({ jobs }) => jobs).filter(({ outcome }) => outcome === "failed");
  if (failed.length === 0) return plan;
  const reasons = failed.map(({ job, reason }) => `${job}: ${reason}`);
  throw new Failure("failed", `the deploy would not be complete: ${reasons.join("; ")}`, { details: plan });
}

/** The hooks of a job that run when this is carried out. */
function hooksOfPlan({ job, allocations, needsWork, phases, refused }: JobPlan): PlannedJob["hooks"] {
  const events: HookEvent[] = ["pre_deploy"];
  if (!needsWork || refused !== undefined) return hooksFor(job, events);
  const isControlled = phases.some(({ phase }) => phase === "job_control");
  if (phases.length > 0) events.push(isControlled ? "job_control" : "after_allocation_started");
  if (phases.length > 0 || allocations.some(hasOpenGate)) events.push("health_check");
  return hooksFor(job, [...events, "post_deploy"]);
}

function hooksFor(job: CatalogJob, events: readonly HookEvent[]): PlannedJob["hooks"] {
  const hooks = events.map((event) => ({ event, names: hooksOn(job, event) }));
  return hooks.filter(({ names }) => names.length > 0);
}

class DryRun {
  readonly #context: OperationContext;
  readonly #fleet: Fleet;
  readonly #effects: DryRunEffects;
  readonly #scope: DeployScope;
  readonly #options: DryRunOptions;
  readonly #failed = new Set<string>();
  readonly #basis: PlanBasis;
  readonly #diffs: PlanDiffs;
  /** Of the wave that is being planned: what could be planned, by job. */
  readonly #plans = new Map<string, JobPlan>();
  /** What is to be put on workers, by allocation. */
  readonly #wanted = new Map<string, FileDigests>();
  #updateSeq: number;

  constructor(
    context: OperationContext,
    fleet: Fleet,
    effects: DryRunEffects,
    scope: DeployScope,
    options: DryRunOptions,
  ) {
    this.#context = context;
    this.#fleet = fleet;
    this.#effects = effects;
    this.#scope = scope;
    this.#options = options;
    this.#basis = planBasis(context.db);
    this.#diffs = new PlanDiffs(context);
    this.#updateSeq = this.#basis.update_seq;
  }

  async plan(): Promise<DeployPlan> {
    const { force, forceOnly, syncOnly, withHooks } = this.#options;
    const due = dueForReconcile(this.#context.db, this.#scope.allocations, () => false).due;
    const waves: DeployPlan["waves"] = [];
    for (const [seq, jobs] of wavesOf(this.#scope.jobs)) {
      throwIfCancelled(this.#context.signal);
      const planned = await this.#wave(jobs);
      waves.push({ seq, update_seq: this.#updateSeq, jobs: planned });
    }
    const planned = waves.flatMap(({ jobs }) => jobs);
    const about = planned.flatMap(({ job }) => this.#scope.present.get(job) ?? []);
    // Where something is only to be stopped the worker has to be there, too.
    const all = new Set([...about, ...due.map(({ allocation }) => allocation)]);
    const promoted = [...Map.groupBy(all, ({ job }) => job)].flatMap((own) => this.#promoted(...own));
    const unreachable = await addDrift(this.#context, this.#effects, planned, promoted);
    return {
      basis: this.#basis,
      build_seq: this.#basis.build_seq,
      update_seq: this.#basis.update_seq,
      options: { force, ...(forceOnly && { force_only: forceOnly }), sync_only: syncOnly, with_hooks: withHooks },
      reconcile: due.map(({ allocation: { job, worker }, action }) => ({
        job,
        worker,
        action,
        hooks: this.#scope.all
          .filter(({ name }) => name === job)
          .flatMap((one) => hooksOn(one, "after_allocation_stopped")),
      })),
      waves,
      unreachable,
    };
  }

  async #wave(jobs: readonly CatalogJob[]): Promise<PlannedJob[]> {
    const planned: PlannedJob[] = [];
    const before = this.#updateSeq;
    for (const job of jobs) planned.push((await this.#stopped(job)) ?? this.#job(job, before));
    if (!planned.some(({ outcome }) => outcome === "roll_out")) return this.#shown(planned);
    // As the deploy does it: what changes is rendered with the sequence of its wave.
    this.#updateSeq++;
    return this.#shown(
      planned.map((one, index) =>
        one.outcome === "roll_out" ? this.#job(jobs[index] as CatalogJob, this.#updateSeq) : one,
      ),
    );
  }

  /** With the diffs; what was rendered is not kept any longer than that. */
  #shown(wave: PlannedJob[]): PlannedJob[] {
    for (const { job, allocations } of wave)
      for (const [index, plan] of this.#plans.get(job)?.allocations.entries() ?? []) {
        this.#diffs.show(plan, allocations[index]?.files ?? []);
        this.#wanted.set(plan.allocation.id, plan.tree.digests);
      }
    this.#plans.clear();
    return wave;
  }

  #promoted(job: string, own: readonly CatalogAllocation[]): Promoted[] {
    const promotionOf = promotionsOf(this.#context.db, job);
    return own.map((allocation) => {
      const wanted = this.#wanted.get(allocation.id);
      return { allocation, promotion: promotionOf(allocation.id), ...(wanted && { wanted }) };
    });
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
    this.#plans.delete(job.name);
    try {
      return this.#planned(planJob(this.#context, this.#fleet, job, this.#own(job), updateSeq, this.#options));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.code !== "ErrKeyMissing") return this.#unplanned(job, "failed", error.message);
      const reason = `unknown until pre_deploy: ${error.message}${this.#warning(job)}`;
      return this.#unplanned(job, "roll_out", reason);
    }
  }

  #planned(plan: JobPlan): PlannedJob {
    const { job, needsWork, refused, phases, allocations } = plan;
    this.#plans.set(job.name, plan);
    if (refused !== undefined) this.#failed.add(job.name);
    const done = allocations.length === 0 ? "no allocations" : "already promoted";
    return {
      job: job.name,
      version: job.version,
      hooks: hooksOfPlan(plan),
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
        worker,
        action: "unknown",
        reason: why,
        is_gate_open: false,
        from: { hash, version },
        to,
        files: [],
        drift: null,
      };
    });
    const hooks = outcome === "not_started" ? [] : hooksFor(job, ["pre_deploy"]);
    return { job: job.name, version: job.version, hooks, outcome, reason, phases: [], allocations };
  }

  /** Nobody but a hook writes keys in a deploy. */
  #warning(job: CatalogJob): string {
    const names = new Set([job.name, ...allUpstreamOf(job, this.#scope.all)]);
    const writers = this.#scope.all.filter((one) => names.has(one.name) && hooksOn(one, "pre_deploy").length > 0);
    return writers.length > 0 ? "" : "; neither it nor what it demands has a hook that could write the key";
  }

  #own(job: CatalogJob): CatalogAllocation[] {
    return this.#scope.present.get(job.name) ?? [];
  }
}
