import assert from "node:assert/strict";
import { readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import type { BuildProblem } from "../../../lib/bucket/base/problems.ts";
import { catalogAllocations, catalogFiles, catalogJobs, catalogWorkers } from "../../../lib/bucket/catalog/catalog.ts";
import { listRevisions, recordCurrent } from "../../../lib/bucket/source/revisions.ts";
import { uuidV5 } from "../../../lib/codec/uuid.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { type BuildResult, build } from "../../../lib/operation/build/build.ts";
import { makeBucket, makeWorkspace, type TestBucket, type WorkspaceSpec } from "../../helpers/workspace.ts";

async function run(bucket: TestBucket, spec?: WorkspaceSpec, params: Record<string, unknown> = {}): Promise<BuildResult> {
  if (spec) makeWorkspace(bucket.dir, spec);
  return (await build(bucket.context(), params)) as BuildResult;
}

/** The codes of the problems that a build with this workspace fails with, and the sentence of the failure. */
async function problems(bucket: TestBucket, spec: WorkspaceSpec): Promise<{ codes: string[]; message: string }> {
  const error = await run(bucket, spec).then(
    () => assert.fail("the build succeeded"),
    (failure: unknown) => failure,
  );
  assert.ok(error instanceof Failure, String(error));
  const found = (error.details as { problems: BuildProblem[] }).problems;
  assert.equal(error.code, found[0]?.code);
  return { codes: found.map((problem) => problem.code), message: error.message };
}

function placed({ db }: TestBucket): string[] {
  return catalogAllocations(db).map(
    (one) => `${one.job}@${one.worker}${one.disabled ? " disabled" : ""}${one.removed ? " removed" : ""}`,
  );
}

/** What the KV store holds, asked of the database itself, in order: namespace, key, version and value. */
function livingRows({ db }: TestBucket): [string, string, number, string][] {
  return db.tuples(
    `SELECT namespace, key, version, value FROM (
       SELECT namespace, key, MAX(version) AS version, value, deleted FROM key_value GROUP BY namespace, key)
     WHERE deleted = 0`,
  );
}

const cli = (demands?: object) => ({ executed_on: ["cli"], ...(demands && { demands }) });
const DB = { version: "1.0.0", selectors: ["db"], hooks: { up: cli() } };
const WEB = { version: "2.0.0", selectors: ["worker"], hooks: { wait: cli({ job: "db", hook: "up" }) } };
const WORKERS = [{ host: "10.0.0.1", labels: ["db"] }, { host: "10.0.0.2" }];

test("HR-160 HR-067 HR-085 HR-086 HR-088 HR-145 jobs go to the workers with all their labels, with version and place in the order", async (t) => {
  const bucket = await makeBucket(t);
  const result = await run(bucket, { workers: WORKERS, jobs: { web: WEB, db: DB } });
  assert.deepEqual(result, { jobs: 2, workers: 2, allocations: 3, removed_allocations: 0, warnings: [] });
  assert.deepEqual(placed(bucket), ["db@10.0.0.1", "web@10.0.0.1", "web@10.0.0.2"]);
  assert.deepEqual(
    catalogJobs(bucket.db).map((job) => [job.name, job.deploymentSeq]),
    [
      ["db", 0],
      ["web", 1],
    ],
  );
  assert.deepEqual(
    catalogAllocations(bucket.db).map((one) => [one.deploymentSeq, one.newVersion]),
    [
      [0, "1.0.0"],
      [1, "2.0.0"],
      [1, "2.0.0"],
    ],
  );
  assert.deepEqual(
    catalogFiles(bucket.db, "db").map((file) => file.path),
    ["Makefile", "_hooks/up.py", "manifest.json"],
  );
  assert.match(bucket.activity.at(-1) ?? "", /^built 2 jobs on 2 workers: 3 allocations, \d+\.\d s\n$/);
});

test("ids are name-based in the bucket and stay over builds; a worker's id is random and stays", async (t) => {
  const [one, two] = [await makeBucket(t), await makeBucket(t)];
  const spec = { workers: WORKERS, jobs: { db: DB } };
  await run(one, spec);
  await run(two, spec);
  const [id] = catalogAllocations(one.db).map((allocation) => allocation.id);
  assert.equal(id, uuidV5(one.bucketId, "db|10.0.0.1"));
  assert.notEqual(id, catalogAllocations(two.db)[0]?.id);
  assert.equal(catalogJobs(one.db)[0]?.id, uuidV5(one.bucketId, "db"));
  const workers = catalogWorkers(one.db).map((worker) => worker.id);
  await run(one);
  assert.equal(catalogAllocations(one.db)[0]?.id, id);
  assert.deepEqual(
    catalogWorkers(one.db).map((worker) => worker.id),
    workers,
  );
});

test("without a version a job is `unknown` and its target 0.0.0", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { workers: ["a"], jobs: { web: { selectors: ["worker"] } } });
  assert.equal(catalogJobs(bucket.db)[0]?.version, "unknown");
  assert.equal(catalogAllocations(bucket.db)[0]?.newVersion, "0.0.0");
  assert.equal(bucket.kv().get("ops/job/web", "version"), "0.0.0");
});

