import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure } from "../../../lib/core/errors.ts";
import { Redactor } from "../../../lib/core/redact.ts";
import type { OperationContext } from "../../../lib/operation/base/context.ts";
import { noteBegun, noteEnds, noteOutcomes, noteStep, outcomeOf } from "../../../lib/operation/plan/last-outcomes.ts";
import type { AllocationState } from "../../../lib/operation/plan/rollout-state.ts";

/** A run that keeps what it notes: the allocation, action, outcome and reason. */
function noting(signal = new AbortController().signal) {
  const rows: unknown[][] = [];
  let transactions = 0;
  const db = {
    transaction(work: () => void) {
      transactions++;
      work();
    },
    run: (_sql: string, id: string, action: string, outcome: string, run: string, reason: string) => {
      assert.equal(run, "r");
      rows.push([id, action, outcome, reason]);
    },
  };
  const redactor = new Redactor();
  redactor.add("hunter-two-2");
  const context = { db, log: { redactor }, run: { id: "r" }, signal } as unknown as OperationContext;
  return { context, rows, transactions: () => transactions };
}

test("outcomes are noted together, with their reasons masked and cut at 2,048 characters", () => {
  const { context, rows, transactions } = noting();
  noteOutcomes(context, []);
  assert.equal(transactions(), 0);
  const reasons = [undefined, null, "it is hunter-two-2", "x".repeat(2_048), "x".repeat(2_049), `${"x".repeat(2_047)}😀`];
  noteOutcomes(
    context,
    reasons.map((reason, at) => ({ id: `a${at}`, action: "start", outcome: "failed", ...(reason !== undefined && { reason }) })),
  );
  assert.equal(transactions(), 1);
  assert.deepEqual(
    rows.map(([, , , reason]) => reason),
    ["", "", "it is ***", "x".repeat(2_048), `${"x".repeat(2_048)}…`, `${"x".repeat(2_047)}\ufffd…`],
  );
  noteBegun(context, ["b0", "b1"], "restart");
  assert.deepEqual(rows.slice(-2), [
    ["b0", "restart", "unknown", ""],
    ["b1", "restart", "unknown", ""],
  ]);
  assert.deepEqual(outcomeOf(new Failure("unreachable", "gone")), { outcome: "unreachable", reason: "gone" });
});

/** An allocation of a rollout with this planned action. */
const stateOf = (action: string, more: Partial<AllocationState> = {}) =>
  ({ plan: { allocation: { id: "a" }, decision: { action } }, done: false, passedGate: false, ...more }) as AllocationState;

test("the beginning of an action is noted once: the planned one, or another", () => {
  const { context, rows } = noting();
  const states = [stateOf("restart"), stateOf("start")];
  for (let round = 0; round < 2; round++) noteStep(context, states);
  assert.deepEqual(rows, [
    ["a", "restart", "unknown", ""],
    ["a", "start", "unknown", ""],
  ]);
  noteStep(context, states.slice(0, 1), "sync");
  assert.deepEqual(rows[2], ["a", "sync", "unknown", ""]);
  assert.deepEqual(states[0]?.last, { action: "sync", outcome: "unknown", reason: "" });
});

const SICK = { grade: "failed", message: "it broke" } as const;
const begun = (action: string) => ({ last: { action, outcome: "unknown", reason: "" } as const });

const ENDS: [what: string, action: string, state: Partial<AllocationState>, noted: string[] | undefined][] = [
  ["nothing has begun", "restart", {}, undefined],
  ["it was done", "restart", { done: true }, ["restart", "changed", ""]],
  ["an open gate was passed", "skip", { passedGate: true }, ["gate", "ok", ""]],
  ["it failed before anything began", "restart", { trouble: SICK }, ["restart", "failed", "it broke"]],
  ["its open gate failed", "skip", { trouble: SICK }, ["gate", "failed", "it broke"]],
  ["it failed while it went on", "restart", { trouble: SICK, ...begun("sync") }, ["sync", "failed", "it broke"]],
  ["it failed after all", "restart", { trouble: SICK, done: true, ...begun("gate") }, ["gate", "failed", "it broke"]],
  ["the release before is back", "restart", { isBack: true, trouble: SICK, done: true }, ["restored", "failed", "it broke"]],
  ["its files are back", "restart", { isBack: true, done: true }, ["restore", "changed", ""]],
  ["it was synced", "restart", { isSynced: true, ...begun("sync") }, ["sync", "changed", ""]],
  ["a target begins behind the sync", "restart", { isSynced: true, ...begun("restart") }, undefined],
  ["the sync goes on", "restart", begun("sync"), undefined],
];
for (const [what, action, state, noted] of ENDS)
  test(`at the end of a step, where ${what}, ${noted ? noted.join(" ") : "nothing"} is noted`, () => {
    const { context, rows } = noting();
    const states = [stateOf(action, state)];
    for (let round = 0; round < 2; round++) noteEnds(context, states);
    assert.deepEqual(rows, noted ? [["a", ...noted]] : []);
  });

test("what nobody knows the end of is noted as cancelled in a run that was cancelled", () => {
  const { context, rows } = noting(AbortSignal.abort());
  noteEnds(context, [stateOf("restart", begun("restart")), stateOf("start", { done: true }), stateOf("start")]);
  assert.deepEqual(rows, [
    ["a", "restart", "cancelled", ""],
    ["a", "start", "changed", ""],
  ]);
});
