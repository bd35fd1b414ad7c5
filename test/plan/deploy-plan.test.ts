import assert from "node:assert/strict";
import { test } from "node:test";
import { abridged, type DeployPlan, type PlannedAllocation, planDifferences, plannedFiles } from "../../lib/plan/deploy-plan.ts";

test("what differs between two trees, with both sides", () => {
  assert.deepEqual(plannedFiles({ a: "644:1", b: "644:1", c: "644:1" }, { b: "755:1", c: "644:1", d: "644:2" }), [
    { path: "a", change: "removed", from: "644:1", to: null },
    { path: "b", change: "changed", from: "644:1", to: "755:1" },
    { path: "d", change: "added", from: null, to: "644:2" },
  ]);
});

test("an abridged plan has the first files of all and says of each allocation how many more there are", () => {
  const allocation = (...paths: string[]) => ({ worker: "w", files: paths.map((path) => ({ path })) });
  const allocations = [allocation("a", "b"), allocation("c", "d"), allocation("e"), allocation()];
  const plan = { waves: [{ seq: 0, jobs: [{ job: "web", allocations }] }] } as unknown as DeployPlan;
  const files = (mostFiles: number) =>
    abridged(plan, mostFiles).waves.flatMap(({ jobs }) =>
      jobs.flatMap(({ allocations }) =>
        allocations.map(({ files, more_files }: PlannedAllocation) => [files.map(({ path }) => path).join(""), more_files]),
      ),
    );
  assert.deepEqual(files(3), [
    ["ab", undefined],
    ["c", 1],
    ["", 1],
    ["", undefined],
  ]);
  assert.deepEqual(abridged(plan, 5), plan);
});

test("a deploy differs from its plan where an allocation gets another action or other files", () => {
  const file = (path: string, to: string | null) => ({ path, to });
  const on = (worker: string, action: string, ...files: object[]) => ({ worker, action, files });
  const planned = [
    on("same", "restart", file("a", "644:1"), file("b", null)),
    on("other", "skip"),
    on("files", "restart", file("a", "644:1"), file("b", null), file("c", "644:1")),
  ];
  const waves = [{ jobs: [{ job: "db", allocations: [] }] }, { jobs: [{ job: "web", allocations: planned }] }];
  const plan = { waves } as unknown as DeployPlan;
  const now = [
    on("same", "restart", file("a", "644:1"), file("b", null)),
    on("other", "restart"),
    on("files", "restart", file("a", "644:2"), file("b", "644:1"), file("d", null)),
    on("new", "start", file("a", "644:1")),
  ] as unknown as PlannedAllocation[];
  assert.deepEqual(planDifferences(plan, "web", now), [
    { job: "web", worker: "other", planned_action: "skip", action: "restart", files: [] },
    { job: "web", worker: "files", planned_action: "restart", action: "restart", files: ["a", "b", "c", "d"] },
    { job: "web", worker: "new", planned_action: "unknown", action: "start", files: ["a"] },
  ]);
});
