import assert from "node:assert/strict";
import { test } from "node:test";
import {
  abridged,
  type DeployPlan,
  type PlannedAllocation,
  planDifferences,
  plannedFiles,
  plannedPhases,
} from "../../lib/plan/deploy-plan.ts";
import { rolloutPhases } from "../../lib/plan/rollout.ts";

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
  const plan = { build_seq: 4, waves: [{ seq: 0, jobs: [{ job: "web", allocations }] }] } as unknown as DeployPlan;
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
  const shortened = { ...allocations[2], files: [], more_files: 1 };
  const jobs = [{ job: "web", allocations: [...allocations.slice(0, 2), shortened, allocations[3]] }];
  assert.deepEqual(abridged(plan, 4), { build_seq: 4, waves: [{ seq: 0, jobs }] }, "all else stays");
});

test("planned phases are those of the rollout, by the names of their workers", () => {
  const job = { hasOwnControl: false, maxConcurrentStarts: 2, maxConcurrentUpgrades: 1 };
  const allocations = ["a", "b", "c"].map((worker) => ({ worker, action: worker === "c" ? "restart" : "start" }) as const);
  assert.deepEqual(plannedPhases(rolloutPhases(job, allocations, undefined)), [
    { phase: "new", action: "start", batches: [["a", "b"]] },
    { phase: "update", action: "restart", batches: [["c"]] },
  ]);
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
