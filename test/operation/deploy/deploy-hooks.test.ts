import assert from "node:assert/strict";
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { runHooks } from "../../../lib/operation/hooks/hooks.ts";
import { Deploys, HOSTS, type JobsSpec, outcomes } from "../../helpers/deploys.ts";
import { hooksOf, RECORD, traces } from "../../helpers/hooks.ts";
import { until } from "../../helpers/temporary.ts";
import { processesIn } from "../../helpers/worker.ts";

const [A, B] = HOSTS;
const TWO = { hosts: [A, B] };

/** A job whose one hook runs on these events; each script notes its environment first. */
function job(events: string[], script = "", manifest: Record<string, unknown> = {}, files = {}): JobsSpec[string] {
  return {
    manifest: { ...hooksOf({ go: events }), ...manifest },
    files: { "_hooks/go.py": `${RECORD}event = ops.hook_event()\nhost = ops.allocation_ip()\n${script}`, ...files },
  };
}

/** The variables of job_control alone. */
const OF_JOB_CONTROL = ["TARGET", "NEW_ALLOCATIONS", "UPDATED_ALLOCATIONS"];

/** Fails while the bucket's folder has a file `fail`, for the workers that it names. */
const FAILS = `if os.path.exists("fail") and host in open("fail").read(): raise SystemExit("told to fail")\n`;

async function setUp(t: TestContext, jobs: JobsSpec, options: Parameters<Deploys["build"]>[1] = TWO) {
  const deploys = await Deploys.make(t);
  await deploys.build(jobs, options);
  const { dir } = deploys.bucket;
  const fail = (...hosts: string[]) => writeFileSync(path.join(dir, "fail"), hosts.join(" "));
  const repair = () => rmSync(path.join(dir, "fail"));
  const told = (...names: string[]) => traces(dir).map((trace) => names.map((name) => trace[name] ?? "-").join(" "));
  return { deploys, dir, fail, repair, told };
}

test("HR-044 HR-101 HR-110 HR-111 HR-234 HR-303 HR-304 HR-305 HR-308 HR-312 HR-335 T-36 the hooks of a rollout in their order, with their batches", async (t) => {
  const events = ["pre_deploy", "after_allocation_started", "health_check", "post_deploy"];
  const write = `if event == "health_check": print("write", ops.put_job_variable("a", "b").text)\n`;
  const jobs = { web: job(events, write, { max_concurrent_starts: 2, max_concurrent_upgrades: 1 }) };
  const { deploys, told } = await setUp(t, jobs, {});
  const { error, text } = await deploys.deploy();
  assert.equal(error, undefined);
  const [X, Y, Z] = HOSTS;
  assert.deepEqual(told("EVENT", "DEPLOY_PHASE", "BATCH_INDEX", "BATCH_COUNT", "ALLOCATION_IP", "CURRENT_VERSION").sort(), [
    ...[X, Y].map((host) => `after_allocation_started new 0 2 ${host} 0.0.0`),
    `after_allocation_started new 1 2 ${Z} 0.0.0`,
    // After the first batch for what is promoted, after the second for all.
    `health_check health_check 0 2 ${X} 1.0.0`,
    `health_check health_check 0 3 ${X} 1.0.0`,
    `health_check health_check 1 2 ${Y} 1.0.0`,
    `health_check health_check 1 3 ${Y} 1.0.0`,
    `health_check health_check 2 3 ${Z} 1.0.0`,
    ...HOSTS.map((host, index) => `post_deploy post_deploy ${index} 3 ${host} 1.0.0`),
    ...HOSTS.map((host, index) => `pre_deploy pre_deploy ${index} 3 ${host} 0.0.0`),
  ]);
  const steps = [
    "(pre_deploy, batch 3",
    "batch 1 of 2 (new)",
    "(after_allocation_started, batch 1",
    "(health_check, batch 2 of 2",
    "batch 2 of 2 (new)",
    "(after_allocation_started, batch 2",
    "(health_check, batch 3 of 3",
    "(post_deploy, batch 1",
    "web: deployed",
  ];
  const places = steps.map((step) => text.indexOf(step));
  assert.deepEqual(
    places.toSorted((a, b) => a - b),
    places,
    text,
  );
  assert.ok(!places.includes(-1), text);
  assert.match(text, /write .*KV writes are not allowed during health_check/);

  await deploys.build({ web: { ...jobs.web, manifest: { ...jobs.web.manifest, version: "1.1.0" } } });
  await deploys.deploy();
  const upgrades = told(
    "EVENT",
    "DEPLOY_PHASE",
    "BATCH_INDEX",
    "BATCH_COUNT",
    "CURRENT_VERSION",
    "NEW_VERSION",
    ...OF_JOB_CONTROL,
  );
  const of = (event: string) => upgrades.filter((one) => one.startsWith(event));
  const three = (text: string) => [0, 1, 2].map((index) => text.replace("*", `${index} 3`));
  assert.deepEqual(of("pre_deploy"), three("pre_deploy pre_deploy * 1.0.0 1.1.0 - - -"));
  assert.deepEqual(of("after"), three("after_allocation_started update * 1.0.0 1.1.0 - - -"));
  assert.deepEqual(of("post_deploy"), three("post_deploy post_deploy * 1.1.0 1.1.0 - - -"));
  assert.ok(of("health_check").every((one) => / 1\.1\.0 1\.1\.0 - - -$/.test(one)));
});

