import type { CatalogJob } from "../../bucket/base/model.ts";
import type { LastOutcome } from "../../bucket/catalog/info.ts";
import type { EventVariables } from "../../hook/environment.ts";
import type { Action } from "../../plan/changes.ts";
import { runsTarget } from "../../plan/rollout.ts";
import type { HostProgress, RolloutProgress } from "../../run/progress.ts";
import { type Grade, type Trouble, troubleOf } from "../base/outcome.ts";
import { scriptsIn } from "../hooks/hooks.ts";
import type { AllocationPlan, JobPlan } from "./plan-job.ts";

/** For a job on more workers than this, progress names only those at work or in trouble, and at most this many. */
const MOST_HOSTS = 1_000;
const SETTLED: readonly string[] = ["not_started", "changed", "ok", "skipped", "disabled"];

/** How the change of one allocation goes; filled in while the job rolls out. */
export interface AllocationState {
  plan: AllocationPlan;
  /** What goes on at the allocation at this moment. */
  now: "running" | "checking" | "restoring" | undefined;
  /** Its target has succeeded, or it is promoted without a target. */
  done: boolean;
  /** The gate that an earlier deploy left open has been passed. */
  passedGate: boolean;
  trouble: Trouble | undefined;
  /** The wanted files are on the worker. */
  isSynced?: boolean;
  /** The promoted files are back on the worker; a service that was restarted with them is healthy. */
  isBack?: boolean;
  /** The last action as the database has it. */
  last?: LastOutcome;
}

/** One job on its way to the workers. */
export interface Rollout {
  readonly plan: JobPlan;
  readonly states: readonly AllocationState[];
  /** The batch that it has come to; `sync` stands before the first batch. */
  at: Pick<RolloutProgress, "action" | "batch" | "batches" | "gate">;
}

/** A rollout that has not begun. `unready` names the workers whose own files could not be brought up to date. */
export function rolloutOf(plan: JobPlan, unready: ReadonlyMap<string, Trouble> = new Map()): Rollout {
  const states = plan.allocations.map((one): AllocationState => {
    const trouble = one.decision.action === "skip" ? undefined : unready.get(one.allocation.worker);
    return { plan: one, now: undefined, done: false, passedGate: false, trouble };
  });
  return { plan, states, at: { action: "sync", batch: 0, batches: 0, gate: "" } };
}

/** How it went for an allocation by now. */
export function allocationGrade({ plan, done, passedGate, trouble }: AllocationState): Grade {
  if (trouble) return trouble.grade;
  if (plan.allocation.disabled) return "disabled";
  if (plan.decision.action === "skip") return passedGate ? "ok" : "skipped";
  return done ? "changed" : "not_started";
}

/** True for an allocation that changes. */
export function isChanging({ plan }: AllocationState): boolean {
  return plan.decision.action !== "skip";
}

/** True for an allocation without trouble. */
export function isSound({ trouble }: AllocationState): boolean {
  return trouble === undefined;
}

/** True where files were synced at most, and nothing else has begun. */
export function isWaiting(state: AllocationState): boolean {
  return isChanging(state) && !state.done && isSound(state);
}

/** The variables of hooks for job_control in a deploy: the workers that are started, and those that are changed. */
export function controlVariables(states: readonly AllocationState[]): EventVariables {
  const hosts = (...actions: Action[]) =>
    workersOf(states.filter(({ plan }) => actions.includes(plan.decision.action))).join(",");
  return { NEW_ALLOCATIONS: hosts("start"), UPDATED_ALLOCATIONS: hosts("restart", "reload") };
}

/** Grades a batch whose hooks for job_control have not all succeeded, as if each script had been a target. */
export function gradeScripts(batch: readonly AllocationState[], error: unknown): void {
  const trouble = troubleOf(error);
  const ran = new Set(scriptsIn(error).map(({ worker }) => worker));
  for (const state of batch) {
    if (trouble.grade === "cancelled") state.trouble ??= trouble;
    if (ran.has(state.plan.allocation.worker) && runsTarget(state.plan.decision.action)) state.done = true;
  }
}

/** Notes troubles by worker; the first trouble of an allocation stays. */
export function blame(states: readonly AllocationState[], troubles: ReadonlyMap<string, Trouble>): void {
  for (const state of states) state.trouble ??= troubles.get(state.plan.allocation.worker);
}

/** True where the worker is unreachable, and no more workers of the job are than the manifest tolerates. */
export function isTolerated({ grade }: Trouble, all: readonly AllocationState[], { tolerateUnreachable }: CatalogJob): boolean {
  const lost = all.filter(({ trouble }) => trouble?.grade === "unreachable").length;
  return grade === "unreachable" && (100 * lost) / all.length <= tolerateUnreachable;
}

/** The ids of some allocations. */
export function idsOf(states: readonly AllocationState[]): string[] {
  return states.map((state) => state.plan.allocation.id);
}

/** The workers of some allocations. */
export function workersOf(states: readonly AllocationState[]): string[] {
  return states.map((state) => state.plan.allocation.worker);
}

/** The workers of some allocations, for people. */
export function hostsOf(states: readonly AllocationState[]): string {
  return workersOf(states).join(", ");
}

/** What progress tells of a rollout at this moment. */
export function rolloutProgress(rollout: Rollout): RolloutProgress {
  const changing = rollout.states.filter(isChanging);
  const count = (test: (state: AllocationState) => boolean) => changing.filter(test).length;
  return {
    job: rollout.plan.job.name,
    ...rollout.at,
    workers: changing.length,
    done: count(({ now, done, trouble }) => now === undefined && done && trouble === undefined),
    running: count(({ now }) => now !== undefined),
    failed: count(({ trouble }) => trouble !== undefined),
    hosts: hostProgress(rollout),
  };
}

function hostProgress(rollout: Rollout): HostProgress[] {
  const hosts = placesOf(rollout).map(({ of, ...place }) => ({ ...place, state: of.now ?? allocationGrade(of) }));
  if (hosts.length <= MOST_HOSTS) return hosts;
  return hosts.filter(({ state }) => !SETTLED.includes(state)).slice(0, MOST_HOSTS);
}

/** The allocations in the order of the batches; behind them, in batch 0, the allocations of no batch. */
function placesOf({ plan, states }: Rollout) {
  const left = new Map(states.map((state) => [state.plan.allocation.worker, state]));
  const places = [];
  for (const { action, batches } of plan.phases)
    for (const { index, workers } of batches)
      for (const worker of workers) {
        places.push({ worker, action, batch: index + 1, of: left.get(worker) as AllocationState });
        left.delete(worker);
      }
  for (const [worker, of] of left) places.push({ worker, action: of.plan.decision.action, batch: 0, of });
  return places;
}