test("a build before the first push builds nothing and says so", async (t) => {
  const bucket = await makeBucket(t);
  const result = await run(bucket);
  assert.deepEqual([result.jobs, result.workers, result.allocations], [0, 0, 0]);
  assert.deepEqual(result.warnings, ["workspace: is not there: nothing has been pushed yet"]);
});

test("a workspace that went missing does not empty the bucket", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { workers: WORKERS, jobs: { db: DB } });
  rmSync(path.join(bucket.dir, "workspace"), { recursive: true });
  await assert.rejects(run(bucket), /workspace is missing, though the bucket has jobs/);
  assert.deepEqual(placed(bucket), ["db@10.0.0.1"]);
});

test("T-106 a failed build reports every problem and leaves catalog and KV store as they were", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { workers: WORKERS, jobs: { db: DB } });
  const before = [placed(bucket), catalogJobs(bucket.db), [...bucket.kv().entries("ops/bucket")]];
  const { codes, message } = await problems(bucket, {
    workers: [{ host: "10.0.0.1", memory: "-1" }],
    jobs: {
      a: { restart_policy: "sometimes" },
      b: { version: "x", resources: { ports: { p: 80 } } },
      c: { version: "1", hooks: { h: cli({ job: "nope", hook: "h" }) }, resources: { ports: { q: 80 } } },
    },
    files: { "ops.conf": "ssh_port = 'x'\n", "workspace/bucket.conf": "a = []\n" },
  });
  assert.deepEqual(codes, [
    "ErrInvalidOpsConf",
    "ErrInvalidBucketConf",
    "ErrInvalidWorkerJSON",
    "ErrInvalidManifest",
    "ErrInvalidJobVersion",
    "ErrInvalidHookDemand",
    "ErrPortCollision",
  ]);
  assert.match(message, /^ErrInvalidOpsConf: ops\.conf: ssh_port: expected an integer, .* \(and 6 more problems\)$/);
  for (const code of codes)
    assert.ok(
      bucket.activity.some((line) => line.startsWith(`error: ${code}: `)),
      code,
    );
  assert.deepEqual([placed(bucket), catalogJobs(bucket.db), [...bucket.kv().entries("ops/bucket")]], before);
});

test("what is wrong with the places of jobs is reported beside the mistakes of others, where workers and reservations are known", async (t) => {
  const bucket = await makeBucket(t);
  const spec = {
    workers: [{ host: "a", memory: "1 gb" }],
    jobs: {
      bad: { restart_policy: "x" },
      big: { selectors: ["worker"], resources: { memory: { max: "2 gb" } } },
      many: { selectors: ["worker"], min_allocations_count: 2 },
    },
  };
  assert.deepEqual((await problems(bucket, spec)).codes, [
    "ErrInvalidManifest",
    "ErrInsufficientAllocations",
    "ErrInsufficientResource",
  ]);
  const settings = { "workspace/bucket.jobs.conf": "[big]\nmemory = []\n" };
  assert.deepEqual((await problems(bucket, { ...spec, files: settings })).codes, [
    "ErrInvalidManifest",
    "ErrInvalidBucketConf",
    "ErrInsufficientAllocations",
  ]);
  const workers = [{ host: "a", memory: "1 kb" }];
  const files = { "workspace/bucket.jobs.conf": null };
  assert.deepEqual((await problems(bucket, { ...spec, workers, files })).codes, ["ErrInvalidWorkerJSON", "ErrInvalidManifest"]);
});

