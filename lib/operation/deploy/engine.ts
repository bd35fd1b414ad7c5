// The engine: a deploy as a generator of steps, which decides and never acts (hook-runtime.md, Deploy order).
//
// `deploySteps` reads the catalog and what is promoted, yields one step and waits. A driver answers: with the step's
// answer, or with its error, which is thrown where the step was asked for. Then the engine decides what comes next.
// There are two drivers, and nothing else differs between a deploy and its plan. The one in deploy.ts and carry-out.ts
// does each step, on the workers and in the database. The one in dry-run.ts does nothing, answers as if each step had
// succeeded and records what was asked for: that record is the plan. The property tests drive the first one with
// workers in memory. A retry is the same generator from another start: the jobs and allocations that are left.
// The jobs of a wave go side by side: one step hands the driver a generator for each job, and the driver drives them
// together (rollout-steps.ts). How far an allocation came stands in its state, which the driver fills in as the work at it
// ends. An adoption is one more kind of wave, which asks for no step that runs or sends anything.
import type { CatalogJob } from "../../bucket/base/model.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import type { ChangeOptions } from "../../plan/changes.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";
import { allUpstreamOf } from "../hooks/hook-script.ts";
import { hooksOn } from "../hooks/hooks.ts";
import { afterLook } from "../plan/adoption.ts";
import { type DeployScope, dueForReconcile, type JobPlan, planJob, wavesOf } from "../plan/plan-job.ts";
import { type Rollout, rolloutOf } from "../plan/rollout-state.ts";
import { adoptSteps, rolloutSteps } from "./rollout-steps.ts";
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
  /** The preflight has been. */
  isChecked: boolean;
}

/**
 * The steps of a deploy from this start. A job that fails does not stop independent ones. Throws `cancelled` once the
 * run's signal is aborted, and what a driver throws at a step that no job can answer for.
 */
export function* deploySteps(start: DeployStart): Steps {
  const { context, scope } = start;
  throwIfCancelled(context.signal);
  const walk = { ...start, updateSeq: updateSeqOf(context), failed: new Set<string>(), isChecked: false };
  if (!start.options.adopt) yield* reconcileSteps(walk);
  for (const [seq, jobs] of wavesOf(scope.jobs)) {
    throwIfCancelled(context.signal);
    yield* start.options.adopt ? adoptionSteps(walk, seq, jobs) : waveSteps(walk, seq, jobs);
    yield* ask("waveOver", { seq, jobs });
  }
}

function* reconcileSteps(walk: Walk): Steps {
  const { context, fleet, scope } = walk;
  const isGone = (host: string) => fleet.worker(host).removed;
  const found = dueForReconcile(context.db, scope.allocations, isGone);
  const due = found.due.filter((one) => !one.isGone).map(({ allocation }) => allocation.worker);
  if (due.length > 0) yield* preflightSteps(walk, [], -1, due);
  yield* ask("phase", "reconcile");
  yield* ask("reconcile", found);
}

/** The update sequence as the bucket has it. */
export function updateSeqOf({ db }: Pick<OperationContext, "db">): number {
  return db.get<{ update_seq: number }>("SELECT update_seq FROM bucket")?.update_seq ?? 0;
}

/** pre_deploy, then a plan of every job, and only if one of them needs work a raised sequence and the rollouts. */
function* waveSteps(walk: Walk, seq: number, jobs: readonly CatalogJob[]): Steps {
  const wave = `wave ${seq}`;
  const startable = yield* withoutFailedUpstream(walk, jobs);
  const isHooked = (job: CatalogJob) => hooksOn(job, "pre_deploy").length > 0;
  if (!walk.isChecked && startable.some((job) => isHooked(job) && mayNeedWork(walk, job)))
    yield* preflightSteps(walk, [], seq - 1);
  yield* ask("phase", `${wave}: pre_deploy`);
  const runnable = yield* preDeploySteps(walk, startable);
  yield* ask("phase", `${wave}: plan`);
  const planned = yield* planSteps(walk, runnable);
  for (const { plan } of planned) if (plan?.needsWork === false) yield* ask("decided", plan);
  const working = planned.filter(({ plan }) => plan?.needsWork ?? true);
  if (working.length === 0) return;
  const workingJobs = working.map(({ job }) => job);
  yield* preflightSteps(walk, workingJobs, seq);
  walk.updateSeq = yield* ask("raiseSequence", { seq, jobs: workingJobs.map(({ name }) => name) });
  yield* ask("phase", `${wave}: worker files`);
  const allocations = working.flatMap(({ plan }) => plan?.allocations ?? []);
  const hosts = allocations.map(({ allocation }) => allocation.worker);
  const unready = yield* ask("workerFiles", { hosts, updateSeq: walk.updateSeq });
  yield* ask("phase", `${wave}: roll out`);
  // Planned again, because templates may use the update sequence that has just changed.
  const again = yield* planSteps(walk, workingJobs);
  const plans = again.flatMap(({ plan }) => plan ?? []);
  for (const plan of plans) yield* ask("decided", plan);
  const rollouts = plans.filter(({ needsWork }) => needsWork).map((plan) => jobSteps(walk, rolloutOf(plan, unready)));
  yield* ask("sideBySide", rollouts);
}

