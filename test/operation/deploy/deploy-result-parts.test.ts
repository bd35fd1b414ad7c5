import assert from "node:assert/strict";
import { test } from "node:test";
import type { CatalogAllocation } from "../../../lib/bucket/base/model.ts";
import {
  allocationResult,
  concludeDeploy,
  type DeployResult,
  deployResult,
  describeResult,
  leftOut,
} from "../../../lib/operation/deploy/deploy-result.ts";
import type { AllocationState } from "../../../lib/operation/plan/rollout-state.ts";

test("allocations of a job that was not rolled out were not started, are disabled, or have an error", () => {
  const allocations = [
    { worker: "a", disabled: false },
    { worker: "b", disabled: true },
    { worker: "c", disabled: true },
  ] as CatalogAllocation[];
  const left = { action: null, error: null };
  assert.deepEqual(leftOut(allocations, new Map([["c", "no"]])), [
    { worker: "a", ...left, outcome: "not_started" },
    { worker: "b", ...left, outcome: "disabled" },
    { worker: "c", action: null, outcome: "failed", error: "no" },
  ]);
  assert.deepEqual(leftOut(allocations.slice(0, 1)), [{ worker: "a", ...left, outcome: "not_started" }]);
});

test("the result of an allocation has its action, how far it came, and what was found where it failed", () => {
  const state = (more: Partial<AllocationState>, plan: object = {}) =>
    ({
      plan: { allocation: { worker: "a", disabled: false }, decision: { action: "restart", reason: "why" }, ...plan },
      ...{ done: false, passedGate: false, ...more },
    }) as unknown as AllocationState;
  const result = { worker: "a", action: "restart", error: null };
  assert.deepEqual(allocationResult(state({ done: true })), { ...result, outcome: "changed" });
  assert.deepEqual(allocationResult(state({}, { differs: [] })), { ...result, outcome: "not_started" });
  const evidence = { logs: [], status: null, errors: [] };
  const trouble = { grade: "failed", message: "it broke", evidence } as const;
  assert.deepEqual(allocationResult(state({ trouble })), { ...result, outcome: "failed", error: "it broke", evidence });
  const { evidence: _, ...plain } = trouble;
  assert.deepEqual(allocationResult(state({ trouble: plain })), { ...result, outcome: "failed", error: "it broke" });
  const left = { differs: [{ path: "x" }], decision: { action: "skip", reason: "1 file differs" } };
  assert.deepEqual(allocationResult(state({}, left)), {
    ...result,
    action: "leave",
    outcome: "skipped",
    reason: "1 file differs",
  });
});

const job = (name: string, outcome: string, allocations: Record<string, string>, reason = "") => ({
  ...{ job: name, wave: 0, outcome, reason, duration_ms: 1 },
  allocations: Object.entries(allocations).map(([worker, one]) => ({ worker, action: null, outcome: one, error: null })),
});
const reconciled = (name: string, worker: string, outcome: string, error: string | null = null) => {
  return { job: name, worker, action: "stop", outcome, error };
};

function resultOf(jobs: object[], others: object[] = [], more: object = {}): DeployResult {
  return deployResult({ jobs, reconciled: others, waves: [], steps: [], update_seq: 3, ...more } as never);
}

test("a result counts each allocation once, and each worker by its worst outcome", () => {
  const jobs = [
    job("web", "deployed", { a: "changed", b: "disabled" }),
    job("db", "failed", { a: "failed", c: "skipped" }),
    job("api", "not_started", { c: "not_started" }),
  ];
  const result = resultOf(jobs, [reconciled("web", "b", "changed"), reconciled("old", "d", "changed")]);
  assert.deepEqual(result.workers, [
    { worker: "a", outcome: "failed" },
    { worker: "b", outcome: "changed" },
    { worker: "c", outcome: "not_started" },
    { worker: "d", outcome: "changed" },
  ]);
  const none = { failed: 0, unreachable: 0, cancelled: 0, not_started: 0, changed: 0, ok: 0, skipped: 0, disabled: 0 };
  assert.deepEqual(result.summary, {
    allocations: { ...none, failed: 1, not_started: 1, changed: 3, skipped: 1 },
    workers: { ...none, failed: 1, not_started: 1, changed: 2 },
  });
  assert.deepEqual([result.jobs, result.reconciled.length, result.update_seq], [jobs, 2, 3]);
  assert.deepEqual(describeResult(result), [
    "jobs: 1 deployed, 0 skipped, 1 failed, 1 not started",
    "workers: 2 changed, 1 not started, 1 failed; allocations: 1 skipped, 3 changed, 1 not started, 1 failed",
  ]);
});

test("a deploy is not complete where a job failed or something could not be stopped; what is left down is told with it", () => {
  const down = { left_down: ["web@a: not started again", "web@b: not started again"] };
  const well = resultOf([job("web", "deployed", {}), job("db", "skipped", {}), job("api", "not_started", {})], [], down);
  assert.equal(concludeDeploy(well), well);
  const jobs = [job("web", "failed", {}, "no disk"), job("db", "deployed", {})];
  assert.throws(() => concludeDeploy(resultOf(jobs)), { message: "the deploy is not complete: web: no disk" });
  const bad = resultOf(jobs, [reconciled("old", "c", "failed", "it failed:\nerror: b"), reconciled("old", "d", "changed")], down);
  const message = "the deploy is not complete: web: no disk; old@c: it failed: error: b; web@a, web@b: not started again";
  assert.throws(() => concludeDeploy(bad), { code: "failed", message, details: bad });
});
