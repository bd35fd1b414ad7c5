import { keepContents } from "../../bucket/catalog/contents.ts";
import {
  beginChange,
  promote,
  recordFound,
  recordSynced,
  type SyncedTree,
  setGate,
  setStopped,
} from "../../bucket/catalog/promotions.ts";
import { noteInSync } from "../../bucket/health/health-history.ts";
import { runAll } from "../../core/async.ts";
import { throwIfCancelled } from "../../core/errors.ts";
import type { Action } from "../../plan/changes.ts";
import { runsTarget } from "../../plan/rollout.ts";
import type { OperationContext } from "../base/context.ts";
import { WORKERS_AT_ONCE } from "../base/fleet.ts";
import { countGrades, describeGrades, type Trouble, troubleOf } from "../base/outcome.ts";
import { gateTroubles, passGate } from "../health/gate.ts";
import { scriptErrors } from "../hooks/hooks.ts";
import { noteEnds, noteStep } from "../plan/last-outcomes.ts";
import type { AllocationPlan } from "../plan/plan-job.ts";
import {
  type AllocationState,
  allocationGrade,
  blame,
  hostsOf,
  idsOf,
  isSound,
  type Rollout,
  workersOf,
} from "../plan/rollout-state.ts";
import { bringFiles, type Effects, syncedTree } from "../reach/effects.ts";
import { targetHash } from "../reach/target.ts";
import { type BoundPlan, staleFiles } from "./dry-run.ts";
import type { DeployStart } from "./engine.ts";
import { restoreBatch } from "./restore-batch.ts";
import type { About, Driver, RolloutPart } from "./steps.ts";

/** A deploy that is to be carried out. */
export interface Order extends DeployStart {
  effects: Effects;
  /** The plan that it carries out, where there is one. */
  bound?: BoundPlan | undefined;
}

/** A deploy that is carried out. */
export interface Work extends Order {
  /** Reports progress; called when something begins or ends at an allocation, and at each batch and gate. */
  report(): void;
}

/** The steps of one job's rollout, each done on the workers and noted in the database. */
export function rolloutDriver(work: Work) {
  const { context, effects } = work;
  const { db, log } = context;
  return {
    checkDrift: (part) => checkDrift(work, part),
    async adopt(part) {
      noteStep(context, part.states);
      await onAll(work, part.states, ({ plan }) => effects.adopt(plan.allocation, plan.tree));
      promoteAll(context, { ...part, states: part.states.filter(isSound) }, (plan) =>
        recordFound(db, plan.allocation.job, syncedTree(plan)),
      );
    },
    async sync({ rollout, states }) {
      beginChange(db, rollout.plan.job.name, idsOf(states));
      noteStep(context, states, "sync");
      // After a kill they count as not synced: the next deploy looks at them again.
      const synced: SyncedTree[] = [];
      try {
        await onAll(work, states, (state) => syncAllocation({ ...work, synced }, state));
      } finally {
        recordSynced(db, rollout.plan.job.name, synced);
      }
      noteEnds(context, states);
    },
    batch({ rollout, states, phase, batch }) {
      const { action, batches } = phase;
      enter(work, rollout, { action, batch: batch.index + 1, batches: batches.length, gate: "" });
      if (action === "job_control") return;
      const place = `batch ${batch.index + 1} of ${batch.count} (${phase.phase})`;
      log.info(`${rollout.plan.job.name}: ${place}: ${action} on ${hostsOf(states)}`, { job: rollout.plan.job.name });
    },
    async lifecycle({ rollout, states }) {
      noteStep(context, states);
      const run = async (state: AllocationState) => {
        await runTarget(work, rollout, state);
        state.done = true;
      };
      await onAll(work, states, run, states.length);
    },
    async hooks({ rollout, states, pass }) {
      const changed = states.filter(({ plan }) => runsTarget(plan.decision.action));
      if (pass.kind === "deploy_control") noteStep(context, changed);
      await during(work, "running", states, async () => {
        try {
          await effects.hooks(pass);
        } catch (error) {
          const failed = [...scriptErrors(error)];
          blame(rollout.states, new Map(failed.map(([worker, message]) => [worker, { grade: "failed", message }])));
          throw error;
        } finally {
          // What scripts have written is stored, however they ended (decisions: Rulings).
          context.kv.flush(pass.job.name);
        }
      });
    },
    promote: (part) => promoteAll(context, part),
    gate: (part) => passRolloutGate(work, part),
    async restore({ rollout, states, waiting, failure }) {
      const failed = { job: rollout.plan.job, batch: states, waiting };
      const restored = () => restoreBatch(work, failed, failure);
      return await during(work, "restoring", [...states, ...waiting], restored);
    },
    note: ({ states }) => noteEnds(context, states),
    status({ plan, states }) {
      const reason = describeGrades(countGrades(states.map(allocationGrade)));
      log.record({ event: "post_deploy_status", job: plan.job.name, phase: "rollout", reason });
    },
    async syncAgain({ rollout, states }) {
      const { name } = rollout.plan.job;
      await onAll(work, states, async ({ plan }) => {
        const { changed } = await effects.sync(plan.allocation, plan.tree, {});
        if (changed.length > 0)
          log.info(`${name}: put back on ${plan.allocation.worker}: ${changed.join(", ")}`, plan.allocation);
      });
      // The next deploy repairs what this sync could not.
      beginChange(db, name, idsOf(states.filter(({ trouble }) => trouble)));
    },
  } satisfies Partial<Driver>;
}

