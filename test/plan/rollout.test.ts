import assert from "node:assert/strict";
import { test } from "node:test";
import type { Action } from "../../lib/plan/changes.ts";
import {
  allocationIndex,
  PASSES,
  type PassKind,
  type Peer,
  passBatches,
  passWorkers,
  rolloutBatches,
  rolloutOrder,
  rolloutPhases,
} from "../../lib/plan/rollout.ts";

test("HR-009 HR-010 T-37 the KV order counts when it names every worker of the set, else catalog order does", () => {
  const cases: [kv: string | undefined, workers: string[], expected: string[], source: "kv" | "default"][] = [
    [undefined, ["a", "b"], ["a", "b"], "default"],
    ["", ["a", "b"], ["a", "b"], "default"],
    ["b,a", ["a", "b"], ["b", "a"], "kv"],
    [" b , a ", ["a", "b"], ["b", "a"], "kv"],
    ["c,b,a", ["a", "b"], ["b", "a"], "kv"],
    ["b", ["a", "b"], ["a", "b"], "default"],
    ["b,c", ["a", "b"], ["a", "b"], "default"],
    ["b,a,b", ["a", "b"], ["b", "a"], "kv"],
    ["a,b", [], [], "default"],
  ];
  for (const [kv, workers, expected, source] of cases)
    assert.deepEqual(rolloutOrder(kv, workers), { workers: expected, source }, `${kv} of ${workers}`);
});

test("HR-011 HR-045 HR-149 HR-150 HR-152 workers are split in rollout order; width 0 means one batch", () => {
  const cases: [kv: string, workers: string, width: number, expected: string[]][] = [
    ["", "a,b,c,d,e", 2, ["a,b", "c,d", "e"]],
    ["e,d,c,b,a", "a,b,c,d,e", 2, ["e,d", "c,b", "a"]],
    ["", "a,b,c,d", 0, ["a,b,c,d"]],
    ["c,b,a", "a,c", 1, ["c", "a"]],
    ["", "", 1, []],
  ];
  for (const [kv, workers, width, expected] of cases) {
    const given = rolloutBatches(kv, workers === "" ? [] : workers.split(","), width);
    assert.deepEqual(
      given.map((batch) => batch.workers.join(",")),
      expected,
    );
    for (const [index, batch] of given.entries()) {
      assert.deepEqual([batch.index, batch.count], [index, expected.length]);
      assert.equal(batch.order.workers.join(","), expected.join(","), "every batch tells the whole order");
      assert.equal(batch.order.source, kv === "" ? "default" : "kv");
    }
  }
});

/** `b` is disabled, `c` was removed. */
const PEERS: Peer[] = ["a", "b", "c", "d"].map((worker) => ({ worker, disabled: worker === "b", removed: worker === "c" }));

test("HR-048 HR-049 HR-050 HR-051 HR-052 HR-053 HR-054 HR-056 HR-057 which workers each pass is for", () => {
  const cases: Record<PassKind, [all: string, ofBCD: string]> = {
    post_build: ["a,b,d", "b,d"],
    pre_deploy: ["a,b,d", "b,d"],
    post_deploy: ["a,b,d", "b,d"],
    cli: ["a,b,d", "b,d"],
    health_check: ["a,b,d", "b,d"],
    deploy_control: ["a,b,d", "b,d"],
    command_control: ["a,d", "d"],
    started: ["a,b,d", "b,d"],
    updated: ["a,b,d", "b,d"],
    stopped: ["a,b,c,d", "b,c,d"],
  };
  for (const [kind, expected] of Object.entries(cases) as [PassKind, string[]][])
    assert.deepEqual([passWorkers(kind, PEERS), passWorkers(kind, PEERS, ["d", "c", "b"])].map(String), expected, kind);
});

test("HR-044 HR-046 HR-154 the label and the width of each pass", () => {
  const job = { maxConcurrentStarts: 3, maxConcurrentUpgrades: 1 };
  const peers = ["a", "b", "c"].map((worker) => ({ worker, disabled: false, removed: false }));
  const table = Object.entries(PASSES).map(([kind, { event, phase }]) => [
    ...[kind, event, phase, passBatches({ kind: kind as PassKind }, job, peers, undefined).length],
  ]);
  assert.deepEqual(table, [
    ["post_build", "post_build", "post_build", 3],
    ["pre_deploy", "pre_deploy", "pre_deploy", 3],
    ["post_deploy", "post_deploy", "post_deploy", 3],
    ["cli", "cli", "cli", 3],
    ["health_check", "health_check", "health_check", 3],
    ["deploy_control", "job_control", "job_control", 3],
    ["command_control", "job_control", "job_control", 3],
    ["started", "after_allocation_started", "new", 1],
    ["updated", "after_allocation_started", "update", 3],
    ["stopped", "after_allocation_stopped", "stop", 3],
  ]);
});

test("HR-131 the index of an allocation counts the peers that are not removed; removed ones follow", () => {
  assert.deepEqual(
    ["a", "b", "d", "c"].map((worker) => allocationIndex(PEERS, worker)),
    [0, 1, 2, 3],
  );
});

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
  assert.deepEqual(phases(mixed, false, "g,f,e,d,b,a"), ["new start: e+d b", "update reload: f", "update restart: g a"]);
  assert.deepEqual(phases({ a: "restart", b: "skip" }), ["update restart: a"]);
  assert.deepEqual(phases({ a: "reload", b: "skip" }), ["update reload: a"]);
  assert.deepEqual(phases({ a: "skip", b: "sync", c: "promote" }), []);
});

test("hooks for job_control have one phase over all workers, where one of them would run a target", () => {
  assert.deepEqual(phases({ a: "skip", b: "start", c: "sync" }, true), ["job_control job_control: a b c"]);
  assert.deepEqual(phases({ a: "skip", b: "sync" }, true), []);
});
