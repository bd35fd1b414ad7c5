import {
  type CatalogAllocation,
  type CatalogJob,
  catalogAllocations,
  catalogJobs,
  catalogWorkers,
} from "../bucket/catalog.ts";
import { runAll } from "../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../core/errors.ts";
import { nearest, quote } from "../core/shape.ts";
import { parametersOf } from "../run/protocol.ts";
import { build } from "./build.ts";
import type { Operation, OperationContext } from "./context.ts";
import { type CancelReceipts, Fleet } from "./fleet.ts";
import { HookSession } from "./hooks.ts";
import { allUpstreamOf, type JobPlan, planJob } from "./plan-job.ts";
import { type Reconciled, reconcile } from "./reconcile.ts";
import { type AllocationState, rollOut } from "./rollout.ts";
import { syncWorkerFiles } from "./worker-files.ts";

const JOBS_AT_ONCE = 8;

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
  /** Only of a deploy that was cancelled: what became of the commands that were running. */
  cancelled?: CancelReceipts;
}

/**
 * Brings the workers to the state of the catalog (hook-runtime.md, Deploy order). A job that fails does not stop
 * independent ones; what succeeded stays, and the next deploy goes on where this one ended. Throws `failed` at the end
 * when any job or allocation failed, `cancelled` when it was cancelled, both with the whole result in the details.
 */
export const deploy: Operation = async (context, params) => {
  const given = parametersOf("deploy", params);
  if (given.build) await build(context, {});
  const all = catalogJobs(context.db);
  const jobs = selectJobs(all, given.jobs);
  const fleet = new Fleet(context, catalogWorkers(context.db));
  const hooks = new HookSession(context, fleet);
  const work = new Deploy(context, fleet, hooks, all, jobs, given.force);
  try {
    return await work.carryOut();
  } catch (error) {
    if (!context.signal.aborted) throw error;
    const details = { ...work.result(), cancelled: fleet.cancelReceipts() };
    throw new Failure("cancelled", "cancelled", { details, cause: error });
  } finally {
    await hooks.close();
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
  readonly #hooks: HookSession;
  /** All of the catalog. */
  readonly #all: CatalogJob[];
  /** Those that are to be deployed. */
  readonly #jobs: CatalogJob[];
  readonly #force: boolean;
  readonly #allocations: CatalogAllocation[];
  readonly #results = new Map<string, JobResult>();
  #reconciled: Reconciled[] = [];

  constructor(
    context: OperationContext,
    fleet: Fleet,
    hooks: HookSession,
    all: CatalogJob[],
    jobs: CatalogJob[],
    force: boolean,
  ) {
    this.#context = context;
    this.#fleet = fleet;
    this.#hooks = hooks;
    this.#all = all;
    this.#jobs = jobs;
    this.#force = force;
    this.#allocations = catalogAllocations(context.db);
  }

  async carryOut(): Promise<DeployResult> {
    this.#progress("reconcile");
    this.#reconciled = await reconcile(this.#context, this.#fleet, this.#hooks, this.#all);
    await this.#updateReconciled();
    const waves = new Set(this.#jobs.map((job) => job.deploymentSeq));
    for (const seq of [...waves].sort((a, b) => a - b)) {
      throwIfCancelled(this.#context.signal);
      await this.#wave(
        seq,
        this.#jobs.filter((job) => job.deploymentSeq === seq),
      );
    }
    return this.#conclude();
  }

  /** How far it came. */
  result(): DeployResult {
    const jobs = [...this.#results.values()];
    return { jobs, reconciled: this.#reconciled, update_seq: this.#updateSeq() };
  }

  /** Wherever something was stopped, jobs.json must say so too. */
  async #updateReconciled(): Promise<void> {
    const hosts = this.#reconciled.filter((one) => one.error === null).map((one) => one.worker);
    const failed = await this.#syncWorkerFiles(hosts, this.#updateSeq());
    for (const [host, error] of failed)
      this.#context.log.warn(`jobs.json on ${host} is out of date: ${error}`);
  }

  #syncWorkerFiles(hosts: string[], updateSeq: number): Promise<Map<string, string>> {
    return syncWorkerFiles(this.#context, this.#fleet, hosts, this.#allocations, updateSeq);
  }

  /** One wave: hooks for pre_deploy, then plan every job, and only if one of them needs work raise the update sequence and roll out. */
  async #wave(seq: number, jobs: CatalogJob[]): Promise<void> {
    this.#progress(`wave ${seq}`);
    const runnable = await this.#preDeploy(jobs.filter((job) => this.#mayRun(job)));
    const planned = runnable.flatMap((job) => this.#plan(job, this.#updateSeq()) ?? []);
    for (const plan of planned) if (!plan.needsWork) this.#skip(plan, whySkipped(plan));
    const working = planned.filter((plan) => plan.needsWork);
    if (working.length === 0) return;
    const updateSeq = this.#raiseUpdateSeq();
    this.#context.log.info(
      `wave ${seq}: ${working.map((plan) => plan.job.name).join(", ")} (update sequence ${updateSeq})`,
    );
    const hosts = working.flatMap((plan) => plan.allocations.map((one) => one.allocation.worker));
    const unready = await this.#syncWorkerFiles(hosts, updateSeq);
    // Planned again, because templates may use the update sequence that has just changed.
    const plans = working.flatMap((plan) => this.#plan(plan.job, updateSeq) ?? []);
    const { signal } = this.#context;
    const ended = await runAll(plans, JOBS_AT_ONCE, (plan) => this.#rollOut(plan, unready), signal);
    throwIfCancelled(signal);
    for (const one of ended) if (one.status === "rejected") throw one.reason;
  }

  #mayRun(job: CatalogJob): boolean {
    // Through jobs that this deploy is not about, too.
    const upstream = allUpstreamOf(job, this.#all);
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
        await this.#hooks.run({ kind: "pre_deploy", job });
        kv.flush(job.name);
        return [job];
      } catch (error) {
        kv.discard(job.name);
        throwIfCancelled(signal);
        this.#leaveOut(job, "failed", messageOf(error));
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
    const own = this.#allocations.filter((one) => one.job === job.name && !one.removed);
    try {
      return planJob(this.#context, this.#fleet, job, own, updateSeq, this.#force);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.#leaveOut(job, "failed", error.message);
      return undefined;
    }
  }

  async #rollOut(plan: JobPlan, unready: ReadonlyMap<string, string>): Promise<void> {
    const states = plan.allocations.map((one): AllocationState => {
      const changes = one.decision.action !== "skip";
      return { plan: one, done: false, error: changes ? unready.get(one.allocation.worker) : undefined };
    });
    const started = performance.now();
    let error: string | undefined;
    try {
      await rollOut(this.#context, this.#fleet, this.#hooks, plan, states, this.#force);
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

  #conclude(): DeployResult {
    const result = this.result();
    const { jobs, reconciled } = result;
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