test("a file of settings that no job and no selector uses is a warning", async (t) => {
  const { warnings } = await run(await makeBucket(t), {
    workers: ["a"],
    jobs: { web: { selectors: ["worker"] } },
    files: {
      "ops.conf": 'job_config_selector = "prod"\n',
      "workspace/bucket.jobs.conf": "",
      "workspace/bucket.jobs.prod.conf": "",
      "workspace/bucket.jobs.test.conf": "",
      "workspace/vars.toml": "",
      "workspace/jobs/web/vars.toml": "a = 1\n",
      "workspace/jobs/web/conf/vars.toml": "a = 1\n",
      "workspace/jobs/old/vars.toml": "a = 1\n",
    },
  });
  assert.deepEqual(warnings, [
    "workspace: bucket.jobs.conf, bucket.jobs.test.conf: not read: job_config_selector in ops.conf selects bucket.jobs.prod.conf",
    "workspace: jobs/old/vars.toml: not read: there is no manifest.json beside it",
    "workspace: vars.toml: not read: there is no manifest.json beside it",
  ]);
});

test("HR-082 a circle of demands fails the build and is shown", async (t) => {
  const { codes, message } = await problems(await makeBucket(t), {
    jobs: {
      a: { version: "1", hooks: { x: cli({ job: "b", hook: "y" }), w: cli() } },
      b: { version: "1", hooks: { y: cli(), z: cli({ job: "a", hook: "w" }) } },
    },
  });
  assert.deepEqual(codes, ["ErrCircularHookDependency"]);
  assert.match(message, /workspace\/jobs\/a\/manifest\.json: hooks: jobs come after each other: a -> b -> a$/);
});

test("HR-343 a circle through after fails the build and is shown", async (t) => {
  const { codes, message } = await problems(await makeBucket(t), {
    jobs: {
      a: { version: "1", after: ["b"], hooks: { w: cli() } },
      b: { version: "1", hooks: { z: cli({ job: "a", hook: "w" }) } },
    },
  });
  assert.deepEqual(codes, ["ErrCircularHookDependency"]);
  assert.match(message, /workspace\/jobs\/a\/manifest\.json: after: jobs come after each other: a -> b -> a$/);
});

test("a demand on a job that has problems of its own is not reported as unknown", async (t) => {
  const { codes } = await problems(await makeBucket(t), { jobs: { db: { ...DB, restart_policy: "x" }, web: WEB } });
  assert.deepEqual(codes, ["ErrInvalidManifest"]);
});

test("too few workers are ErrInsufficientAllocations, disabled ones count; none at all is a warning", async (t) => {
  const bucket = await makeBucket(t);
  const web = { selectors: ["worker"], min_allocations_count: 2 };
  const files = { "workspace/disabled.json": '{"workers": ["b"]}' };
  assert.equal((await run(bucket, { workers: ["a", "b"], jobs: { web }, files })).allocations, 2);
  const { codes, message } = await problems(bucket, { workers: ["a"], jobs: { web } });
  assert.deepEqual(codes, ["ErrInsufficientAllocations"]);
  assert.match(message, /needs 2 workers with the labels worker, but there are 1$/);
  const { warnings } = await run(bucket, { workers: ["a"], jobs: { lost: {} }, files: { "workspace/disabled.json": null } });
  assert.deepEqual(warnings, [
    "workspace/jobs/lost/manifest.json: selectors: the job runs nowhere: there is no worker with the labels lost",
  ]);
});

test("active jobs must fit the memory and cpu that a worker declares; every worker that is too small is reported", async (t) => {
  const bucket = await makeBucket(t);
  const web = { selectors: ["worker"], resources: { memory: { max: "1 gb" }, cpu: { max: "1 ghz" } } };
  const small = [
    { host: "a", memory: "512", cpu: "2000" },
    { host: "b", memory: "2 gb" },
  ];
  const { codes, message } = await problems(bucket, { workers: small, jobs: { web } });
  assert.deepEqual(codes, ["ErrInsufficientResource", "ErrInsufficientResource"]);
  assert.match(message, /workers\.json: a: active jobs reserve 1024 mb of memory, but the worker has 512 mb/);
  const files = { "workspace/disabled.json": '{"workers": ["a", "b"]}' };
  assert.equal((await run(bucket, { workers: small, jobs: { web }, files })).allocations, 2);
});

