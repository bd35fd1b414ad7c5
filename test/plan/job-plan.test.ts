import assert from "node:assert/strict";
import { test } from "node:test";
import type { Action } from "../../lib/plan/changes.ts";
import { rolloutPhases } from "../../lib/plan/job-plan.ts";

const WIDTHS = { maxConcurrentStarts: 2, maxConcurrentUpgrades: 1 };

function phases(actions: Record<string, Action>, hasOwnControl = false, order?: string): string[] {
  const allocations = Object.entries(actions).map(([worker, action]) => ({ worker, action }));
  return rolloutPhases({ ...WIDTHS, hasOwnControl }, allocations, order).map(
    ({ phase, action, batches }) => `${phase} ${action}: ${batches.map(({ workers }) => workers.join("+")).join(" ")}`,
  );
}

test("HR-117 HR-118 starts, then reloads, then restarts, each in batches of its width; what runs nothing has no phase", () => {
  const mixed: Record<string, Action> = {
    a: "restart",
    b: "start",
    c: "skip",
    d: "start",
    e: "start",
    f: "reload",
    g: "restart",
  };
  assert.deepEqual(phases(mixed), ["new start: b+d e", "update reload: f", "update restart: a g"]);
  assert.deepEqual(phases(mixed, false, "g,f,e,d,b,a"), [
    "new start: e+d b",
    "update reload: f",
    "update restart: g a",
  ]);
  assert.deepEqual(phases({ a: "skip", b: "sync", c: "promote" }), []);
});

test("hooks for job_control have one phase over all workers, where one of them would run a target", () => {
  assert.deepEqual(phases({ a: "skip", b: "start", c: "sync" }, true), ["job_control job_control: a b c"]);
  assert.deepEqual(phases({ a: "skip", b: "sync" }, true), []);
});
