import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { SCHEMA_VERSION } from "../../lib/bucket/base/schema.ts";
import { setLastOutcome } from "../../lib/bucket/catalog/info.ts";
import { beginChange } from "../../lib/bucket/catalog/promotions.ts";
import { VIEW_NAMES } from "../../lib/bucket/catalog/views.ts";
import { noteHealth } from "../../lib/bucket/health/health-history.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../lib/bucket/kv/kv-access.ts";
import { TestServer } from "../helpers/server.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

async function built(t: Parameters<typeof TestServer.start>[0]) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  makeWorkspace(bucket.folder, {
    workers: ["10.0.0.1", "10.0.0.2"],
    jobs: { web: { version: "1.0.0", selectors: ["worker"], resources: { ports: { web_http: 8080 } } } },
    files: { "workspace/bucket.conf": 'greeting = "hello"\n' },
  });
  const { body } = await server.call("POST", `${bucket.path}/build`);
  assert.equal((await server.ended(bucket.path, body.run_id)).status, "succeeded");
  const get = (rest: string) => server.call("GET", `${bucket.path}/${rest}`);
  return { server, bucket, get };
}

test("CP-269 CP-078 info tells what the bucket is and how much it holds", async (t) => {
  const { bucket, get } = await built(t);
  const { status, body } = await get("info");
  assert.equal(status, 200);
  assert.deepEqual(
    [body.bucket_id, body.jobs, body.workers, body.allocations, body.update_seq, body.schema_version],
    [path.basename(bucket.folder), 1, 2, 2, 0, SCHEMA_VERSION],
  );
  assert.match(body.built_at, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
});

const IDS: Record<string, string> = {
  workers: "CP-270",
  jobs: "CP-271",
  allocations: "CP-272",
  deployments: "CP-273",
  hooks: "CP-274",
  ports: "CP-275",
  kv: "CP-276",
  certs: "CP-277",
};
const ROWS: Record<string, number> = { workers: 2, jobs: 1, allocations: 2, deployments: 2, hooks: 0, ports: 1 };

for (const name of VIEW_NAMES)
  test(`${IDS[name]} cat/${name} is read-only and shows what was built`, async (t) => {
    const { server, bucket, get } = await built(t);
    const { status, body } = await get(`cat/${name}`);
    assert.equal(status, 200);
    if (ROWS[name] !== undefined) assert.equal(body.items.length, ROWS[name]);
    else assert.ok(body.items.length > 0);
    assert.equal(body.next_cursor, null);
    for (const item of body.items) assert.deepEqual(Object.keys(item), body.columns);
    for (const method of ["POST", "PUT", "DELETE"])
      assert.equal((await server.call(method, `${bucket.path}/cat/${name}`)).status, 405);
  });

test("a secret is shown by its fingerprint and its age, never by its value; without kv.key the view still works", async (t) => {
  const { bucket, get } = await built(t);
  const layout = layoutOf(bucket.folder);
  {
    using db = openDatabase(layout.database);
    const kv = new KvStore(db, await loadKvKey(layout));
    for (const key of ["one", "two"]) kv.put("secrets/job/web", key, "hunter2-hunter2");
    kv.flush();
  }
  const secrets = async () => {
    const { status, body } = await get("cat/kv");
    assert.equal(status, 200);
    assert.doesNotMatch(JSON.stringify(body), /hunter2|enc:v2/);
    return body.items.filter(({ namespace }: { namespace: string }) => namespace === "secrets/job/web");
  };
  const [one, two] = await secrets();
  assert.match(one.fingerprint, /^[0-9a-f]{12}$/);
  assert.deepEqual([one.value, two.fingerprint], ["[encrypted]", one.fingerprint]);
  assert.ok(Date.parse(one.created_date) > Date.now() - 600_000);
  rmSync(layout.kvKey);
  assert.deepEqual(
    (await secrets()).map(({ fingerprint }: { fingerprint: string }) => fingerprint),
    ["", ""],
  );
});

test("CP-276 CP-277 times of keys and certificates have milliseconds, as all times do", async (t) => {
  const { get } = await built(t);
  const items = async (name: string) => (await get(`cat/${name}`)).body.items as Record<string, string>[];
  const times = [
    ...(await items("kv")).map((row) => row.created_date),
    ...(await items("certs")).map((row) => row.not_after),
    (await get("summary")).body.next_cert.not_after,
  ];
  assert.ok(times.length > 2);
  for (const time of times) assert.match(time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z$/);
});

test("CP-278 CP-110 no other resource is there", async (t) => {
  const { get } = await built(t);
  for (const name of ["foo", "prometheus", "Jobs", "ca", ""]) assert.equal((await get(`cat/${name}`)).status, 404, name);
});

test("CP-110 what Prometheus has to scrape is under no path", async (t) => {
  const { get, server } = await built(t);
  for (const path of ["prometheus", "prometheus/scrape", "cat/prometheus/scrape"])
    assert.equal((await get(path)).status, 404, path);
  const { paths } = (await server.call("GET", "/openapi.json")).body;
  assert.deepEqual(
    Object.keys(paths).filter((path) => path.includes("prometheus")),
    [],
  );
});

test("pages and filters of the catalog", async (t) => {
  const { get } = await built(t);
  const first = (await get("cat/allocations?limit=1")).body;
  const second = (await get(`cat/allocations?limit=1&cursor=${first.next_cursor}`)).body;
  assert.deepEqual(
    [...first.items, ...second.items].map((item: { worker_ip: string }) => item.worker_ip),
    ["10.0.0.1", "10.0.0.2"],
  );
  assert.equal(second.next_cursor, null);
  assert.equal((await get("cat/allocations?workers=10.0.0.2&active=true")).body.items.length, 1);
  assert.equal((await get("cat/allocations?jobs=wob")).status, 404);
  for (const query of ["cursor=x", "limit=0", "limit=5001", "jobs=a,,b", "active=1", "what=x"])
    assert.equal((await get(`cat/allocations?${query}`)).status, 400, query);
});

test("the last action on each allocation is shown and can be asked for; the list of buckets counts what failed", async (t) => {
  const { server, bucket, get } = await built(t);
  const of = async (query: string) => (await get(`cat/deployments${query}`)).body.items;
  const [one, two] = await of("");
  assert.deepEqual([one.last_action, one.last_outcome, one.last_run, one.last_reason], ["", "", "", ""]);
  {
    using db = openDatabase(layoutOf(bucket.folder).database);
    const failed = { action: "restart", outcome: "failed", reason: "no disk" } as const;
    setLastOutcome(db, one.allocation_id, "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70", failed);
    setLastOutcome(db, two.allocation_id, "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70", { ...failed, outcome: "ok" });
  }
  const [found, ...more] = await of("?outcome=failed,unreachable");
  assert.deepEqual([found.worker_ip, found.last_action, found.last_reason], ["10.0.0.1", "restart", "no disk"]);
  assert.deepEqual([more, (await of("?outcome=unknown")).length], [[], 0]);
  for (const path of ["cat/deployments?outcome=faild", "cat/deployments?outcome=", "cat/jobs?outcome=failed"])
    assert.equal((await get(path)).status, 400, path);
  const counted = async () => (await server.call("GET", "/api/buckets")).body.items[0].failed_allocations;
  assert.equal(await counted(), 1);
  {
    using db = openDatabase(layoutOf(bucket.folder).database);
    db.run("UPDATE allocations SET removed = 1 WHERE alloc_id = ?", one.allocation_id);
  }
  assert.equal(await counted(), 0, "what is removed does not count");
});

test("a bucket without a database has no catalog", async (t) => {
  const { bucket, get } = await built(t);
  rmSync(path.join(bucket.folder, "data", "ops.db"));
  const { status, body } = await get("cat/jobs");
  assert.deepEqual([status, body.error], [409, "bucket_not_initialized"]);
  for (const list of ["cat/jobs", "workers/facts"])
    assert.equal((await get(`${list}?cursor=x`)).status, 400, "a malformed request is told before the state of the bucket");
});

test("a filter takes at most 100 names", async (t) => {
  const { get } = await built(t);
  const names = (count: number) => Array.from({ length: count }, () => "web").join(",");
  assert.equal((await get(`cat/jobs?jobs=${names(100)}`)).status, 200);
  const { status, body } = await get(`cat/jobs?jobs=${names(101)}`);
  assert.deepEqual([status, body.error, body.message], [400, "invalid_request", "expected at most 100 names"]);
});

test("CP-383 the summary counts, shows what is wrong, the active run and the last drift", async (t) => {
  const { server, bucket, get } = await built(t);
  const layout = layoutOf(bucket.folder);
  const drift = await server.call("POST", `${bucket.path}/drift`);
  await server.ended(bucket.path, drift.body.run_id);
  const [one, two] = (await get("cat/deployments")).body.items;
  {
    using db = openDatabase(layout.database);
    setLastOutcome(db, one.allocation_id, drift.body.run_id, { action: "sync", outcome: "failed", reason: "x".repeat(500) });
    beginChange(db, "web", [two.allocation_id]);
    db.run("UPDATE job_certs SET expiring_from = 1");
  }
  const { status, body } = await get("summary");
  assert.equal(status, 200);
  assert.deepEqual(
    [body.workers, body.jobs, body.counts],
    [2, 1, { allocations: 2, promoted: 0, failed: 1, unreachable: 0, unsettled: 1, waiting: 1, new: 2, update: 0, disabled: 0 }],
  );
  const [failed] = body.failed.items;
  assert.deepEqual([body.failed.total, body.failed.cut, failed.worker, failed.action], [1, 0, "10.0.0.1", "sync"]);
  assert.equal(failed.reason, `${"x".repeat(300)}…`);
  assert.deepEqual([body.unsettled.total, body.unsettled.items[0].worker, body.unsettled.items[0].reason], [1, "10.0.0.2", ""]);
  assert.deepEqual([body.certs.total, body.certs.items[0].job, body.certs.items[0].status], [1, "", "expiring"]);
  const outcomes = Object.values<number>(body.drift.workers);
  assert.deepEqual([body.active_run, body.drift.id, outcomes.reduce((sum, one) => sum + one, 0)], [null, drift.body.run_id, 2]);
  {
    using db = openDatabase(layout.database);
    setLastOutcome(db, two.allocation_id, drift.body.run_id, { action: "sync", outcome: "unreachable", reason: "away" });
  }
  const { failed: lost } = (await get("summary")).body;
  assert.deepEqual([lost.total, lost.items.map(({ worker }: { worker: string }) => worker)], [2, ["10.0.0.1", "10.0.0.2"]]);
  server.hold();
  const { run_id } = (await server.call("POST", `${bucket.path}/build`)).body;
  assert.deepEqual([(await get("summary")).body.active_run.id, (await get("summary")).body.active_run.kind], [run_id, "build"]);
});

test("CP-383 a summary has at most 64 KB, whatever is wrong, and says what was cut", async (t) => {
  const { bucket, get } = await built(t);
  {
    using db = openDatabase(layoutOf(bucket.folder).database);
    for (let index = 0; index < 300; index++) {
      const [id, job] = [String(index).padStart(36, "x"), `${"j".repeat(60)}${index}`];
      const place = "alloc_id, worker_ip, job, disabled, removed, deployment_seq, new_version";
      db.run(`INSERT INTO allocations (${place}) VALUES (?, '10.0.0.1', ?, 0, 0, 0, '1')`, id, job);
      beginChange(db, job, [id]);
      setLastOutcome(db, id, "run", { action: "sync", outcome: "failed", reason: "\u0001€".repeat(1_000) });
      db.run("UPDATE allocations SET position = ? WHERE alloc_id = ?", index, id);
      db.run(`INSERT INTO job_certs VALUES (?, '10.0.0.1', ?, '', ?, 1, 2, 0)`, job, "c".repeat(200), "€".repeat(500));
      const unhealthy = { job, worker: "10.0.0.1", aspect: "health", state: "unhealthy", reason: "€".repeat(200) } as const;
      noteHealth(db, "run", [unhealthy]);
    }
    const freeze = Array(50).fill({ from: "2020-01-01T00:00", to: "2999-01-01T00:00", reason: "€".repeat(200) });
    db.run("UPDATE bucket SET schedules = ?", JSON.stringify({ freeze }));
  }
  const { text, body } = await get("summary");
  assert.ok(Buffer.byteLength(text) <= 64 * 1024, String(text.length));
  for (const list of [body.failed, body.unsettled, body.certs, body.problems, body.unwell]) {
    assert.ok(list.items.length > 5 && list.total >= 300, `${list.items.length} of ${list.total}`);
    assert.equal(list.items.length + list.cut, list.total);
  }
});

/** Deploys and drift runs of two local workers with one job, of whose files one was changed by hand. */
async function deployedServer(t: Parameters<typeof TestServer.start>[0]) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const root = temporaryFolder(t);
  const hosts = ["127.0.0.1", "127.0.0.2"];
  const write = (version: string) =>
    makeWorkspace(bucket.folder, {
      workers: hosts.map((host) => ({ host, connection: "local", root: path.join(root, host) })),
      jobs: { web: { version, selectors: ["worker"] } },
      files: { "workspace/jobs/web/Makefile": "start restart:\n\t@test ! -e ../../sick || { echo no disk; exit 3; }\n" },
    });
  const run = async (route: string, body: object = {}) => {
    const { run_id } = (await server.call("POST", `${bucket.path}/${route}`, { body })).body;
    return await server.ended(bucket.path, run_id);
  };
  const get = async (rest: string) => (await server.call("GET", `${bucket.path}/${rest}`)).body;
  const place = (host: string, name: string) => path.join(root, host, bucket.id, name);
  write("1.0.0");
  return { server, bucket, hosts, write, run, get, place };
}