test("bucket.jobs.conf sets what a job gets, within the manifest's bounds", async (t) => {
  const bucket = await makeBucket(t);
  const workers = [{ host: "a", memory: "1 tb", cpu: "2 thz" }];
  const web = { selectors: ["worker"], resources: { memory: { min: "1 gb", max: "4 gb" } } };
  const conf = (text: string) => ({ "workspace/bucket.jobs.conf": text });
  await run(bucket, { workers, jobs: { web }, files: conf('[web]\nmemory = "2 gb"\ncpu = 1500000\nextra = ""\n') });
  const kv = bucket.kv();
  assert.deepEqual(
    ["memory", "min_memory_mb", "max_memory_mb", "cpu", "min_cpu_mhz"].map((key) => kv.get("ops/job/web", key)),
    ["2048", "1024", "4096", "1500000", "1500000"],
  );
  assert.deepEqual(
    [...kv.entries("vars/bucket/job/web")],
    [
      ["cpu", "1500000"],
      ["extra", ""],
      ["memory", "2 gb"],
    ],
  );
  const row = bucket.db.get("SELECT current_memory_source, current_cpu_source FROM job");
  assert.deepEqual(Object.values(row ?? {}), ["workspace/bucket.jobs.conf", "workspace/bucket.jobs.conf"]);
  const outside = await problems(bucket, { workers, jobs: { web }, files: conf('[web]\nmemory = "5 gb"\n') });
  assert.deepEqual(outside.codes, ["ErrUnsupportedResourceConfiguration"]);
  const broken = await problems(bucket, { workers, jobs: { web }, files: conf('[web]\nmemory = "much"\n') });
  assert.deepEqual(broken.codes, ["ErrInvalidBucketConf"]);
});

test("allocations that match no more stay as removed with their version; they come back as they were", async (t) => {
  const bucket = await makeBucket(t);
  const web = { version: "1", selectors: ["worker"] };
  await run(bucket, { workers: ["a", "b"], jobs: { web } });
  const result = await run(bucket, { workers: ["a"], jobs: { web: { ...web, version: "2" } } });
  assert.equal(result.removed_allocations, 1);
  assert.deepEqual(placed(bucket), ["web@a", "web@b removed"]);
  assert.deepEqual(
    catalogAllocations(bucket.db).map((one) => one.newVersion),
    ["2", "1"],
  );
  assert.deepEqual(
    catalogWorkers(bucket.db).map((one) => [one.host, one.removed]),
    [
      ["b", true],
      ["a", false],
    ].reverse(),
  );
  await run(bucket, { workers: ["a", "b"], jobs: {} });
  assert.deepEqual(placed(bucket), ["web@a removed", "web@b removed"]);
  assert.deepEqual(catalogJobs(bucket.db), []);
  await run(bucket, { workers: ["a", "b"], jobs: { web } });
  assert.deepEqual(placed(bucket), ["web@a", "web@b"]);
});

function promoteAll({ db }: TestBucket): void {
  for (const { job, id } of catalogAllocations(db))
    db.run(
      "INSERT OR REPLACE INTO hash (namespace, key, current_hash, previous_hash, current_files, previous_files, current_version) VALUES (?, ?, 'h', 'h', '{}', '{}', '1')",
      `${job}_allocation`,
      id,
    );
}

function promoted({ db }: TestBucket): string[] {
  return db
    .all("SELECT job, worker_ip FROM allocations JOIN hash ON key = alloc_id WHERE previous_hash <> '' ORDER BY job, worker_ip")
    .map((row) => `${row.job}@${row.worker_ip}`);
}

test("disabled.json disables workers, jobs and single allocations; what is enabled again starts as new", async (t) => {
  const bucket = await makeBucket(t);
  const jobs = { web: { selectors: ["worker"] }, api: { selectors: ["worker"] } };
  const disable = (value: object) => ({ "workspace/disabled.json": JSON.stringify(value) });
  await run(bucket, { workers: ["a", "b"], jobs, files: disable({ workers: ["a"], jobs: { api: { allocations: ["b"] } } }) });
  assert.deepEqual(placed(bucket), ["api@a disabled", "api@b disabled", "web@a disabled", "web@b"]);
  promoteAll(bucket);
  const { warnings } = await run(bucket, { workers: ["a", "b"], jobs, files: disable({ jobs: { API: {}, nope: {} } }) });
  assert.deepEqual(placed(bucket), ["api@a disabled", "api@b disabled", "web@a", "web@b"]);
  assert.deepEqual(promoted(bucket), ["api@a", "api@b", "web@b"]);
  assert.deepEqual(warnings, ['workspace/disabled.json: jobs: there is no job "nope"']);
});

