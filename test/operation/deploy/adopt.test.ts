import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { control } from "../../../lib/operation/control/job-control.ts";
import type { DeployPlan, PlannedAllocation } from "../../../lib/plan/deploy-plan.ts";
import { repeated } from "../../../lib/run/request.ts";
import { ops, PROGRAM } from "../../../scripts/local-server.ts";
import { type Deployed, Deploys, HOSTS, type JobsSpec } from "../../helpers/deploys.ts";
import { until } from "../../helpers/temporary.ts";

const [A, B] = HOSTS;
const BASE: JobsSpec = { base: { files: { "conf/a": "1", old: "1", "tool.sh": "#!/bin/sh\n" } } };

/** What the earlier system has put on its workers: the files of the jobs, all executable, and files of its own. */
async function earlierDeploy(deploys: Deploys, jobs: JobsSpec, hosts: readonly string[] = [A, B]): Promise<void> {
  await deploys.build(jobs, { hosts });
  assert.equal((await deploys.deploy()).error, undefined);
  const { db } = deploys.bucket;
  db.script("DELETE FROM hash; DELETE FROM last_outcome; DELETE FROM contents; UPDATE bucket SET update_seq = 0");
  db.script("UPDATE worker SET synced_seq = 0; DELETE FROM kv_version WHERE key = 'version' AND namespace LIKE '%/worker/%'");
  for (const host of hosts) {
    const folder = deploys.folder(host);
    for (const name of [".sync", ".runner", "bin"]) rmSync(path.join(folder, name), { recursive: true, force: true });
    writeFileSync(path.join(folder, "worker.json"), '{"worker_id": "9a0364b9e99bb480dd25e1f0284c8555", "update_seq": 41}');
    for (const file of jobFiles(deploys, host)) chmodSync(file, 0o755);
    for (const job of Object.keys(jobs)) writeFileSync(path.join(folder, "jobs", job, "manifest.json"), '{"commands": {}}');
  }
}

