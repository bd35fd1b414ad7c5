import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { isUnsettled, type Promotion, setStopped, startAnew, syncedFiles } from "../../bucket/catalog/promotions.ts";
import { mapAll } from "../../core/async.ts";
import { type Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { inOneLine } from "../../core/plain-text.ts";
import type { FileDigests } from "../../plan/changes.ts";
import { type Batch, rolloutBatches } from "../../plan/rollout.ts";
import type { OperationContext } from "../base/context.ts";
import type { Evidence } from "../base/evidence.ts";
import { type Fleet, WORKERS_AT_ONCE } from "../base/fleet.ts";
import { failedWith, type Grade, troubleOf } from "../base/outcome.ts";
import { gateTroubles, hasGate, passGate } from "../health/gate.ts";
import { hooksOn, scriptErrors, scriptsIn } from "../hooks/hooks.ts";
import { type Noted, noteBegun, noteOutcomes, outcomeOf } from "../plan/last-outcomes.ts";
import { bringFiles, type Effects, promotedTree } from "../reach/effects.ts";

/** The outcome for one allocation; filled in as the run goes on. */
export interface ControlState {
  readonly allocation: CatalogAllocation;
  readonly promoted: Promotion;
  outcome: Grade;
  /** The reason of an outcome that is neither `ok` nor `not_started`. */
  error: string | null;
  duration_ms: number;
  /** The promoted files were put back on the worker before the target ran. */
  put_back?: true;
  /** The answer of `make status` with its last lines, where the status was asked for. */
  status?: { exit_code: number | null; lines: string[] };
  /** What was found on the worker, where the health check after the batch failed. */
  evidence?: Evidence | null;
}

/** What a run of job control works with. */
export interface Control {
  readonly context: OperationContext;
  readonly fleet: Fleet;
  readonly effects: Effects;
  /** The allocations of all jobs that are not removed. */
  readonly present: readonly CatalogAllocation[];
  readonly target: string;
  /** A health check follows each batch. */
  readonly healthCheck: boolean;
  /** A stopped allocation is started as a new one by the next deploy. */
  readonly forget: boolean;
}

/** The part of a run of job control that is about one job. */
export interface JobWork extends Control {
  readonly job: CatalogJob;
  /** The allocations of the job that the run is about. */
  readonly states: readonly ControlState[];
}

/**
 * Runs the target of a job control command for one job, after {@link settle}: in rollout order, in batches of
 * `max_concurrent_upgrades`, by the job's `job_control` hooks where it has some, else by `make`. The next batch starts
 * only after the one before succeeded, and after the health check where that was asked for.
 */
export async function controlJob(work: JobWork): Promise<void> {
  const { context, job, states, target } = work;
  await settle(work);
  const waiting = states.filter(({ outcome }) => outcome === "not_started");
  const ready = new Map(waiting.map((state) => [workerOf(state), state]));
  const order = context.kv.get(`ops/job/${job.name}`, "rollout_order");
  for (const batch of rolloutBatches(order, [...ready.keys()], job.maxConcurrentUpgrades)) {
    throwIfCancelled(context.signal);
    const own = batch.workers.map((host) => ready.get(host) as ControlState);
    context.log.info(`${job.name}: batch ${batch.index + 1} of ${batch.count}: ${target} on ${hostsOf(own)}`, { job: job.name });
    const ids = own.map(({ allocation }) => allocation.id);
    noteBegun(context, ids, target);
    try {
      await runBatch(work, batch, own);
      if (own.every(({ outcome }) => outcome === "ok") && work.healthCheck) await checkAfter(work, own);
    } catch (error) {
      for (const state of own)
        if (context.signal.aborted && state.outcome === "not_started")
          Object.assign(state, { outcome: "cancelled", error: "cancelled" });
      throw error;
    } finally {
      noteControl(work, own);
    }
    if (own.some(({ outcome }) => outcome !== "ok")) return;
  }
}

async function runBatch(work: JobWork, batch: Batch, states: readonly ControlState[]): Promise<void> {
  const { context, job } = work;
  const started = performance.now();
  const finish = (state: ControlState, error?: unknown) => {
    const trouble = error === undefined ? undefined : troubleOf(error);
    Object.assign(state, { outcome: trouble?.grade ?? "ok", error: trouble?.message ?? null });
    state.duration_ms = Math.round(performance.now() - started);
    if (trouble) context.log.error(`${job.name}@${state.allocation.worker}: ${inOneLine(trouble.message)}`, state.allocation);
    else noteTarget(work, state.allocation);
  };
  if (hooksOn(job, "job_control").length > 0) {
    const errors = await runControlHooks(work, batch);
    for (const state of states) finish(state, errors.get(state.allocation.worker));
    return;
  }
  const { effects, target } = work;
  const how = { job: job.name, target, phase: "job_control", limitSeconds: job.lifecycleTimeoutSeconds };
  const run = (state: ControlState) =>
    effects.run({ ...how, worker: workerOf(state), env: versionsOf(state) }).then(
      () => finish(state),
      (error: unknown) => finish(state, error),
    );
  await mapAll(states, states.length, run, context.signal);
}

/**
 * Runs the job's hooks for the batch. Answers the errors by worker: of the scripts that failed, and for workers on which a
 * later hook did not run for that reason. Values that the scripts wrote are stored in any case.
 */
async function runControlHooks(work: JobWork, batch: Batch): Promise<ReadonlyMap<string, Failure>> {
  const { context, effects, job, target } = work;
  try {
    await effects.hooks({ kind: "command_control", job, batch, variables: { TARGET: target } });
    return new Map();
  } catch (error) {
    throwIfCancelled(context.signal);
    const errors = scriptErrors(error);
    if (errors.size === 0) throw error;
    const last = scriptsIn(error).filter(({ hook }) => hook === hooksOn(job, "job_control").at(-1));
    const cut = batch.workers.filter((host) => !errors.has(host) && !last.some(({ worker }) => worker === host));
    for (const host of cut) errors.set(host, "a hook failed on another worker, so not all hooks ran for this one");
    return new Map([...errors].map(([worker, said]) => [worker, failedWith("ErrHookFailed", said)]));
  } finally {
    context.kv.flush(job.name);
  }
}

/** The health check after a batch. Where it fails, the batch has failed. */
export async function checkAfter(work: JobWork, batch: readonly ControlState[]): Promise<void> {
  const { context, effects, job, present, states, target } = work;
  const left = new Set(states.filter((state) => !isToBeHealthy(target, state)).map(workerOf));
  const own = present.filter((one) => one.job === job.name && !left.has(one.worker));
  const probed = own.filter(({ disabled }) => !disabled).map(({ worker }) => worker);
  if (!hasGate(job) || probed.length === 0)
    return context.log.info(`${job.name}: no health check, there is nothing to check`, { job: job.name });
  try {
    await passGate(context, effects, job, { probed, hooked: own.map(({ worker }) => worker) });
    context.log.info(`${job.name}: health check passed`, { job: job.name });
  } catch (error) {
    throwIfCancelled(context.signal);
    const troubles = gateTroubles(error);
    if (troubles.size === 0) throw error;
    context.log.error(messageOf(error), { job: job.name });
    for (const state of batch) {
      const { message = messageOf(error), evidence } = troubles.get(workerOf(state)) ?? {};
      Object.assign(state, { outcome: "failed", error: message, ...(evidence && { evidence }) });
    }
  }
}

/**
 * Whether a health check after a batch is to find this allocation healthy. Allocations that the run could not use are
 * left out; so are those that a stop has stopped, and those that a start has not started yet.
 */
function isToBeHealthy(target: string, { allocation, outcome }: ControlState): boolean {
  if (allocation.disabled) return true;
  if (outcome === "ok") return target !== "stop";
  return outcome === "not_started" && target !== "start";
}

function workerOf({ allocation }: ControlState): string {
  return allocation.worker;
}

/** Gives allocations the outcome of an error. Answers the sentence of the error. */
export function blameStates(states: readonly ControlState[], error: unknown): string {
  const { grade, message } = troubleOf(error);
  for (const state of states) Object.assign(state, { outcome: grade, error: message });
  return message;
}

/** The workers of some allocations, for people. */
export function hostsOf(states: readonly ControlState[]): string {
  return states.map(({ allocation }) => allocation.worker).join(", ");
}

/**
 * Records the outcome of the target for allocations where it began or could not begin. A status is not recorded,
 * because it changes nothing.
 */
export function noteControl({ context, target }: Control, states: readonly ControlState[]): void {
  if (target === "status") return;
  const begun = states.filter(({ outcome }) => outcome !== "not_started" && outcome !== "skipped");
  const toNote = ({ allocation: { id }, outcome, error }: ControlState) => ({ id, action: target, outcome, reason: error });
  noteOutcomes(context, begun.map(toNote) as Noted[]);
}

/** Notes what a target that has succeeded means for the next deploy. */
function noteTarget({ context, target, forget }: Control, { id, job }: CatalogAllocation): void {
  const { db } = context;
  if (target === "stop" && forget) startAnew(db, [{ job, id }]);
  if (target === "start" || target === "restart") setStopped(db, job, id, "no");
}

/** The version that runs, for every target: a newer build is not on the worker yet. */
export function versionsOf({ promoted: { version } }: ControlState): Record<string, string> {
  return { CURRENT_VERSION: version, NEW_VERSION: version };
}

/** The targets that make a service run with the files on the worker. */
const TARGETS: readonly string[] = ["start", "restart", "reload"];

/**
 * Before job control starts, restarts or reloads a job: puts the promoted files back where a deploy began a change and
 * did not finish it, so that no command starts a release that no deploy has finished. Where nothing is promoted, or the
 * files cannot be put back, the allocation is `failed`. The unfinished change stays for the next deploy. Throws only
 * `cancelled`.
 */
async function settle(work: JobWork): Promise<void> {
  const { context, job, states, target } = work;
  if (!TARGETS.includes(target)) return;
  const unsettled = states.filter(({ outcome, promoted }) => outcome === "not_started" && isUnsettled(promoted));
  const { older = [], never = [] } = Object.groupBy(unsettled, ({ promoted: { hash } }) => (hash ? "older" : "never"));
  for (const state of never) failSettling(context, state, { message: "nothing is promoted there: run `ops deploy` first" });
  noteControl(work, never);
  if (older.length === 0) return;
  context.log.info(`${job.name}: a deploy did not finish on ${hostsOf(older)}: the promoted files are put back`, {
    job: job.name,
  });
  const ids = older.map(({ allocation }) => allocation.id);
  noteBegun(context, ids, "restore");
  await mapAll(older, WORKERS_AT_ONCE, (state) => putBack(work, state), context.signal);
}

async function putBack(control: Control, state: ControlState): Promise<void> {
  const { context } = control;
  const { allocation, promoted } = state;
  try {
    const back = { tree: promotedTree(context, promoted), updateSeq: promoted.updateSeq };
    await bringFiles(control, allocation, back, filesLeft(control, state));
    state.put_back = true;
    noteOutcomes(context, [{ id: allocation.id, action: "restore", outcome: "changed" }]);
  } catch (error) {
    noteOutcomes(context, [{ id: allocation.id, action: "restore", ...outcomeOf(error) }]);
    throwIfCancelled(context.signal);
    const { grade, message } = troubleOf(error);
    failSettling(context, state, { grade, message: `the promoted files could not be put back: ${message}` });
  }
}

/** The files that may be on the worker. Where no sync has ended since the change began, each file may have any mode. */
function filesLeft({ context: { db } }: Control, { allocation, promoted }: ControlState): FileDigests {
  const { job, id } = allocation;
  if (promoted.synced !== "") return syncedFiles(db, job, id);
  return Object.fromEntries(Object.keys(promoted.files).map((path) => [path, ""]));
}

function failSettling(
  { log }: OperationContext,
  state: ControlState,
  { grade = "failed", message }: { grade?: Grade; message: string },
): void {
  log.error(`${state.allocation.job}@${state.allocation.worker}: ${message}`, state.allocation);
  Object.assign(state, { outcome: grade, error: message });
}