test("HR-317 HR-320 a secret that pre_deploy writes is in the files of the same deploy, and in no log", async (t) => {
  const script = `ops.put_job_secret("password", "sesame-sesame").raise_for_status()\nprint("sesame-sesame")\n`;
  const jobs = { web: job(["pre_deploy"], script, {}, { "conf.tpl": '{{ getSecret "password" }}' }) };
  const { deploys } = await setUp(t, jobs);
  const stop = deploys.fail("web", "start", A);
  const first = await deploys.deploy();
  stop();
  assert.deepEqual(outcomes(first), { web: "failed" });
  assert.equal(deploys.bucket.kv().get("secrets/job/web", "password"), "sesame-sesame", "it is stored by then");
  const second = await deploys.deploy();
  assert.equal(second.error, undefined);
  assert.equal(readFileSync(path.join(deploys.folder(B), "jobs/web/conf"), "utf8"), "sesame-sesame");
  assert.doesNotMatch(first.text + second.text, /sesame/);
  assert.ok(!existsSync(path.join(deploys.folder(A), "jobs/web/_hooks")), "scripts never go to a worker");
});

test("HR-020 HR-116 T-40 a failing pre_deploy stores nothing and leaves out its job and those that demand it; others go on", async (t) => {
  const write = `ops.put_job_variable("half", host).raise_for_status()\n`;
  const broken = job(["pre_deploy", "cli"], write + FAILS);
  const demanding = { manifest: { hooks: { check: { executed_on: ["cli"], demands: { job: "broken", hook: "go" } } } } };
  const { deploys, fail, repair } = await setUp(t, { broken, demanding, other: job(["pre_deploy"], write) });
  fail(B);
  const deployed = await deploys.deploy();
  assert.deepEqual(outcomes(deployed), { broken: "failed", demanding: "not_started", other: "deployed" });
  assert.match(
    deployed.error?.message ?? "",
    /broken: hook go \(pre_deploy\) of job broken failed on 1 worker: 127\.0\.0\.2: exit code 1: told to fail/,
  );
  const kv = deploys.bucket.kv();
  assert.deepEqual([kv.get("vars/job/broken", "half"), kv.get("vars/job/other", "half")], [undefined, B]);
  assert.deepEqual(deploys.targets("broken", A), []);
  repair();
  assert.equal((await deploys.deploy()).error, undefined);
  assert.equal(deploys.bucket.kv().get("vars/job/broken", "half"), B);
});

