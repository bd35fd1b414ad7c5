import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { NEVER_PROMOTED } from "../../bucket/catalog/promotions.ts";
import { runAll } from "../../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import type { ChangeOptions } from "../../plan/changes.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { Fleet } from "../base/fleet.ts";
import { type Trouble, troubleOf } from "../base/outcome.ts";
import { build } from "../build/build.ts";
import { HookSession, scriptErrors } from "../hooks/hooks.ts";
import { allUpstreamOf } from "../hooks/job-facts.ts";
import type { AllocationState } from "../plan/allocation-state.ts";
import { changeOptionsOf, type DeployScope, deployScope, wavesOf } from "../plan/deploy-scope.ts";
import { type JobPlan, planJob } from "../plan/plan-job.ts";
import { RolloutBoard } from "../plan/rollout-board.ts";
import { type Effects, effectsOf } from "../reach/effects.ts";
import { BoundPlan } from "./bound-plan.ts";
import {
  allocationResult,
  type DeployResult,
  deployFailure,
  deployResult,
  describeResult,
  type JobResult,
  leftOutJob,
  skippedJob,
} from "./deploy-result.ts";
import { dryRun } from "./dry-run.ts";
import { dueForReconcile, type Reconciled, reconcile } from "./reconcile.ts";
import { rollOut } from "./rollout.ts";

const JOBS_AT_ONCE = 8;
const WORKERS_AT_ONCE = 32;

/**
 * Brings the workers to the state of the catalog (hook-runtime.md, Deploy order). A job that fails does not stop
 * independent ones; what succeeded stays, and the next deploy goes on where this one ended. Throws `failed` at the end
 * when any job or allocation failed, `cancelled` when it was cancelled, both with the whole result in the details.
 */
export const deploy: Operation = async (context, params) => {
  const given = parametersOf("deploy", params);
  if (given.build) await build(context, {});
  const plan = given.plan === undefined ? undefined : BoundPlan.of(context, given.plan);
  const scope = deployScope(context, plan ? plan.jobs : given.jobs);
  const options = changeOptionsOf(scope, plan?.options ?? given);
  const fleet = new Fleet(context, catalogWorkers(context.db));
  const hooks = new HookSession(context, fleet);
  try {
    const effects = effectsOf(context, fleet, hooks, scope.allocations);
    if (given.dry_run)
      return await dryRun(context, fleet, effects, scope, {
        ...options,
        forceOnly: given.force_only,
        withHooks: given.with_hooks,
      });
    return await carryOutDeploy(context, fleet, effects, scope, options, plan);
  } catch (error) {
    if (!context.signal.aborted || !(error instanceof Failure) || error.details === undefined) throw error;
    const details = { ...(error.details as DeployResult), cancelled: fleet.cancelReceipts() };
    throw new Failure("cancelled", "cancelled", { details, cause: error });
  } finally {
    await hooks.close();
    await fleet.close();
  }
};

/** Carries out a deploy with these effects, as the plan says where there is one; ends as {@link deploy} does. */
export async function carryOutDeploy(
  context: OperationContext,
  fleet: Fleet,
  effects: Effects,
  scope: DeployScope,
  options: ChangeOptions,
  plan?: BoundPlan,
): Promise<DeployResult> {
  const work = new Deploy(context, fleet, effects, scope, options, plan);
  try {
    await work.carryOut();
  } catch (error) {
    if (!context.signal.aborted) throw error;
    const details = work.result();
    for (const line of details.left_down ?? []) context.log.warn(line);
    throw new Failure("cancelled", "cancelled", { details, cause: error });
  }
  const result = work.result();
  for (const line of result.left_down ?? []) context.log.warn(line);
  for (const line of describeResult(result)) context.log.info(line);
  const failure = deployFailure(result);
  if (failure) throw failure;
  return result;
}

class Deploy {
  readonly #context: OperationContext;
  readonly #fleet: Fleet;
  readonly #effects: Effects;
  readonly #scope: DeployScope;
  readonly #options: ChangeOptions;
  readonly #bound: BoundPlan | undefined;
  readonly #results = new Map<string, JobResult>();
  readonly #steps: DeployResult["steps"] = [];
  readonly #rollouts = new Map<string, RolloutBoard>();
  #reconciled: Reconciled[] = [];
  #phase = "";

  constructor(
    context: OperationContext,
    fleet: Fleet,
    effects: Effects,
    scope: DeployScope,
    options: ChangeOptions,
    bound: BoundPlan | undefined,
  ) {
    this.#bound = bound;
    this.#context = context;
    this.#fleet = fleet;
    this.#effects = effects;
    this.#scope = scope;
    this.#options = options;
  }

