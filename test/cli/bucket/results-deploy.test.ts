import assert from "node:assert/strict";
import { test } from "node:test";
import { deploySummary } from "../../../lib/cli/bucket/results.ts";

const allocation = (action: string | null, outcome: string) => ({ worker: "a", action, outcome, error: null });

test("the summary of a deploy counts actions and outcomes of each job; a dry run has none", () => {
  const jobs = [
    {
      job: "web",
      outcome: "failed",
      reason: "",
      duration_ms: 1234,
      allocations: [allocation("start", "changed"), allocation("start", "unreachable")],
    },
    { job: "db", outcome: "not_started", reason: "", duration_ms: 0, allocations: [allocation(null, "not_started")] },
    { job: "idle", outcome: "skipped", reason: "", duration_ms: 0, allocations: [] },
  ];
  assert.deepEqual(deploySummary({ jobs }).trim().split("\n"), [
    "job   outcome      actions  workers                   seconds",
    "web   failed       2 start  1 changed, 1 unreachable  1.2",
    "db    not started  1 none   1 not started             0.0",
    "idle  skipped      -        -                         0.0",
  ]);
  const left = "web@a: not started again";
  assert.equal(
    deploySummary({ jobs, left_down: [left] })
      .trim()
      .split("\n")
      .at(-1),
    left,
  );
  assert.equal(deploySummary({ jobs: jobs.slice(2) }).split("\n").length, 3);
  assert.equal(deploySummary({ waves: [] }), "");
  assert.equal(deploySummary(null), "");
});