/**
 * The steps of an adoption for one wave (docs/deploy.md, Adopt): no hook, no target, no file of a job. The jobs are planned
 * with the sequence that the workers' own files would get, and once more where pairs were taken over from workers.
 */
function* adoptionSteps(walk: Walk, seq: number, jobs: readonly CatalogJob[]): Steps {
  yield* ask("phase", `wave ${seq}: compare`);
  const next = { ...walk, updateSeq: walk.updateSeq + 1 };
  const plansOf = function* (some: readonly CatalogJob[]) {
    return (yield* planSteps(next, some)).flatMap(({ plan }) => plan ?? []);
  };
  let plans = yield* plansOf(jobs);
  let looked = yield* ask("look", plans);
  if (looked.pairs.length > 0) {
    yield* ask("takePairs", looked.pairs);
    plans = yield* plansOf(plans.map(({ job }) => job));
    looked = yield* ask("look", plans);
  }
  plans = plans.map((plan) => afterLook(plan, looked));
  for (const plan of plans) yield* ask("decided", plan);
  const working = plans.filter(({ needsWork }) => needsWork);
  if (working.length === 0) return;
  const adopted = working.flatMap(({ allocations }) => allocations.filter(({ decision }) => decision.action === "adopt"));
  const hosts = adopted.map(({ allocation }) => allocation.worker).filter((host) => !looked.troubles.has(host));
  const troubles = new Map(looked.troubles);
  if (hosts.length > 0) {
    walk.updateSeq = yield* ask("raiseSequence", { seq, jobs: working.map(({ job }) => job.name) });
    for (const [host, trouble] of yield* ask("workerFiles", { hosts, updateSeq: walk.updateSeq })) troubles.set(host, trouble);
  }
  yield* ask("phase", `wave ${seq}: adopt`);
  yield* ask(
    "sideBySide",
    working.map((plan) => jobSteps(walk, rolloutOf(plan, troubles))),
  );
}

/** The preflight, where it has not been: before the first of reconcile, a hook and a change (docs/deploy.md, Preflight). */
function* preflightSteps(walk: Walk, working: readonly CatalogJob[], seq: number, due: string[] = []): Steps {
  if (walk.isChecked) return;
  walk.isChecked = true;
  yield* ask("phase", "preflight");
  const later = () => walk.scope.jobs.filter((job) => job.deploymentSeq > seq && mayNeedWork(walk, job));
  yield* ask("preflight", { due, jobs: () => [...working, ...later()] });
}

/** Whether a job needs work as far as that is known before its hooks for pre_deploy have run. */
function mayNeedWork(walk: Walk, job: CatalogJob): boolean {
  try {
    return planJob(walk, job, walk.scope.present.get(job.name) ?? [], walk.updateSeq).needsWork;
  } catch (error) {
    return error instanceof Failure && error.code === "ErrKeyMissing";
  }
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
function* jobSteps({ context, failed, options }: Walk, rollout: Rollout): Steps {
  yield* ask("begin", rollout);
  let error: unknown;
  try {
    yield* options.adopt ? adoptSteps(rollout) : rolloutSteps(context.signal, rollout);
  } catch (cause) {
    error = cause;
    failed.add(rollout.plan.job.name);
  }
  yield* ask("end", { rollout, error });
}
