import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { runLayout } from "../../lib/bucket/base/layout.ts";
import { catalogAllocations } from "../../lib/bucket/catalog/catalog.ts";
import { planBasis, setLastOutcome } from "../../lib/bucket/catalog/info.ts";
import { noteHealth, type Observation } from "../../lib/bucket/health/health-history.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { build } from "../../lib/operation/build/build.ts";
import { runNotFound } from "../../lib/run/record.ts";
import { READS } from "../../lib/server/reads.ts";
import { makeBucket } from "../helpers/workspace.ts";

const HOSTS = ["10.0.0.1", "10.0.0.2"];
const FREEZE = { from: "2020-01-01T00:00", to: "2999-01-01T00:00", timezone: "UTC", reason: "why" };

/** A built bucket of two jobs on two workers, and what writes records of runs there. */
async function built(t: TestContext) {
  const web = { version: "1", selectors: ["worker"] };
  const files = { "workspace/schedules.json": JSON.stringify({ schedules: [], freeze: [FREEZE] }) };
  const bucket = await makeBucket(t, { workers: HOSTS, jobs: { web, api: web }, files });
  await build(bucket.context("build"), {});
  const { layout, db } = bucket;
  // Once the folder is gone, the next read closes what the reads keep open.
  t.after(async () => void (await READS.facts(layout, { limit: 1 }).catch(() => {})));
  let clock = Date.now() - 60_000;
  const record = (kind: string, status: string, more: object = {}) => {
    clock += 1_000;
    const id = uuidV7(clock);
    mkdirSync(runLayout(layout, id).folder, { recursive: true });
    const times = { created_at: new Date(clock).toISOString(), finished_at: new Date(clock + 500).toISOString() };
    const all = { id, kind, status, audit: [], params: {}, result: null, error: null, ...times, ...more };
    writeFileSync(runLayout(layout, id).record, JSON.stringify(all));
    return { ...all, log: runLayout(layout, id).activity };
  };
  const note = (...found: Partial<Observation>[]) =>
    noteHealth(
      db,
      "r",
      found.map(
        (one) => ({ job: "web", worker: "10.0.0.1", aspect: "files", state: "drifted", reason: "x", ...one }) as Observation,
      ),
    );
  return { ...bucket, record, note };
}

const drifted = (worker: string, ...paths: string[]) => {
  const files = paths.map((path) => ({ path, state: "changed", diff: null }));
  return { worker, outcome: "drifted", allocations: [{ job: "web", outcome: "drifted", files }] };
};

test("what the last drift run found is told until something puts it right, by the summary, the list, the metrics and the map", async (t) => {
  const { layout, record, note } = await built(t);
  const drift = () => READS.summary(layout, undefined).then(({ drift }) => drift);
  const seen = async () => {
    const { drifted } = await READS.glance(layout, undefined);
    const numbers = await READS.numbers(layout, undefined);
    const cells = await Promise.all(HOSTS.map((worker) => READS.cell(layout, { job: "web", worker })));
    return { glance: drifted, metric: numbers.drifted, files: cells.map(({ drift_files }) => drift_files) };
  };
  assert.equal(await drift(), null);
  assert.deepEqual(await seen(), { glance: 0, metric: null, files: [[], []] });
  const workers = [drifted("10.0.0.1", "a", "b"), drifted("10.0.0.2", "c")];
  const run = record("drift", "failed", { result: { workers } });
  note({}, { worker: "10.0.0.2" });
  assert.equal((await READS.numbers(layout, undefined)).last_drift, run.created_at);
  const files = ["a", "b"].map((path) => ({ path, state: "changed" }));
  assert.deepEqual(await seen(), { glance: 2, metric: 2, files: [files, [{ path: "c", state: "changed" }]] });
  note({ worker: "10.0.0.2", state: "in_sync" });
  assert.deepEqual(await seen(), { glance: 1, metric: 1, files: [files, []] });
  const { id, kind, status, created_at, finished_at } = run;
  assert.deepEqual(await drift(), {
    ...{ id, kind, status, created_at, finished_at, dry_run: false },
    ...{ workers: { drifted: 1, in_sync: 1 }, allocations: [{ job: "web", worker: "10.0.0.1", files: 2 }], total: 1 },
  });
  await assert.rejects(READS.cell(layout, { job: "web", worker: "10.0.0.9" }), { code: "not_found" });
});

