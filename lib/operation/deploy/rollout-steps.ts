// One job's part of a deploy: the steps that the engine (engine.ts) asks for once the job's plan is made.
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import { type Batch, type Phase, runsTarget } from "../../plan/rollout.ts";
import { causesOf, type Trouble } from "../base/outcome.ts";
import { gateTroubles, hasGate } from "../health/gate.ts";
import { hasOpenGate } from "../plan/plan-job.ts";
import {
  type AllocationState,
  controlVariables,
  gradeScripts,
  hostsOf,
  isChanging,
  isSound,
  isTolerated,
  isWaiting,
  type Rollout,
  workersOf,
} from "../plan/rollout-state.ts";
import { ask, type RolloutPart, type Steps } from "./steps.ts";

/** Adopts what may be adopted of one job. Throws where one of its workers is in trouble. */
export function* adoptSteps(rollout: Rollout): Steps {
  const states = rollout.states.filter(isChanging);
  try {
    yield* ask("adopt", { rollout, states: states.filter(isSound) });
    soundOf({ rollout, states });
  } finally {
    yield* ask("note", rollout);
  }
}

/**
 * The steps that roll out one job (hook-runtime.md, Deploy order 4 and 5): stage, sync, then batch after batch lifecycle
 * (its own hooks for job_control, where it has some), hooks, promotion and gate, then post_deploy, the promotion of what
 * needs no lifecycle, and a last sync. What was promoted stays promoted when a later step fails.
 * Throws the first failure that stops the job; the rollout's states tell how far each allocation came.
 */
export function* rolloutSteps(signal: AbortSignal, rollout: Rollout): Steps {
  const { plan, states } = rollout;
  const byHost = new Map(states.map((state) => [state.plan.allocation.worker, state]));
  const changing = states.filter(isChanging);
  const part = (which: readonly AllocationState[]) => ({ rollout, states: which.filter(isSound) });
  try {
    // Where a deploy has not come to its end, any of its files may be there.
    yield* ask("checkDrift", part(changing.filter((state) => !state.plan.promoted.unfinished)));
    yield* openGateSteps(rollout);
    // A worker that fails here, or has failed before, fails in its batch.
    yield* ask("sync", part(changing));
    if (plan.refused !== undefined) throw new Failure("failed", plan.refused);
    for (const phase of plan.phases)
      for (const batch of phase.batches) {
        throwIfCancelled(signal);
        const ofBatch = batch.workers.map((host) => byHost.get(host) as AllocationState);
        yield* batchSteps(signal, { rollout, states: ofBatch }, phase, batch);
      }
    const workers = workersOf(states.filter(isSound));
    yield* ask("hooks", { rollout, states: [], pass: { kind: "post_deploy", job: plan.job, workers } });
    const rest = changing.filter((state) => !runsTarget(state.plan.decision.action));
    yield* ask("promote", part(rest));
    soundOf({ rollout, states: rest });
    yield* ask("status", rollout);
    yield* ask("syncAgain", part(changing));
    soundOf({ rollout, states: changing });
  } finally {
    yield* ask("note", rollout);
  }
}

/** A gate that an earlier deploy left open comes first, and nothing is restarted for it (decisions: Rulings). */
function* openGateSteps(rollout: Rollout): Steps {
  const open = rollout.states.filter((state) => hasOpenGate(state.plan) && !isChanging(state));
  if (open.length === 0) return;
  const job = rollout.plan.job.name;
  yield* ask("say", `${job}: a gate is still open on ${hostsOf(open)}: it comes first`);
  yield* gateSteps({ rollout, states: open });
  for (const state of open) state.passedGate = true;
}

/** One batch: lifecycle, hooks, promotion, gate. The next batch begins only where this one succeeded. */
function* batchSteps(signal: AbortSignal, part: RolloutPart, phase: Phase, batch: Batch): Steps {
  const { rollout } = part;
  yield* ask("batch", { ...part, phase, batch });
  try {
    const taken = yield* phase.phase === "job_control" ? controlSteps(part, batch) : targetSteps(part, phase, batch);
    if (taken.length > 0) yield* promoteAndGate(signal, { rollout, states: taken });
  } finally {
    yield* ask("note", rollout);
  }
}

/** Answers the allocations that have changed. */
function* targetSteps({ rollout, states }: RolloutPart, { phase }: Phase, batch: Batch): Steps<AllocationState[]> {
  yield* ask("lifecycle", { rollout, states: states.filter(isSound) });
  const reached = soundOf({ rollout, states });
  if (reached.length === 0) return [];
  const kind = phase === "new" ? "started" : "updated";
  const pass = { kind, job: rollout.plan.job, batch: { ...batch, workers: workersOf(reached) } } as const;
  yield* ask("hooks", { rollout, states: reached, pass });
  return reached;
}

/** A batch of a job with hooks for job_control, which run instead of the targets: unchanged workers take part, too. */
function* controlSteps({ rollout, states }: RolloutPart, batch: Batch): Steps<AllocationState[]> {
  const reached = soundOf({ rollout, states });
  if (reached.length === 0) return [];
  const changed = reached.filter(({ plan }) => runsTarget(plan.decision.action));
  const variables = controlVariables(rollout.states.filter(isSound));
  const taken = { ...batch, workers: workersOf(reached) };
  const pass = { kind: "deploy_control", job: rollout.plan.job, batch: taken, variables } as const;
  try {
    yield* ask("hooks", { rollout, states: reached, pass });
  } catch (error) {
    gradeScripts(reached, error);
    throw error;
  }
  return changed;
}

function* promoteAndGate(signal: AbortSignal, { rollout, states }: RolloutPart): Steps {
  const { job } = rollout.plan;
  yield* ask("promote", { rollout, states, gate: hasGate(job) ? "pending" : "" });
  try {
    yield* gateSteps({ rollout, states });
  } catch (failure) {
    if (job.onFailure !== "restore" || signal.aborted) throw failure;
    throw yield* ask("restore", { rollout, states, waiting: rollout.states.filter(isWaiting), failure });
  }
}

/** Checks all that should run by now; the outcome counts for these allocations. Goes on without tolerated workers. */
function* gateSteps({ rollout, states }: RolloutPart): Steps {
  const { job } = rollout.plan;
  if (!hasGate(job) || states.length === 0) return;
  const ready = rollout.states
    .filter(isSound)
    .filter((state) => state.plan.allocation.disabled || state.done || !isChanging(state));
  const probed = workersOf(ready.filter(({ plan }) => !plan.allocation.disabled));
  try {
    yield* ask("gate", { rollout, states, gated: { probed, hooked: workersOf(ready) } });
  } catch (error) {
    const troubles = [...gateTroubles(error).values()];
    if (troubles.length === 0 || !troubles.every((one) => isTolerated(one, rollout.states, job))) throw error;
    yield* gateSteps({ rollout, states: states.filter(isSound) });
  }
}

/** The allocations that are sound. Throws where one has a trouble that is not tolerated. */
function soundOf({ rollout, states }: RolloutPart): AllocationState[] {
  const { job } = rollout.plan;
  const bad = states.filter(({ trouble }) => trouble && !isTolerated(trouble, rollout.states, job));
  if (bad.length === 0) return states.filter(isSound);
  const causes = causesOf(new Map(bad.map(({ plan, trouble }) => [plan.allocation.worker, trouble as Trouble])));
  throw new Failure("failed", `job ${job.name} failed on ${counted(bad.length, "worker")}: ${causes.join("; ")}`);
}
