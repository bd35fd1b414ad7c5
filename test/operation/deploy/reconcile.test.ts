import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { DeployResult } from "../../../lib/operation/deploy/deploy-result.ts";
import { Deploys, HOSTS, type JobsSpec, outcomes } from "../../helpers/deploys.ts";

const [A, B] = HOSTS;
const TWO = { hosts: [A, B] };
const JOBS: JobsSpec = { web: { files: { "conf/a": "1" } }, other: {} };

async function setUp(t: TestContext, jobs = JOBS) {
  const deploys = await Deploys.make(t);
  await deploys.build(jobs, TWO);
  assert.equal((await deploys.deploy()).error, undefined);
  const jobsOn = (host: string) => JSON.parse(readFileSync(path.join(deploys.folder(host), "jobs.json"), "utf8")) as object[];
  return { deploys, jobsOn };
}

test("HR-094 HR-096 what was disabled is stopped once, before any wave, and keeps its files; enabled again it is started", async (t) => {
  const { deploys, jobsOn } = await setUp(t);
  const disabled = { ...TWO, disabled: { web: [B] } };
  await deploys.build({ ...JOBS, other: { files: { new: "1" } } }, disabled);
  const { text, reconciled, result } = await deploys.deploy();
  assert.deepEqual(reconciled, [{ job: "web", worker: B, action: "stop", outcome: "changed", error: null }]);
  const { changed, skipped, disabled: left } = (result as DeployResult).summary.allocations;
  assert.deepEqual([changed, skipped, left], [3, 1, 0], "each allocation counts once");
  assert.ok(text.indexOf("reconcile: ") < text.indexOf("wave 0"));
  assert.deepEqual(jobsOn(B), [
    { job: "other", disabled: 0 },
    { job: "web", disabled: 1 },
  ]);
  assert.deepEqual((await deploys.deploy()).reconciled, [], "once");
  await deploys.build({ ...JOBS, web: { files: { "conf/a": "2" } } }, disabled);
  await deploys.deploy();
  assert.equal(readFileSync(path.join(deploys.folder(B), "jobs/web/conf/a"), "utf8"), "2");
  assert.deepEqual(deploys.targets("web", B), ["start", "stop"]);
  await deploys.build({ ...JOBS, web: { files: { "conf/a": "2" } } }, TWO);
  await deploys.deploy();
  assert.deepEqual(deploys.targets("web", B), ["start", "stop", "start"]);
  assert.deepEqual(deploys.targets("web", A), ["start", "restart"]);
});

test("HR-095 HR-098 what was removed is stopped and its files go, data and what the job made stay; it can come back", async (t) => {
  const { deploys, jobsOn } = await setUp(t);
  await deploys.build({ other: {} }, TWO);
  const { reconciled, error } = await deploys.deploy({ jobs: ["other"] });
  assert.equal(error, undefined);
  assert.deepEqual(
    reconciled.map((one) => `${one.action} ${one.job}@${one.worker}`),
    [`remove web@${A}`, `remove web@${B}`],
    "whichever jobs the deploy is about",
  );
  assert.deepEqual(readdirSync(path.join(deploys.folder(A), "jobs/web")), ["data"]);
  assert.deepEqual(jobsOn(A), [{ job: "other", disabled: 0 }]);
  assert.deepEqual((await deploys.deploy()).reconciled, []);
  await deploys.build(JOBS, TWO);
  await deploys.deploy();
  assert.deepEqual(deploys.targets("web", A), ["start", "stop", "start"]);
});

test("HR-098 what is to be started anew and is removed before a deploy has done so leaves no files", async (t) => {
  const { deploys, jobsOn } = await setUp(t);
  await deploys.build(JOBS, { ...TWO, disabled: { web: [B] } });
  await deploys.deploy();
  await deploys.build(JOBS, TWO);
  await deploys.build({ other: {} }, TWO);
  const { error, reconciled } = await deploys.deploy();
  assert.deepEqual([error, reconciled.map((one) => one.worker)], [undefined, [A, B]]);
  assert.deepEqual(readdirSync(path.join(deploys.folder(B), "jobs/web")), ["data"]);
  assert.deepEqual(jobsOn(B), [{ job: "other", disabled: 0 }]);
  assert.deepEqual((await deploys.deploy()).reconciled, []);
});

