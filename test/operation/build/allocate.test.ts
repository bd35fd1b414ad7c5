import assert from "node:assert/strict";
import { test } from "node:test";
import type { CatalogAllocation } from "../../../lib/bucket/base/model.ts";
import { Problems } from "../../../lib/bucket/base/problems.ts";
import { allocate, checkCapacity, checkCounts, enabledAgain } from "../../../lib/operation/build/allocate.ts";

const NONE = { workers: new Set<string>(), jobs: new Map<string, "all" | ReadonlySet<string>>() };
const WORKERS = [
  { host: "w2", labels: ["worker", "a"] },
  { host: "w1", labels: ["worker", "b"] },
];
const WEB = { name: "web", selectors: ["worker"], deploymentSeq: 0, newVersion: "1" };

function placed(input: Partial<Parameters<typeof allocate>[0]>): CatalogAllocation[] {
  const bucketId = "0190a5e8-0000-7000-8000-000000000002";
  return allocate({ bucketId, workers: WORKERS, jobs: [WEB], disabled: NONE, previous: [], ...input } as never);
}

const told = (all: readonly CatalogAllocation[]) =>
  all.map(({ job, worker, disabled, removed }) => `${job}@${worker}${disabled ? " disabled" : ""}${removed ? " removed" : ""}`);

test("a job is placed on the workers that carry all its selectors, in their order", () => {
  const jobs = [WEB, { ...WEB, name: "a", selectors: ["a", "worker"] }, { ...WEB, name: "both", selectors: ["a", "b"] }];
  assert.deepEqual(told(placed({ jobs })), ["web@w2", "web@w1", "a@w2"]);
});

test("an allocation keeps its id, and is the same object as long as nothing of it changes", () => {
  const previous = placed({});
  const again = placed({ previous });
  assert.deepEqual(
    again.map((one, index) => one === previous[index]),
    [true, true],
  );
  for (const change of [{ newVersion: "2" }, { deploymentSeq: 1 }]) {
    const now = placed({ previous, jobs: [{ ...WEB, ...change }] });
    assert.deepEqual(
      now,
      previous.map((one) => ({ ...one, ...change })),
    );
  }
});

test("what no longer matches stays as removed with its version, in the wave of its job while there is one", () => {
  const previous = placed({ jobs: [WEB, { ...WEB, name: "db", deploymentSeq: 1 }] });
  const now = placed({ previous, workers: WORKERS.slice(0, 1), jobs: [{ ...WEB, deploymentSeq: 2, newVersion: "2" }] });
  assert.deepEqual(told(now), ["web@w2", "web@w1 removed", "db@w2 removed", "db@w1 removed"]);
  assert.deepEqual(
    now.map(({ deploymentSeq, newVersion }) => [deploymentSeq, newVersion]),
    [
      [2, "2"],
      [2, "1"],
      [1, "1"],
      [1, "1"],
    ],
  );
  assert.equal(placed({ previous: now, workers: WORKERS.slice(0, 1), jobs: [{ ...WEB, deploymentSeq: 2 }] })[1], now[1]);
});

test("a worker, a job or a job on a worker may be disabled; what was disabled and is active now is enabled again", () => {
  const jobs = [WEB, { ...WEB, name: "db" }];
  const disabled = { workers: new Set(["w1"]), jobs: new Map([["db", "all" as const]]) };
  const before = placed({ jobs, disabled });
  assert.deepEqual(told(before), ["web@w2", "web@w1 disabled", "db@w2 disabled", "db@w1 disabled"]);
  const one = { workers: new Set<string>(), jobs: new Map([["db", new Set(["w1"])]]) };
  const now = placed({ jobs, disabled: one, previous: before });
  assert.deepEqual(told(now), ["web@w2", "web@w1", "db@w2", "db@w1 disabled"]);
  assert.deepEqual(told(enabledAgain(before, now)), ["web@w1", "db@w2"]);
  const gone = placed({ jobs: [WEB], previous: before });
  const moved = placed({ jobs, workers: WORKERS.slice(0, 1), previous: before, disabled: one });
  assert.deepEqual(told(moved), ["web@w2", "db@w2", "web@w1 removed", "db@w1 disabled removed"], "of what is removed, too");
  assert.deepEqual(told(enabledAgain(before, gone)), ["web@w1"], "what is removed is not enabled");
});

test("a job with fewer workers than it needs is an error, one with none a warning", () => {
  const found = (least: number, allocations = placed({})) => {
    const problems = new Problems();
    const manifest = { selectors: ["worker", "x"], minAllocationsCount: least };
    checkCounts([{ name: "web", file: "m.json", manifest }] as never, allocations, problems);
    return [...problems.errors, ...problems.warnings].map(({ path, message }) => `${path}: ${message}`);
  };
  assert.deepEqual([found(0), found(2)], [[], []]);
  const rule = "with the labels worker, x";
  assert.deepEqual(found(3), [`min_allocations_count: needs 3 workers ${rule}, but there are 2`]);
  const removed = placed({ previous: placed({}), workers: WORKERS.slice(0, 1) });
  assert.deepEqual(found(2, removed), [`min_allocations_count: needs 2 workers ${rule}, but there are 1`]);
  assert.deepEqual(found(1, []), [`min_allocations_count: needs 1 worker ${rule}, but there are 0`]);
  assert.deepEqual(found(0, []), [`selectors: the job runs nowhere: there is no worker ${rule}`]);
});

test("the active jobs of a worker may reserve all that it has, and not more", () => {
  const jobs = ["web", "db"].map((name) => ({ ...WEB, name }));
  const reserving = (memory: number, cpu: number) =>
    jobs.map(({ name }) => ({ name, memory: { current: memory }, cpu: { current: cpu } }));
  const found = (memory: number, cpu: number, allocations = placed({ jobs })) => {
    const problems = new Problems();
    const workers = [
      { host: "w2", memoryMb: 10, cpuMhz: 0 },
      { host: "w1", memoryMb: 100, cpuMhz: 100 },
    ];
    checkCapacity(workers as never, reserving(memory, cpu) as never, allocations, problems);
    return problems.errors.map(({ code, path, message }) => `${code} ${path}: ${message}`);
  };
  assert.deepEqual(found(5, 0), []);
  const code = "ErrInsufficientResource w2: active jobs reserve";
  assert.deepEqual(found(5.25, 0), [`${code} 10.5 mb of memory, but the worker has 10 mb`]);
  assert.deepEqual(found(0, 1), [`${code} 2 mhz of cpu, but the worker declares none`]);
  assert.deepEqual(found(6, 0, placed({ jobs, disabled: { ...NONE, jobs: new Map([["db", "all"]]) } })), []);
});
