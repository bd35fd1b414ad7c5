import assert from "node:assert/strict";
import { test } from "node:test";
import type { CatalogAllocation } from "../../../lib/bucket/base/model.ts";
import {
  type BuiltCatalog,
  type BuiltJob,
  type BuiltWorker,
  catalogAllocations,
  catalogFile,
  catalogFiles,
  catalogJobs,
  catalogPorts,
  catalogWorkers,
  jobNames,
  listCatalogFiles,
  saveCatalog,
} from "../../../lib/bucket/catalog/catalog.ts";
import { jobMap, mapCell } from "../../../lib/bucket/catalog/map.ts";
import { beginChange, promote, promotionsOf, recordSynced } from "../../../lib/bucket/catalog/promotions.ts";
import { makeBucket, type TestBucket } from "../../helpers/workspace.ts";

function worker(host: string, position: number, more: Partial<BuiltWorker> = {}): BuiltWorker {
  return {
    host,
    id: `id of ${host}`,
    hostname: null,
    connection: "local",
    root: "/srv/w",
    labels: ["worker"],
    memoryMb: 0,
    cpuMhz: 0,
    tags: new Map(),
    position,
    ...more,
  };
}

function job(name: string, more: Partial<BuiltJob> = {}): BuiltJob {
  const reservation = { min: 0, max: 0, current: 0, source: "manifest" };
  return {
    name,
    id: `id of ${name}`,
    version: "1.0.0",
    after: [],
    deploymentSeq: 0,
    maxConcurrentUpgrades: 1,
    maxConcurrentStarts: 0,
    restartPolicy: "always",
    restartGlobs: [],
    driftIgnore: [],
    healthCheck: null,
    lifecycleTimeoutSeconds: 900,
    onFailure: "stop",
    secretMode: 0o600,
    tolerateUnreachable: 0,
    ports: {},
    hooks: [],
    selectors: [name],
    memory: reservation,
    cpu: reservation,
    files: [],
    ...more,
  };
}

function allocation(name: string, host: string, more: Partial<CatalogAllocation> = {}): CatalogAllocation {
  const id = `${name} on ${host}`;
  return { id, worker: host, job: name, disabled: false, removed: false, deploymentSeq: 0, newVersion: "1.0.0", ...more };
}

function save({ db }: TestBucket, built: Partial<BuiltCatalog>): void {
  const none = { workers: [], jobs: [], allocations: [], startAnew: [], schedules: "{}", notify: "{}" };
  const all = { ...none, changed: built.allocations ?? [], ...built };
  db.transaction(() => saveCatalog(db, all, new Date(0)));
}

const file = (path: string, text: string) => ({ path, mode: 0o644, sha256: text, content: Buffer.from(text) });

test("what was saved is read back: workers by position, jobs by name, allocations by job and position", async (t) => {
  const bucket = await makeBucket(t);
  const remote = { connection: "ssh", sshUser: "u", sshPort: 22, sshJump: "j", hostname: "h", labels: ["a", "worker"] } as const;
  const hooks = [
    { name: "a", events: ["cli", "pre_deploy"], demandJob: "db", demandHook: "up", demandConfig: { min_version: "1" } },
    { name: "b", events: ["cli"], demandJob: "", demandHook: "", demandConfig: {} },
  ];
  const healthCheck = {
    checks: [{ type: "tcp" as const, port: "http", timeoutSeconds: 5 }],
    timeoutSeconds: 5,
    wait: { attempts: 1, intervalSeconds: 1 },
  };
  const web = job("web", {
    ports: { http: 30_000, admin: 80 },
    hooks,
    healthCheck,
    restartPolicy: "reload",
    restartGlobs: ["a/*"],
  });
  const { selectors: _, memory: __, cpu: ___, files: ____, ...plainWeb } = web;
  save(bucket, {
    workers: [worker("w2", 5), worker("w1", 9, { ...remote, labels: [...remote.labels] }), worker("w0", 9)],
    jobs: [web, job("db")],
    allocations: [
      allocation("web", "w1"),
      allocation("web", "w2", { disabled: true }),
      allocation("db", "w1", { removed: true }),
    ],
  });
  const { db } = bucket;
  const plain = { hostname: null, connection: "local", root: "/srv/w", labels: ["worker"], removed: false, syncedSeq: 0 };
  assert.deepEqual(catalogWorkers(db), [
    { ...plain, host: "w2", id: "id of w2", position: 5 },
    { ...plain, host: "w0", id: "id of w0", position: 9 },
    { ...plain, ...remote, host: "w1", id: "id of w1", position: 9 },
  ]);
  assert.deepEqual(
    catalogJobs(db).map((one) => one.name),
    ["db", "web"],
  );
  assert.deepEqual(catalogJobs(db)[1], plainWeb);
  assert.deepEqual(
    [...catalogPorts(db)].map(([name, ports]) => [name, [...ports]]),
    [
      [
        "web",
        [
          ["admin", 80],
          ["http", 30_000],
        ],
      ],
    ],
  );
  assert.deepEqual(catalogAllocations(db), [
    allocation("db", "w1", { removed: true }),
    allocation("web", "w2", { disabled: true }),
    allocation("web", "w1"),
  ]);
});