function enter({ report }: Work, rollout: Rollout, change: Partial<Rollout["at"]>): void {
  Object.assign(rollout.at, change);
  report();
}

/** Shows the work in the progress of these allocations as long as it lasts. */
async function during<T>(
  { report }: Work,
  now: AllocationState["now"],
  states: readonly AllocationState[],
  work: () => Promise<T>,
): Promise<T> {
  for (const state of states) state.now = now;
  report();
  try {
    return await work();
  } finally {
    for (const state of states) state.now = undefined;
    report();
  }
}

/** Does something at each allocation, to its end. Errors become the allocation's trouble; throws only `cancelled`. */
async function onAll(
  work: Work,
  states: readonly AllocationState[],
  act: (state: AllocationState) => Promise<void>,
  atOnce = WORKERS_AT_ONCE,
): Promise<void> {
  const { signal } = work.context;
  const attempt = (state: AllocationState) =>
    during(work, "running", [state], async () => {
      await act(state).catch((error: unknown) => {
        state.trouble ??= troubleOf(error);
      });
    });
  await runAll(states, atOnce, attempt, signal);
  throwIfCancelled(signal);
}

/** Refuses to carry out a plan over files that were changed by hand since. */
async function checkDrift(work: Work, { states }: RolloutPart): Promise<void> {
  const { bound, effects } = work;
  if (!bound) return;
  const drifted: string[] = [];
  await onAll(work, states, async (state) => {
    const message = await bound.movedOn(effects, state.plan);
    if (message === undefined) return;
    drifted.push(`${state.plan.allocation.worker}: ${message}`);
    state.trouble = { grade: "failed", message };
  });
  if (drifted.length > 0) throw staleFiles(drifted);
}

async function syncAllocation(work: Work & { synced: SyncedTree[] }, state: AllocationState): Promise<void> {
  const { allocation, promoted } = state.plan;
  const { job, worker } = allocation;
  const { changed, removed, sentBytes } = await bringFiles(work, allocation, state.plan, promoted.files);
  state.isSynced = true;
  const found = `${changed.length} changed, ${removed.length} removed, ${sentBytes} bytes`;
  work.context.log.info(`${job}: synced to ${worker}: ${found}`, { job, worker });
}

async function runTarget({ context, effects, options }: Work, { plan: { job } }: Rollout, { plan }: AllocationState) {
  const { allocation, decision, tree, promoted } = plan;
  const hash = targetHash(tree.hash, allocation.newVersion);
  if ((promoted.unfinished || promoted.stopping) && !options.force) {
    const last = await effects.lastTarget(allocation);
    if (last?.hash === hash && runsTarget(last.target as Action)) {
      const place = `${last.target} on ${allocation.worker}`;
      return context.log.info(`${job.name}: ${place} had already succeeded: resumed behind it`, allocation);
    }
  }
  await effects.run({
    job: allocation.job,
    worker: allocation.worker,
    target: decision.action,
    phase: "rollout",
    hash,
    limitSeconds: job.lifecycleTimeoutSeconds,
    env: { CURRENT_VERSION: promoted.version, NEW_VERSION: allocation.newVersion },
  });
}

/**
 * Promotes the synced files of allocations of a job, in one transaction with the KV writes of the job's hooks and with
 * what `before` does.
 */
function promoteAll(
  { db, kv, run }: OperationContext,
  { rollout, states, gate }: About<"promote">,
  before: (plan: AllocationPlan) => void = () => {},
): void {
  const { name } = rollout.plan.job;
  try {
    db.transaction(() => {
      for (const { plan } of states) {
        const { id, job, worker, newVersion, disabled } = plan.allocation;
        keepContents(db, kv, plan.tree.files);
        before(plan);
        promote(db, { job, id }, newVersion, gate);
        if (!disabled) setStopped(db, job, id, "no");
        kv.put(`ops/job/${job}/worker/${worker}`, "version", newVersion);
      }
      kv.flush(name);
      noteInSync(db, run.id, name, workersOf(states));
    });
  } catch (error) {
    kv.discard(name);
    throw error;
  }
  for (const state of states) state.done = true;
}

async function passRolloutGate(work: Work, { rollout, states, gated }: About<"gate">): Promise<void> {
  const { context, effects } = work;
  const { db, log, signal } = context;
  const { job } = rollout.plan;
  enter(work, rollout, { gate: "pending" });
  try {
    await during(work, "checking", states, () => passGate(context, effects, job, gated));
  } catch (error) {
    const troubles: ReadonlyMap<string, Trouble> = gateTroubles(error);
    blame(rollout.states, troubles);
    if (!signal.aborted) {
      // An allocation of an earlier batch that is no longer healthy must not count as healthy later.
      const isFailed = (state: AllocationState) => states.includes(state) || troubles.has(state.plan.allocation.worker);
      setGate(db, job.name, idsOf(rollout.states.filter(isFailed)), "failed");
      enter(work, rollout, { gate: "failed" });
    }
    throw error;
  }
  setGate(db, job.name, idsOf(states), "passed");
  enter(work, rollout, { gate: "passed" });
  log.info(`${job.name}: health check passed on ${hostsOf(states)}`, { job: job.name });
}
