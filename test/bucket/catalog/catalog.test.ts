import assert from "node:assert/strict";
import { test } from "node:test";
import type { CatalogAllocation } from "../../../lib/bucket/base/model.ts";
import {
  type BuiltCatalog,
  type BuiltJob,
  type BuiltWorker,
  catalogAllocations,
  catalogFiles,
  catalogJobs,
  catalogPorts,
  catalogWorkers,
  saveCatalog,
} from "../../../lib/bucket/catalog/catalog.ts";
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
