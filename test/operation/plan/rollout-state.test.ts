import assert from "node:assert/strict";
import { test } from "node:test";
import type { CatalogJob } from "../../../lib/bucket/base/model.ts";
import { Failure } from "../../../lib/core/errors.ts";
import type { Trouble } from "../../../lib/operation/base/outcome.ts";
import type { AllocationPlan, JobPlan } from "../../../lib/operation/plan/plan-job.ts";
import {
  type AllocationState,
  allocationGrade,
  blame,
  controlVariables,
  gradeScripts,
  isTolerated,
  isWaiting,
  rolloutOf,
  rolloutProgress,
} from "../../../lib/operation/plan/rollout-state.ts";
import { rolloutPhases } from "../../../lib/plan/rollout.ts";

/** A job that is to be restarted on so many workers, 10 at a time. */
function rolloutOn(count: number) {
  const workers = Array.from({ length: count }, (_, index) => `w${index}`);
  const allocations = workers.map((worker) => ({
    allocation: { worker },
    decision: { action: "restart", reason: "" },
  })) as unknown as AllocationPlan[];
  const widths = { maxConcurrentStarts: 0, maxConcurrentUpgrades: 10, hasOwnControl: false };
  const actions = workers.map((worker) => ({ worker, action: "restart" as const }));
  const plan = { job: { name: "web" }, allocations, phases: rolloutPhases(widths, actions, undefined) };
  return rolloutOf(plan as unknown as JobPlan);
}

test("of a job on more than 1,000 workers progress names those at work or in trouble", () => {
  const small = rolloutProgress(rolloutOn(1_000));
  assert.equal(small.hosts.length, 1_000);
  assert.deepEqual(small.hosts[999], { worker: "w999", action: "restart", batch: 100, state: "not_started" });
  const rollout = rolloutOn(5_000);
  assert.deepEqual([rolloutProgress(rollout).workers, rolloutProgress(rollout).hosts], [5_000, []]);
  const [first, second] = rollout.states as [AllocationState, AllocationState];
  first.trouble = { grade: "unreachable", message: "gone" };
  second.now = "checking";
  const told = rolloutProgress(rollout).hosts.map(({ worker, state }) => `${worker} ${state}`);
  assert.deepEqual(told, ["w0 unreachable", "w1 checking"]);
  for (const [at, more] of [{ done: true }, { passedGate: true }, {}].entries())
    Object.assign(rollout.states[at + 2] ?? {}, more);
  const [, , changed, passed, skipped, disabled] = rollout.states as AllocationState[];
  for (const state of [passed, skipped]) Object.assign(state ?? {}, { plan: { ...state?.plan, decision: { action: "skip" } } });
  Object.assign(disabled ?? {}, { plan: { ...disabled?.plan, allocation: { worker: "w5", disabled: true } } });
  assert.deepEqual(
    [changed, passed, skipped, disabled].map((state) => allocationGrade(state as AllocationState)),
    ["changed", "ok", "skipped", "disabled"],
  );
  assert.equal(rolloutProgress(rollout).hosts.length, 2, "what has settled is left out");
});

const GONE: Trouble = { grade: "unreachable", message: "gone" };

/** A rollout with these actions, on workers `w0`, `w1`, …; some of the workers are not ready. */
function acting(actions: readonly string[], unready: readonly string[] = []) {
  const allocations = actions.map((action, index) => {
    return { allocation: { worker: `w${index}`, disabled: action === "promote" }, decision: { action, reason: "" } };
  });
  const plan = { job: { name: "web" }, allocations, phases: [] };
  return rolloutOf(plan as unknown as JobPlan, new Map(unready.map((host) => [host, GONE])));
}

const grades = (states: readonly AllocationState[]) => states.map(allocationGrade);

test("an allocation is changed once its target is done, and trouble comes before all", () => {
  const { states } = acting(["start", "skip", "promote", "restart", "skip"], ["w3", "w4"]);
  assert.deepEqual(grades(states), ["not_started", "skipped", "disabled", "unreachable", "skipped"]);
  assert.deepEqual(states.map(isWaiting), [true, false, true, false, false]);
  for (const state of states) Object.assign(state, { done: true, passedGate: true });
  assert.deepEqual(grades(states), ["changed", "ok", "disabled", "unreachable", "ok"]);
  assert.ok(!states.some(isWaiting));
});

test("of an allocation the first trouble stays", () => {
  const { states } = acting(["start", "start", "start"], ["w0"]);
  blame(
    states,
    new Map([["w0", { grade: "failed", message: "b" }] as const, ["w1", { grade: "failed", message: "b" }] as const]),
  );
  assert.deepEqual(grades(states), ["unreachable", "failed", "not_started"]);
});

test("as many workers as the manifest tolerates may be unreachable, and not one more; other troubles are never tolerated", () => {
  const tolerated = (lost: number, share: number, grade: Trouble["grade"] = "unreachable") => {
    const hosts = Array.from({ length: lost }, (_, index) => `w${index}`);
    const { states } = acting(Array(4).fill("start"), hosts);
    return isTolerated({ grade, message: "" }, states, { tolerateUnreachable: share } as CatalogJob);
  };
  assert.deepEqual([tolerated(1, 25), tolerated(1, 24), tolerated(2, 49), tolerated(2, 50)], [true, false, false, true]);
  assert.deepEqual([tolerated(4, 99), tolerated(4, 100)], [false, true]);
  assert.deepEqual([tolerated(1, 100, "failed"), tolerated(1, 0)], [false, false]);
});

test("hooks for job_control are told which workers are started and which are changed", () => {
  const { states } = acting(["start", "restart", "sync", "reload", "start", "skip"]);
  assert.deepEqual(controlVariables(states), { NEW_ALLOCATIONS: "w0,w4", UPDATED_ALLOCATIONS: "w1,w3" });
});

test("where hooks for job_control did not all succeed, those whose scripts ran are done, and a cancel is trouble for all", () => {
  const scripts = [{ hook: "h", worker: "w0", error: "x", duration_ms: 1 }];
  const failed = acting(["restart", "restart", "sync"]).states;
  gradeScripts(failed, new Failure("ErrHookFailed", "x", { details: { scripts } }));
  assert.deepEqual(grades(failed), ["changed", "not_started", "not_started"]);
  const cut = acting(["restart", "restart"]).states;
  gradeScripts(cut, new Failure("cancelled", "cancelled"));
  assert.deepEqual(grades(cut), ["cancelled", "cancelled"]);
});

test("progress counts what changes, what is done, at work and in trouble, and names each place", () => {
  const rollout = acting(["start", "start", "start", "skip", "start", "start"], ["w2"]);
  const [first, second, , , , last] = rollout.states as AllocationState[];
  Object.assign(first ?? {}, { done: true });
  Object.assign(second ?? {}, { done: true, now: "checking" });
  Object.assign(last ?? {}, { done: true });
  const place = (worker: string, state: string, action = "start") => ({ worker, action, batch: 0, state });
  assert.deepEqual(rolloutProgress(rollout), {
    ...{ job: "web", action: "sync", batch: 0, batches: 0, gate: "" },
    ...{ workers: 5, done: 2, running: 1, failed: 1 },
    hosts: [
      ...[place("w0", "changed"), place("w1", "checking"), place("w2", "unreachable")],
      ...[place("w3", "skipped", "skip"), place("w4", "not_started"), place("w5", "changed")],
    ],
  });
});
