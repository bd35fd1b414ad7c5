import type { CatalogJob } from "../../bucket/base/model.ts";
import { NEVER_PROMOTED } from "../../bucket/catalog/promotions.ts";
import { mapAll } from "../../core/async.ts";
import { cancelledFailure, Failure, messageOf } from "../../core/errors.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation } from "../base/context.ts";
import { WORKERS_AT_ONCE } from "../base/fleet.ts";
import { endCancelled, type Trouble, troubleOf } from "../base/outcome.ts";
import { build } from "../build/build.ts";
import { scriptErrors, withHooks } from "../hooks/hooks.ts";
import { changeOptionsOf, deployScope } from "../plan/plan-job.ts";
import { describeAdoption, reasonFor } from "../plan/plan-text.ts";
import { type Rollout, rolloutOf } from "../plan/rollout-state.ts";
import { effectsOf } from "../reach/effects.ts";
import { lookAtWorkers, takePairs } from "./adoption.ts";
import { type Order, rolloutDriver, type Work } from "./carry-out.ts";
import { DeployBoard, wavesOfResults } from "./deploy-board.ts";
import {
  allocationResult,
  concludeDeploy,
  type DeployResult,
  deployResult,
  describeResult,
  type JobResult,
  leftOut,
} from "./deploy-result.ts";
import { boundPlanOf, dryRun } from "./dry-run.ts";
import { deploySteps, updateSeqOf } from "./engine.ts";
import { preflight } from "./preflight.ts";
import { type Reconciled, reconcile } from "./reconcile.ts";
import { type About, type Driver, drive } from "./steps.ts";

const ROLLOUTS_AT_ONCE = 8;

/**
 * Brings the workers to the state of the catalog (hook-runtime.md, Deploy order). A job that fails does not stop
 * independent ones; what succeeded stays, and the next deploy goes on where this one ended. Throws `failed` at the end
 * when any job or allocation failed, `cancelled` when it was cancelled, both with the whole result in the details.
 */
export const deploy: Operation = async (context, params) => {
  const given = parametersOf("deploy", params);
  if (given.build) await build(context, {});
  const bound = given.plan === undefined ? undefined : boundPlanOf(context, given.plan);
  const scope = deployScope(context, bound ? bound.jobs : given.jobs);
  if (scope.allocations.length === 0) context.log.warn("the catalog has no allocations: was it built (`ops build`)?");
  const options = changeOptionsOf(scope, bound?.options ?? given);
  return await withHooks(context, async (hooks, fleet) => {
    try {
      const effects = effectsOf(context, fleet, hooks, scope.allocations);
      const order = { context, fleet, effects, scope, options };
      if (!given.dry_run) return await carryOutDeploy({ ...order, bound });
      const asked = { forceOnly: given.force_only, withHooks: given.with_hooks };
      return await dryRun({ ...order, options: { ...options, ...asked } });
    } catch (error) {
      const { details } = error as { details?: DeployResult };
      if (details === undefined) throw error;
      endCancelled(context.signal, fleet, error, () => details);
    }
  });
};

/** Carries out a deploy, as the plan says where there is one; ends as {@link deploy} does. */
export async function carryOutDeploy(order: Order): Promise<DeployResult> {
  const { log, signal } = order.context;
  const ongoing = startedWork(order);
  let error: Failure | undefined;
  try {
    await drive(deploySteps(order), deployDriver(ongoing));
  } catch (cause) {
    if (!(cause instanceof Failure)) throw cause;
    error = cause;
  }
  const result = resultOf(ongoing);
  for (const line of result.left_down ?? []) log.warn(line);
  if (error) {
    const { code, message } = signal.aborted ? cancelledFailure() : error;
    throw new Failure(code, message, { details: result, cause: error });
  }
  for (const line of describeResult(result)) log.info(line);
  return concludeDeploy(result);
}

/** A deploy that is carried out, and how far it came. */
interface Ongoing extends Work {
  phase: { step: string; startedMs: number } | undefined;
  /** Of the parts that have ended. */
  steps: DeployResult["steps"];
  reconciled: Reconciled[];
  board: DeployBoard;
}

function startedWork(order: Order): Ongoing {
  const { context, scope } = order;
  const board = new DeployBoard(scope, context.log.redactor);
  const report = () => {
    const phase = ongoing.phase?.step ?? "";
    context.progress.report({ phase, done: board.done, total: scope.jobs.length, deploy: () => board.progress() });
  };
  const ongoing: Ongoing = { ...order, board, report, phase: undefined, steps: [], reconciled: [] };
  return ongoing;
}

