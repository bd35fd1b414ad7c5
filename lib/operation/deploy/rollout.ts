import { beginChange, recordSynced, setGate } from "../../bucket/catalog/promotions.ts";
import { runAll } from "../../core/async.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { inOneLine } from "../../core/plain-text.ts";
import type { Action } from "../../plan/changes.ts";
import { type Batch, type Phase, runsTarget } from "../../plan/rollout.ts";
import type { OperationContext } from "../base/context.ts";
import { countGrades, describeGrades, type Trouble, troubleOf } from "../base/outcome.ts";
import { gateTroubles, hasGate, passGate } from "../health/gate.ts";
import { type HookPass, scriptErrors } from "../hooks/hooks.ts";
import {
  type AllocationState,
  allocationGrade,
  controlVariables,
  gradeScripts,
  hostsOf,
  idsOf,
  isTolerated,
  isWaiting,
  workersOf,
} from "../plan/allocation-state.ts";
import { noteEnds, noteStep } from "../plan/last-outcomes.ts";
import { hasOpenGate, type JobPlan } from "../plan/plan-job.ts";
import type { RolloutBoard } from "../plan/rollout-board.ts";
import type { Effects } from "../reach/effects.ts";
import { targetHash } from "../reach/target.ts";
import { type BoundPlan, staleFiles } from "./bound-plan.ts";
import { promoteAll } from "./promote.ts";
import { restoreBatch } from "./restore-batch.ts";

const SYNC_AT_ONCE = 32;
const MOST_NAMED = 20;

/**
 * Rolls out one job (hook-runtime.md, Deploy order 4 and 5): stage, sync, then batch after batch lifecycle (its own
 * hooks for job_control, where it has some), hooks, promotion and gate, then post_deploy, what needs no lifecycle, and a
 * last sync. What was promoted stays promoted when a later step fails.
 * Throws the first failure that stops the job; `states` tells how far each allocation came.
 */
export async function rollOut(
  context: OperationContext,
  effects: Effects,
  plan: JobPlan,
  states: readonly AllocationState[],
  options: { force: boolean; bound?: BoundPlan; board: RolloutBoard },
): Promise<void> {
  const rollout = new Rollout(context, effects, plan, states, options);
  await carryOut(rollout, plan, options.bound).finally(() => noteEnds(context, states));
}

async function carryOut(rollout: Rollout, plan: JobPlan, bound: BoundPlan | undefined): Promise<void> {
  if (bound) await rollout.refuseDrift(bound);
  await rollout.passOpenGates();
  await rollout.stageAndSync();
  if (plan.refused !== undefined) throw new Failure("failed", plan.refused);
  for (const phase of plan.phases) await rollout.runPhase(phase);
  await rollout.runPostDeploy();
  await rollout.promoteRest();
  rollout.tellStatus();
  await rollout.syncAgain();
}

class Rollout {
  readonly #context: OperationContext;
  readonly #effects: Effects;
  readonly #plan: JobPlan;
  readonly #states: readonly AllocationState[];
  readonly #byHost: ReadonlyMap<string, AllocationState>;
  readonly #force: boolean;
  readonly #board: RolloutBoard;

  constructor(
    context: OperationContext,
    effects: Effects,
    plan: JobPlan,
    states: readonly AllocationState[],
    { force, board }: { force: boolean; board: RolloutBoard },
  ) {
    this.#context = context;
    this.#effects = effects;
    this.#plan = plan;
    this.#states = states;
    this.#byHost = new Map(states.map((state) => [state.plan.allocation.worker, state]));
    this.#force = force;
    this.#board = board;
  }

