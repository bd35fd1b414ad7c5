import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { catalogAllocations, catalogJobs } from "../../../lib/bucket/catalog/catalog.ts";
import { stagingFolder } from "../../../lib/bucket/catalog/staging.ts";
import { catalogView } from "../../../lib/bucket/catalog/views.ts";
import { Deploys, HOSTS, outcomes } from "../../helpers/deploys.ts";

const [A, B] = HOSTS;
const TWO = { hosts: [A, B] };

async function chain(t: TestContext, change: Record<string, object> = {}) {
  const deploys = await Deploys.make(t);
  const jobs = {
    store: { ...change.store },
    api: { demands: "store", ...change.api },
    web: { demands: "api", ...change.web },
    other: { ...change.other },
  };
  await deploys.build(jobs, TWO);
  return { deploys, jobs };
}

test("HR-085 HR-086 HR-087 HR-090 HR-091 HR-099 HR-106 HR-107 HR-119 waves go from the lowest sequence up, each with work raises the update sequence by one", async (t) => {
  const { deploys } = await chain(t);
  const { db } = deploys.bucket;
  assert.deepEqual(
    catalogJobs(db).map((job) => [job.name, job.deploymentSeq]),
    [
      ["api", 1],
      ["other", 0],
      ["store", 0],
      ["web", 2],
    ],
  );
  assert.ok(catalogAllocations(db).every((one) => one.deploymentSeq === { web: 2, api: 1 }[one.job] || one.deploymentSeq === 0));
  const first = await deploys.deploy();
  assert.equal(first.error, undefined);
  assert.deepEqual(first.text.match(/wave \d: [\w, ]+ \(update sequence \d\)/g), [
    "wave 0: other, store (update sequence 1)",
    "wave 1: api (update sequence 2)",
    "wave 2: web (update sequence 3)",
  ]);
  const ends = ["store: deployed", "wave 1", "api: deployed", "wave 2"].map((text) => first.text.indexOf(text));
  assert.deepEqual(
    ends,
    ends.toSorted((a, b) => a - b),
  );
  const second = await deploys.deploy();
  assert.deepEqual(
    [second.updateSeq, outcomes(second)],
    [3, { api: "skipped", other: "skipped", store: "skipped", web: "skipped" }],
  );
});

test("HR-104 HR-107 jobs that show the update sequence settle at once, however many waves there are", async (t) => {
  const deploys = await Deploys.make(t);
  const files = { "seq.tpl": "{{ .UpdateSeq }}" };
  const jobs = { base: { files }, store: { files, demands: "base" }, web: { files, demands: "store" } };
  await deploys.build(jobs, { hosts: [A] });
  const first = await deploys.deploy();
  assert.deepEqual([first.error, first.updateSeq], [undefined, 3]);
  const shown = () => Object.keys(jobs).map((job) => readFileSync(path.join(deploys.folder(A), "jobs", job, "seq"), "utf8"));
  assert.deepEqual(shown(), ["1", "2", "3"]);
  const second = await deploys.deploy();
  assert.deepEqual([second.updateSeq, outcomes(second)], [3, { base: "skipped", store: "skipped", web: "skipped" }]);
  await deploys.build({ ...jobs, store: { files: { ...files, page: "1" }, demands: "base" } }, { hosts: [A] });
  const third = await deploys.deploy();
  assert.deepEqual(
    [third.updateSeq, outcomes(third), shown()],
    [4, { base: "skipped", store: "deployed", web: "skipped" }, ["1", "4", "3"]],
  );
  assert.equal((await deploys.deploy()).updateSeq, 4);
});

test("HR-107 a job that is complete with the raised update sequence is skipped, and not rolled out as well", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: { files: { conf: "a" } } }, { hosts: [A] });
  await deploys.deploy();
  await deploys.build({ web: { files: { "conf.tpl": "{{ if eq .UpdateSeq 2 }}a{{ else }}b{{ end }}" } } }, { hosts: [A] });
  const second = await deploys.deploy();
  assert.deepEqual([second.error, second.updateSeq, outcomes(second)], [undefined, 2, { web: "skipped" }]);
  assert.doesNotMatch(second.text, /web: deployed/);
  assert.deepEqual(deploys.targets("web", A), ["start"]);
});

