import assert from "node:assert/strict";
import { test } from "node:test";
import { inOrder, rolloutOrder } from "../../lib/plan/rollout.ts";

test("HR-009 HR-010 the KV order counts when it names every worker of the set, else catalog order does", () => {
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

test("things are sorted by their worker's place, those of unknown workers last and otherwise as they were", () => {
  const order = rolloutOrder("c,a", ["a", "c"]);
  assert.deepEqual(
    inOrder(order, ["x", "a", "y", "c"], (host) => host),
    ["c", "a", "x", "y"],
  );
});