test("HR-318 what hooks write from the first batch on is stored though they fail; the next deploy starts nothing twice", async (t) => {
  const script = `ops.put_job_variable("joined-" + host, "yes").raise_for_status()\n${FAILS}`;
  const jobs = { web: job(["after_allocation_started", "post_deploy"], script, { max_concurrent_starts: 1 }) };
  const { deploys, fail, repair, told } = await setUp(t, jobs);
  fail(A);
  const { error, jobs: results } = await deploys.deploy();
  assert.match(error?.message ?? "", /hook go \(after_allocation_started\) of job web failed on 1 worker: 127\.0\.0\.1/);
  assert.deepEqual(
    results[0]?.allocations.map(({ worker, outcome }) => [worker, outcome]),
    [
      [A, "failed"],
      [B, "not_started"],
    ],
  );
  assert.equal(results[0]?.allocations[0]?.error, "hook go: exit code 1: told to fail");
  assert.equal(deploys.bucket.kv().get("vars/job/web", `joined-${A}`), "yes");
  assert.equal(deploys.promotion("web", A).hash, "", "what did not join is not promoted");
  told();
  repair();
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(
    [A, B].map((host) => deploys.targets("web", host)),
    [["start"], ["start"]],
  );
  assert.deepEqual(told("EVENT", "ALLOCATION_IP"), [
    ...[A, B].map((host) => `after_allocation_started ${host}`),
    ...[A, B].map((host) => `post_deploy ${host}`),
  ]);
});

test("where a script for job_control fails, its allocation has failed, the others of its batch are changed, later ones have not begun", async (t) => {
  const web = job(["job_control"], FAILS, { max_concurrent_upgrades: 2 });
  const { deploys, fail } = await setUp(t, { web }, {});
  fail(B);
  const failed = await deploys.deploy();
  assert.deepEqual(
    failed.jobs[0]?.allocations.map(({ outcome }) => outcome),
    ["changed", "failed", "not_started"],
  );
});

test("a cancel while scripts for job_control run cancels their batch, and no later batch begins", async (t) => {
  const web = job(["job_control"], "import time\ntime.sleep(600)\n", { max_concurrent_upgrades: 2 });
  const { deploys, dir } = await setUp(t, { web }, {});
  const cancel = new AbortController();
  t.after(() => cancel.abort());
  const deploying = deploys.deploy({}, cancel.signal);
  const trace = path.join(dir, "trace");
  await until("two scripts", () => existsSync(trace) && readFileSync(trace, "utf8").split("\n").length === 3);
  cancel.abort();
  const { error, jobs } = await deploying;
  assert.equal(error?.code, "cancelled");
  assert.deepEqual(
    jobs[0]?.allocations.map(({ outcome }) => outcome),
    ["cancelled", "cancelled", "not_started"],
  );
});

test("HR-056 HR-155 HR-156 HR-310 hooks for job_control replace start and restart, for all workers in batches; no after_allocation_started then", async (t) => {
  const jobs = { web: job(["job_control", "after_allocation_started", "health_check"], FAILS, {}) };
  const { deploys, told, fail, repair } = await setUp(t, jobs, { hosts: [A] });
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(told("EVENT", "NEW_ALLOCATIONS", "UPDATED_ALLOCATIONS"), [`job_control ${A} `, "health_check - -"]);
  const changed = { web: { ...jobs.web, files: { ...jobs.web.files, more: "1" } } };
  await deploys.build(changed, {});
  fail(B);
  const failed = await deploys.deploy();
  assert.match(failed.error?.message ?? "", /hook go \(job_control\) of job web failed on 1 worker: 127\.0\.0\.2/);
  assert.doesNotMatch(failed.text, /: job_control on /, "the hooks tell their own places");
  assert.deepEqual(told("EVENT", "ALLOCATION_IP", "BATCH_INDEX", "BATCH_COUNT", "NEW_ALLOCATIONS", "UPDATED_ALLOCATIONS"), [
    `job_control ${A} 0 3 ${HOSTS.slice(1)} ${A}`,
    `health_check ${A} 0 1 - -`,
    `job_control ${B} 1 3 ${HOSTS.slice(1)} ${A}`,
  ]);
  repair();
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(
    told("EVENT", "ALLOCATION_IP", "NEW_ALLOCATIONS", "UPDATED_ALLOCATIONS").filter((one) => one.startsWith("job")),
    HOSTS.map((host) => `job_control ${host} ${HOSTS.slice(1)} `),
  );
  assert.deepEqual(
    HOSTS.flatMap((host) => deploys.targets("web", host)),
    [],
  );
  assert.equal((await deploys.deploy()).jobs[0]?.outcome, "skipped");
  assert.deepEqual(told("EVENT"), [], "nothing to control");
});

