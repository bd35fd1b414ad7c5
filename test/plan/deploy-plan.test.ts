import assert from "node:assert/strict";
import { test } from "node:test";
import { abridged, type DeployPlan, type PlannedAllocation, plannedFiles } from "../../lib/plan/deploy-plan.ts";

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