test("files are read back with mode and bytes, by path", async (t) => {
  const bucket = await makeBucket(t);
  const binary = { path: "bin.dat", mode: 0o755, sha256: "s", content: Buffer.from([0, 255, 10]) };
  save(bucket, { jobs: [job("web", { files: [file("z", "1"), binary] }), job("db", { files: [file("other", "2")] })] });
  assert.deepEqual(catalogFiles(bucket.db, "web"), [binary, file("z", "1")]);
  assert.deepEqual(catalogFiles(bucket.db, "nope"), []);
  assert.deepEqual(catalogFiles(bucket.db, "web", "bi"), [binary]);
  assert.deepEqual([catalogFile(bucket.db, "web", "z"), catalogFile(bucket.db, "db", "z")], [file("z", "1"), undefined]);
  const page = (after: string, limit: number) => listCatalogFiles(bucket.db, "web", { after, limit }).map((one) => ({ ...one }));
  const [first, second] = page("", 2);
  assert.deepEqual(first, { path: "bin.dat", mode: 0o755, sha256: "s", size_bytes: 3 });
  assert.deepEqual([page("", 1), page("bin.dat", 9), page("z", 9)], [[first], [second], []]);
  assert.deepEqual(jobNames(bucket.db), new Set(["db", "web"]));
});

test("CP-435 a map has the first 1,000 workers and jobs, and tells how many it leaves out", async (t) => {
  const bucket = await makeBucket(t);
  const names = Array.from({ length: 1_002 }, (_, index) => `n${String(index).padStart(4, "0")}`);
  save(bucket, {
    workers: names.map((host, index) =>
      worker(host, index, { tags: new Map(index === 0 ? [["zone", "a"]] : []), hostname: "h" }),
    ),
    jobs: names.slice(0, 1_001).map((name) => job(name)),
    allocations: [allocation("n0999", "n0999"), allocation("n1000", "n0000"), allocation("n0000", "n1001")],
  });
  const { workers, jobs, cut } = jobMap(bucket.db, "", []);
  assert.deepEqual([workers.length, jobs.length, cut], [1_000, 1_000, { workers: 2, jobs: 1 }]);
  assert.deepEqual(
    jobs.flatMap(({ job: name, cells }) => (cells.trim() === "" ? [] : [[name, cells.length, cells.indexOf("w")]])),
    [["n0999", 1_000, 999]],
  );
  assert.deepEqual({ ...workers[0] }, { worker: "n0000", hostname: "h", labels: ["worker"], tags: { zone: "a" } });
  assert.deepEqual(mapCell(bucket.db, "n0999", "n0999"), {
    job: "n0999",
    worker: "n0999",
    allocation_id: "n0999 on n0999",
    state: "new",
    ...{ action: "", outcome: "", reason: "", since: null, run_id: "", current_version: "0.0.0", new_version: "1.0.0", wave: 0 },
  });
  assert.throws(() => mapCell(bucket.db, "n0000", "n0000"), {
    code: "not_found",
    message: 'the catalog has no allocation of job "n0000" on "n0000"',
  });
});