test("HR-054 HR-055 HR-097 HR-309 HR-312 hooks follow what was stopped, batched by job, and are repeated until they succeed", async (t) => {
  const jobs = {
    web: job(["after_allocation_stopped"], FAILS),
    other: job(["after_allocation_stopped"], "", { max_concurrent_upgrades: 2 }),
  };
  const { deploys, told, fail, repair } = await setUp(t, jobs);
  assert.equal((await deploys.deploy()).error, undefined);
  await deploys.build(jobs, { hosts: [A], disabled: { web: [A], other: [A] } });
  fail(A);
  const first = await deploys.deploy();
  assert.deepEqual(
    told(...["JOB", "ALLOCATION_IP", "DISABLED", "BATCH_INDEX", "BATCH_COUNT", "DEPLOY_PHASE"], ...OF_JOB_CONTROL).sort(),
    [`other ${A} 1 0 1 stop - - -`, `other ${B} 0 0 1 stop - - -`, `web ${A} 1 0 2 stop - - -`],
  );
  assert.ok(first.text.indexOf("after_allocation_stopped") < first.text.indexOf("jobs:"));
  assert.deepEqual(
    first.reconciled.filter(({ job: name }) => name === "other").map(({ error }) => error),
    [null, null],
  );
  assert.match(first.reconciled.find((one) => one.job === "web" && one.worker === A)?.error ?? "", /told to fail/);
  assert.ok(existsSync(path.join(deploys.folder(B), "jobs/web/Makefile")), "the files wait for the hooks");
  repair();
  const second = await deploys.deploy();
  assert.equal(second.error, undefined);
  assert.deepEqual(told("JOB", "ALLOCATION_IP"), [`web ${A}`, `web ${B}`]);
  assert.ok(!existsSync(path.join(deploys.folder(B), "jobs/web/Makefile")));
  assert.deepEqual((await deploys.deploy()).reconciled, []);
});

test("HR-303 a job with hooks for health_check has a gate, which stays open until they succeed", async (t) => {
  const wait = { health_check: { wait: { attempts: 2, interval_seconds: 1 } } };
  const { deploys, fail, repair, told } = await setUp(t, { web: job(["health_check"], FAILS, wait) }, { hosts: [A] });
  fail(A);
  const { error } = await deploys.deploy();
  assert.match(error?.message ?? "", /the health check of job web failed: 127\.0\.0\.1: hook go: exit code 1/);
  assert.equal(deploys.promotion("web", A).gate, "failed");
  assert.equal(told("EVENT").length, 2, "it was tried as often as the manifest says");
  repair();
  assert.equal((await deploys.deploy()).error, undefined);
  assert.equal(deploys.promotion("web", A).gate, "passed");
  assert.deepEqual(deploys.targets("web", A), ["start"]);
});