test("allocations of a worker whose root changed start as new, with a warning", async (t) => {
  const bucket = await makeBucket(t);
  const jobs = { web: { selectors: ["worker"] } };
  const workers = (root: string) => ["a", { host: "b", connection: "local", root }];
  await run(bucket, { workers: workers("/srv/one"), jobs });
  promoteAll(bucket);
  await run(bucket);
  assert.deepEqual(promoted(bucket), ["web@a", "web@b"]);
  const { warnings } = await run(bucket, { workers: workers("/srv/two"), jobs });
  assert.deepEqual(promoted(bucket), ["web@a"]);
  assert.match(warnings.join(), /^workspace\/workers\.json: b: now keeps its jobs below \/srv\/two/);
});

test("ports keep their numbers over builds, and those of a removed job are free at once", async (t) => {
  const bucket = await makeBucket(t);
  const files = { "workspace/bucket.conf": "port_min = 40000\nport_max = 40001\n" };
  const job = (name: string) => ({ selectors: ["worker"], resources: { ports: { [name]: {} } } });
  const ports = () => catalogJobs(bucket.db).map((one) => one.ports);
  await run(bucket, { workers: ["a"], jobs: { old: job("old"), web: job("web") }, files });
  assert.deepEqual(ports(), [{ old: 40_000 }, { web: 40_001 }]);
  await run(bucket, { workers: ["a"], jobs: { api: job("api"), web: job("web") }, files });
  assert.deepEqual(ports(), [{ api: 40_000 }, { web: 40_001 }]);
  const jobs = { api: job("api"), web: job("web"), zoo: job("zoo") };
  assert.deepEqual((await problems(bucket, { workers: ["a"], jobs, files })).codes, ["ErrPortRangeExhausted"]);
});

test("HR-143 T-104 the KV store tells templates and scripts about bucket, workers, jobs and allocations", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, {
    workers: [
      { host: "w2", position: 9, labels: ["db"], tags: { Zone: "X" }, hostname: "two", memory: "2 tb", cpu: "1.5 ghz" },
      { host: "w1", position: 1, labels: ["db"] },
      { host: "w0", position: 5 },
    ],
    jobs: {
      db: { version: "v1.2", selectors: ["db", "worker"], resources: { ports: { db_port: {}, fixed: 9042 } } },
      idle: { selectors: ["none"], resources: { ports: { idle_port: {} } } },
    },
    files: {
      "workspace/disabled.json": '{"jobs": {"db": {"allocations": ["w1"]}}}',
      "workspace/bucket.conf": 'name = " x "\n',
      "workspace/jobs/db/vars.toml": "size = 3\n",
    },
  });
  const kv = bucket.kv();
  const all = (namespace: string) => Object.fromEntries(kv.entries(namespace));
  assert.deepEqual(all("ops/bucket"), {
    bucket_id: bucket.bucketId,
    jobs: "db,idle",
    activejobs: "db",
    db_port: "30000",
    fixed: "9042",
  });
  assert.deepEqual(all("vars/bucket"), { name: " x " });
  assert.deepEqual(all("ops/worker"), {
    "certs/ca.crt": readFileSync(bucket.layout.caCertificate, "utf8"),
    worker_workers: "w1,w0,w2",
    worker_workers_length: "3",
    worker_0: "w1",
    worker_1: "w0",
    worker_2: "w2",
    worker_label_id: uuidV5(bucket.bucketId, "worker"),
    db_workers: "w1,w2",
    db_workers_length: "2",
    db_0: "w1",
    db_1: "w2",
    db_label_id: uuidV5(bucket.bucketId, "db"),
  });
  assert.deepEqual(all("ops/worker/w2"), {
    worker_ip: "w2",
    worker_id: catalogWorkers(bucket.db)[2]?.id,
    labels: "db,worker",
    worker_cpu_mhz: "1500",
    worker_memory_mb: "2097152",
    jobs: "db",
    position: "9",
    hostname: "two",
    worker_allocation_index: "2",
    worker_peers: "w1,w0",
    db_allocation_index: "1",
    db_peers: "w1",
  });
  assert.equal(all("ops/worker/w0").db_peers, undefined);
  assert.deepEqual(all("ops/worker/w2/tags"), { zone: "x" });
  assert.deepEqual(all("ops/job/db"), {
    job_id: uuidV5(bucket.bucketId, "db"),
    name: "db",
    version: "v1.2",
    selectors: "db,worker",
    min_memory_mb: "0",
    max_memory_mb: "0",
    memory: "0",
    min_cpu_mhz: "0",
    max_cpu_mhz: "0",
    cpu: "0",
    workers: "w2",
    workers_length: "1",
    worker_0: "w2",
  });
  assert.deepEqual(all("ops/job/idle").workers, "");
  assert.deepEqual(all("vars/job/db"), { size: "3" });
  assert.deepEqual(all("ops/job/db/worker/w1"), { db_allocation_index: "0", peer_workers: "w2" });
  assert.deepEqual(all("ops/job/db/worker/w2"), { db_allocation_index: "1", peer_workers: "w1" });
});

