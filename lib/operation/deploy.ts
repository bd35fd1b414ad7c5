import {
  type CatalogAllocation,
  type CatalogJob,
  catalogAllocations,
  catalogJobs,
  catalogWorkers,
} from "../bucket/catalog.ts";
import { runAll } from "../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../core/errors.ts";
import {
  boolean,
  check,
  list,
  nearest,
  object,
  optional,
  quote,
  string,
  withDefault,
} from "../core/shape.ts";
import { build } from "./build.ts";
import type { Operation, OperationContext } from "./context.ts";
import { Fleet } from "./fleet.ts";
import { type JobPlan, planJob, upstreamOf } from "./plan-job.ts";
import { type Reconciled, reconcile } from "./reconcile.ts";
import { type AllocationState, rollOut } from "./rollout.ts";
import { syncWorkerFiles } from "./worker-files.ts";

const JOBS_AT_ONCE = 8;

/** Events of hooks that take part in a deploy; this version does not run hooks, so it must not deploy past them. */
const DEPLOY_EVENTS = [
  "pre_deploy",
  "post_deploy",
  "job_control",
  "health_check",
  "after_allocation_started",
  "after_allocation_stopped",
];

const PARAMS = object({
  jobs: optional(list(string({ min: 1 }))),
  build: withDefault(boolean(), false),
  force: withDefault(boolean(), false),
});

/** How a deploy went for one job. */
interface JobResult {
  job: string;
  outcome: "deployed" | "skipped" | "failed" | "not_started";
  reason: string;
  allocations: {
    worker: string;
    action: string;
    outcome: "changed" | "skipped" | "failed" | "not_started";
    error: string | null;
  }[];
}

/** The result of a deploy run. */
interface DeployResult {
  jobs: JobResult[];
  reconciled: Reconciled[];
  update_seq: number;
}

/**
 * Brings the workers to the state of the catalog (hook-runtime.md, Deploy order). A job that fails does not stop
 * independent ones; what succeeded stays, and the next deploy goes on where this one ended. Throws `failed` at the end
 * when any job or allocation failed, with the whole result in the details.
 */
export const deploy: Operation = async (context, params) => {
  const checked = check(PARAMS, params);
  if (!checked.ok)
    throw new Failure("usage", checked.problems.map(({ path, message }) => `${path}: ${message}`).join("; "));
  if (checked.value.build) await build(context, {});
  const jobs = selectJobs(catalogJobs(context.db), checked.value.jobs);
  const fleet = new Fleet(context, catalogWorkers(context.db));
  try {
    return await new Deploy(context, fleet, jobs, checked.value.force).carryOut();
  } finally {
    await fleet.close();
  }
};

function selectJobs(all: CatalogJob[], wanted: string[] | undefined): CatalogJob[] {
  if (wanted === undefined) return all;
  const names = new Set(wanted.map((name) => name.toLowerCase()));
  for (const name of names) {
    if (all.some((job) => job.name === name)) continue;
    const close = nearest(
      name,
      all.map((job) => job.name),
    );
    throw new Failure(
      "failed",
      `the catalog has no job ${quote(name)}${close === undefined ? "" : `; did you mean ${close}?`}`,
    );
  }
  return all.filter((job) => names.has(job.name));
}

class Deploy {
  readonly #context: OperationContext;
  readonly #fleet: Fleet;
  readonly #jobs: CatalogJob[];
  readonly #force: boolean;
  readonly #allocations: CatalogAllocation[];
  readonly #results = new Map<string, JobResult>();

  constructor(context: OperationContext, fleet: Fleet, jobs: CatalogJob[], force: boolean) {
    this.#context = context;
    this.#fleet = fleet;
    this.#jobs = jobs;
    this.#force = force;
    this.#allocations = catalogAllocations(context.db);
  }

