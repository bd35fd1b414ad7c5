import type { CatalogJob } from "../../bucket/base/model.ts";
import type { LastOutcome } from "../../bucket/catalog/info.ts";
import type { EventVariables } from "../../hook/environment.ts";
import type { Action } from "../../plan/changes.ts";
import { runsTarget } from "../../plan/rollout.ts";
import { type Grade, type Trouble, troubleOf } from "../base/outcome.ts";
import { scriptsIn } from "../hooks/hooks.ts";
import type { AllocationPlan } from "./plan-job.ts";

/** How the change of one allocation goes; filled in while the job rolls out. */
export interface AllocationState {
  plan: AllocationPlan;
  /** What of the job goes on there at this moment. */
  now: "running" | "checking" | "restoring" | undefined;
  /** Its target has succeeded, or it is promoted without one. */
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

/** How it went for an allocation by now. */
export function allocationGrade({ plan, done, passedGate, trouble }: AllocationState): Grade {
  if (trouble) return trouble.grade;
  if (plan.decision.action === "skip") return passedGate ? "ok" : "skipped";
  return done ? "changed" : "not_started";
}

/** True where files were synced at most, and nothing else has begun. */
export function isWaiting({ plan, done, trouble }: AllocationState): boolean {
  return plan.decision.action !== "skip" && !done && trouble === undefined;
}

/** What hooks for job_control are told in a deploy: which workers are started and which are changed. */
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

/** A rollout goes on without workers that are unreachable, as long as they are no more than the manifest says. */
export function isTolerated(
  { grade }: Trouble,
  states: readonly AllocationState[],
  { tolerateUnreachable }: CatalogJob,
): boolean {
  const lost = states.filter(({ trouble }) => trouble?.grade === "unreachable").length;
  return grade === "unreachable" && (100 * lost) / states.length <= tolerateUnreachable;
}

/** The ids of some allocations. */
export function idsOf(states: readonly AllocationState[]): string[] {
  return states.map((state) => state.plan.allocation.id);
}

/** The workers of some allocations. */
export function workersOf(states: readonly AllocationState[]): string[] {
  return states.map((state) => state.plan.allocation.worker);
}

/** The same for people. */
export function hostsOf(states: readonly AllocationState[]): string {
  return workersOf(states).join(", ");
}
