import assert from "node:assert/strict";
import { test } from "node:test";
import type { AllocationState } from "../../../lib/operation/plan/allocation-state.ts";
import type { JobPlan } from "../../../lib/operation/plan/plan-job.ts";
import { RolloutBoard } from "../../../lib/operation/plan/rollout-board.ts";
import { rolloutPhases } from "../../../lib/plan/rollout.ts";

/** A job that is to be restarted on so many workers, 10 at a time. */
function boardOf(count: number) {
  const workers = Array.from({ length: count }, (_, index) => `w${index}`);
  const states = workers.map((worker) => ({
    plan: { allocation: { worker }, decision: { action: "restart", reason: "" } },
    now: undefined,
    done: false,
    passedGate: false,
    trouble: undefined,
  })) as unknown as AllocationState[];
  const widths = { maxConcurrentStarts: 0, maxConcurrentUpgrades: 10, hasOwnControl: false };
  const actions = workers.map((worker) => ({ worker, action: "restart" as const }));
  const plan = { job: { name: "web" }, phases: rolloutPhases(widths, actions, undefined) };
  return { states, board: new RolloutBoard(plan as unknown as JobPlan, states, () => {}) };
}

test("of a job on more than 1,000 workers progress names those at work or in trouble", async () => {
  const small = boardOf(1_000).board.progress();
  assert.equal(small.hosts.length, 1_000);
  assert.deepEqual(small.hosts[999], { worker: "w999", action: "restart", batch: 100, state: "not_started" });
  const { board, states } = boardOf(5_000);
  assert.deepEqual([board.progress().workers, board.progress().hosts], [5_000, []]);
  const [first, second] = states as [AllocationState, AllocationState];
  first.trouble = { grade: "unreachable", message: "gone" };
  await board.during("checking", [second], async () => {
    const told = board.progress().hosts.map(({ worker, state }) => `${worker} ${state}`);
    assert.deepEqual(told, ["w0 unreachable", "w1 checking"]);
  });
});
