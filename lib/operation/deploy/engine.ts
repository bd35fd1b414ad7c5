// The engine: a deploy as a generator of steps, which decides and never acts (hook-runtime.md, Deploy order).
//
// `deploySteps` reads the catalog and what is promoted, yields one step and waits. A driver answers: with the step's
// answer, or with its error, which is thrown where the step was asked for. Then the engine decides what comes next.
// There are two drivers, and nothing else differs between a deploy and its plan. The one in deploy.ts and carry-out.ts
// does each step, on the workers and in the database. The one in dry-run.ts does nothing, answers as if each step had
// succeeded and records what was asked for: that record is the plan. The property tests drive the first one with
// workers in memory. A retry is the same generator from another start: the jobs and allocations that are left.
// The jobs of a wave go side by side: one step hands the driver a generator for each (rollout.ts), and the driver runs
// them together. How far each allocation came stands in its state, which the driver fills in as the work at it ends.
import type { CatalogJob } from "../../bucket/base/model.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import type { ChangeOptions } from "../../plan/changes.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";
import { allUpstreamOf } from "../hooks/job-facts.ts";
import { type DeployScope, dueForReconcile, wavesOf } from "../plan/deploy-scope.ts";
import { type JobPlan, planJob } from "../plan/plan-job.ts";
import { type Rollout, rolloutOf } from "../plan/rollout-state.ts";
import { rolloutSteps } from "./rollout.ts";
import { ask, type Steps } from "./steps.ts";

/** What a deploy starts from. */
export interface DeployStart {
  context: OperationContext;
  fleet: Fleet;
  scope: DeployScope;
  options: ChangeOptions;
}

/** A deploy under way. */
interface Walk extends DeployStart {
  updateSeq: number;
  /** Jobs that failed in this deploy. */
  failed: Set<string>;
}

/**
 * The steps of a deploy from this start. A job that fails does not stop independent ones. Throws `cancelled` once the
 * run's signal is aborted, and what a driver throws at a step that no job can answer for.
 */
export function* deploySteps(start: DeployStart): Steps {
  const { context, fleet, scope } = start;
  throwIfCancelled(context.signal);
  yield* ask("phase", "reconcile");
  yield* ask(
    "reconcile",
    dueForReconcile(context.db, scope.allocations, (host) => fleet.worker(host).removed),
  );
  const walk = { ...start, updateSeq: updateSeqOf(context), failed: new Set<string>() };
  for (const [seq, jobs] of wavesOf(scope.jobs)) {
    throwIfCancelled(context.signal);
    yield* waveSteps(walk, seq, jobs);
    yield* ask("waveOver", { seq, jobs });
  }
}

/** The update sequence as the bucket has it. */
export function updateSeqOf({ db }: Pick<OperationContext, "db">): number {
  return db.get<{ update_seq: number }>("SELECT update_seq FROM bucket")?.update_seq ?? 0;
}

/** pre_deploy, then a plan of every job, and only if one of them needs work a raised sequence and the rollouts. */
function* waveSteps(walk: Walk, seq: number, jobs: readonly CatalogJob[]): Steps {
  const wave = `wave ${seq}`;
  const startable = yield* withoutFailedUpstream(walk, jobs);
  yield* ask("phase", `${wave}: pre_deploy`);
  const runnable = yield* preDeploySteps(walk, startable);
  yield* ask("phase", `${wave}: plan`);
  const planned = yield* planSteps(walk, runnable);
  for (const { plan } of planned) if (plan?.needsWork === false) yield* ask("decided", plan);
  const working = planned.filter(({ plan }) => plan?.needsWork ?? true);
  if (working.length === 0) return;
  walk.updateSeq = yield* ask("raiseSequence", { seq, jobs: working.map(({ job }) => job.name) });
  yield* ask("phase", `${wave}: worker files`);
  const allocations = working.flatMap(({ plan }) => plan?.allocations ?? []);
  const hosts = allocations.map(({ allocation }) => allocation.worker);
  const unready = yield* ask("workerFiles", { hosts, updateSeq: walk.updateSeq });
  yield* ask("phase", `${wave}: roll out`);
  // Planned again, because templates may use the update sequence that has just changed.
  const again = yield* planSteps(
    walk,
    working.map(({ job }) => job),
  );
  const plans = again.flatMap(({ plan }) => plan ?? []);
  for (const plan of plans) yield* ask("decided", plan);
  yield* ask(
    "sideBySide",
    plans.map((plan) => jobSteps(walk, rolloutOf(plan, unready))),
  );
}

/** The jobs that no failed job keeps from starting, whether this deploy is about the jobs between them or not. */
function* withoutFailedUpstream(walk: Walk, jobs: readonly CatalogJob[]): Steps<CatalogJob[]> {
  const startable: CatalogJob[] = [];
  for (const job of jobs) {
    const upstream = allUpstreamOf(job, walk.scope.all).find((name) => walk.failed.has(name));
    if (upstream === undefined) startable.push(job);
    else yield* ask("notStarted", { job, upstream });
  }
  return startable;
}

/** Answers the jobs whose hooks for pre_deploy succeeded. */
function* preDeploySteps({ context, failed }: Walk, jobs: readonly CatalogJob[]): Steps<CatalogJob[]> {
  const succeeded = new Set<CatalogJob>();
  function* steps(job: CatalogJob): Steps {
    try {
      yield* ask("preDeploy", job);
      succeeded.add(job);
    } catch (error) {
      throwIfCancelled(context.signal);
      failed.add(job.name);
      yield* ask("leftOut", { job, error });
    }
  }
  yield* ask("sideBySide", jobs.map(steps));
  return jobs.filter((job) => succeeded.has(job));
}

/** Plans jobs; one that is assumed to roll out, though it cannot be planned yet, has no plan. */
function* planSteps(walk: Walk, jobs: readonly CatalogJob[]): Steps<{ job: CatalogJob; plan: JobPlan | undefined }[]> {
  const planned = [];
  for (const job of jobs) {
    try {
      const own = walk.scope.present.get(job.name) ?? [];
      planned.push({ job, plan: planJob(walk, job, own, walk.updateSeq) });
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (yield* ask("leftOut", { job, error })) planned.push({ job, plan: undefined });
      else walk.failed.add(job.name);
    }
  }
  return planned;
}

/** One job's rollout from its beginning to its end, whatever that is. */
function* jobSteps({ context, failed }: Walk, rollout: Rollout): Steps {
  yield* ask("begin", rollout);
  let error: unknown;
  try {
    yield* rolloutSteps(context.signal, rollout);
  } catch (cause) {
    error = cause;
    failed.add(rollout.plan.job.name);
  }
  yield* ask("end", { rollout, error });
}
