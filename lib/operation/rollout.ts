import { createReadStream } from "node:fs";
import path from "node:path";
import { beginChange, promote, recordSynced, setGate, setStopped } from "../bucket/promotions.ts";
import { stagingFolder, writeStaging } from "../bucket/staging.ts";
import { batches, runAll } from "../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../core/errors.ts";
import type { Action } from "../plan/changes.ts";
import { inOrder, rolloutOrder } from "../plan/rollout.ts";
import { lastTarget } from "../transport/runner.ts";
import { syncTree } from "../transport/sync.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";
import { passGate } from "./gate.ts";
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
 * Rolls out one job (hook-runtime.md, Deploy order 4 and 5): stage, sync, then batch after batch lifecycle, promotion
 * and gate, then what needs no lifecycle, then a last sync. What was promoted stays promoted when a later step fails.
 * Throws the first failure that stops the job; `states` tells how far each allocation came.
 */
export async function rollOut(
  context: OperationContext,
  fleet: Fleet,
  plan: JobPlan,
  states: readonly AllocationState[],
  force: boolean,
): Promise<void> {
  const rollout = new Rollout(context, fleet, plan, states, force);
  await rollout.passOpenGates();
  await rollout.stageAndSync();
  await rollout.runPhase("new", "start", plan.job.maxConcurrentStarts);
  await rollout.runPhase("update", "reload", plan.job.maxConcurrentUpgrades);
  await rollout.runPhase("update", "restart", plan.job.maxConcurrentUpgrades);
  await rollout.promoteRest();
  await rollout.syncAgain();
}

class Rollout {
  readonly #context: OperationContext;
  readonly #fleet: Fleet;
  readonly #plan: JobPlan;
  readonly #states: readonly AllocationState[];
  readonly #force: boolean;

  constructor(
    context: OperationContext,
    fleet: Fleet,
    plan: JobPlan,
    states: readonly AllocationState[],
    force: boolean,
  ) {
    this.#context = context;
    this.#fleet = fleet;
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

  /** The batches of one phase: lifecycle, promotion, gate; the next batch only after the one before succeeded. */
  async runPhase(phase: "new" | "update", action: Action, width: number): Promise<void> {
    const candidates = this.#states.filter((state) => state.plan.decision.action === action);
    const hosts = candidates.map((state) => state.plan.allocation.worker);
    const order = rolloutOrder(
      this.#context.kv.get(`ops/job/${this.#plan.job.name}`, "rollout_order"),
      hosts,
    );
    const all = batches(
      inOrder(order, candidates, (state) => state.plan.allocation.worker),
      width,
    );
    for (const [index, batch] of all.entries()) {
      throwIfCancelled(this.#context.signal);
      this.#say(`batch ${index + 1} of ${all.length} (${phase}): ${action} on ${hostsOf(batch)}`);
      await this.#lifecycle(batch);
      this.#promote(batch, this.#plan.job.healthCheck ? "pending" : "");
      await this.#gate(batch);
    }
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

  #changing(): AllocationState[] {
    return this.#states.filter((state) => state.plan.decision.action !== "skip");
  }

  async #sync(state: AllocationState): Promise<void> {
    const { db, layout } = this.#context;
    const { allocation, tree } = state.plan;
    await writeStaging(stagingFolder(layout, allocation.worker, allocation.job), tree.files);
    const { changed, removed, sentBytes } = await this.#syncTree(state);
    recordSynced(db, allocation.job, allocation.id, { hash: tree.hash, files: tree.digests });
    this.#say(
      `synced to ${allocation.worker}: ${changed.length} changed, ${removed.length} removed, ${sentBytes} bytes`,
    );
  }

  async #syncTree(state: AllocationState) {
    const { allocation, tree } = state.plan;
    const folder = stagingFolder(this.#context.layout, allocation.worker, allocation.job);
    const files = tree.files.map(({ path: name, mode, sha256, content }) => ({
      ...{ path: name, mode, sha256, size: content.length },
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
        kv.flush();
      });
    } catch (error) {
      kv.discard();
      throw error;
    }
    for (const state of batch) state.done = true;
  }

  /** Probes what is promoted to the target, and stores the outcome for the allocations the gate is about. */
  async #gate(about: readonly AllocationState[]): Promise<void> {
    const { job } = this.#plan;
    if (!job.healthCheck) return;
    const ready = this.#states.filter(
      ({ plan, done }) => !plan.allocation.disabled && (done || plan.decision.action === "skip"),
    );
    try {
      await passGate(
        this.#context,
        this.#fleet,
        job,
        ready.map((state) => state.plan.allocation.worker),
      );
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
