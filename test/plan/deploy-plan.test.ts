import assert from "node:assert/strict";
import { test } from "node:test";
import { plannedFiles } from "../../lib/plan/deploy-plan.ts";

test("what differs between two trees, with both sides", () => {
  assert.deepEqual(
    plannedFiles({ a: "644:1", b: "644:1", c: "644:1" }, { b: "755:1", c: "644:1", d: "644:2" }),
    [
      { path: "a", change: "removed", from: "644:1", to: null },
      { path: "b", change: "changed", from: "644:1", to: "755:1" },
      { path: "d", change: "added", from: null, to: "644:2" },
    ],
  );
});
