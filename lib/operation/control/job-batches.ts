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
import { hooksOn, scriptErrors } from "../hooks/hooks.ts";
import { type Noted, noteBegun, noteOutcomes, outcomeOf } from "../plan/last-outcomes.ts";
import type { Effects } from "../reach/effects.ts";
import { promotedTree, putFilesBack } from "../reach/promoted-tree.ts";

/**
 * Runs the target of a job control command for one job, after {@link settle}: in rollout order, in batches of
 * `max_concurrent_upgrades`, by the job's `job_control` hooks where it has some, else by `make`. The next batch starts
 * only after the one before succeeded, and after the health check where that was asked for.
 */
export async function controlJob(control: Control, job: CatalogJob, states: readonly ControlState[]): Promise<void> {
  const { context, target } = control;
  await settle(control, job, states);
  const ready = new Map(
    states.filter(({ outcome }) => outcome === "not_started").map((state) => [state.allocation.worker, state]),
  );
  const order = context.kv.get(`ops/job/${job.name}`, "rollout_order");
  for (const batch of rolloutBatches(order, [...ready.keys()], job.maxConcurrentUpgrades)) {
    throwIfCancelled(context.signal);
    const own = batch.workers.map((host) => ready.get(host) as ControlState);
    context.log.info(`${job.name}: batch ${batch.index + 1} of ${batch.count}: ${target} on ${hostsOf(own)}`);
    const ids = own.map(({ allocation }) => allocation.id);
    noteBegun(context, ids, target);
    try {
      await runBatch(control, job, batch, own);
      if (own.every(({ outcome }) => outcome === "ok") && control.healthCheck)
        await checkAfter(control, job, states, own);
    } catch (error) {
      for (const state of own)
        if (context.signal.aborted && state.outcome === "not_started")
          Object.assign(state, { outcome: "cancelled", error: "cancelled" });
      throw error;
    } finally {
      noteControl(control, own);
    }
    if (own.some(({ outcome }) => outcome !== "ok")) return;
  }
}

async function runBatch(
  control: Control,
  job: CatalogJob,
  batch: Batch,
  states: readonly ControlState[],
): Promise<void> {
  const started = performance.now();
  const settle = (state: ControlState, error?: unknown) => {
    const trouble = error === undefined ? undefined : troubleOf(error);
    Object.assign(state, { outcome: trouble?.grade ?? "ok", error: trouble?.message ?? null });
    state.duration_ms = Math.round(performance.now() - started);
    if (trouble) control.context.log.error(`${job.name}@${state.allocation.worker}: ${inOneLine(trouble.message)}`);
    else noteTarget(control, state.allocation);
  };
  if (hooksOn(job, "job_control").length > 0) {
    const errors = await runHooks(control, job, batch);
    for (const state of states) settle(state, errors.get(state.allocation.worker));
    return;
  }
  const run = (state: ControlState) =>
    runTarget(control, job, state).then(
      () => settle(state),
      (error: unknown) => settle(state, error),
    );
  await mapAll(states, states.length, run, control.context.signal);
}

async function runTarget(control: Control, job: CatalogJob, state: ControlState): Promise<void> {
  await control.effects.run({
    job: job.name,
    worker: workerOf(state),
    target: control.target,
    phase: "job_control",
    limitSeconds: job.lifecycleTimeoutSeconds,
    env: versionsOf(state),
  });
}

/** Answers the errors by worker. What the scripts wrote is stored, however they ended. */
async function runHooks(
  { context, effects, target }: Control,
  job: CatalogJob,
  batch: Batch,
): Promise<ReadonlyMap<string, Failure>> {
  try {
    await effects.hooks({ kind: "command_control", job, batch, variables: { TARGET: target } });
    return new Map();
  } catch (error) {
    throwIfCancelled(context.signal);
    const errors = scriptErrors(error);
    if (errors.size === 0) throw error;
    return new Map([...errors].map(([worker, said]) => [worker, failedWith("ErrHookFailed", said)]));
  } finally {
    context.kv.flush(job.name);
  }
}

/** The health check after a batch; where it fails, the batch has not succeeded. */
export async function checkAfter(
  { context, effects, present, target }: Control,
  job: CatalogJob,
  states: readonly ControlState[],
  batch: readonly ControlState[],
): Promise<void> {
  const left = new Set(states.filter((state) => !isToBeHealthy(target, state)).map(workerOf));
  const own = present.filter((one) => one.job === job.name && !left.has(one.worker));
  const probed = own.filter(({ disabled }) => !disabled).map(({ worker }) => worker);
  if (!hasGate(job) || probed.length === 0)
    return context.log.info(`${job.name}: no health check, there is nothing to check`);
  try {
    await passGate(context, effects, job, { probed, hooked: own.map(({ worker }) => worker) });
    context.log.info(`${job.name}: health check passed`);
  } catch (error) {
    throwIfCancelled(context.signal);
    const troubles = gateTroubles(error);
    if (troubles.size === 0) throw error;
    context.log.error(messageOf(error));
    for (const state of batch) {
      const { message = messageOf(error), evidence } = troubles.get(workerOf(state)) ?? {};
      Object.assign(state, { outcome: "failed", error: message, ...(evidence && { evidence }) });
    }
  }
}

