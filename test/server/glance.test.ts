import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import type { HealthChange } from "../../lib/bucket/health/health-history.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { Drifts, firstDrifted, recentRuns } from "../../lib/server/glance.ts";
import type { RunInShort, RunList } from "../../lib/server/run-list.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const LAYOUT = layoutOf("/nowhere");

function run(id: string, kind: string, status = "succeeded", more: Partial<RunInShort> = {}): RunInShort {
  const times = { created_at: `begun ${id}`, finished_at: `ended ${id}`, duration_ms: 1_000 };
  const sort = { kind, status } as Pick<RunInShort, "kind" | "status">;
  return { id, ...sort, ...times, dry_run: false, whole: true, plan: null, ...more };
}

/** What an overview tells of these runs, newest first. */
async function overview(...runs: RunInShort[]) {
  const list = {
    async *inShort() {
      yield* runs;
    },
  };
  return await recentRuns(list as unknown as RunList, LAYOUT);
}

const shown = ({ id, kind, status, created_at, finished_at, dry_run }: RunInShort) => {
  return { id, kind, status, created_at, finished_at, dry_run };
};

test("an overview without runs tells of none", async () => {
  const none = { active_run: null, last_run: null, last_deploy: null, last_success: null, last_drift: null };
  assert.deepEqual(await overview(), { ...none, recent: [], mean_deploy_ms: null });
});

test("an overview tells the newest run, deploy and success, and the newest drift run of all workers that has ended", async () => {
  const runs = [
    run("build", "build", "running"),
    run("drift now", "drift", "running"),
    run("drift of one", "drift", "failed", { whole: false }),
    run("drift", "drift", "failed"),
    run("drift before", "drift"),
    run("dry", "deploy", "succeeded", { dry_run: true }),
    run("deploy", "deploy", "failed"),
    run("success", "deploy"),
    run("push", "push"),
    run("success before", "deploy"),
  ];
  const found = await overview(...runs);
  const of = (id: string) => shown(runs.find((one) => one.id === id) as RunInShort);
  assert.deepEqual(found.active_run, of("build"));
  assert.deepEqual(found.last_run, of("build"));
  assert.deepEqual(found.last_deploy, of("deploy"));
  assert.deepEqual(found.last_success, of("success"));
  assert.deepEqual(found.last_drift, of("drift"));
  assert.deepEqual(
    found.recent.map(({ id }) => id),
    ["success before", "push", "success", "deploy", "dry"],
  );
  const { id, kind, status, duration_ms, dry_run, created_at } = runs[5] as RunInShort;
  assert.deepEqual(found.recent.at(-1), { id, kind, status, duration_ms, dry_run, created_at });
  assert.equal((await overview(run("a", "build"))).active_run, null, "a run that has ended is not active");
});

test("the strip of an overview has the newest 20 deploys and pushes, the newest last", async () => {
  const { recent } = await overview(...Array.from({ length: 21 }, (_, at) => run(`${at}`, at % 2 === 0 ? "deploy" : "push")));
  assert.deepEqual([recent.length, recent[0]?.id, recent.at(-1)?.id], [20, "19", "0"]);
});

test("the mean of deploys is of the newest 20 that deployed the whole bucket and succeeded", async () => {
  const deploy = (ms: number, more: Partial<RunInShort> = {}, status = "succeeded") =>
    run(`deploy ${ms}`, "deploy", status, { duration_ms: ms, ...more });
  const left = [
    deploy(7_000, {}, "failed"),
    deploy(8_000, { whole: false }),
    deploy(9_000, { dry_run: true }),
    deploy(10_000, { plan: "of one" }),
    run("of one", "deploy", "succeeded", { dry_run: true, whole: false }),
    run("push", "push", "succeeded", { duration_ms: 11_000 }),
  ];
  assert.equal((await overview(...left)).mean_deploy_ms, null);
  const whole = run("of all", "deploy", "succeeded", { dry_run: true });
  const two = [deploy(100, { plan: "of all" }), whole, deploy(204)];
  assert.equal((await overview(...left, ...two)).mean_deploy_ms, 152);
  const many = Array.from({ length: 20 }, () => deploy(100));
  assert.equal((await overview(...many, deploy(100_000))).mean_deploy_ms, 100);
});

/** A bucket's folder, and what writes the result of a drift run there. */
function driftRuns(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  const write = (result: unknown, id = uuidV7()) => {
    mkdirSync(runLayout(layout, id).folder, { recursive: true });
    const record = { id, kind: "drift", audit: [], status: "failed", created_at: "", finished_at: "", result };
    writeFileSync(runLayout(layout, id).record, JSON.stringify(record));
    return id;
  };
  return { layout, write };
}

const unwell = (job: string, worker: string, aspect = "files") => ({ aspect, job, worker }) as HealthChange;
const filesOf = (count: number) => Array.from({ length: count }, (_, at) => ({ path: `f${at}`, state: "changed", diff: "" }));
const workerOf = (worker: string, outcome: string, files: Record<string, number> = {}) => {
  const allocations = Object.entries(files).map(([job, count]) => ({ job, outcome, files: filesOf(count) }));
  return { worker, outcome, allocations };
};

test("of what a drift run found that is told which nothing has put right since, with the first 20 files", (t) => {
  const { layout, write } = driftRuns(t);
  const id = write({
    workers: [
      workerOf("h1", "drifted", { web: 21, idle: 0 }),
      workerOf("h2", "drifted", { web: 1 }),
      workerOf("h3", "in_sync", { web: 0 }),
      workerOf("h4", "unreachable"),
      workerOf("h5", "drifted", { web: 1 }),
    ],
  });
  const first = filesOf(20).map(({ path, state }) => ({ path, state }));
  const all = [unwell("web", "h1"), unwell("idle", "h1"), unwell("web", "h2", "health"), unwell("web", "h3")];
  assert.deepEqual(new Drifts().of(layout, id, all), {
    workers: { drifted: 1, in_sync: 3, unreachable: 1 },
    allocations: [{ job: "web", worker: "h1", files: 21, first }],
  });
  for (const result of [null, { workers: 1 }, []])
    assert.deepEqual(new Drifts().of(layout, write(result), all), { workers: {}, allocations: [] });
  assert.deepEqual(new Drifts().of(layout, uuidV7(), all), { workers: {}, allocations: [] });
});

test("the record of a drift run is read once, as long as no more than 20 are known", (t) => {
  const { layout, write } = driftRuns(t);
  const drifts = new Drifts();
  const of = (id: string) => drifts.of(layout, id, []).workers;
  const id = write({ workers: [workerOf("h1", "in_sync")] });
  assert.deepEqual(of(id), { in_sync: 1 });
  write({ workers: [] }, id);
  assert.deepEqual(of(id), { in_sync: 1 });
  for (let others = 0; others < 20; others++) of(write(null));
  assert.deepEqual(of(id), {});
});

test("an overview names the first 50 drifted allocations, as far as 5 KiB go", () => {
  const names = (count: number, job: string) => {
    const allocations = Array.from({ length: count }, (_, at) => ({ job, worker: `${at}`, files: 2, first: filesOf(1) }));
    return firstDrifted({ workers: {}, allocations });
  };
  assert.deepEqual([names(51, "web").length, names(51, "web")[49]], [50, { job: "web", worker: "49", files: 2 }]);
  assert.equal(names(9, "x".repeat(990)).length, 5);
});