  async carryOut(): Promise<DeployResult> {
    this.#progress("reconcile");
    const reconciled = await reconcile(this.#context, this.#fleet, this.#jobs);
    await this.#updateReconciled(reconciled);
    const waves = new Set(this.#jobs.map((job) => job.deploymentSeq));
    for (const seq of [...waves].sort((a, b) => a - b)) {
      throwIfCancelled(this.#context.signal);
      await this.#wave(
        seq,
        this.#jobs.filter((job) => job.deploymentSeq === seq),
      );
    }
    return this.#conclude(reconciled);
  }

  /** Wherever something was stopped, jobs.json must say so too. */
  async #updateReconciled(reconciled: Reconciled[]): Promise<void> {
    const hosts = reconciled.filter((one) => one.error === null).map((one) => one.worker);
    await syncWorkerFiles(this.#context, this.#fleet, hosts, this.#allocations, this.#updateSeq());
  }

  /** One wave: plan every job, and only if one of them needs work raise the update sequence and roll out. */
  async #wave(seq: number, jobs: CatalogJob[]): Promise<void> {
    this.#progress(`wave ${seq}`);
    const runnable = jobs.filter((job) => this.#mayRun(job));
    const planned = runnable.flatMap((job) => this.#plan(job, this.#updateSeq()) ?? []);
    for (const plan of planned) if (!plan.needsWork) this.#skip(plan, whySkipped(plan));
    const working = planned.filter((plan) => plan.needsWork);
    if (working.length === 0) return;
    const updateSeq = this.#raiseUpdateSeq();
    this.#context.log.info(
      `wave ${seq}: ${working.map((plan) => plan.job.name).join(", ")} (update sequence ${updateSeq})`,
    );
    const hosts = working.flatMap((plan) => plan.allocations.map((one) => one.allocation.worker));
    await syncWorkerFiles(this.#context, this.#fleet, hosts, this.#allocations, updateSeq);
    // Planned again, because templates may use the update sequence that has just changed.
    const plans = working.flatMap((plan) => this.#plan(plan.job, updateSeq) ?? []);
    await runAll(plans, JOBS_AT_ONCE, (plan) => this.#rollOut(plan), this.#context.signal);
    throwIfCancelled(this.#context.signal);
  }

  #mayRun(job: CatalogJob): boolean {
    const failed = upstreamOf(job).find((name) => this.#hasFailed(name));
    if (failed !== undefined)
      this.#leaveOut(
        job,
        "not_started",
        `not started: job ${failed}, which it demands, failed in this deploy`,
      );
    const events = job.hooks.flatMap((hook) => hook.events).filter((event) => DEPLOY_EVENTS.includes(event));
    if (failed === undefined && events.length > 0)
      this.#leaveOut(
        job,
        "failed",
        `it has hooks for ${[...new Set(events)].join(", ")}, and this version cannot run hooks in a deploy`,
      );
    return failed === undefined && events.length === 0;
  }

  #hasFailed(name: string): boolean {
    const outcome = this.#results.get(name)?.outcome;
    return outcome === "failed" || outcome === "not_started";
  }

  #plan(job: CatalogJob, updateSeq: number): JobPlan | undefined {
    const own = this.#allocations.filter((one) => one.job === job.name && !one.removed);
    try {
      return planJob(this.#context, this.#fleet, job, own, updateSeq, this.#force);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.#leaveOut(job, "failed", error.message);
      return undefined;
    }
  }

  async #rollOut(plan: JobPlan): Promise<void> {
    const states = plan.allocations.map(
      (one): AllocationState => ({ plan: one, synced: false, done: false, error: undefined }),
    );
    const started = performance.now();
    let error: string | undefined;
    try {
      await rollOut(this.#context, this.#fleet, plan, states, this.#force);
    } catch (cause) {
      error = messageOf(cause);
    }
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    const name = plan.job.name;
    if (error === undefined) this.#context.log.info(`${name}: deployed in ${seconds} s`);
    else if (!this.#context.signal.aborted) this.#context.log.error(`${name}: ${error}`);
    this.#results.set(name, {
      job: name,
      outcome: error === undefined ? "deployed" : "failed",
      reason: error ?? "deployed",
      allocations: states.map(describeState),
    });
    this.#progress(`rolled out ${name}`);
  }

  #skip(plan: JobPlan, reason: string): void {
    const name = plan.job.name;
    this.#context.log.record({ event: "deploy_skip", job: name, reason });
    this.#context.log.info(`${name}: skipped, ${reason.replaceAll("_", " ")}`);
    const allocations = plan.allocations.map((one) => ({
      ...{ worker: one.allocation.worker, action: "skip", outcome: "skipped" as const, error: null },
    }));
    this.#results.set(name, { job: name, outcome: "skipped", reason, allocations });
  }

  #leaveOut(job: CatalogJob, outcome: "failed" | "not_started", reason: string): void {
    this.#context.log.error(`${job.name}: ${reason}`);
    this.#results.set(job.name, { job: job.name, outcome, reason, allocations: [] });
  }

  #conclude(reconciled: Reconciled[]): DeployResult {
    const jobs = [...this.#results.values()];
    const result = { jobs, reconciled, update_seq: this.#updateSeq() };
    const count = (outcome: JobResult["outcome"]) => jobs.filter((job) => job.outcome === outcome).length;
    this.#context.log.info(
      `jobs: ${count("deployed")} deployed, ${count("skipped")} skipped, ${count("failed")} failed, ${count("not_started")} not started`,
    );
    const failed = jobs.filter((job) => job.outcome === "failed").map((job) => `${job.job}: ${job.reason}`);
    const left = reconciled.flatMap((one) =>
      one.error === null ? [] : [`${one.job}@${one.worker}: ${one.error}`],
    );
    if (failed.length + left.length > 0)
      throw new Failure("failed", `the deploy is not complete: ${[...failed, ...left].join("; ")}`, {
        details: result,
      });
    return result;
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

  #progress(phase: string): void {
    this.#context.run.progress({ phase, done: this.#results.size, total: this.#jobs.length, waiting: [] });
  }
}

function whySkipped(plan: JobPlan): string {
  return plan.allocations.length === 0 ? "no_allocations" : "already_promoted";
}

function describeState(state: AllocationState): JobResult["allocations"][number] {
  const { allocation, decision } = state.plan;
  const outcome =
    decision.action === "skip"
      ? "skipped"
      : state.error !== undefined
        ? "failed"
        : state.done
          ? "changed"
          : "not_started";
  return { worker: allocation.worker, action: decision.action, outcome, error: state.error ?? null };
}
