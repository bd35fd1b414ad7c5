import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import type { DeployPlan, PlannedJob } from "../../../lib/plan/deploy-plan.ts";
import { type Deployed, Deploys, HOSTS, type JobsSpec } from "../../helpers/deploys.ts";
import { hooksOf, RECORD, traces } from "../../helpers/hooks.ts";

const [A, B] = HOSTS;
const TWO = { hosts: [A, B] };

const planOf = ({ result }: Deployed) => result as DeployPlan;
const jobsOf = (plan: DeployPlan) => plan.waves.flatMap((wave) => wave.jobs);
const jobIn = (plan: DeployPlan, name: string) => jobsOf(plan).find(({ job }) => job === name) as PlannedJob;

/** All that a deploy could have changed: rows, and files on workers. */
function stateOf(deploys: Deploys): unknown {
  const { db } = deploys.bucket;
  const tables = ["hash", "kv_version", "contents", "worker", "bucket"];
  const files = existsSync(deploys.workers) ? readdirSync(deploys.workers, { recursive: true }).sort() : [];
  return [tables.map((table) => db.all(`SELECT * FROM ${table}`)), files];
}

test("a dry run tells actions per allocation, why, files and batches, leaves plan.json, and changes nothing", async (t) => {
  const deploys = await Deploys.make(t);
  const jobs: JobsSpec = {
    base: { manifest: { max_concurrent_upgrades: 1 }, files: { "conf/a": "1", old: "1" } },
    app: { demands: "base", manifest: { restart_policy: "reload" } },
    rest: {},
  };
  await deploys.build(jobs, TWO);
  const first = planOf(await deploys.deploy({ dry_run: true }));
  assert.deepEqual(
    jobsOf(first).map(({ job, outcome, phases }) => [job, outcome, phases]),
    ["base", "rest", "app"].map((job) => [...[job, "roll_out", [{ phase: "new", action: "start", batches: [[A, B]] }]]]),
  );
  assert.deepEqual(
    first.waves.map(({ seq, update_seq }) => [seq, update_seq]),
    [
      [0, 1],
      [1, 2],
    ],
  );
  assert.deepEqual(readdirSync(deploys.workers), [], "nothing is made on a worker, not even the bucket's folder");
  await deploys.deploy();
  await deploys.build(
    { ...jobs, base: { ...jobs.base, files: { "conf/a": "2", new: "1" } } },
    { ...TWO, disabled: { rest: [B] } },
  );
  const before = stateOf(deploys);
  const run = await deploys.deploy({ dry_run: true });
  assert.equal(run.error, undefined);
  const plan = planOf(run);
  assert.deepEqual(plan.reconcile, [{ job: "rest", worker: B, action: "stop", hooks: [] }]);
  const base = jobIn(plan, "base");
  assert.deepEqual(base.phases, [{ phase: "update", action: "restart", batches: [[A], [B]] }]);
  assert.deepEqual(
    base.allocations.map((one) => [one.worker, one.action, one.reason, one.files.map((f) => `${f.change} ${f.path}`)]),
    [A, B].map((host) => [host, "restart", "files changed", ["changed conf/a", "added new", "removed old"]]),
  );
  assert.equal(base.allocations[0]?.from.hash, deploys.promotion("base", A).hash);
  assert.deepEqual(
    ["app", "rest"].map((job) => [jobIn(plan, job).outcome, jobIn(plan, job).reason]),
    [
      ["skip", "already promoted"],
      ["skip", "already promoted"],
    ],
  );
  assert.deepEqual(stateOf(deploys), before);
  assert.deepEqual(JSON.parse(readFileSync(path.join(run.folder, "plan.json"), "utf8")), plan);
  const lines = run.text.trim().split("\n");
  assert.match(lines[0] ?? "", /^PLAN: /);
  assert.match(lines.at(-1) ?? "", /^PLAN: /);
  assert.match(run.text, /127\.0\.0\.1: restart, files changed: ~conf\/a \+new -old/);
  for (const [index, host] of [A, B].entries())
    assert.ok(run.text.includes(` base: restart, batch ${index + 1} of 2: ${host}\n`), run.text);
  await deploys.deploy();
  assert.equal(deploys.promotion("base", A).hash, base.allocations[0]?.to.hash, "the deploy does what was planned");
});

test("a key that is not there yet is unknown until pre_deploy; what no hook can write is said to be so", async (t) => {
  const deploys = await Deploys.make(t);
  const template = { "conf.tpl": '{{ get "vars/job/web" "port" }}' };
  const writes = `${RECORD}ops.put_job_variable("port", "8")\n`;
  await deploys.build(
    {
      web: { manifest: { ...hooksOf({ go: ["pre_deploy"] }) }, files: { ...template, "_hooks/go.py": writes } },
      bad: { files: { "conf.tpl": '{{ get "vars/job/bad" "port" }}' } },
    },
    { hosts: [A] },
  );
  const { result, error, text } = await deploys.deploy({ dry_run: true });
  assert.equal(error, undefined);
  const plan = result as DeployPlan;
  const [bad, web] = [jobIn(plan, "bad"), jobIn(plan, "web")];
  assert.deepEqual([web.outcome, bad.outcome], ["roll_out", "roll_out"]);
  assert.match(web.reason, /^unknown until pre_deploy: .*"port" is missing[^;]*$/);
  assert.match(bad.reason, /; neither it nor what it demands has a hook that could write the key$/);
  assert.deepEqual(
    web.allocations.map((one) => [one.action, one.to.hash]),
    [["unknown", null]],
  );
  assert.deepEqual(traces(deploys.bucket.dir), [], "no hook runs");
  assert.ok(text.includes(" web: hooks for pre_deploy: go\n"), text);
});

test("with_hooks runs pre_deploy with DRY_RUN=1 and drops what it stored; a hook that fails fails its job in the plan", async (t) => {
  const deploys = await Deploys.make(t);
  const script = `${RECORD}ops.put_job_variable("port", "8")\nif os.path.exists("fail"): raise SystemExit("no")\n`;
  const jobs: JobsSpec = {
    web: {
      manifest: { ...hooksOf({ go: ["pre_deploy"] }) },
      files: { "conf.tpl": '{{ get "vars/job/web" "port" }}', "_hooks/go.py": script },
    },
  };
  await deploys.build(jobs, { hosts: [A] });
  const before = stateOf(deploys);
  const run = await deploys.deploy({ dry_run: true, with_hooks: true });
  assert.equal(run.error, undefined);
  assert.equal(jobIn(planOf(run), "web").allocations[0]?.action, "start");
  assert.deepEqual(
    traces(deploys.bucket.dir).map((trace) => trace.DRY_RUN),
    ["1"],
  );
  assert.deepEqual(stateOf(deploys), before);
  await deploys.build(
    { ...jobs, web: { ...jobs.web, files: { ...jobs.web?.files, "_hooks/go.py": `${RECORD}raise SystemExit("no")\n` } } },
    { hosts: [A] },
  );
  const failed = await deploys.deploy({ dry_run: true, with_hooks: true });
  assert.match(failed.error?.message ?? "", /^the deploy would not be complete: web: hook go \(pre_deploy\) .*no/);
  assert.equal(jobIn(planOf(failed), "web").outcome, "failed");
  assert.equal(
    (await deploys.deploy({ with_hooks: true })).error?.message,
    "Cannot start deploy: with_hooks goes only with dry_run",
  );
});
