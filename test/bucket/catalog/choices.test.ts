import assert from "node:assert/strict";
import { test } from "node:test";
import type { CatalogAllocation, CatalogJob, CatalogWorker } from "../../../lib/bucket/base/model.ts";
import { allocationsNamed, jobOfHook, jobsNamed, selectWorkers } from "../../../lib/bucket/catalog/choices.ts";

const job = (name: string, hooks: Record<string, string[]>) =>
  ({ name, hooks: Object.entries(hooks).map(([hook, events]) => ({ name: hook, events })) }) as unknown as CatalogJob;

const JOBS = [
  job("api", { status: ["cli"], only: ["cli"], prepare: ["pre_deploy"] }),
  job("redis", { status: ["cli", "post_deploy"] }),
  job("web", {}),
];

const CHOSEN: [hook: string, job: string | undefined, expected: string][] = [
  ["only", undefined, "api"],
  ["ONLY", "API", "api"],
  ["status", "redis", "redis"],
];

const REFUSED: [hook: string, job: string | undefined, message: RegExp, code?: string][] = [
  ["status", undefined, /^Cannot run hook status: name one of the jobs that have it: api, redis$/, "invalid_request"],
  ["status", "web", /^Cannot run hook status: job web has no such hook for cli$/],
  ["status", "redys", /^Cannot run hook status: there is no job "redys"; did you mean "redis"\?$/],
  ["prepare", undefined, /^Cannot run hook prepare: no job has such a hook for cli$/],
  ["prepare", "api", /^Cannot run hook prepare: job api has no such hook for cli$/],
];

for (const [hook, name, expected] of CHOSEN)
  test(`HR-051 the job of hook ${hook} of ${name ?? "no named job"} is ${expected}`, () =>
    assert.equal(jobOfHook(JOBS, hook, name).name, expected));

for (const [hook, name, message, code = "unknown_name"] of REFUSED)
  test(`HR-051 hook ${hook} of ${name ?? "no named job"} is refused as ${code}`, () =>
    assert.throws(
      () => jobOfHook(JOBS, hook, name),
      (error: { code?: string; message: string; details?: object[] }) => {
        assert.equal(error.code, code);
        assert.match(error.message, message);
        const path = /no job "/.test(error.message) ? "job" : "hook";
        assert.deepEqual(error.details, code === "unknown_name" ? [{ path, message: error.message }] : undefined);
        return true;
      },
    ));

test("jobs are named in any case and come in the order of the catalog; all of them where none is named", () => {
  const named = (names?: string[]) => jobsNamed(JOBS, names).map(({ name }) => name);
  assert.deepEqual([named(), named([]), named(["WEB", " api "])], [["api", "redis", "web"], [], ["api", "web"]]);
  assert.notEqual(jobsNamed(JOBS, undefined), JOBS, "a list of its own");
  assert.throws(() => named(["api", "wep"]), {
    code: "unknown_name",
    message: 'in the catalog there is no job "wep"; did you mean "web"?',
    details: [{ path: "jobs/1", message: 'in the catalog there is no job "wep"; did you mean "web"?' }],
  });
});

const allocation = (name: string, worker: string, removed = false) => ({ job: name, worker, removed }) as CatalogAllocation;

test("allocations are named by their worker, or by job and worker, and removed ones by nothing", () => {
  const all = [allocation("api", "A"), allocation("api", "b"), allocation("redis", "A"), allocation("web", "c", true)];
  const named = (jobs: CatalogJob[], workers?: string[]) =>
    allocationsNamed(all, jobs, workers, "allocations").map(({ job: of, worker }) => `${of}@${worker}`);
  assert.deepEqual(named(JOBS), ["api@A", "api@b", "redis@A"]);
  assert.deepEqual(named(JOBS, ["a"]), ["api@A", "redis@A"]);
  assert.deepEqual(named(JOBS, ["API@a", "b"]), ["api@A", "api@b"]);
  assert.deepEqual(named(JOBS, []), []);
  for (const [jobs, name] of [
    [JOBS.slice(0, 1), "redis@a"],
    [JOBS, "web@c"],
    [JOBS, "c"],
  ] as [CatalogJob[], string][])
    assert.throws(
      () => named(jobs, ["b", name]),
      (error: { code?: string; message: string; details?: { path: string }[] }) => {
        assert.deepEqual([error.code, error.details?.map(({ path }) => path)], ["unknown_name", ["allocations/1"]]);
        assert.ok(
          error.message.startsWith(`of ${jobs.map((one) => one.name).join(", ")} there is no allocation on worker "${name}"`),
        );
        return true;
      },
    );
});

test("workers are chosen by their names, also removed ones, or by labels of those that are present", () => {
  const worker = (host: string, labels: string[], removed = false) => ({ host, labels, removed }) as CatalogWorker;
  const all = [worker("B", ["web", "worker"]), worker("a", ["db", "worker"]), worker("gone", ["old", "worker"], true)];
  const chosen = (of: Parameters<typeof selectWorkers>[1]) => selectWorkers(all, of).map(({ host }) => host);
  assert.deepEqual([chosen({}), chosen({ workers: ["gone", "b"] }), chosen({ workers: [] })], [["B", "a"], ["B", "gone"], []]);
  assert.deepEqual(
    [chosen({ labels: ["WORKER"] }), chosen({ labels: ["db", "web"] })],
    [
      ["B", "a"],
      ["B", "a"],
    ],
  );
  assert.deepEqual([chosen({ labels: ["db"] }), chosen({ labels: [] })], [["a"], []]);
  assert.throws(() => chosen({ workers: ["a"], labels: ["db"] }), { code: "usage", message: "give workers or labels, not both" });
  const unknown =
    (path: string, message: RegExp) => (error: { code?: string; message: string; details?: { path: string }[] }) => {
      assert.deepEqual([error.code, error.details?.map((one) => one.path)], ["unknown_name", [`${path}/0`]]);
      assert.match(error.message, message);
      return true;
    };
  assert.throws(() => chosen({ workers: ["web"] }), unknown("workers", /^in the catalog there is no worker "web"/));
  assert.throws(() => chosen({ labels: ["a"] }), unknown("labels", /^in the catalog there is no label "a"/));
  assert.throws(() => chosen({ labels: ["old"] }), unknown("labels", /^in the catalog there is no label "old"/));
});