/** Does each step of a deploy, on the workers and in the database. */
function deployDriver(ongoing: Ongoing): Driver {
  const { board, bound, context, effects, options } = ongoing;
  const { db, kv, log, signal } = context;
  const driver: Driver = {
    ...rolloutDriver(ongoing),
    say: (line) => log.info(line),
    phase: (step) => enterPhase(ongoing, step),
    preflight: (of) => preflight(ongoing, of),
    reconcile: (found) => reconcileAll(ongoing, found),
    async sideBySide(branches) {
      await mapAll(branches, ROLLOUTS_AT_ONCE, (steps) => drive(steps, driver), signal);
    },
    async preDeploy(job) {
      try {
        await effects.hooks({ kind: "pre_deploy", job });
        kv.flush(job.name);
      } catch (error) {
        kv.discard(job.name);
        throw error;
      }
    },
    notStarted({ job, upstream }) {
      const how = "which it follows directly or through others, failed in this deploy";
      leaveOut(ongoing, job, { outcome: "not_started", reason: `not started: job ${upstream}, ${how}` });
    },
    leftOut({ job, error }) {
      leaveOut(ongoing, job, { outcome: "failed", reason: messageOf(error) }, scriptErrors(error));
      return false;
    },
    decided(plan) {
      bound?.compare(plan);
      const job = plan.job.name;
      if (options.adopt) for (const line of describeAdoption(plan)) log.info(line, { job });
      if (plan.needsWork) return;
      const words = reasonFor(plan, options);
      const reason = words.replaceAll(" ", "_");
      log.record({ event: "deploy_skip", job, reason });
      log.info(`${job}: skipped, ${words}`, { job });
      const allocations = rolloutOf(plan).states.map(allocationResult);
      board.settle(plan.job, { outcome: "skipped", reason, duration_ms: 0, allocations });
    },
    look: (plans) => lookAtWorkers(context, effects, plans),
    takePairs: (pairs) => takePairs(context, pairs),
    raiseSequence({ seq, jobs }) {
      db.run("UPDATE bucket SET update_seq = update_seq + 1");
      const updateSeq = updateSeqOf(context);
      log.updateSeq = updateSeq;
      log.info(`wave ${seq}: ${jobs.join(", ")} (update sequence ${updateSeq})`);
      return updateSeq;
    },
    workerFiles: ({ hosts, updateSeq }) => syncWorkers(ongoing, hosts, updateSeq),
    begin: (rollout) => board.begin(rollout),
    end: ({ rollout, error }) => endRollout(ongoing, rollout, error),
    waveOver() {},
  };
  return driver;
}

function enterPhase(ongoing: Ongoing, step: string): void {
  endPhase(ongoing);
  ongoing.phase = { step, startedMs: performance.now() };
  ongoing.report();
}

function endPhase({ phase, steps }: Ongoing): void {
  if (phase) steps.push({ step: phase.step, duration_ms: Math.round(performance.now() - phase.startedMs) });
}

async function reconcileAll(ongoing: Ongoing, { due, neverDeployed }: About<"reconcile">): Promise<void> {
  const { context, effects, scope } = ongoing;
  const { log } = context;
  for (const { worker, job } of neverDeployed)
    log.record({ event: "reconcile_skip_stop", worker, job, phase: "reconcile", reason: "not_deployed" });
  ongoing.reconciled = await reconcile(context, effects, scope.all, due);
  // jobs.json says what is stopped, too.
  const hosts = ongoing.reconciled.filter((one) => one.outcome === "changed").map((one) => one.worker);
  const troubles = await syncWorkers(ongoing, hosts, updateSeqOf(context));
  for (const [host, { message }] of troubles) log.warn(`jobs.json on ${host} is out of date: ${message}`, { worker: host });
}

/** Answers what went wrong, by worker. Nothing may run there, since the runner goes by these files. */
async function syncWorkers(ongoing: Ongoing, hosts: readonly string[], updateSeq: number): Promise<Map<string, Trouble>> {
  const { context, effects } = ongoing;
  const { db, signal } = context;
  const troubles = new Map<string, Trouble>();
  const all = [...new Set(hosts)];
  await mapAll(
    all,
    WORKERS_AT_ONCE,
    (host) => effects.syncWorker(host, updateSeq).catch((error: unknown) => void troubles.set(host, troubleOf(error))),
    signal,
  );
  db.transaction(() => {
    for (const host of all)
      if (!troubles.has(host)) db.run("UPDATE worker SET synced_seq = ? WHERE worker_ip = ?", updateSeq, host);
  });
  return troubles;
}

function endRollout(ongoing: Ongoing, rollout: Rollout, error: unknown): void {
  const { board, context, fleet } = ongoing;
  const { log, signal } = context;
  const { plan, states } = rollout;
  const { name } = plan.job;
  const duration_ms = board.end(rollout);
  for (const { plan: of, done } of states)
    if (of.decision.action === "start" && of.promoted.version !== NEVER_PROMOTED && !done)
      fleet.down.set(`${name}@${of.allocation.worker}`, "start");
  const allocations = states.map(allocationResult);
  const outcome = error === undefined ? "deployed" : signal.aborted ? "cancelled" : "failed";
  const done = ongoing.options.adopt ? "adopted" : "deployed";
  const reason = error === undefined ? done : messageOf(error);
  if (outcome === "deployed") log.info(`${name}: ${done} in ${(duration_ms / 1000).toFixed(1)} s`, { job: name });
  else if (outcome === "failed") log.error(`${name}: ${reason}`, { job: name });
  const { batch, batches } = rollout.at;
  const isCut = outcome !== "deployed" && batch > 0;
  const isGate = outcome === "failed" && error instanceof Failure && error.code === "ErrHealthCheckFailed";
  const more = { ...(isCut && { stopped_in: { batch, batches } }), ...(isGate && { gate_failed: true as const }) };
  board.settle(plan.job, { outcome, reason, duration_ms, allocations, ...more });
  ongoing.report();
}

function leaveOut(
  { board, context, scope }: Ongoing,
  job: CatalogJob,
  how: Pick<JobResult, "outcome" | "reason">,
  errors?: ReadonlyMap<string, string>,
): void {
  context.log.error(`${job.name}: ${how.reason}`, { job: job.name });
  const allocations = leftOut(scope.present.get(job.name) ?? [], errors);
  board.settle(job, { ...how, duration_ms: 0, allocations });
}

/** How far the deploy came. */
function resultOf(ongoing: Ongoing): DeployResult {
  const { board, bound, context, fleet, reconciled, steps } = ongoing;
  endPhase(ongoing);
  const jobs = board.results();
  const result = deployResult({ jobs, waves: wavesOfResults(jobs), reconciled, steps, update_seq: updateSeqOf(context) });
  return { ...result, ...(bound && { plan: bound.result() }), ...fleet.leftDown() };
}