  async carryOut(): Promise<void> {
    const { signal } = this.#context;
    throwIfCancelled(signal);
    await this.#step("reconcile", () => this.#reconcile());
    for (const [seq, jobs] of wavesOf(this.#scope.jobs)) {
      throwIfCancelled(signal);
      await this.#wave(seq, jobs);
    }
  }

  /** How far it came; jobs that it did not come to have not been started. */
  result(): DeployResult {
    const inOrder = wavesOf(this.#scope.jobs).flatMap(([, jobs]) => jobs);
    const jobs = inOrder.map(
      (job) =>
        this.#results.get(job.name) ??
        leftOutJob(job, "not_started", "not started: the deploy ended before", this.#own(job)),
    );
    const result = deployResult(jobs, this.#reconciled, this.#steps, this.#updateSeq());
    return { ...result, ...(this.#bound && { plan: this.#bound.result }), ...this.#fleet.leftDown() };
  }

  async #reconcile(): Promise<void> {
    const { all, allocations } = this.#scope;
    const isGone = (host: string) => this.#fleet.worker(host).removed;
    const { due, neverDeployed } = dueForReconcile(this.#context.db, allocations, isGone);
    const { log } = this.#context;
    for (const { worker, job } of neverDeployed)
      log.record({ event: "reconcile_skip_stop", worker, job, phase: "reconcile", reason: "not_deployed" });
    this.#reconciled = await reconcile(this.#context, this.#effects, all, due);
    // Wherever something was stopped, jobs.json must say so too.
    const hosts = this.#reconciled.filter((one) => one.outcome === "changed").map((one) => one.worker);
    const troubles = await this.#syncWorkers(hosts, this.#updateSeq());
    for (const [host, { message }] of troubles) log.warn(`jobs.json on ${host} is out of date: ${message}`);
  }

  /** Answers what went wrong, by worker: nothing may be run there, since the runner goes by these files. */
  async #syncWorkers(hosts: string[], updateSeq: number): Promise<Map<string, Trouble>> {
    const { db, signal } = this.#context;
    const different = [...new Set(hosts)];
    const sync = async (host: string) => {
      await this.#effects.syncWorker(host, updateSeq);
      db.run("UPDATE worker SET synced_seq = ? WHERE worker_ip = ?", updateSeq, host);
    };
    const results = await runAll(different, WORKERS_AT_ONCE, sync, signal);
    throwIfCancelled(signal);
    return new Map(
      results.flatMap((result, index): [string, Trouble][] =>
        result.status === "rejected" ? [[different[index] as string, troubleOf(result.reason)]] : [],
      ),
    );
  }

  /** One wave: hooks for pre_deploy, then plan every job, and only if one of them needs work raise the update sequence and roll out. */
  async #wave(seq: number, jobs: CatalogJob[]): Promise<void> {
    const wave = `wave ${seq}`;
    const mayRun = jobs.filter((job) => this.#mayRun(job));
    const runnable = await this.#step(`${wave}: pre_deploy`, () => this.#preDeploy(mayRun));
    const planned = await this.#step(`${wave}: plan`, async () =>
      runnable.flatMap((job) => this.#plan(job, this.#updateSeq()) ?? []),
    );
    for (const plan of planned) if (!plan.needsWork) this.#skip(plan);
    const working = planned.filter((plan) => plan.needsWork);
    if (working.length === 0) return;
    const updateSeq = this.#raiseUpdateSeq();
    const names = working.map((plan) => plan.job.name).join(", ");
    this.#context.log.info(`${wave}: ${names} (update sequence ${updateSeq})`);
    const hosts = working.flatMap((plan) => plan.allocations.map((one) => one.allocation.worker));
    const unready = await this.#step(`${wave}: worker files`, () => this.#syncWorkers(hosts, updateSeq));
    await this.#step(`${wave}: roll out`, () => this.#rollOutAll(working, updateSeq, unready));
  }

  async #rollOutAll(
    working: readonly JobPlan[],
    updateSeq: number,
    unready: ReadonlyMap<string, Trouble>,
  ): Promise<void> {
    const { signal } = this.#context;
    // Planned again, because templates may use the update sequence that has just changed.
    const plans = working.flatMap((plan) => this.#plan(plan.job, updateSeq) ?? []);
    for (const plan of plans) this.#bound?.compare(plan);
    const ended = await runAll(plans, JOBS_AT_ONCE, (plan) => this.#rollOut(plan, unready), signal);
    throwIfCancelled(signal);
    for (const one of ended) if (one.status === "rejected") throw one.reason;
  }

  #own(job: CatalogJob): CatalogAllocation[] {
    return this.#scope.present.get(job.name) ?? [];
  }

  #mayRun(job: CatalogJob): boolean {
    // Through jobs that this deploy is not about, too.
    const upstream = allUpstreamOf(job, this.#scope.all);
    const failed = upstream.find((name) => this.#results.get(name)?.outcome === "failed");
    if (failed !== undefined)
      this.#leaveOut(
        job,
        "not_started",
        `not started: job ${failed}, which it demands directly or through others, failed in this deploy`,
      );
    return failed === undefined;
  }

  /** Answers the jobs whose hooks succeeded, what those wrote being stored; of the others nothing is (decisions: Rulings). */
  async #preDeploy(jobs: CatalogJob[]): Promise<CatalogJob[]> {
    const { kv, signal } = this.#context;
    const run = async (job: CatalogJob) => {
      try {
        await this.#effects.hooks({ kind: "pre_deploy", job });
        kv.flush(job.name);
        return [job];
      } catch (error) {
        kv.discard(job.name);
        throwIfCancelled(signal);
        this.#leaveOut(job, "failed", messageOf(error), scriptErrors(error));
        return [];
      }
    };
    const ended = await runAll(jobs, JOBS_AT_ONCE, run, signal);
    throwIfCancelled(signal);
    return ended.flatMap((one) => {
      if (one.status === "rejected") throw one.reason;
      return one.value;
    });
  }

  #plan(job: CatalogJob, updateSeq: number): JobPlan | undefined {
    try {
      return planJob(this.#context, this.#fleet, job, this.#own(job), updateSeq, this.#options);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.#leaveOut(job, "failed", error.message);
      return undefined;
    }
  }

  async #rollOut(plan: JobPlan, unready: ReadonlyMap<string, Trouble>): Promise<void> {
    const { log, signal } = this.#context;
    const name = plan.job.name;
    const states = plan.allocations.map((one): AllocationState => {
      const changes = one.decision.action !== "skip";
      const trouble = changes ? unready.get(one.allocation.worker) : undefined;
      return { plan: one, now: undefined, done: false, passedGate: false, trouble };
    });
    const started = performance.now();
    const board = new RolloutBoard(plan, states, () => this.#report());
    this.#rollouts.set(name, board);
    let error: string | undefined;
    try {
      await rollOut(this.#context, this.#effects, plan, states, {
        force: this.#options.force,
        board,
        ...(this.#bound && { bound: this.#bound }),
      });
    } catch (cause) {
      error = messageOf(cause);
    }
    this.#rollouts.delete(name);
    for (const { plan: of, done } of states)
      if (of.decision.action === "start" && of.promoted.version !== NEVER_PROMOTED && !done)
        this.#fleet.down.set(`${name}@${of.allocation.worker}`, "start");
    const duration_ms = Math.round(performance.now() - started);
    const wasCancelled = error !== undefined && signal.aborted;
    if (error === undefined) log.info(`${name}: deployed in ${(duration_ms / 1000).toFixed(1)} s`);
    else if (!wasCancelled) log.error(`${name}: ${error}`);
    this.#results.set(name, {
      job: name,
      outcome: error === undefined ? "deployed" : wasCancelled ? "cancelled" : "failed",
      reason: error ?? "deployed",
      duration_ms,
      allocations: states.map(allocationResult),
    });
    this.#report();
  }

  #skip(plan: JobPlan): void {
    this.#bound?.compare(plan);
    const result = skippedJob(plan);
    this.#context.log.record({ event: "deploy_skip", job: result.job, reason: result.reason });
    this.#context.log.info(`${result.job}: skipped, ${result.reason.replaceAll("_", " ")}`);
    this.#results.set(result.job, result);
  }

  #leaveOut(
    job: CatalogJob,
    outcome: "failed" | "not_started",
    reason: string,
    errors?: ReadonlyMap<string, string>,
  ): void {
    this.#context.log.error(`${job.name}: ${reason}`);
    this.#results.set(job.name, leftOutJob(job, outcome, reason, this.#own(job), errors));
  }

  #updateSeq(): number {
    return this.#context.db.get<{ update_seq: number }>("SELECT update_seq FROM bucket")?.update_seq ?? 0;
  }

  #raiseUpdateSeq(): number {
    this.#context.db.run("UPDATE bucket SET update_seq = update_seq + 1");
    const updateSeq = this.#updateSeq();
    this.#context.log.updateSeq = updateSeq;
    return updateSeq;
  }

  /** A part of the deploy that progress shows and whose time is noted. */
  async #step<T>(step: string, work: () => Promise<T>): Promise<T> {
    this.#phase = step;
    this.#report();
    const started = performance.now();
    try {
      return await work();
    } finally {
      this.#steps.push({ step, duration_ms: Math.round(performance.now() - started) });
    }
  }

  #report(): void {
    this.#context.progress.report({
      phase: this.#phase,
      done: this.#results.size,
      total: this.#scope.jobs.length,
      rollouts: () => [...this.#rollouts.values()].map((board) => board.progress()),
    });
  }
}