test("HR-042 T-34 a build resets rollout_order, removes stale keys, and keeps what scripts and deploys wrote", async (t) => {
  const bucket = await makeBucket(t);
  const jobs = { web: { selectors: ["worker"], resources: { ports: { http: {} } } } };
  const vars = (text: string) => ({ "workspace/jobs/web/vars.toml": text });
  await run(bucket, { workers: ["a"], jobs, files: vars('from_file = "1"\n') });
  const written = bucket.kv();
  written.put("ops/job/web", "rollout_order", "a");
  written.put("vars/job/web", "from_script", "2");
  written.put("secrets/job/web", "password", "long enough");
  written.put("ops/job/web/worker/a", "version", "1.0");
  written.flush();
  await run(bucket, { workers: ["a"], jobs: { web: { selectors: ["worker"] } }, files: vars("") });
  const kv = bucket.kv();
  assert.equal(kv.get("ops/job/web", "rollout_order"), undefined);
  assert.equal(kv.get("ops/bucket", "http"), undefined);
  assert.deepEqual(Object.fromEntries(kv.entries("vars/job/web")), { from_file: "1", from_script: "2" });
  assert.equal(kv.get("secrets/job/web", "password"), "long enough");
  assert.equal(kv.get("ops/job/web/worker/a", "version"), "1.0");
});

test("a build that changes nothing stores no KV row", async (t) => {
  const bucket = await makeBucket(t);
  const count = () => bucket.db.get("SELECT count(*) AS n FROM key_value")?.n;
  await run(bucket, { workers: WORKERS, jobs: { web: WEB, db: DB }, files: { "workspace/jobs/db/vars.toml": "a = 1\n" } });
  const before = count();
  await run(bucket);
  assert.equal(count(), before);
});

test("namespaces of removed workers, jobs and allocations are emptied; variables and secrets wait for purge_job_kv", async (t) => {
  const bucket = await makeBucket(t);
  const jobs = { web: { selectors: ["x"] }, api: { selectors: ["worker"] } };
  await run(bucket, { workers: [{ host: "a", tags: { zone: "z" }, labels: ["x"] }, "b"], jobs });
  const written = bucket.kv();
  for (const job of ["web", "api", "never"]) {
    written.put(`vars/job/${job}`, "k", "v");
    written.put(`secrets/job/${job}`, "k", "v");
  }
  written.flush();
  await run(bucket, { workers: ["b"], jobs });
  const left = () =>
    [...new Set(livingRows(bucket).map(([namespace]) => namespace))].filter(
      (name) => !/^(ops\/(bucket|worker)|vars\/bucket)$/.test(name),
    );
  assert.deepEqual(left(), [
    "ops/job/api",
    "ops/job/api/worker/b",
    "ops/worker/a/tags",
    "ops/worker/b",
    "secrets/job/api",
    "secrets/job/never",
    "secrets/job/web",
    "vars/job/api",
    "vars/job/never",
    "vars/job/web",
  ]);
  await run(bucket, undefined, { purge_job_kv: true });
  assert.deepEqual(left(), [
    "ops/job/api",
    "ops/job/api/worker/b",
    "ops/worker/a/tags",
    "ops/worker/b",
    "secrets/job/api",
    "vars/job/api",
  ]);
});

test("the ports of a job are there as long as it has an allocation, disabled or not", async (t) => {
  const bucket = await makeBucket(t);
  const web = { selectors: ["worker"], resources: { ports: { web_port: {} } } };
  const port = () => bucket.kv().get("ops/bucket", "web_port");
  const disabled = { "workspace/disabled.json": '{"jobs": {"web": {}}}' };
  await run(bucket, { workers: ["a"], jobs: { web }, files: disabled });
  assert.equal(port(), "30000");
  await run(bucket, { workers: [], jobs: { web }, files: disabled });
  assert.equal(port(), undefined);
});

test("a job whose allocations are all disabled keeps its namespaces, even with purge_job_kv", async (t) => {
  const bucket = await makeBucket(t);
  const files = { "workspace/disabled.json": '{"jobs": {"web": {}}}', "workspace/jobs/web/vars.toml": "a = 1\n" };
  await run(bucket, { workers: ["a"], jobs: { web: { selectors: ["worker"] } }, files }, { purge_job_kv: true });
  assert.equal(bucket.kv().get("vars/job/web", "a"), "1");
  assert.equal(bucket.kv().get("ops/job/web", "workers"), "");
  assert.equal(bucket.kv().get("ops/bucket", "activejobs"), "");
});