test("what never reached its worker has nothing to be stopped there", async (t) => {
  const { deploys } = await setUp(t, { other: {} });
  const inTheWay = path.join(deploys.folder(B), "jobs", "web");
  writeFileSync(inTheWay, "");
  await deploys.build(JOBS, TWO);
  assert.equal((await deploys.deploy({ jobs: ["web"] })).error?.code, "failed");
  rmSync(inTheWay);
  await deploys.build({ other: {} }, TWO);
  const { error, reconciled } = await deploys.deploy();
  assert.deepEqual([error, reconciled.map((one) => one.worker)], [undefined, [A, B]]);
  assert.deepEqual((await deploys.deploy()).reconciled, []);
});

test("a stop that fails fails the deploy after all else was done, and is tried again", async (t) => {
  const { deploys } = await setUp(t);
  const repair = deploys.fail("web", "stop", B);
  await deploys.build({ ...JOBS, other: { files: { new: "1" } } }, { ...TWO, disabled: { web: [B] } });
  const failed = await deploys.deploy();
  assert.match(failed.error?.message ?? "", /web@127\.0\.0\.2: `make stop` of job web on 127\.0\.0\.2 failed: .*stop/);
  assert.deepEqual(outcomes(failed), { other: "deployed", web: "skipped" });
  repair();
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(deploys.targets("web", B), ["start", "stop", "stop"]);
});

test("a removed allocation that was stopped but not cleaned up is started when it comes back, also as planned", async (t) => {
  const { deploys } = await setUp(t);
  const conf = path.join(deploys.folder(A), "jobs", "web", "conf");
  renameSync(conf, `${conf}.aside`);
  writeFileSync(conf, "");
  await deploys.build({ other: {} }, TWO);
  const failed = await deploys.deploy();
  assert.match(failed.error?.message ?? "", /web@127\.0\.0\.1: Cannot sync web to 127\.0\.0\.1: .*conf is a file on the worker/);
  rmSync(conf);
  renameSync(`${conf}.aside`, conf);
  rmSync(path.join(deploys.folder(A), "jobs", "web", "Makefile"));
  await deploys.build(JOBS, TWO);
  const plan = path.basename((await deploys.deploy({ dry_run: true })).folder);
  assert.equal((await deploys.deploy({ plan })).error, undefined, "what is gone was not changed by hand");
  assert.deepEqual(deploys.targets("web", A), ["start", "stop", "start"]);
});

test("a worker that left the bucket and cannot be reached is only told about; when it comes back its jobs are started", async (t) => {
  const { deploys } = await setUp(t);
  await deploys.cutOff(B);
  await deploys.build(JOBS, { hosts: [A] });
  const { error, text } = await deploys.deploy();
  assert.equal(error, undefined);
  assert.match(text, /warning: reconcile of web on 127\.0\.0\.2: /);
  rmSync(path.join(deploys.workers, B), { recursive: true });
  await deploys.build(JOBS, TWO);
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(deploys.targets("web", B), ["start"], "a new machine at the same address");
  assert.ok(existsSync(path.join(deploys.folder(B), "jobs/other/Makefile")));
});

test("a stop has as long as the job's own limit says, whichever jobs the deploy is about", async (t) => {
  const web = { files: { Makefile: "start:\n\t@true\nstop:\n\t@sleep 60\n" } };
  const { deploys } = await setUp(t, { ...JOBS, web });
  // Only now: on a machine with much to do even a start may take that long.
  const short = { ...web, manifest: { lifecycle_timeout_seconds: 1 } };
  await deploys.build({ ...JOBS, web: short }, { ...TWO, disabled: { web: [B] } });
  const { error } = await deploys.deploy({ jobs: ["other"] });
  assert.match(error?.message ?? "", /`make stop` of job web on 127\.0\.0\.2 was stopped at its time limit of 1 s/);
});

test("a removed allocation whose stop did not end well is started when it comes back, one that was never asked to stop is not", async (t) => {
  const { deploys } = await setUp(t);
  await deploys.build({ other: {} }, TWO);
  const repair = deploys.fail("web", "stop", A);
  const back = await deploys.cutOff(B);
  assert.deepEqual(
    (await deploys.deploy({ jobs: ["other"] })).reconciled.map(({ worker, outcome }) => [worker, outcome]),
    [
      [A, "failed"],
      [B, "unreachable"],
    ],
  );
  repair();
  back();
  await deploys.build(JOBS, TWO);
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(deploys.targets("web", A), ["start", "stop", "start"]);
  assert.deepEqual(deploys.targets("web", B), ["start"]);
  assert.deepEqual(outcomes(await deploys.deploy()), { other: "skipped", web: "skipped" });
});