/**
 * All active allocations are probed, whatever the run is about, but those it could not use; what a stop has stopped; and
 * what a start has not started yet.
 */
function isToBeHealthy(target: string, { allocation, outcome }: ControlState): boolean {
  if (allocation.disabled) return true;
  if (outcome === "ok") return target !== "stop";
  return outcome === "not_started" && target !== "start";
}

function workerOf({ allocation }: ControlState): string {
  return allocation.worker;
}

/** What a job says about itself on a worker. */
interface JobStatus {
  exit_code: number | null;
  /** The last lines of what it says. */
  lines: string[];
}

/** How it went for one allocation; filled in as the run goes on. */
export interface ControlState {
  readonly allocation: CatalogAllocation;
  readonly promoted: Promotion;
  outcome: Grade;
  /** Why it is neither ok nor still to come. */
  error: string | null;
  duration_ms: number;
  /** The promoted files were put back on the worker before the target ran. */
  put_back?: true;
  /** What its status is, where that was asked for. */
  status?: JobStatus;
  /** What was found there, where the health check after its batch failed. */
  evidence?: Evidence | null;
}

/** What a run of job control is about. */
export interface Control {
  readonly context: OperationContext;
  readonly fleet: Fleet;
  readonly effects: Effects;
  /** All that are not removed. */
  readonly present: readonly CatalogAllocation[];
  readonly target: string;
  /** After each batch. */
  readonly healthCheck: boolean;
  /** A stopped allocation is started as a new one by the next deploy. */
  readonly forget: boolean;
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
  noteOutcomes(
    context,
    states.flatMap(({ allocation: { id }, outcome, error }): Noted[] =>
      outcome === "not_started" || outcome === "skipped" ? [] : [{ id, action: target, outcome, reason: error }],
    ),
  );
}

/** Notes what a target that has succeeded means for the next deploy. */
function noteTarget({ context, target, forget }: Control, { id, job }: CatalogAllocation): void {
  const { db } = context;
  if (target === "stop" && forget) startAnew(db, [{ job, id }]);
  if (target === "start" || target === "restart") setStopped(db, job, id, "no");
}

/** For a target it is the version that runs, and no other: what was built since is not there yet. */
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
async function settle(control: Control, job: CatalogJob, states: readonly ControlState[]): Promise<void> {
  if (!TARGETS.includes(control.target)) return;
  const { log, signal } = control.context;
  const unsettled = states.filter(({ outcome, promoted }) => outcome === "not_started" && isUnsettled(promoted));
  const [older, never] = [
    unsettled.filter(({ promoted }) => promoted.hash !== ""),
    unsettled.filter(({ promoted }) => promoted.hash === ""),
  ];
  for (const state of never) fail(control, state, "nothing is promoted there: run `ops deploy` first");
  noteControl(control, never);
  if (older.length === 0) return;
  log.info(`${job.name}: a deploy did not finish on ${hostsOf(older)}: the promoted files are put back`);
  const ids = older.map(({ allocation }) => allocation.id);
  noteBegun(control.context, ids, "restore");
  await mapAll(older, WORKERS_AT_ONCE, (state) => putBack(control, state), signal);
}

async function putBack(control: Control, state: ControlState): Promise<void> {
  const { context, effects } = control;
  const { allocation, promoted } = state;
  try {
    const back = { allocation, promoted, tree: promotedTree(context, promoted) };
    await putFilesBack(context, effects, back, filesLeft(control, state));
    state.put_back = true;
    noteOutcomes(context, [{ id: allocation.id, action: "restore", outcome: "changed" }]);
  } catch (error) {
    noteOutcomes(context, [{ id: allocation.id, action: "restore", ...outcomeOf(error) }]);
    throwIfCancelled(context.signal);
    const { grade, message } = troubleOf(error);
    fail(control, state, `the promoted files could not be put back: ${message}`, grade);
  }
}

/** The files that may be on the worker. Where no sync has ended since the change began, each file may have any mode. */
function filesLeft({ context: { db } }: Control, { allocation, promoted }: ControlState): FileDigests {
  const { job, id } = allocation;
  if (promoted.synced !== "") return syncedFiles(db, job, id);
  return Object.fromEntries(Object.keys(promoted.files).map((path) => [path, ""]));
}

function fail(
  { context }: Control,
  state: ControlState,
  error: string,
  outcome: ControlState["outcome"] = "failed",
): void {
  const { job, worker } = state.allocation;
  context.log.error(`${job}@${worker}: ${error}`);
  Object.assign(state, { outcome, error });
}