test("what build, certificates and deploy write about an allocation stays beside each other until it is removed", async (t) => {
  const bucket = await makeBucket(t);
  const web = { selectors: ["worker"], certs: { server: {} } };
  const keys = (worker: string) => bucket.kv().keys(`ops/job/web/worker/${worker}`);
  await run(bucket, { workers: ["a", "b"], jobs: { web } });
  const deployed = bucket.kv();
  for (const worker of ["a", "b"]) deployed.put(`ops/job/web/worker/${worker}`, "version", "1.0");
  deployed.flush();
  const all = ["certs/server.crt", "certs/server.key", "peer_workers", "version", "web_allocation_index"];
  await run(bucket, { workers: ["b", "c", "a"], jobs: { web } });
  assert.deepEqual([keys("a"), keys("b")], [all, all]);
  assert.equal(bucket.kv().get("ops/job/web/worker/a", "peer_workers"), "b,c");
  await run(bucket, { workers: ["b"], jobs: { web: { selectors: ["worker"] } } });
  const left = ["peer_workers", "version", "web_allocation_index"];
  assert.deepEqual([keys("a"), keys("b"), keys("c")], [[], left, []]);
});

test("a key whose value changed counts one version up; all others keep theirs", async (t) => {
  const bucket = await makeBucket(t);
  const jobs = { web: { selectors: ["worker"] } };
  const versions = () =>
    bucket.db
      .all(
        "SELECT key, MAX(version) AS version, deleted, value FROM key_value WHERE namespace IN ('ops/job/web', 'ops/job/web/worker/b') GROUP BY key",
      )
      .filter((row) => /^(worker_.|peer_|web_|workers)/.test(String(row.key)))
      .map((row) => `${row.key} ${row.version} ${row.deleted === 1 ? "deleted" : row.value}`);
  await run(bucket, { workers: ["a", "b", "c"], jobs });
  await run(bucket, { workers: ["b", "c"], jobs });
  await run(bucket, { workers: ["c", "b"], jobs });
  assert.deepEqual(versions(), [
    "peer_workers 2 c",
    "web_allocation_index 3 1",
    "worker_0 3 c",
    "worker_1 3 b",
    "worker_2 2 deleted",
    "workers 3 c,b",
    "workers_length 2 2",
  ]);
});

test("what many workers are told of each other grows with their number, not with its square", async (t) => {
  const jobs = { web: { selectors: ["worker"] }, api: { selectors: ["worker"] } };
  const storedBytes = async (count: number) => {
    const bucket = await makeBucket(t);
    const workers = Array.from({ length: count }, (_, index) => `worker-${100 + index}.example.net`);
    const [first = "", ...others] = workers;
    await run(bucket, { workers, jobs });
    for (const namespace of [`ops/job/web/worker/${first}`, `ops/job/api/worker/${first}`])
      assert.equal(bucket.kv().get(namespace, "peer_workers"), others.join(","));
    assert.equal(bucket.kv().get(`ops/worker/${first}`, "worker_peers"), others.join(","));
    const sizes = "SELECT (SELECT SUM(LENGTH(value)) FROM kv_version) + (SELECT SUM(LENGTH(hosts)) FROM host_list) AS bytes";
    return Number(bucket.db.get(sizes)?.bytes);
  };
  const [few, many] = [await storedBytes(100), await storedBytes(300)];
  assert.ok(many < 3.2 * few, `${many} bytes after ${few}`);
});

test("HR-314 a build that fails while it stores leaves catalog and KV store as they were", async (t) => {
  const bucket = await makeBucket(t);
  const state = () =>
    ["worker", "job", "job_files", "allocations", "kv_version", "host_list"].map((table) =>
      bucket.db.all(`SELECT * FROM ${table}`),
    );
  await run(bucket, { workers: ["a", "b"], jobs: { web: { version: "1", selectors: ["worker"] } } });
  const before = state();
  bucket.db.script(
    "CREATE TRIGGER no BEFORE INSERT ON kv_version WHEN NEW.namespace = 'ops/job/web' BEGIN SELECT RAISE(FAIL, 'full'); END",
  );
  const changed = { workers: ["b", "c"], jobs: { web: { version: "2", selectors: ["worker"] }, api: {} } };
  const context = bucket.context();
  makeWorkspace(bucket.dir, changed);
  await assert.rejects(build(context, {}), /full/);
  assert.deepEqual(state(), before);
  assert.equal(context.kv.get("ops/job/web", "version"), "1", "nor is it in memory");
  bucket.db.script("DROP TRIGGER no");
  await build(context, {});
  assert.equal(context.kv.get("ops/job/web", "version"), "2");
});