test("a summary and the list of buckets tell the active run, the last deploy, the freezes and what there is", async (t) => {
  const { layout, record, note } = await built(t);
  const deploy = record("deploy", "succeeded");
  const running = record("build", "running");
  note({ aspect: "health", state: "unhealthy" });
  const summary = await READS.summary(layout, undefined);
  const { runs, revisions, snapshots, jobs, workers } = summary.totals as Record<string, number>;
  assert.deepEqual({ runs, revisions, snapshots, jobs, workers }, { runs: 3, revisions: 0, snapshots: 0, jobs: 2, workers: 2 });
  assert.deepEqual([summary.active_run?.id, summary.last_deploy?.id, summary.revision], [running.id, deploy.id, null]);
  assert.ok(!("last_run" in summary) && !("last_success" in summary));
  assert.deepEqual(
    [summary.incidents, summary.messages, summary.key_changes],
    [{ items: [], total: 0, cut: 0 }, { waiting: 0, failed: 0 }, []],
  );
  assert.deepEqual([summary.unwell.total, summary.unwell.items[0]?.state, summary.recent.length], [1, "unhealthy", 1]);
  const glance = await READS.glance(layout, undefined);
  const { workers: hosts, jobs: names, drifted, unwell_count, incident_count, certs_soon } = glance;
  assert.deepEqual(
    { hosts, names, drifted, unwell_count, incident_count, certs_soon },
    { ...{ hosts: 2, names: 2, drifted: 0, unwell_count: 1, incident_count: 0, certs_soon: 0 } },
  );
  assert.deepEqual([glance.active_run?.id, glance.last_run?.id, glance.last_deploy?.id], [running.id, running.id, deploy.id]);
  assert.deepEqual([glance.counts, glance.next_cert], [summary.counts, summary.next_cert]);
  for (const freezes of [summary.freezes, glance.freezes])
    assert.deepEqual(freezes, [{ from: "2020-01-01T00:00:00.000Z", to: "2999-01-01T00:00:00.000Z", reason: "why" }]);
  const numbers = await READS.numbers(layout, undefined);
  const { is_active, last_deploy, last_drift } = numbers;
  assert.deepEqual(
    { is_active, last_deploy, last_drift },
    { is_active: true, last_deploy: deploy.finished_at, last_drift: null },
  );
  assert.deepEqual([numbers.states.new, numbers.certs.length], [4, 1]);
  assert.deepEqual((await READS.map(layout, undefined)).jobs.length, 2);
  rmSync(runLayout(layout, running.id).folder, { recursive: true });
  assert.equal((await READS.numbers(layout, undefined)).is_active, false);
});

test("the list of buckets names three problems and counts all; a summary names freezes and what is not well as far as room goes", async (t) => {
  const { layout, db, note } = await built(t);
  for (const [index, { id }] of catalogAllocations(db).entries())
    setLastOutcome(db, id, "r", { action: "sync", outcome: "failed", reason: `no ${"abcd"[index]}` });
  const freeze = Array.from({ length: 50 }, () => ({ ...FREEZE, reason: "x".repeat(200) }));
  db.run("UPDATE bucket SET schedules = ?", JSON.stringify({ freeze }));
  for (const worker of HOSTS) note({ worker }, { worker, aspect: "health", state: "unhealthy" });
  const summary = await READS.summary(layout, undefined);
  const glance = await READS.glance(layout, undefined);
  assert.deepEqual([glance.problem_count, glance.problems], [4, summary.problems.items.slice(0, 3)]);
  const one = Buffer.byteLength(JSON.stringify(summary.freezes[0]));
  assert.equal(summary.freezes.length, Math.floor((2 * 1024) / one));
  assert.deepEqual([glance.freezes.length, summary.unwell.total], [50, 4]);
});

test("views, facts and health come in pages, each with a cursor as long as there is more", async (t) => {
  const { layout, note } = await built(t);
  const view = (limit: number, after?: string) =>
    READS.view(layout, { name: "deployments", query: {}, page: { limit, after } as never });
  const [first, whole] = [await view(3), await view(4)];
  assert.deepEqual([first.items.length, typeof first.next_cursor, whole.items.length, whole.next_cursor], [3, "string", 4, null]);
  assert.ok(first.columns.length > 0);
  assert.deepEqual(await READS.facts(layout, { limit: 10 }), { items: [], next_cursor: null });
  note({ state: "in_sync" }, { worker: "10.0.0.2" });
  note({ state: "drifted" });
  const health = async (offset: number, limit: number) => {
    const { items, next_cursor } = await READS.health(layout, { offset, limit });
    return [items.map(({ worker }) => worker), next_cursor];
  };
  assert.deepEqual(await health(0, 1), [["10.0.0.1"], "1"]);
  assert.deepEqual(await health(1, 1), [["10.0.0.2"], null]);
  assert.deepEqual(await health(0, 2), [HOSTS, null]);
  assert.equal((await READS.health(layout, { offset: 0, limit: 9, worker: "10.0.0.2" })).items.length, 1);
  const changes = async (before: number, limit: number) => {
    const { items, next_cursor } = await READS.healthChanges(layout, { before, limit });
    return [items.map(({ worker, state }) => `${worker} ${state}`), next_cursor] as const;
  };
  const [newest, next] = await changes(Number.MAX_SAFE_INTEGER, 1);
  assert.deepEqual([newest, typeof next], [["10.0.0.1 drifted"], "string"]);
  const [others, none] = await changes(Number(next), 2);
  assert.deepEqual([others.toSorted(), none], [["10.0.0.1 in_sync", "10.0.0.2 drifted"], null]);
});