test("CP-383 CP-433 CP-435 CP-436 the overview, the map, the list of buckets and the metrics tell of real runs", async (t) => {
  const { server, bucket, hosts, write, run, get, place } = await deployedServer(t);
  const [a = "", b = ""] = hosts;
  const empty = await get("summary");
  assert.deepEqual(
    [empty.problems, empty.last_deploy, empty.mean_deploy_ms, empty.recent, empty.drift, empty.next_cert, empty.revision],
    [{ items: [], total: 0, cut: 0 }, null, null, [], null, null, null],
  );
  assert.equal((await run("build")).status, "succeeded");
  const [dry, one] = [await run("deploy", { dry_run: true }), await run("deploy")];
  assert.equal(one.status, "succeeded");
  assert.equal((await get("map")).jobs[0].cells, "cc");
  const chosen = await run("deploy", { jobs: ["web"] });
  write("2.0.0");
  await run("build");
  writeFileSync(place(b, "sick"), "");
  const two = await run("deploy");
  assert.equal(two.status, "failed");
  writeFileSync(place(a, "jobs/web/Makefile"), "changed by hand");
  const drift = await run("drift");
  const partial = await run("drift", { workers: [b] });
  const body = await get("summary");
  const recent = [dry, one, chosen, two].map(({ id, kind, status, duration_ms, created_at }) => {
    return { id, kind, status, duration_ms, dry_run: id === dry.id, created_at };
  });
  assert.deepEqual(body.recent, recent);
  assert.deepEqual([body.last_deploy.id, body.mean_deploy_ms], [two.id, one.duration_ms], "only whole deploys count");
  assert.deepEqual(body.drift.allocations, [{ job: "web", worker: a, files: 1 }]);
  assert.deepEqual([body.drift.id, body.drift.total], [drift.id, 1]);
  const metrics = (await server.call("GET", "/metrics")).text;
  const metric = (name: string) => Number(new RegExp(`^ops_${name}\\{.*\\} (.*)$`, "m").exec(metrics)?.[1]);
  const seconds = (text: string | null) => Date.parse(String(text)) / 1000;
  assert.deepEqual(["last_deploy_success_timestamp_seconds", "last_drift_timestamp_seconds", "drifted_allocations"].map(metric), [
    seconds(chosen.finished_at),
    seconds(drift.created_at),
    1,
  ]);
  assert.match(metrics, /^ops_allocations_in_trouble\{.*outcome="failed"\} 1$/m);
  const { runs, workers, jobs, certs, hooks, revisions, snapshots, kv } = body.totals;
  assert.deepEqual([runs, workers, jobs, certs, hooks, revisions, snapshots], [8, 2, 1, 1, 0, 0, 0]);
  assert.equal(kv, (await get("cat/kv?limit=5000")).items.length);
  assert.deepEqual([body.next_cert.cert, body.next_cert.status], [(await get("cat/certs")).items[0].cert, "ok"]);
  const [problem] = body.problems.items;
  assert.deepEqual(
    [body.problems.total, problem.kind, problem.job, problem.action, problem.workers, problem.run_id],
    [1, "failed", "web", "restart", [b], two.id],
  );
  assert.ok(problem.since > two.created_at && problem.since < two.finished_at);
  const map = await get("map");
  assert.deepEqual(
    [map.workers.map(({ worker }: { worker: string }) => worker), map.jobs[0].cells, map.jobs[0].version],
    [hosts, "Cf", "2.0.0"],
  );
  const cell = await get(`map/web/${a}`);
  assert.deepEqual(await get(`map/WEB/${a}`), cell);
  assert.deepEqual(
    [cell.state, cell.outcome, cell.since, cell.current_version, cell.drift_files],
    ["promoted", "changed", null, "2.0.0", [{ path: "Makefile", state: "changed" }]],
  );
  const [shown] = (await server.call("GET", "/api/summary")).body.items;
  assert.deepEqual(
    [shown.id, shown.problem_count, shown.problems, shown.drifted, shown.unavailable, shown.last_run.id, shown.recent],
    [bucket.id, 1, [problem], 1, null, partial.id, recent],
  );
  assert.equal((await server.call("GET", `${bucket.path}/map/web/10.0.0.9`)).status, 404);
  await run("run_command", { command: "uname", workers: [a] });
  await run("run_command", { command: "false", workers: [a] });
  assert.deepEqual((await get("summary")).problems.items, [problem], "a later command hides nothing");
});