test("a rendered file that reads a secret has the job's secret_mode on the worker, a new one too, and 0600 here", async (t) => {
  const deploys = await Deploys.make(t);
  const kv = deploys.bucket.kv();
  kv.put("secrets/job/web", "password", "very secret");
  kv.flush();
  const build = (secret_mode: string) =>
    deploys.build(
      {
        web: {
          manifest: { secret_mode },
          files: { "conf.tpl": '{{ getSecret "password" }}', "run.sh.tpl": '#!/bin/sh\n# {{ getSecret "password" }}' },
        },
      },
      { hosts: [A] },
    );
  const modes = (folder: string) =>
    ["conf", "run.sh"].map((file) => (statSync(path.join(folder, file)).mode & 0o777).toString(8));
  for (const [mode, expected] of [
    ["0600", ["600", "700"]],
    ["0640", ["640", "750"]],
    ["0644", ["644", "755"]],
  ] as const) {
    await build(mode);
    assert.equal((await deploys.deploy()).error, undefined);
    assert.deepEqual(modes(path.join(deploys.folder(A), "jobs", "web")), expected);
    assert.deepEqual(modes(stagingFolder(deploys.bucket.layout, A, "web")), ["600", "700"]);
  }
});

test("HR-341 HR-344 a job that comes after another deploys in a later wave, and does not start where that one failed", async (t) => {
  const deploys = await Deploys.make(t);
  const after = (...jobs: string[]) => ({ manifest: { after: jobs, hooks: {}, version: "" } });
  await deploys.build({ web: after("cache"), cache: after(), last: after("web") }, { hosts: [A] });
  const repair = deploys.fail("cache", "start", A);
  const failed = await deploys.deploy();
  assert.deepEqual(outcomes(failed), { cache: "failed", last: "not_started", web: "not_started" });
  repair();
  const done = await deploys.deploy();
  assert.deepEqual(outcomes(done), { cache: "deployed", last: "deployed", web: "deployed" });
  const waves = [...done.text.matchAll(/wave (\d): (\w+) /g)].map(([, seq, job]) => `${seq} ${job}`);
  assert.deepEqual(waves, ["0 cache", "1 web", "2 last"]);
});

test("HR-104 HR-105 HR-116 a job that fails keeps what demands it from starting, through others too; the rest goes on and stays", async (t) => {
  const { deploys } = await chain(t);
  const repair = deploys.fail("store", "start", B);
  const failed = await deploys.deploy();
  assert.equal(failed.error?.code, "failed");
  assert.deepEqual(outcomes(failed), { api: "not_started", other: "deployed", store: "failed", web: "not_started" });
  const web = failed.jobs.find((job) => job.job === "web");
  assert.equal(web?.reason, "not started: job store, which it follows directly or through others, failed in this deploy");
  assert.deepEqual(
    failed.jobs.find((job) => job.job === "store")?.allocations.map((one) => [one.worker, one.action, one.outcome]),
    [
      [A, "start", "changed"],
      [B, "start", "failed"],
    ],
  );
  repair();
  const again = await deploys.deploy();
  assert.deepEqual(outcomes(again), { api: "deployed", other: "skipped", store: "deployed", web: "deployed" });
  assert.deepEqual(deploys.targets("store", A), ["start"], "what had succeeded is not repeated");
  assert.deepEqual(deploys.targets("store", B), ["start", "start"]);
  const forced = await deploys.deploy({ force: true, jobs: ["STORE"] });
  assert.deepEqual(outcomes(forced), { store: "deployed" });
});

test("HR-100 T-107 only the named jobs are touched; a failed upstream counts through a job that is not named", async (t) => {
  const { deploys, jobs } = await chain(t);
  await deploys.deploy();
  await deploys.build(
    {
      ...jobs,
      store: { files: { new: "1" } },
      api: { ...jobs.api, files: { new: "1" } },
      web: { ...jobs.web, files: { new: "1" } },
    },
    TWO,
  );
  deploys.fail("store", "restart", A);
  const some = await deploys.deploy({ jobs: ["store", "web"] });
  assert.deepEqual(outcomes(some), { store: "failed", web: "not_started" });
  assert.deepEqual([deploys.targets("api", A), deploys.targets("web", A)], [["start"], ["start"]]);
  const web = await deploys.deploy({ jobs: ["web"] });
  assert.deepEqual(outcomes(web), { web: "deployed" }, "nothing failed in this deploy, and nothing is started for it");
  assert.deepEqual(deploys.targets("api", A), ["start"]);
});

