import { createReadStream } from "node:fs";
import path from "node:path";
import { beginChange, promote, recordSynced, setGate, setStopped } from "../bucket/promotions.ts";
import { stagingFolder, writeStaging } from "../bucket/staging.ts";
import { runAll } from "../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../core/errors.ts";
import type { Action } from "../plan/changes.ts";
import { rolloutBatches } from "../plan/rollout.ts";
import { lastTarget } from "../transport/runner.ts";
import { syncTree } from "../transport/sync.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";
import { hasGate, passGate } from "./gate.ts";
import { type HookPass, type HookSession, hooksOn, scriptErrors } from "./hooks.ts";
import { type AllocationPlan, hasOpenGate, type JobPlan } from "./plan-job.ts";
import { makeTarget } from "./target.ts";

const SYNC_AT_ONCE = 32;
const RUNS_THE_SERVICE: readonly Action[] = ["start", "restart", "reload"];

/** How the change of one allocation went; filled in while the job rolls out. */
export interface AllocationState {
  plan: AllocationPlan;
  /** Its target has succeeded, or it is promoted without one. */
  done: boolean;
  error: string | undefined;
}

/**
 * Rolls out one job (hook-runtime.md, Deploy order 4 and 5): stage, sync, then batch after batch lifecycle (its own
 * hooks for job_control, where it has some), hooks, promotion and gate, then post_deploy, what needs no lifecycle, and a
 * last sync. What was promoted stays promoted when a later step fails.
 * Throws the first failure that stops the job; `states` tells how far each allocation came.
 */
export async function rollOut(
  context: OperationContext,
  fleet: Fleet,
  hooks: HookSession,
  plan: JobPlan,
  states: readonly AllocationState[],
  force: boolean,
): Promise<void> {
  const rollout = new Rollout(context, fleet, hooks, plan, states, force);
  await rollout.passOpenGates();
  await rollout.stageAndSync();
  if (hooksOn(plan.job, "job_control").length > 0) await rollout.runControlHooks();
  else {
    await rollout.runPhase("new", "start", plan.job.maxConcurrentStarts);
    await rollout.runPhase("update", "reload", plan.job.maxConcurrentUpgrades);
    await rollout.runPhase("update", "restart", plan.job.maxConcurrentUpgrades);
  }
  await rollout.runPostDeploy();
  await rollout.promoteRest();
  await rollout.syncAgain();
}

class Rollout {
  readonly #context: OperationContext;
  readonly #fleet: Fleet;
  readonly #hooks: HookSession;
  readonly #plan: JobPlan;
  readonly #states: readonly AllocationState[];
  readonly #force: boolean;

  constructor(
    context: OperationContext,
    fleet: Fleet,
    hooks: HookSession,
    plan: JobPlan,
    states: readonly AllocationState[],
    force: boolean,
  ) {
    this.#context = context;
    this.#fleet = fleet;
    this.#hooks = hooks;
    this.#plan = plan;
    this.#states = states;
    this.#force = force;
  }