test("CP-383 CP-435 CP-436 CP-985 files that are put back are changed by hand no more, wherever that is told", async (t) => {
  const { server, run, get, place, hosts, write } = await deployedServer(t);
  const [a = "", b = ""] = hosts;
  await run("build");
  await run("deploy");
  const promoted = readFileSync(place(a, "jobs/web/Makefile"));
  for (const host of hosts) writeFileSync(place(host, "jobs/web/Makefile"), "changed by hand");
  const drift = await run("drift");
  const told = async () => {
    const { drift: found, unwell } = await get("summary");
    const metrics = (await server.call("GET", "/metrics")).text;
    return {
      found: [
        found.id === drift.id,
        found.workers,
        found.allocations.map(({ worker }: { worker: string }) => worker),
        found.total,
      ],
      unwell: unwell.total,
      buckets: (await server.call("GET", "/api/summary")).body.items[0].drifted,
      metric: /^ops_drifted_allocations\{.*\} (.*)$/m.exec(metrics)?.[1],
      map: (await get("map")).jobs[0].cells,
      files: (await Promise.all(hosts.map((host) => get(`map/web/${host}`)))).map(({ drift_files }) => drift_files.length),
      health: (await get("health?job=web")).items
        .filter(({ aspect }: { aspect: string }) => aspect === "files")
        .map(({ state }: { state: string }) => state),
    };
  };
  /** What is told where the files of these hosts are changed by hand. */
  const of = (drifted: string[], workers: Record<string, number>) => ({
    found: [true, workers, drifted, drifted.length],
    unwell: drifted.length,
    buckets: drifted.length,
    metric: `${drifted.length}`,
    map: hosts.map((host) => (drifted.includes(host) ? "C" : "c")).join(""),
    files: hosts.map((host) => (drifted.includes(host) ? 1 : 0)),
    health: hosts.map((host) => (drifted.includes(host) ? "drifted" : "in_sync")),
  });
  assert.deepEqual(await told(), of(hosts, { drifted: 2 }));
  writeFileSync(place(a, "jobs/web/Makefile"), promoted);
  await run("drift", { workers: [a] });
  assert.deepEqual(await told(), of([b], { in_sync: 1, drifted: 1 }));
  await run("deploy", { force: true });
  assert.deepEqual(await told(), of([], { in_sync: 2 }));
  writeFileSync(place(b, "jobs/web/Makefile"), "changed by hand");
  await run("drift");
  assert.equal((await told()).metric, "1");
  write("2.0.0");
  await run("build");
  writeFileSync(place(b, "sick"), "");
  assert.equal((await run("deploy")).status, "failed");
  assert.equal((await told()).metric, "0", "the deploy that did not come to its end has changed these files itself");
  await run("drift");
  const { metric, unwell, health } = await told();
  assert.deepEqual([metric, unwell, health], ["0", 0, ["in_sync"]]);
});

