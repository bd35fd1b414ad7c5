import assert from "node:assert/strict";
import { test } from "node:test";
import type { AllocationPlan, JobPlan } from "../../../lib/operation/plan/plan-job.ts";
import { type AllocationState, rolloutOf, rolloutProgress } from "../../../lib/operation/plan/rollout-state.ts";
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
});