  /** A gate that an earlier deploy left open comes first, and nothing is restarted for it (decisions: Rulings). */
  async passOpenGates(): Promise<void> {
    const open = this.#states.filter(
      (state) => hasOpenGate(state.plan) && state.plan.decision.action === "skip",
    );
    if (open.length === 0) return;
    this.#say(`a gate is still open on ${hostsOf(open)}: it comes first`);
    await this.#gate(open);
  }

  /** Stages and syncs every allocation that changes. A worker that fails here, or has before, fails in its batch. */
  async stageAndSync(): Promise<void> {
    const { db } = this.#context;
    const changing = this.#changing().filter((state) => state.error === undefined);
    beginChange(
      db,
      this.#plan.job.name,
      changing.map((state) => state.plan.allocation.id),
    );
    const results = await runAll(changing, SYNC_AT_ONCE, (state) => this.#sync(state), this.#context.signal);
    throwIfCancelled(this.#context.signal);
    results.forEach((result, index) => {
      const state = changing[index];
      if (state && result.status === "rejected") state.error = messageOf(result.reason);
    });
  }

  /** The batches of one phase: lifecycle, hooks, promotion, gate; the next batch only after the one before succeeded. */
  async runPhase(phase: "new" | "update", action: Action, width: number): Promise<void> {
    const { job } = this.#plan;
    const candidates = this.#states.filter((state) => state.plan.decision.action === action);
    for (const { batch, states } of this.#batchesOf(candidates, width)) {
      throwIfCancelled(this.#context.signal);
      this.#say(`batch ${batch.index + 1} of ${batch.count} (${phase}): ${action} on ${hostsOf(states)}`);
      await this.#lifecycle(states);
      await this.#runHooks({ kind: phase === "new" ? "started" : "updated", job, batch });
      this.#promote(states, hasGate(job) ? "pending" : "");
      await this.#gate(states);
    }
  }

  /** The batches of a job whose hooks do what else its targets do: over all its workers, those that do not change too. */
  async runControlHooks(): Promise<void> {
    const { job } = this.#plan;
    const hosts = (...actions: Action[]) =>
      this.#states
        .filter(({ plan }) => actions.includes(plan.decision.action))
        .map(({ plan }) => plan.allocation.worker)
        .join(",");
    const variables = { NEW_ALLOCATIONS: hosts("start"), UPDATED_ALLOCATIONS: hosts("restart", "reload") };
    if (variables.NEW_ALLOCATIONS === "" && variables.UPDATED_ALLOCATIONS === "") return;
    for (const { batch, states } of this.#batchesOf(this.#states, job.maxConcurrentUpgrades)) {
      throwIfCancelled(this.#context.signal);
      const unready = states.filter((state) => state.error !== undefined);
      if (unready.length > 0) throw batchFailure(job.name, unready);
      await this.#runHooks({ kind: "deploy_control", job, batch, variables });
      const changed = states.filter(({ plan }) => RUNS_THE_SERVICE.includes(plan.decision.action));
      if (changed.length === 0) continue;
      this.#promote(changed, hasGate(job) ? "pending" : "");
      await this.#gate(changed);
    }
  }

  async runPostDeploy(): Promise<void> {
    await this.#runHooks({ kind: "post_deploy", job: this.#plan.job });
  }

  /** The promote sweep: allocations whose change needs no lifecycle, and so has no gate of its own. */
  async promoteRest(): Promise<void> {
    const rest = this.#changing().filter((state) => !RUNS_THE_SERVICE.includes(state.plan.decision.action));
    const failed = rest.filter((state) => state.error !== undefined);
    this.#promote(rest.filter((state) => state.error === undefined));
    if (failed.length > 0) throw batchFailure(this.#plan.job.name, failed);
  }

  /** The final sync: puts back what the lifecycle changed in files that sync owns. */
  async syncAgain(): Promise<void> {
    const again = async (state: AllocationState) => {
      const { changed } = await this.#syncTree(state);
      if (changed.length > 0) this.#say(`put back on ${state.plan.allocation.worker}: ${changed.join(", ")}`);
    };
    const results = await runAll(this.#changing(), SYNC_AT_ONCE, again, this.#context.signal);
    const failed = results.find((result) => result.status === "rejected");
    if (failed) throw failed.reason;
  }

  #batchesOf(candidates: readonly AllocationState[], width: number) {
    const byHost = new Map(candidates.map((state) => [state.plan.allocation.worker, state]));
    const order = this.#context.kv.get(`ops/job/${this.#plan.job.name}`, "rollout_order");
    return rolloutBatches(order, [...byHost.keys()], width).map((batch) => ({
      batch,
      states: batch.workers.map((host) => byHost.get(host) as AllocationState),
    }));
  }

  /** What scripts have written by now is stored, however they ended (decisions: Rulings). */
  async #runHooks(pass: HookPass): Promise<void> {
    try {
      await this.#hooks.run(pass);
    } catch (error) {
      const errors = scriptErrors(error);
      for (const state of this.#states) state.error ??= errors.get(state.plan.allocation.worker);
      throw error;
    } finally {
      this.#context.kv.flush(pass.job.name);
    }
  }

  #changing(): AllocationState[] {
    return this.#states.filter((state) => state.plan.decision.action !== "skip");
  }

  async #sync(state: AllocationState): Promise<void> {
    const { db, layout } = this.#context;
    const { allocation, tree } = state.plan;
    await writeStaging(stagingFolder(layout, allocation.worker, allocation.job), tree.files);
    const before = state.plan.promoted.files;
    const { changed, removed, sentBytes } = await this.#syncTree(state, before);
    const { updateSeq } = state.plan;
    recordSynced(db, allocation.job, allocation.id, { hash: tree.hash, files: tree.digests, updateSeq });
    this.#say(
      `synced to ${allocation.worker}: ${changed.length} changed, ${removed.length} removed, ${sentBytes} bytes`,
    );
  }

  /** What differs from `before` is sent although its content is there: its rights may be others now. */
  async #syncTree(state: AllocationState, before: Readonly<Record<string, string>> = {}) {
    const { allocation, tree } = state.plan;
    const folder = stagingFolder(this.#context.layout, allocation.worker, allocation.job);
    const files = tree.files.map(({ path: name, mode, sha256, content }) => ({
      ...{ path: name, mode, sha256, size: content.length },
      isRewritten: before[name] !== undefined && before[name] !== tree.digests[name],
      open: () => createReadStream(path.join(folder, name)) as AsyncIterable<Uint8Array>,
    }));
    const transport = await this.#fleet.reach(allocation.worker);
    const name = allocation.job;
    return await syncTree(
      transport,
      { name, folder: `jobs/${name}`, files },
      { signal: this.#context.signal },
    );
  }

  /** All of a batch run to their end; the errors of all are reported together. */
  async #lifecycle(batch: readonly AllocationState[]): Promise<void> {
    const run = async (state: AllocationState) => {
      if (state.error !== undefined) return;
      try {
        await this.#runTarget(state);
        state.done = true;
      } catch (error) {
        state.error = messageOf(error);
      }
    };
    await runAll(batch, batch.length, run, this.#context.signal);
    throwIfCancelled(this.#context.signal);
    const failed = batch.filter((state) => state.error !== undefined);
    if (failed.length > 0) throw batchFailure(this.#plan.job.name, failed);
  }

  async #runTarget(state: AllocationState): Promise<void> {
    const { allocation, decision, tree, promoted } = state.plan;
    const transport = await this.#fleet.reach(allocation.worker);
    const { job } = this.#plan;
    if (promoted.unfinished && !this.#force) {
      const last = await lastTarget(transport, job.name, { signal: this.#context.signal });
      if (last?.hash === tree.hash && RUNS_THE_SERVICE.includes(last.target as Action))
        return this.#say(`${last.target} on ${allocation.worker} had already succeeded: resumed behind it`);
    }
    await makeTarget(this.#context, transport, {
      ...{ job: job.name, target: decision.action, phase: "rollout", hash: tree.hash },
      limitSeconds: job.lifecycleTimeoutSeconds,
      env: { CURRENT_VERSION: promoted.version, NEW_VERSION: allocation.newVersion },
    });
  }

  #promote(batch: readonly AllocationState[], gate?: "pending" | ""): void {
    const { db, kv } = this.#context;
    try {
      db.transaction(() => {
        for (const { plan } of batch) {
          const { id, job, worker, newVersion, disabled } = plan.allocation;
          promote(db, job, id, newVersion, gate);
          if (!disabled) setStopped(db, job, id, false);
          kv.put(`ops/job/${job}/worker/${worker}`, "version", newVersion);
        }
        kv.flush(this.#plan.job.name);
      });
    } catch (error) {
      kv.discard(this.#plan.job.name);
      throw error;
    }
    for (const state of batch) state.done = true;
  }

  /** Checks what is promoted to the target, and stores the outcome for the allocations the gate is about. */
  async #gate(about: readonly AllocationState[]): Promise<void> {
    const { job } = this.#plan;
    if (!hasGate(job)) return;
    const ready = this.#states
      .filter(({ plan, done }) => plan.allocation.disabled || done || plan.decision.action === "skip")
      .map(({ plan }) => plan.allocation);
    const probed = ready.filter(({ disabled }) => !disabled).map(({ worker }) => worker);
    const hooked = ready.map(({ worker }) => worker);
    try {
      await passGate(this.#context, this.#fleet, this.#hooks, job, { probed, hooked });
    } catch (error) {
      if (!this.#context.signal.aborted) this.#storeGate(about, "failed");
      throw error;
    }
    this.#storeGate(about, "passed");
    this.#say(`health check passed on ${hostsOf(about)}`);
  }

  #storeGate(about: readonly AllocationState[], gate: "passed" | "failed"): void {
    const { db } = this.#context;
    db.transaction(() => {
      for (const { plan } of about) setGate(db, plan.allocation.job, plan.allocation.id, gate);
    });
  }

  #say(message: string): void {
    this.#context.log.info(`${this.#plan.job.name}: ${message}`);
  }
}

function hostsOf(states: readonly AllocationState[]): string {
  return states.map((state) => state.plan.allocation.worker).join(", ");
}

function batchFailure(job: string, failed: readonly AllocationState[]): Failure {
  const errors = failed.map((state) => `${state.plan.allocation.worker}: ${state.error}`);
  return new Failure(
    "failed",
    `job ${job} failed on ${failed.length} worker${failed.length > 1 ? "s" : ""}: ${errors.join("; ")}`,
  );
}