test("HR-040 HR-041 HR-042 pre_deploy and cli order the rollout, and the next build resets that", async (t) => {
  const order = `if ops.is_one_shot(): ops.put_rollout_order(["${B}", "${A}"]).raise_for_status()\n`;
  const jobs = { web: job(["pre_deploy"], order, { max_concurrent_starts: 1 }) };
  const cli = {
    web: job(["cli", "post_deploy"], `if event == "cli" and ops.is_one_shot(): ops.put_rollout_order("${B},${A}")\n`),
  };
  const { deploys, told } = await setUp(t, jobs);
  const { text } = await deploys.deploy();
  assert.match(text, new RegExp(`batch 1 of 2 \\(new\\): start on ${B}\n`));
  assert.equal(deploys.bucket.kv().get("ops/job/web", "rollout_order"), `${B},${A}`);
  await deploys.build(jobs, TWO);
  assert.equal(deploys.bucket.kv().get("ops/job/web", "rollout_order"), undefined);

  await deploys.build(cli, TWO);
  await runHooks(deploys.bucket.context("hooks"), { hook: "go" });
  told();
  assert.match((await deploys.deploy()).text, new RegExp(`batch 1 of 2 \\(update\\): restart on ${B}\n`));
  assert.deepEqual(told("ALLOCATION_IP", "ROLLOUT_ORDER", "ROLLOUT_ORDER_SOURCE"), [`${B} ${B},${A} kv`, `${A} ${B},${A} kv`]);
});

test("CP-133 a cancel during pre_deploy ends its processes and stores nothing", async (t) => {
  const wait = `import subprocess\nops.put_job_variable("half", "1").raise_for_status()\nprint("here", flush=True)\nsubprocess.run(["sleep", "600"])\n`;
  const { deploys, dir } = await setUp(t, { web: job(["pre_deploy"], wait) });
  const cancel = new AbortController();
  t.after(() => cancel.abort());
  const deploying = deploys.deploy({}, cancel.signal);
  await until("the script to run", () => /\| here/.test(deploys.bucket.activity.join("")));
  cancel.abort();
  assert.equal((await deploying).error?.code, "cancelled");
  assert.deepEqual(processesIn(dir), []);
  assert.equal(deploys.bucket.kv().get("vars/job/web", "half"), undefined);
});

test("a cancel during after_allocation_started keeps what it has stored", async (t) => {
  const wait = `import subprocess\nops.put_job_variable("unseal-key", "1").raise_for_status()\nprint("here", flush=True)\nsubprocess.run(["sleep", "600"])\n`;
  const { deploys, dir } = await setUp(t, { web: job(["after_allocation_started"], wait) });
  const cancel = new AbortController();
  t.after(() => cancel.abort());
  const deploying = deploys.deploy({}, cancel.signal);
  await until("the script to run", () => /\| here/.test(deploys.bucket.activity.join("")));
  cancel.abort();
  assert.equal((await deploying).error?.code, "cancelled");
  assert.deepEqual(processesIn(dir), []);
  assert.equal(deploys.bucket.kv().get("vars/job/web", "unseal-key"), "1");
});

test("a worker whose folder is gone before the last sync has failed, and is synced by the next deploy, which repeats no target", async (t) => {
  const cut = `if os.path.exists("cut"):
    root = open("cut").read()
    os.remove("cut")
    os.rename(root, root + ".aside")
    open(root, "w").close()
`;
  const { deploys } = await setUp(t, { web: job(["post_deploy"], cut) });
  const root = path.join(deploys.workers, B);
  assert.equal((await deploys.deploy()).error, undefined);
  await deploys.build({ web: job(["post_deploy"], cut, {}, { more: "1" }) }, TWO);
  writeFileSync(path.join(deploys.bucket.dir, "cut"), root);
  const { jobs } = await deploys.deploy();
  assert.deepEqual(
    jobs[0]?.allocations.map(({ outcome }) => outcome),
    ["changed", "failed"],
  );
  rmSync(root);
  renameSync(`${root}.aside`, root);
  writeFileSync(path.join(deploys.folder(B), "jobs/web/more"), "what make wrote there");
  const next = await deploys.deploy();
  assert.deepEqual([next.error, outcomes(next)], [undefined, { web: "deployed" }]);
  assert.equal(readFileSync(path.join(deploys.folder(B), "jobs/web/more"), "utf8"), "1");
  assert.deepEqual(deploys.targets("web", B), ["start", "restart"]);
  assert.deepEqual(outcomes(await deploys.deploy()), { web: "skipped" });
});