test("with build a deploy brings what the source says now, without it what was built last", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: { files: { conf: "built" } } }, { hosts: [A] });
  const source = path.join(deploys.bucket.dir, "workspace/jobs/web/conf");
  const there = () => readFileSync(path.join(deploys.folder(A), "jobs/web/conf"), "utf8");
  writeFileSync(source, "changed");
  assert.deepEqual([(await deploys.deploy()).error, there()], [undefined, "built"]);
  assert.deepEqual([(await deploys.deploy({ build: true })).error, there()], [undefined, "changed"]);
});

test("a name that the catalog does not know is an error with the nearest one", async (t) => {
  const { deploys } = await chain(t);
  const { error, text } = await deploys.deploy({ jobs: ["stor"] });
  assert.equal(error?.message, 'in the catalog there is no job "stor"; did you mean "store"?');
  assert.equal(text, "");
  assert.equal((await deploys.deploy({ jbs: [] })).error?.code, "invalid_request");
});

test("HR-108 worker.json, jobs.json and bin/ are up to date on the workers of a wave before anything runs there", async (t) => {
  const { deploys } = await chain(t);
  await deploys.deploy({ jobs: ["store"] });
  const read = (name: string) => JSON.parse(readFileSync(path.join(deploys.folder(A), name), "utf8"));
  assert.deepEqual(
    read("jobs.json").map((one: { job: string }) => one.job),
    ["api", "other", "store", "web"],
  );
  assert.equal(read("worker.json").update_seq, 1);
  assert.ok(existsSync(path.join(deploys.folder(A), "bin", "runner")));
});