test("CP-436 a bucket that cannot be read says why, and the others are shown", async (t) => {
  const { server, bucket } = await deployedServer(t);
  const other = await server.createBucket({ name: "other" });
  const spoil = async (content: string | null) => {
    const file = path.join(bucket.folder, "data", "ops.db");
    rmSync(file, { force: true });
    if (content !== null) writeFileSync(file, content);
    const { items, cut } = (await server.call("GET", "/api/summary")).body;
    assert.equal(cut, 0);
    const [bad, good] = [bucket.id, other.id].map((id) => items.find((one: { id: string }) => one.id === id));
    assert.deepEqual([good.unavailable, good.counts.allocations], [null, 0]);
    return bad;
  };
  const missing = await spoil(null);
  assert.deepEqual([missing.initialized, missing.counts, missing.problems], [false, null, []]);
  assert.match(missing.unavailable, /not initialised/);
  const damaged = await spoil("this is no database ".repeat(100));
  assert.match(damaged.unavailable, /damaged/);
});

test("CP-439 the plan of a dry run is asked for cheaply whether it holds, until something moves", async (t) => {
  const { server, bucket, run, get } = await deployedServer(t);
  const built = await run("build");
  const dry = await run("deploy", { dry_run: true });
  assert.deepEqual(await get(`runs/${dry.id}/plan`), { valid: true, reason: null });
  assert.equal((await run("deploy")).result.waves[0].done, 1);
  const { valid, reason } = await get(`runs/${dry.id}/plan`);
  assert.equal(valid, false);
  assert.match(reason, /another deploy had work to do; .*what is promoted has changed on web@127\.0\.0\.1/);
  for (const id of [built.id, "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70", "x"]) {
    const { status, body } = await server.call("GET", `${bucket.path}/runs/${id}/plan`);
    assert.deepEqual([status, body.error], [404, "run_not_found"], id);
  }
});
