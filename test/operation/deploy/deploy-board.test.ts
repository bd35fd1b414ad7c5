import assert from "node:assert/strict";
import { test } from "node:test";
import type { CatalogJob } from "../../../lib/bucket/base/model.ts";
import { Redactor } from "../../../lib/core/redact.ts";
import { DeployBoard, wavesOfResults } from "../../../lib/operation/deploy/deploy-board.ts";
import type { JobResult } from "../../../lib/operation/deploy/deploy-result.ts";
import type { DeployScope, JobPlan } from "../../../lib/operation/plan/plan-job.ts";
import { rolloutOf } from "../../../lib/operation/plan/rollout-state.ts";

/** A deploy of jobs with the number of their wave, each on three workers, of which the second is disabled. */
function board(waves: Record<string, number>) {
  const jobs = Object.entries(waves).map(([name, deploymentSeq]) => ({ name, deploymentSeq }) as CatalogJob);
  const three = (job: string) => ["w0", "w1", "w2"].map((worker) => ({ job, worker, disabled: worker === "w1" }));
  const present = new Map(jobs.map(({ name }) => [name, three(name)]));
  const redactor = new Redactor();
  redactor.add("correct-horse");
  const made = new DeployBoard({ jobs, present } as unknown as DeployScope, redactor);
  const settle = (name: string, outcome: JobResult["outcome"], outcomes: string[], reason = "") => {
    const allocations = outcomes.map((one) => ({ worker: "w", action: null, outcome: one, error: null }));
    const how = { outcome, reason, duration_ms: 7, allocations } as unknown as Omit<JobResult, "job" | "wave">;
    made.settle(jobs.find((job) => job.name === name) as CatalogJob, how);
  };
  return { made, settle };
}

test("the progress of a deploy has each job's state and each wave's count, from the start to the end", (t) => {
  let now = 1_000;
  t.mock.method(performance, "now", () => now);
  const { made, settle } = board({ late: 1, db: 0, web: 0, sick: 1, cut: 1 });
  const states = () => made.progress().jobs.map(({ job, state }) => `${job} ${state}`);
  assert.deepEqual(states(), ["db waiting", "web waiting", "late waiting", "sick waiting", "cut waiting"]);
  const decision = { action: "start", reason: "" };
  const allocations = ["w0", "w1"].map((worker) => ({ allocation: { worker, disabled: worker === "w1" }, decision }));
  const rollout = rolloutOf({ job: { name: "web" }, allocations, phases: [] } as unknown as JobPlan);
  made.begin(rollout);
  const none = { failed: 0, unreachable: 0, running: 0, changed: 0, waiting: 0, skipped: 0, cancelled: 0, disabled: 0 };
  assert.deepEqual(made.progress().counts, { ...none, waiting: 9, disabled: 5 });
  for (const state of rollout.states) state.now = "running";
  assert.deepEqual(made.progress().counts, { ...none, running: 2, waiting: 8, disabled: 4 });
  now += 250.4;
  const { rollouts, jobs: during } = made.progress();
  assert.deepEqual(during.slice(0, 2), [
    { job: "db", wave: 0, state: "waiting", reason: "", duration_ms: null },
    { job: "web", wave: 0, state: "running", reason: "", duration_ms: 250 },
  ]);
  assert.deepEqual(
    rollouts.map(({ job, running }) => `${job} ${running}`),
    ["web 2"],
  );
  assert.equal(made.end(rollout), 250);
  settle("web", "deployed", ["changed", "ok"]);
  settle("db", "deployed", ["ok", "disabled"], "already promoted");
  settle("sick", "failed", ["failed", "not_started"], `correct-horse ${"x".repeat(300)}`);
  settle("cut", "cancelled", ["cancelled", "unreachable"], "cut");
  const { jobs, waves, counts } = made.progress();
  assert.deepEqual(states(), ["db ok", "web changed", "late waiting", "sick failed", "cut cancelled"]);
  const zero = { done: 0, failed: 0, cancelled: 0, running: 0, not_started: 0 };
  assert.deepEqual(waves, [
    { wave: 0, jobs: 2, ...zero, done: 2 },
    { wave: 1, jobs: 3, ...zero, failed: 1, cancelled: 1, not_started: 1 },
  ]);
  assert.deepEqual(counts, {
    failed: 1,
    unreachable: 1,
    running: 0,
    changed: 1,
    waiting: 3,
    skipped: 2,
    cancelled: 1,
    disabled: 2,
  });
  assert.equal(jobs[3]?.reason, `*** ${"x".repeat(196)}`);
  assert.deepEqual([jobs[0]?.duration_ms, jobs[0]?.reason, jobs[2]?.duration_ms, made.done], [7, "", null, 4]);
});

test("the results are by wave, and a job that the deploy did not come to was not started", () => {
  const { made, settle } = board({ late: 1, db: 0 });
  settle("db", "skipped", ["skipped"], "already promoted");
  const results = made.results();
  assert.deepEqual(
    results.map(({ job, wave, outcome, reason }) => [job, wave, outcome, reason]),
    [
      ["db", 0, "skipped", "already promoted"],
      ["late", 1, "not_started", "not started: the deploy ended before"],
    ],
  );
  assert.deepEqual(
    results[1]?.allocations.map(({ worker, outcome }) => `${worker} ${outcome}`),
    ["w0 not_started", "w1 disabled", "w2 not_started"],
  );
  assert.equal(results[1]?.duration_ms, 0);
  assert.deepEqual(Object.keys(results[0] ?? {}), ["job", "wave", "outcome", "reason", "duration_ms", "allocations"]);
  assert.deepEqual(
    wavesOfResults(results).map(({ wave, done, not_started }) => [wave, done, not_started]),
    [
      [0, 1, 0],
      [1, 0, 1],
    ],
  );
});

test("progress names the first 1,000 jobs and counts all", () => {
  const { made } = board(Object.fromEntries(Array.from({ length: 1_001 }, (_, index) => [`j${index}`, 0])));
  const { jobs, waves } = made.progress();
  assert.deepEqual([jobs.length, jobs.at(-1)?.job, waves[0]?.jobs], [1_000, "j999", 1_001]);
});