test("a save replaces what is gone and writes only rows that differ", async (t) => {
  const bucket = await makeBucket(t);
  const { db } = bucket;
  const built = {
    workers: [worker("w1", 0, { tags: new Map([["zone", "a"]]), labels: ["x", "worker"] })],
    jobs: [job("web", { ports: { http: 1 }, files: [file("a", "1"), file("b", "2")] }), job("db")],
    allocations: [allocation("web", "w1"), allocation("db", "w1")],
  };
  save(bucket, built);
  db.script("CREATE TABLE writes (what TEXT)");
  for (const table of ["worker", "worker_labels", "worker_tags", "job", "job_ports", "job_files", "allocations"])
    for (const event of ["INSERT", "UPDATE", "DELETE"])
      db.script(
        `CREATE TRIGGER ${table}_${event} AFTER ${event} ON ${table} BEGIN INSERT INTO writes VALUES ('${table} ${event}'); END`,
      );
  const writes = () => {
    const found = db.all("SELECT what FROM writes ORDER BY what").map((row) => row.what);
    db.script("DELETE FROM writes");
    return found;
  };
  save(bucket, { ...built, changed: [] });
  assert.deepEqual(writes(), []);
  const gone = allocation("db", "w1", { removed: true });
  save(bucket, {
    workers: [worker("w1", 0, { tags: new Map([["zone", "b"]]) })],
    jobs: [job("web", { files: [file("a", "1"), file("b", "3")] })],
    allocations: [allocation("web", "w1"), gone],
    changed: [gone],
  });
  assert.deepEqual(writes(), [
    "allocations UPDATE",
    "job DELETE",
    "job_files UPDATE",
    "job_ports DELETE",
    "worker_labels DELETE",
    "worker_tags UPDATE",
  ]);
});

test("a worker that left keeps its row, marked as removed, until no allocation is left on it", async (t) => {
  const bucket = await makeBucket(t);
  const { db } = bucket;
  save(bucket, { workers: [worker("w1", 0, { labels: ["x", "worker"] })], allocations: [allocation("web", "w1")] });
  db.run("UPDATE worker SET synced_seq = 7");
  save(bucket, { allocations: [allocation("web", "w1", { removed: true })] });
  const [left] = catalogWorkers(db);
  assert.deepEqual([left?.host, left?.removed, left?.syncedSeq, left?.labels], ["w1", true, 7, ["worker", "x"]]);
  save(bucket, { workers: [worker("w1", 3)], allocations: [allocation("web", "w1")] });
  const [back] = catalogWorkers(db);
  assert.deepEqual([back?.removed, back?.position, back?.syncedSeq, back?.labels], [false, 3, 7, ["worker"]]);
  save(bucket, {});
  assert.deepEqual(catalogWorkers(db), []);
  assert.equal(db.get("SELECT count(*) AS n FROM worker_labels")?.n, 0);
});

test("a save makes allocations start anew, and only those", async (t) => {
  const bucket = await makeBucket(t);
  const { db } = bucket;
  const allocations = [allocation("web", "w1"), allocation("web", "w2")];
  for (const { id } of allocations) {
    beginChange(db, "web", [id]);
    recordSynced(db, "web", [{ id: id, hash: "h", files: {}, updateSeq: 1 }]);
    promote(db, { job: "web", id }, "1.0.0");
  }
  save(bucket, { allocations, startAnew: allocations.slice(0, 1) });
  assert.deepEqual(
    allocations.map(({ id }) => promotionsOf(db, "web")(id).hash),
    ["", "h"],
  );
});

test("each save counts the build and notes its time", async (t) => {
  const bucket = await makeBucket(t);
  save(bucket, {});
  save(bucket, {});
  const row = bucket.db.get("SELECT build_seq, built_at FROM bucket");
  assert.deepEqual({ ...row }, { build_seq: 2, built_at: "1970-01-01T00:00:00.000Z" });
});