test("a run is told with how far it is, its page and its evidence; one that is not there is not found", async (t) => {
  const { layout, record } = await built(t);
  const allocation = { worker: "10.0.0.1", action: "start", outcome: "failed", error: "no disk" };
  const run = record("deploy", "failed", { result: { jobs: [{ job: "web", allocations: [allocation] }] } });
  writeFileSync(run.log, "web@10.0.0.1 | no disk\n");
  const { progress, id, duration_ms } = await READS.run(layout, { id: run.id, progress: { phase: "deploy" } });
  assert.deepEqual([progress, id, duration_ms], [{ phase: "deploy" }, run.id, 500]);
  assert.deepEqual(
    (await READS.runs(layout, { limit: 5 })).items.map((one) => one.id),
    [run.id],
  );
  const missing = uuidV7();
  await assert.rejects(READS.run(layout, { id: missing, progress: null }), { code: "run_not_found" });
  await assert.rejects(READS.plan(layout, missing), { code: "run_not_found", message: runNotFound(missing).message });
  const evidence = (job: string | undefined, worker: string | undefined) => READS.evidence(layout, { id: run.id, job, worker });
  for (const [job, worker] of [
    [undefined, undefined],
    ["web", undefined],
    [undefined, "10.0.0.1"],
  ])
    assert.equal((await evidence(job, worker)).total, 1);
  assert.deepEqual((await evidence("web", "10.0.0.1")).lines?.length, 1);
});

test("whether a plan holds is judged again once the database has changed", async (t) => {
  const { layout, record, note, db } = await built(t);
  const { id } = record("deploy", "succeeded", { params: { dry_run: true } });
  await assert.rejects(READS.plan(layout, id), { code: "run_not_found", message: /left no plan/ });
  const { build_seq } = db.get<{ build_seq: number }>("SELECT build_seq FROM bucket") ?? assert.fail();
  const plan = async (seq: number) => {
    const basis = { ...planBasis(db), build_seq: seq };
    writeFileSync(runLayout(layout, id).plan, JSON.stringify({ basis }));
    return await READS.plan(layout, id);
  };
  const good = await plan(build_seq);
  assert.deepEqual(good, { valid: true, reason: null });
  assert.equal(await plan(build_seq + 1), good, "it is known for this version of the database");
  note({});
  const stale = await plan(build_seq + 1);
  assert.deepEqual([stale.valid, /built again/.test(stale.reason ?? "")], [false, true]);
  await assert.rejects(READS.startable(layout, { kind: "deploy", params: { plan: id } }), { code: "plan_stale" });
});

test("what was judged of 100 plans is known at a time", async (t) => {
  const { layout, record, db } = await built(t);
  // With nothing known yet.
  const file = "../../lib/server/reads.ts?fresh";
  const { READS: fresh } = (await import(file)) as { READS: typeof READS };
  t.after(async () => void (await fresh.facts(layout, { limit: 1 }).catch(() => {})));
  const plan = JSON.stringify({ basis: planBasis(db) });
  const ids = Array.from({ length: 101 }, () => record("deploy", "succeeded").id);
  for (const id of ids) writeFileSync(runLayout(layout, id).plan, plan);
  const [first = "", ...others] = ids;
  const answer = await fresh.plan(layout, first);
  for (const id of others.slice(0, 99)) await fresh.plan(layout, id);
  assert.equal(await fresh.plan(layout, first), answer);
  await fresh.plan(layout, others[99] ?? "");
  assert.notEqual(await fresh.plan(layout, first), answer);
});

test("the names in the parameters of a run are judged before it starts", async (t) => {
  const { layout } = await built(t);
  assert.equal(await READS.startable(layout, { kind: "deploy", params: { jobs: ["web"] } }), null);
  await assert.rejects(READS.startable(layout, { kind: "deploy", params: { jobs: ["nope"] } }), { code: "unknown_name" });
  const { hosts } = await READS.basis(layout, { kind: "deploy", params: { jobs: ["web"] } });
  assert.deepEqual(hosts.toSorted(), HOSTS);
  await assert.rejects(READS.basis(layout, { kind: "deploy", params: { jobs: ["nope"] } }), { code: "unknown_name" });
});
