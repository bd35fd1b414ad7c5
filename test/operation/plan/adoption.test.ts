import assert from "node:assert/strict";
import { test } from "node:test";
import type { Trouble } from "../../../lib/operation/base/outcome.ts";
import { afterLook } from "../../../lib/operation/plan/adoption.ts";
import type { JobPlan } from "../../../lib/operation/plan/plan-job.ts";
import type { PlannedFile } from "../../../lib/plan/deploy-plan.ts";

const differing = (change: PlannedFile["change"], ...paths: string[]): PlannedFile[] =>
  paths.map((path) => ({ path, change, from: null, to: null }));

/** The plan of a job with allocations on `w0`, `w1`, … and these files, once its workers were looked at. */
function looked(actions: readonly string[], found: Record<string, PlannedFile[]>, lost: readonly string[] = []) {
  const files = ["manifest.json", "a", "b", "c", "d", "e", "f"].map((path) => ({ path }));
  const allocations = actions.map((action, index) => {
    return { allocation: { id: `w${index}`, worker: `w${index}` }, decision: { action, reason: "planned" }, tree: { files } };
  });
  const troubles = new Map(lost.map((host): [string, Trouble] => [host, { grade: "unreachable", message: "gone" }]));
  const differs = new Map(Object.entries(found));
  const plan = afterLook({ allocations, needsWork: true } as unknown as JobPlan, { differs, troubles });
  const told = plan.allocations.map(({ decision, differs: left }) => [decision.action, decision.reason, left?.length]);
  return { told, needsWork: plan.needsWork };
}

test("an allocation whose files differ is left alone and says why; the others are adopted", () => {
  const found = { w1: differing("changed", "a"), w2: differing("removed", "a", "b", "c", "d", "e", "f") };
  assert.deepEqual(looked(["adopt", "adopt", "adopt", "skip"], found), {
    told: [
      ["adopt", "planned", 0],
      ["skip", "1 file differs: a", 1],
      ["skip", "6 files differ: a, b, c, d, e and 1 more", 6],
      ["skip", "planned", 0],
    ],
    needsWork: true,
  });
});

test("where none of the files that services read is there, it says so", () => {
  const reason = (files: PlannedFile[]) => looked(["adopt"], { w0: files }).told[0]?.[1];
  assert.equal(reason(differing("added", "a", "b", "c", "d", "e", "f")), "nothing of it is there");
  assert.equal(reason(differing("added", "a", "b", "c", "d", "e")), "5 files differ: a, b, c, d, e");
});

test("a worker that could not be looked at keeps its plan; without an adoption there is nothing to do", () => {
  const files = differing("changed", "a");
  assert.deepEqual(looked(["adopt"], { w0: files }, ["w0"]), { told: [["adopt", "planned", undefined]], needsWork: true });
  assert.equal(looked(["adopt", "skip"], { w0: files }).needsWork, false);
  assert.deepEqual(
    looked(["skip"], { w0: files }, ["w0"]).told,
    [["skip", "planned", 0]],
    "what is no adoption has no differences",
  );
});