test("a worker whose own files cannot be brought up to date runs nothing, and says why", async (t) => {
  const { deploys, jobs } = await chain(t);
  await deploys.deploy();
  await deploys.build({ ...jobs, store: { files: { new: "1" } } }, TWO);
  const file = path.join(deploys.folder(B), "worker.json");
  rmSync(file);
  mkdirSync(path.join(file, "in the way"), { recursive: true });
  const { error } = await deploys.deploy();
  assert.match(error?.message ?? "", /127\.0\.0\.2: Cannot sync the worker's files to 127\.0\.0\.2: .*worker\.json is a folder/);
  assert.deepEqual([deploys.targets("store", A), deploys.targets("store", B)], [["start", "restart"], ["start"]]);
  rmSync(file, { recursive: true });
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(deploys.targets("store", A), ["start", "restart"]);
});

test("HR-109 a sync that fails leaves the content hash as it was", async (t) => {
  const { deploys, jobs } = await chain(t);
  await deploys.deploy();
  const { db } = deploys.bucket;
  const hashes = () =>
    catalogView(db, "deployments", { jobs: ["store"] }, { limit: 10 }).items.map((row) => [row.current_hash, row.rollout]);
  const [old, other] = hashes();
  await deploys.build({ ...jobs, store: { files: { new: "1" } } }, TWO);
  const inTheWay = path.join(deploys.folder(A), "jobs", "store", "new");
  mkdirSync(path.join(inTheWay, "own"), { recursive: true });
  const { error } = await deploys.deploy({ jobs: ["store"] });
  assert.match(error?.message ?? "", /Cannot sync store to 127\.0\.0\.1: /);
  assert.deepEqual(hashes()[0], [old?.[0], "update"]);
  assert.notEqual(hashes()[1]?.[0], other?.[0]);
  rmSync(inTheWay, { recursive: true });
  assert.equal((await deploys.deploy({ jobs: ["store"] })).error, undefined);
  assert.notEqual(hashes()[0]?.[0], old?.[0]);
});

test("a worker that cannot be reached fails its own allocations, and only those", async (t) => {
  const { deploys } = await chain(t);
  const reach = await deploys.cutOff(B);
  const { jobs, error } = await deploys.deploy({ jobs: ["other", "store"] });
  assert.match(error?.message ?? "", /other: job other failed on 1 worker: Cannot connect to worker 127\.0\.0\.2: /);
  assert.deepEqual(
    jobs.map((job) => job.allocations.map((one) => `${one.worker} ${one.outcome}`)),
    [
      [`${A} changed`, `${B} unreachable`],
      [`${A} changed`, `${B} unreachable`],
    ],
  );
  reach();
  assert.equal((await deploys.deploy()).error, undefined);
});

test("a template that fails only with the new update sequence fails its job, untouched, and nothing else", async (t) => {
  const { deploys, jobs } = await chain(t);
  await deploys.deploy();
  const template = '{{ if gt .UpdateSeq 3 }}{{ get "vars/bucket" "missing" }}{{ end }}';
  await deploys.build({ ...jobs, store: { files: { "x.tpl": template } }, other: { files: { new: "1" } } }, TWO);
  const { error, jobs: results } = await deploys.deploy();
  assert.match(error?.message ?? "", /store: Cannot render a template of job store on 127\.0\.0\.1: .*x\.tpl:1:.*missing/);
  assert.deepEqual(Object.fromEntries(results.map((job) => [job.job, job.outcome])), {
    api: "not_started",
    other: "deployed",
    store: "failed",
    web: "not_started",
  });
  assert.deepEqual(deploys.targets("store", A), ["start"]);
});

test("T-56 a cancel lets nothing new begin; what was promoted stays and the next deploy goes on from there", async (t) => {
  const { deploys } = await chain(t);
  const cancel = new AbortController();
  const context = deploys.bucket.activity;
  const push = context.push.bind(context);
  context.push = (text: string) => {
    if (text.startsWith("store: deployed")) cancel.abort();
    return push(text);
  };
  const { error } = await deploys.deploy({}, cancel.signal);
  assert.equal(error?.code, "cancelled");
  assert.deepEqual([deploys.targets("store", A), deploys.targets("api", A)], [["start"], []]);
  const again = await deploys.deploy();
  assert.deepEqual([again.error, outcomes(again).store, outcomes(again).web], [undefined, "skipped", "deployed"]);
});

test("a job that is disabled everywhere deploys, though its template reads its own port, certificate and tags", async (t) => {
  const deploys = await Deploys.make(t);
  const template = `{{ get "ops/bucket" "tempo_port" }} {{ keys "tags" }} {{ len (get "ops/job/tempo/worker/${A}" "certs/server.crt") }}`;
  const manifest = { resources: { ports: { tempo_port: {} } }, certs: { server: {} } };
  const tempo = { manifest, files: { "tempo.conf.tpl": template } };
  await deploys.build({ tempo, other: {} }, { hosts: [A], disabled: { tempo: [] } });
  const done = await deploys.deploy();
  assert.equal(done.error, undefined);
  assert.equal(outcomes(done).other, "deployed");
});

test("where the KV store cannot tell of a promotion there is none", async (t) => {
  const deploys = await Deploys.make(t);
  const build = (version: string) => deploys.build({ web: { manifest: { version } } }, { hosts: [A] });
  await build("1.0.0");
  assert.equal((await deploys.deploy()).error, undefined);
  await build("2.0.0");
  const full = "BEFORE INSERT ON kv_version WHEN NEW.key = 'version' BEGIN SELECT RAISE(ABORT, 'no room'); END";
  deploys.bucket.db.run(`CREATE TRIGGER full ${full}`);
  const { error } = await deploys.deploy().catch((thrown: Error) => ({ error: thrown }));
  assert.match(error?.message ?? "", /no room/);
  assert.equal(deploys.promotion("web", A).version, "1.0.0");
});

test("what a promotion that fails has written to the KV store is dropped", async (t) => {
  const deploys = await Deploys.make(t);
  const build = (version: string) =>
    deploys.build({ web: { manifest: { version, max_concurrent_upgrades: 3 } } }, { hosts: HOSTS });
  await build("1.0.0");
  assert.equal((await deploys.deploy()).error, undefined);
  await build("2.0.0");
  const last = catalogAllocations(deploys.bucket.db).find(({ worker }) => worker === HOSTS[2])?.id;
  deploys.bucket.db.run(
    `CREATE TRIGGER full BEFORE UPDATE OF current_version ON hash WHEN OLD.key = '${last}' BEGIN SELECT RAISE(ABORT, 'no room'); END`,
  );
  const { bucket } = deploys;
  const make = bucket.context.bind(bucket);
  const made: ReturnType<typeof make>[] = [];
  bucket.context = (...given) => {
    const context = make(...given);
    made.push(context);
    return context;
  };
  const { error } = await deploys.deploy().catch((thrown: Error) => ({ error: thrown }));
  assert.match(error?.message ?? "", /no room/);
  const [context] = made;
  const versions = HOSTS.map((host) => context?.kv.get(`ops/job/web/worker/${host}`, "version"));
  assert.deepEqual(versions, ["1.0.0", "1.0.0", "1.0.0"]);
});