/** All files of the jobs on a worker. */
function jobFiles(deploys: Deploys, host: string): string[] {
  const jobs = path.join(deploys.folder(host), "jobs");
  const found = readdirSync(jobs, { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
  return found.map((one) => path.join(one.parentPath, one.name)).sort();
}

/** What tells that a file on a worker was left alone; manifest.json is of ops. */
function state(deploys: Deploys, hosts: readonly string[] = [A, B]): unknown[] {
  return hosts.flatMap((host) =>
    jobFiles(deploys, host)
      .filter((file) => !file.endsWith("/manifest.json"))
      .map((file) => {
        const { ino, mode, mtimeMs, ctimeMs } = statSync(file);
        return [file, ino, mode, mtimeMs, ctimeMs];
      }),
  );
}

const planned = ({ result }: Deployed, job: string) =>
  (result as DeployPlan).waves.flatMap(({ jobs }) => jobs).find((one) => one.job === job)?.allocations ?? [];
const told = (one: PlannedAllocation | undefined) => one?.files.map(({ path: file, change, note }) => [file, change, note ?? ""]);

test("HR-346 HR-347 deploy --adopt takes over what is equal, runs and changes nothing, and a deploy then has nothing to do", async (t) => {
  const deploys = await Deploys.make(t);
  await earlierDeploy(deploys, BASE);
  const before = state(deploys);
  const plan = await deploys.deploy({ adopt: true, dry_run: true });
  assert.deepEqual(
    planned(plan, "base").map(({ worker, action, reason, files }) => [worker, action, reason, files]),
    [A, B].map((host) => [host, "adopt", "the files there are the rendered ones", []]),
  );
  assert.match(plan.text, / base 1\.0\.0: adopt, 2 of 2 allocations\n/);
  assert.match(plan.text, /\n.*2 of 2 allocations can be adopted\n/);
  assert.deepEqual(
    [state(deploys), deploys.promotion("base", A).hash, existsSync(path.join(deploys.folder(A), ".sync"))],
    [before, "", false],
  );
  const adopted = await deploys.deploy({ adopt: true });
  assert.equal(adopted.error, undefined);
  assert.deepEqual(
    adopted.jobs.map(({ job, outcome, reason, allocations }) => [
      job,
      outcome,
      reason,
      allocations.map((one) => [one.action, one.outcome]),
    ]),
    [
      [
        "base",
        "deployed",
        "adopted",
        [
          ["adopt", "changed"],
          ["adopt", "changed"],
        ],
      ],
    ],
  );
  assert.match(adopted.text, /127\.0\.0\.1: adopt, the files there are the rendered ones\n/);
  assert.deepEqual(state(deploys), before, "no file of a job is touched, and no target ran");
  const manifest = readFileSync(path.join(deploys.folder(A), "jobs", "base", "manifest.json"), "utf8");
  assert.match(manifest, /"version":"1.0.0"/, "but for the manifest, which no service reads");
  const again = await deploys.deploy();
  assert.deepEqual(
    again.jobs.map(({ outcome, reason }) => [outcome, reason]),
    [["skipped", "already_promoted"]],
  );
  assert.deepEqual([again.updateSeq, state(deploys)], [1, before]);
  const second = await deploys.deploy({ adopt: true });
  assert.deepEqual(
    second.jobs.map(({ outcome, reason }) => [outcome, reason]),
    [["skipped", "nothing_to_adopt"]],
  );
});

test("HR-346 what was adopted is ops' own: job control runs there, and a file that goes from the workspace goes from the worker", async (t) => {
  const deploys = await Deploys.make(t);
  await earlierDeploy(deploys, BASE, [A]);
  writeFileSync(path.join(deploys.folder(A), "jobs", "base", "fetched.jar"), "of the job");
  await deploys.deploy({ adopt: true });
  const context = deploys.bucket.context("job_restart");
  await control("job_restart")(context, { jobs: ["base"] });
  context.log.close();
  assert.deepEqual(deploys.history("base", A), ["start 1.0.0", "restart 1.0.0"]);
  const { db } = deploys.bucket;
  const { action, outcome } = db.get<{ action: string; outcome: string }>("SELECT * FROM last_outcome") ?? {};
  assert.deepEqual([action, outcome], ["restart", "ok"]);
  const { old: _, ...files } = BASE.base?.files ?? {};
  await deploys.build({ base: { files } }, { hosts: [A] });
  assert.equal((await deploys.deploy()).error, undefined);
  const names = readdirSync(path.join(deploys.folder(A), "jobs", "base"));
  assert.deepEqual([names.includes("old"), names.includes("fetched.jar"), names.includes("conf")], [false, true, true]);
});

test("HR-348 what differs is left alone and named, with a diff from what is there and with what can never equal", async (t) => {
  const deploys = await Deploys.make(t);
  const jobs: JobsSpec = {
    app: {
      files: {
        conf: "a\nb\n",
        gone: "1",
        "id.tpl": "{{ .WorkerID }} {{ .UpdateSeq }}\n",
        "key.tpl": '{{ get "ops/worker" "worker_label_id" }}\n',
        "pass.tpl": '{{ getSecret "password" }}\n',
        "run.sh": "#!/bin/sh\n",
        "version.tpl": "{{ .CurrentVersion }} {{ .NewVersion }}\n",
        words: "text\n",
      },
    },
    base: BASE.base ?? {},
  };
  const kv = deploys.bucket.kv();
  kv.put("secrets/job/app", "password", "correct horse battery");
  kv.flush();
  await earlierDeploy(deploys, jobs);
  for (const host of [A, B]) writeFileSync(path.join(deploys.folder(host), "jobs", "app", "version"), "1.0.0 1.0.0\n");
  const place = (name: string) => path.join(deploys.folder(A), "jobs", "app", name);
  writeFileSync(place("conf"), "a\nc\n");
  writeFileSync(place("pass"), "another horse battery\n");
  writeFileSync(place("words"), "no\0text\n");
  writeFileSync(place("id"), "9a0364b9 41\n");
  writeFileSync(place("key"), "9a0364b9\n");
  chmodSync(place("run.sh"), 0o644);
  rmSync(place("gone"));
  const before = state(deploys);
  const plan = await deploys.deploy({ adopt: true, dry_run: true });
  const [onA, onB] = planned(plan, "app");
  const never = "which no other bucket has: it never equals";
  assert.deepEqual(told(onA), [
    ["conf", "changed", ""],
    ["gone", "added", ""],
    ["id", "changed", `it shows .UpdateSeq, .WorkerID, ${never}`],
    ["key", "changed", `it shows worker_label_id, ${never}`],
    ["pass", "changed", "a secret is rendered in it"],
    ["run.sh", "changed", "it is not executable there"],
    ["words", "changed", "no text, or longer than 64 KiB"],
  ]);
  assert.deepEqual([onA?.action, onA?.reason], ["leave", "7 files differ: conf, gone, id, key, pass and 2 more"]);
  assert.match(onA?.files[0]?.diff ?? "", /^-c\n\+b$/m);
  assert.equal(onA?.files[0]?.from?.split(":")[0], "755");
  assert.equal(onB?.action, "adopt", "what shows the version is rendered as if it had been promoted");
  assert.match(plan.text, / app\/conf on 127\.0\.0\.1:\n.*--- jobs\/app\/conf\tthere\n.*\+\+\+ jobs\/app\/conf\tplanned\n/);
  assert.doesNotMatch(plan.text, /another horse/);
  const { jobs: ended, error, text } = await deploys.deploy({ adopt: true });
  assert.equal(error, undefined);
  assert.deepEqual(
    ended.map(({ job, allocations }) => [job, allocations.map((one) => `${one.action} ${one.outcome}`)]),
    [
      ["app", ["leave skipped", "adopt changed"]],
      ["base", ["adopt changed", "adopt changed"]],
    ],
  );
  assert.match(text, /127\.0\.0\.1: leave, 7 files differ: conf, gone/);
  assert.deepEqual(state(deploys), before);
  assert.deepEqual([deploys.promotion("app", A).hash, deploys.promotion("app", B).version], ["", "1.0.0"]);
  const rest = await deploys.deploy();
  assert.deepEqual(
    rest.jobs.map(({ job, allocations }) => [job, allocations.map((one) => one.action)]),
    [
      ["app", ["start", "skip"]],
      ["base", ["skip", "skip"]],
    ],
  );
});

test("only what ops has never touched is adopted: not what it promoted, began, stopped, disabled or cannot render", async (t) => {
  const deploys = await Deploys.make(t);
  const jobs: JobsSpec = { done: {}, begun: {}, off: {}, unknown: { files: { "x.tpl": '{{ get "vars/job/unknown" "x" }}' } } };
  const put = deploys.bucket.kv();
  put.put("vars/job/unknown", "x", "1");
  put.flush();
  await earlierDeploy(deploys, jobs, [A]);
  put.delete("vars/job/unknown", "x");
  put.flush();
  await deploys.build(jobs, { hosts: [A], disabled: { off: [A] } });
  const mends = deploys.fail("begun", "start", A);
  await deploys.deploy({ jobs: ["done", "begun"] });
  mends();
  const { error, jobs: ended } = await deploys.deploy({ adopt: true });
  assert.match(error?.message ?? "", /unknown: Cannot render a template of job unknown on .*"x" is missing/);
  assert.deepEqual(
    ended.map(({ job, outcome, reason }) => [job, outcome, job === "unknown" ? "" : reason]),
    [
      ["begun", "skipped", "nothing_to_adopt"],
      ["done", "skipped", "nothing_to_adopt"],
      ["off", "skipped", "nothing_to_adopt"],
      ["unknown", "failed", ""],
    ],
  );
  assert.deepEqual([deploys.promotion("off", A).hash, deploys.promotion("begun", A).unfinished], ["", true]);
  const plan = await deploys.deploy({ adopt: true, dry_run: true, jobs: ["begun"] });
  assert.match(planned(plan, "begun")[0]?.reason ?? "", /^an earlier deploy or job control began there/);
});

test("a worker that gives no answer is told, the others are adopted, and a repetition does the rest", async (t) => {
  const deploys = await Deploys.make(t);
  await earlierDeploy(deploys, BASE);
  const reach = await deploys.cutOff(B);
  const plan = await deploys.deploy({ adopt: true, dry_run: true });
  assert.deepEqual(
    planned(plan, "base").map(({ action }) => action),
    ["adopt", "unknown"],
  );
  assert.deepEqual(
    (plan.result as DeployPlan).unreachable.map(({ worker }) => worker),
    [B],
  );
  const { error, jobs, folder } = await deploys.deploy({ adopt: true });
  assert.match(error?.message ?? "", /base: job base failed on 1 worker/);
  assert.deepEqual(
    jobs[0]?.allocations.map((one) => `${one.action} ${one.outcome}`),
    ["adopt changed", "adopt unreachable"],
  );
  reach();
  const record = { kind: "deploy", status: "failed", params: { adopt: true }, result: error?.details };
  writeFileSync(path.join(folder, "server-run.json"), JSON.stringify({ ...RECORD, id: path.basename(folder), ...record }));
  const again = await repeated(deploys.bucket.layout, "deploy", path.basename(folder));
  assert.deepEqual([again.adopt, again.jobs], [true, ["base"]]);
  const { retry_of: _, ...params } = again;
  assert.equal((await deploys.deploy(params)).error, undefined);
  assert.notEqual(deploys.promotion("base", B).hash, "");
});

const RECORD = {
  bucket_id: "",
  origin: "cli",
  created_at: "2026-01-01T00:00:00.000Z",
  started_at: "2026-01-01T00:00:00.000Z",
  finished_at: "2026-01-01T00:00:01.000Z",
  exit_code: 1,
  signal: null,
  error: "no",
  audit: [],
};

test("a plan of an adoption can be carried out, and takes over what is equal by then", async (t) => {
  const deploys = await Deploys.make(t);
  await earlierDeploy(deploys, BASE);
  const { folder } = await deploys.deploy({ adopt: true, dry_run: true });
  writeFileSync(path.join(deploys.folder(B), "jobs", "base", "old"), "by hand");
  const { error, jobs, result } = await deploys.deploy({ plan: path.basename(folder) });
  assert.equal(error, undefined);
  assert.deepEqual(
    jobs[0]?.allocations.map(({ action }) => action),
    ["adopt", "leave"],
  );
  const { plan } = result as { plan: { adopt: boolean; differences: { worker: string; action: string }[] } };
  assert.deepEqual([plan.adopt, plan.differences.map(({ worker, action }) => [worker, action])], [true, [[B, "leave"]]]);
});

test("where nothing lies yet nothing is adopted and nothing is made; force, sync_only and with_hooks exclude adopt", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build(BASE, { hosts: [A] });
  const { error, jobs } = await deploys.deploy({ adopt: true });
  assert.equal(error, undefined);
  assert.deepEqual(
    jobs[0]?.allocations.map((one) => [one.action, (one as { reason?: string }).reason]),
    [["leave", "nothing of it is there"]],
  );
  assert.deepEqual(readdirSync(deploys.workers), []);
  for (const other of ["force", "sync_only"]) {
    const { error: refused } = await deploys.deploy({ adopt: true, [other]: true });
    assert.match(JSON.stringify(refused?.details), new RegExp(`"${other}","message":"excludes adopt`));
  }
  assert.equal((await deploys.deploy({ adopt: true, force: false, sync_only: false })).error, undefined);
});

test("an adoption that is killed at any moment changes no service, and the next one does the rest", async (t) => {
  const deploys = await Deploys.make(t);
  const many = Object.fromEntries(Array.from({ length: 6 }, (_, index) => [`job${index}`, BASE.base ?? {}]));
  await earlierDeploy(deploys, many);
  const before = state(deploys);
  const { bucket } = deploys;
  const places = () => Object.keys(many).flatMap((job) => [A, B].map((host) => deploys.promotion(job, host).hash));
  const lists = () =>
    [A, B]
      .map((host) => path.join(deploys.folder(host), ".sync"))
      .flatMap((folder) => (existsSync(folder) ? readdirSync(folder) : []));
  const moments = [
    () => lists().includes(".worker.list"),
    () => lists().some((name) => /^job\d\.list$/.test(name)),
    () => places().some((hash) => hash !== ""),
  ];
  for (const isMoment of moments) {
    const child = spawn(process.execPath, [PROGRAM, "deploy", "--adopt", "--bucket-dir", bucket.dir], { stdio: "ignore" });
    const closed = once(child, "close");
    await until("the moment comes", () => child.exitCode !== null || isMoment());
    child.kill("SIGKILL");
    await closed;
    assert.deepEqual(state(deploys), before);
  }
  const { code, stderr } = await ops(["deploy", "--adopt", "--bucket-dir", bucket.dir]);
  assert.equal(code, 0, stderr);
  assert.ok(places().every((hash) => hash !== ""));
  assert.deepEqual(state(deploys), before);
  assert.deepEqual(
    (await deploys.deploy()).jobs.filter(({ outcome }) => outcome !== "skipped"),
    [],
  );
});
