import type { CatalogJob } from "../../bucket/base/model.ts";
import { mapAll } from "../../core/async.ts";
import { type Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { inOneLine } from "../../core/plain-text.ts";
import { type Batch, rolloutBatches } from "../../plan/rollout.ts";
import { failedWith, troubleOf } from "../base/outcome.ts";
import { gateTroubles, hasGate, passGate } from "../health/gate.ts";
import { hooksOn, scriptErrors } from "../hooks/hooks.ts";
import { noteBegun } from "../plan/last-outcomes.ts";
import { type Control, type ControlState, hostsOf, noteControl, noteTarget, versionsOf } from "./control-state.ts";
import { settle } from "./settle.ts";

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