  /**
   * A plan is not carried out over files that somebody has changed since. A worker that cannot be asked fails in its
   * batch; where a deploy has not come to its end, any of its files may be there.
   */
  async refuseDrift(bound: BoundPlan): Promise<void> {
    const settled = this.#changing().filter(({ plan, trouble }) => !trouble && !plan.promoted.unfinished);
    const drifted: string[] = [];
    await this.#onAll(settled, SYNC_AT_ONCE, async (state) => {
      const paths = await bound.movedOn(this.#effects, state.plan);
      if (paths.length === 0) return;
      const message = `changed by hand: ${paths.slice(0, MOST_NAMED).join(", ")}`;
      drifted.push(`${state.plan.allocation.worker}: ${message}`);
      state.trouble = { grade: "failed", message };
    });
    if (drifted.length > 0) throw staleFiles(drifted);
  }

  /** A gate that an earlier deploy left open comes first, and nothing is restarted for it (decisions: Rulings). */
  async passOpenGates(): Promise<void> {
    const open = this.#states.filter((state) => hasOpenGate(state.plan) && state.plan.decision.action === "skip");
    if (open.length === 0) return;
    this.#say(`a gate is still open on ${hostsOf(open)}: it comes first`);
    await this.#gate(open);
    for (const state of open) state.passedGate = true;
  }

  /** Stages and syncs every allocation that changes. A worker that fails here, or has before, fails in its batch. */
  async stageAndSync(): Promise<void> {
    const changing = this.#changing().filter((state) => state.trouble === undefined);
    beginChange(this.#context.db, this.#plan.job.name, idsOf(changing));
    noteStep(this.#context, changing, "sync");
    await this.#onAll(changing, SYNC_AT_ONCE, (state) => this.#sync(state));
    noteEnds(this.#context, changing);
  }

  /** The batches of one phase: lifecycle, hooks, promotion, gate; the next batch only after the one before succeeded. */
  async runPhase({ phase, action, batches }: Phase): Promise<void> {
    for (const batch of batches) {
      throwIfCancelled(this.#context.signal);
      const states = batch.workers.map((host) => this.#byHost.get(host) as AllocationState);
      this.#board.step({ action, batch: batch.index + 1, batches: batches.length, gate: "" });
      try {
        if (phase === "job_control") await this.#runControlBatch(batch, states);
        else await this.#runBatch(phase, action, batch, states);
      } finally {
        noteEnds(this.#context, this.#states);
      }
    }
  }

  async #runBatch(
    phase: "new" | "update",
    action: Phase["action"],
    batch: Batch,
    states: readonly AllocationState[],
  ): Promise<void> {
    this.#say(`batch ${batch.index + 1} of ${batch.count} (${phase}): ${action} on ${hostsOf(states)}`);
    await this.#lifecycle(states);
    const reached = states.filter(({ trouble }) => trouble === undefined);
    if (reached.length === 0) return;
    const kind = phase === "new" ? "started" : "updated";
    const taken = { ...batch, workers: workersOf(reached) };
    const hooked = () => this.#runHooks({ kind, job: this.#plan.job, batch: taken });
    await this.#board.during("running", reached, hooked);
    await this.#promoteAndGate(reached);
  }

  /** A batch of a job whose hooks do what else its targets do: workers that do not change take part, too. */
  async #runControlBatch(batch: Batch, states: readonly AllocationState[]): Promise<void> {
    this.#failIfTroubled(states);
    const { job } = this.#plan;
    const reached = states.filter(({ trouble }) => trouble === undefined);
    if (reached.length === 0) return;
    const changed = reached.filter(({ plan }) => runsTarget(plan.decision.action));
    noteStep(this.#context, changed);
    const variables = controlVariables(this.#states.filter(({ trouble }) => trouble === undefined));
    const taken = { ...batch, workers: workersOf(reached) };
    const hooked = () => this.#runHooks({ kind: "deploy_control", job, batch: taken, variables });
    try {
      await this.#board.during("running", reached, hooked);
    } catch (error) {
      gradeScripts(reached, error);
      throw error;
    }
    if (changed.length > 0) await this.#promoteAndGate(changed);
  }

  async #promoteAndGate(states: readonly AllocationState[]): Promise<void> {
    promoteAll(this.#context, this.#plan.job, states, hasGate(this.#plan.job) ? "pending" : "");
    try {
      await this.#gate(states);
    } catch (error) {
      if (this.#plan.job.onFailure !== "restore" || this.#context.signal.aborted) throw error;
      const failed = { job: this.#plan.job, batch: states, waiting: this.#states.filter(isWaiting) };
      const restored = () => restoreBatch(this.#context, this.#effects, failed, error);
      throw await this.#board.during("restoring", [...states, ...failed.waiting], restored);
    }
  }

  async runPostDeploy(): Promise<void> {
    const reached = this.#states.filter(({ trouble }) => trouble === undefined);
    await this.#runHooks({ kind: "post_deploy", job: this.#plan.job, workers: workersOf(reached) });
  }

  /** The promote sweep: allocations whose change needs no lifecycle, and so has no gate of its own. */
  async promoteRest(): Promise<void> {
    const rest = this.#changing().filter((state) => !runsTarget(state.plan.decision.action));
    const reached = rest.filter((state) => state.trouble === undefined);
    promoteAll(this.#context, this.#plan.job, reached);
    this.#failIfTroubled(rest);
  }

  /** The status after a deploy (hook-runtime.md, Deploy order 4: post_deploy_status): how it went for the allocations. */
  tellStatus(): void {
    const reason = describeGrades(countGrades(this.#states.map(allocationGrade)));
    const fields = { job: this.#plan.job.name, phase: "rollout", reason };
    this.#context.log.record({ event: "post_deploy_status", ...fields });
  }

  /** The final sync: puts back what the lifecycle changed in files that sync owns. What it misses the next deploy does. */
  async syncAgain(): Promise<void> {
    const changing = this.#changing();
    const reached = changing.filter(({ trouble }) => trouble === undefined);
    await this.#onAll(reached, SYNC_AT_ONCE, async ({ plan }) => {
      const { changed } = await this.#effects.sync(plan.allocation, plan.tree, {});
      if (changed.length > 0) this.#say(`put back on ${plan.allocation.worker}: ${changed.join(", ")}`);
    });
    beginChange(this.#context.db, this.#plan.job.name, idsOf(reached.filter(({ trouble }) => trouble)));
    this.#failIfTroubled(changing);
  }

  /** What scripts have written by now is stored, however they ended (decisions: Rulings). */
  async #runHooks(pass: HookPass): Promise<void> {
    try {
      await this.#effects.hooks(pass);
    } catch (error) {
      for (const [worker, message] of scriptErrors(error)) this.#blame(worker, { grade: "failed", message });
      throw error;
    } finally {
      this.#context.kv.flush(pass.job.name);
    }
  }

  /** The first trouble of a worker is the one that is told. */
  #blame(worker: string, trouble: Trouble): void {
    const state = this.#byHost.get(worker);
    if (state) state.trouble ??= trouble;
  }

  #changing(): AllocationState[] {
    return this.#states.filter((state) => state.plan.decision.action !== "skip");
  }

  /** Runs something on all of them to its end; what goes wrong is their trouble. */
  async #onAll(
    states: readonly AllocationState[],
    atOnce: number,
    work: (state: AllocationState) => Promise<void>,
  ): Promise<void> {
    const { signal } = this.#context;
    const carryOut = (state: AllocationState) =>
      work(state).catch((error: unknown) => {
        state.trouble ??= troubleOf(error);
      });
    const told = (one: AllocationState) => this.#board.during("running", [one], () => carryOut(one));
    await runAll(states, atOnce, told, signal);
    throwIfCancelled(signal);
  }

  async #sync(state: AllocationState): Promise<void> {
    const { db } = this.#context;
    const { allocation, tree, promoted, updateSeq } = state.plan;
    await this.#effects.stage(allocation, tree);
    const { changed, removed, sentBytes } = await this.#effects.sync(allocation, tree, promoted.files);
    recordSynced(db, allocation.job, allocation.id, { hash: tree.hash, files: tree.digests, updateSeq });
    state.isSynced = true;
    this.#say(
      `synced to ${allocation.worker}: ${changed.length} changed, ${removed.length} removed, ${sentBytes} bytes`,
    );
  }

  /** All of a batch run to their end; the errors of all are reported together. */
  async #lifecycle(batch: readonly AllocationState[]): Promise<void> {
    const ready = batch.filter((state) => state.trouble === undefined);
    noteStep(this.#context, ready);
    await this.#onAll(ready, ready.length, async (state) => {
      await this.#runTarget(state);
      state.done = true;
    });
    this.#failIfTroubled(batch);
  }

  async #runTarget({ plan }: AllocationState): Promise<void> {
    const { allocation, decision, tree, promoted } = plan;
    const hash = targetHash(tree.hash, allocation.newVersion);
    if ((promoted.unfinished || promoted.stopping) && !this.#force) {
      const last = await this.#effects.lastTarget(allocation);
      if (last?.hash === hash && runsTarget(last.target as Action))
        return this.#say(`${last.target} on ${allocation.worker} had already succeeded: resumed behind it`);
    }
    await this.#effects.run({
      job: allocation.job,
      worker: allocation.worker,
      target: decision.action,
      phase: "rollout",
      hash,
      limitSeconds: this.#plan.job.lifecycleTimeoutSeconds,
      env: { CURRENT_VERSION: promoted.version, NEW_VERSION: allocation.newVersion },
    });
  }

  /** Checks what is promoted to the target, and stores the outcome for the allocations the gate is about. */
  async #gate(about: readonly AllocationState[]): Promise<void> {
    const { job } = this.#plan;
    if (!hasGate(job) || about.length === 0) return;
    const ready = this.#states
      .filter(({ trouble }) => trouble === undefined)
      .filter(({ plan, done }) => plan.allocation.disabled || done || plan.decision.action === "skip")
      .map(({ plan }) => plan.allocation);
    const probed = ready.filter(({ disabled }) => !disabled).map(({ worker }) => worker);
    const gated = { probed, hooked: ready.map(({ worker }) => worker) };
    this.#board.step({ gate: "pending" });
    try {
      const passed = () => passGate(this.#context, this.#effects, job, gated);
      await this.#board.during("checking", about, passed);
    } catch (error) {
      const troubles = gateTroubles(error);
      for (const [worker, trouble] of troubles) this.#blame(worker, trouble);
      // What an earlier batch has and is not healthy any more must not be taken for healthy later.
      const failed = this.#states.filter(
        (state) => about.includes(state) || troubles.has(state.plan.allocation.worker),
      );
      if (!this.#context.signal.aborted) {
        setGate(this.#context.db, job.name, idsOf(failed), "failed");
        this.#board.step({ gate: "failed" });
      }
      const found = [...troubles.values()];
      if (found.length === 0 || !found.every((trouble) => isTolerated(trouble, this.#states, this.#plan.job)))
        throw error;
      return await this.#gate(about.filter(({ trouble }) => trouble === undefined));
    }
    setGate(this.#context.db, job.name, idsOf(about), "passed");
    this.#board.step({ gate: "passed" });
    this.#say(`health check passed on ${hostsOf(about)}`);
  }

  #failIfTroubled(states: readonly AllocationState[]): void {
    const errors = states.flatMap(({ plan, trouble }) =>
      trouble && !isTolerated(trouble, this.#states, this.#plan.job)
        ? [`${plan.allocation.worker}: ${inOneLine(trouble.message)}`]
        : [],
    );
    if (errors.length === 0) return;
    const count = `${errors.length} worker${errors.length > 1 ? "s" : ""}`;
    throw new Failure("failed", `job ${this.#plan.job.name} failed on ${count}: ${errors.join("; ")}`);
  }

  #say(message: string): void {
    this.#context.log.info(`${this.#plan.job.name}: ${message}`);
  }
}