test("HR-206 a build makes expired keys tombstones", async (t) => {
  const bucket = await makeBucket(t);
  await run(bucket, { workers: ["a"], jobs: { web: { selectors: ["worker"] } } });
  bucket.db.run(
    "INSERT INTO kv_version (namespace, key, version, value, ttl, created_date) VALUES ('vars/job/web', 'k', 1, 'v', 1, 1)",
  );
  await run(bucket);
  const rows = bucket.db.all("SELECT version, deleted FROM key_value WHERE key = 'k' ORDER BY version");
  assert.deepEqual(
    rows.map((row) => Object.values(row)),
    [
      [1, 0],
      [2, 1],
    ],
  );
});

test("a cancelled build stores nothing", async (t) => {
  const bucket = await makeBucket(t, { workers: ["a"], jobs: { web: { selectors: ["worker"] } } });
  const stop = new AbortController();
  const context = bucket.context("build", stop.signal);
  context.progress.report = ({ phase }) => {
    if (phase === "check") stop.abort();
  };
  await assert.rejects(build(context, {}), { code: "cancelled" });
  assert.deepEqual(placed(bucket), []);
});

test("unknown parameters are refused", async (t) => {
  const bucket = await makeBucket(t);
  await assert.rejects(run(bucket, {}, { purge: true }), { code: "invalid_request", message: /purge is not a known field/ });
  await assert.rejects(run(bucket, {}, { purge_job_kv: "yes" }), { code: "invalid_request" });
});

test("warnings are in the result and in Activity", async (t) => {
  const bucket = await makeBucket(t);
  const { warnings } = await run(bucket, {
    workers: [{ host: "a", labelled: 1 }],
    jobs: { web: { selectors: ["worker"] } },
    files: { "workspace/bucket.jobs.conf": "[wep]\na = 1\n", "ops.conf": 'the_worker_root = "/x"\n' },
  });
  assert.deepEqual(warnings, [
    'ops.conf: the_worker_root: is not a known field; did you mean "worker_root"?',
    "workspace/workers.json: 0/labelled: is not a known field",
    'workspace/bucket.jobs.conf: wep: there is no job "wep"; did you mean "web"?',
  ]);
  for (const warning of warnings) assert.ok(bucket.activity.includes(`warning: ${warning}\n`), warning);
});

test("T-32 T-86 the current revision is marked as built, and the last successful one stays when a build or its post_build fails", async (t) => {
  const bucket = await makeBucket(t);
  const push = (id: string) =>
    recordCurrent(bucket.layout, {
      id: `00000000-0000-7000-8000-00000000000${id}`,
      created_at: "2026-01-01T00:00:00.000Z",
      run_id: "run",
      size_bytes: 0,
      file_count: 0,
      sha256: "",
      note: null,
      commit: null,
      by: null,
      build_status: "pending",
    });
  const states = async () =>
    (await listRevisions(bucket.layout)).map(
      (one) => `${one.id.at(-1)} ${one.build_status}${one.last_successful ? " last" : ""}`,
    );
  await push("1");
  await run(bucket, { workers: ["a"] });
  assert.deepEqual(await states(), ["1 succeeded last"]);
  await push("2");
  await problems(bucket, { files: { "workspace/workers.json": "{" } });
  assert.deepEqual(await states(), ["2 failed", "1 succeeded last"]);
  await run(bucket, { workers: ["b"] });
  assert.deepEqual(await states(), ["2 succeeded last", "1 succeeded"]);
  await push("3");
  const failing = { "workspace/jobs/web/_hooks/up.py": "raise SystemExit(1)\n" };
  const jobs = { web: { selectors: ["worker"], hooks: { up: { executed_on: ["post_build"] } } } };
  const workers = [{ host: "127.0.0.1", connection: "local" }];
  await assert.rejects(run(bucket, { workers, jobs, files: failing }), { code: "ErrHookFailed" });
  assert.deepEqual(await states(), ["3 failed", "2 succeeded last", "1 succeeded"]);
  assert.deepEqual(placed(bucket), ["web@127.0.0.1"], "the catalog is the new one");
});
