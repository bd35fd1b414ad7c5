import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { deploy } from "../../../lib/operation/deploy/deploy.ts";
import type { DeployPlan, PlannedAllocation, PlannedJob } from "../../../lib/plan/deploy-plan.ts";
import { type Deployed, Deploys, HOSTS, type JobsSpec } from "../../helpers/deploys.ts";
import { hooksOf, RECORD } from "../../helpers/hooks.ts";
import { carryOut } from "../../helpers/operations.ts";

const [A, B, C] = HOSTS;
const planOf = ({ result }: Deployed) => result as DeployPlan;
const jobIn = (plan: DeployPlan, name: string) =>
  plan.waves.flatMap(({ jobs }) => jobs).find(({ job }) => job === name) as PlannedJob;
const on = (job: PlannedJob, host: string) => job.allocations.find(({ worker }) => worker === host) as PlannedAllocation;
/** What is shown of each file. */
const shown = ({ files }: PlannedAllocation) =>
  Object.fromEntries(files.map(({ path, diff, note }) => [path, diff ?? `(${note})`]));

test("a plan shows the files that change as unified diffs against what was promoted there, or says why not", async (t) => {
  const deploys = await Deploys.make(t);
  const jobs = (text: string, more: Record<string, string>): JobsSpec => ({
    web: { files: { "conf/a": `one\n${text}\nthree\n`, ...more } },
  });
  const long = "x\n".repeat(40_000);
  await deploys.build(jobs("two", { old: "gone\n", bytes: "\0 1", long, same: "same" }), { hosts: [A, B] });
  const first = planOf(await deploys.deploy({ dry_run: true }));
  assert.match(shown(on(jobIn(first, "web"), A))["conf/a"] ?? "", /^@@ -0,0 \+1,3 @@\n\+one\n\+two\n\+three\n$/);
  await deploys.deploy();
  await deploys.build(jobs("2", { new: "", bytes: "\0 2", long: `${long}y`, same: "same" }), { hosts: [A, B] });
  deploys.bucket.db.run("UPDATE job_files SET mode = ? WHERE path = 'same'", 0o755);
  const run = await deploys.deploy({ dry_run: true });
  assert.equal(run.error, undefined);
  for (const host of [A, B])
    assert.deepEqual(shown(on(jobIn(planOf(run), "web"), host)), {
      "conf/a": "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
      bytes: "(binary)",
      long: "(longer than 64 KiB)",
      new: "(empty)",
      old: "@@ -1 +0,0 @@\n-gone\n",
      same: "(its mode changes from 644 to 755)",
    });
  assert.deepEqual(JSON.parse(readFileSync(path.join(run.folder, "plan.json"), "utf8")), planOf(run));
  const both = `    web/conf/a on ${A}, ${B}:\n--- jobs/web/conf/a\tpromoted\n+++ jobs/web/conf/a\tplanned\n@@ -1,3 +1,3 @@\n`;
  assert.ok(run.text.includes(`${both} one\n-two\n+2\n three\n`), "once for both workers, as diff -u shows it");
  assert.ok(run.text.includes("--- jobs/web/old\tpromoted\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"));
  assert.ok(run.text.includes(`    web/bytes on ${A}, ${B}: binary\n`));

  writeFileSync(path.join(deploys.folder(A), "jobs/web/conf/a"), "by hand\n");
  const again = on(jobIn(planOf(await deploys.deploy({ dry_run: true })), "web"), A);
  assert.equal(shown(again)["conf/a"], "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n", "not against what is there");
});

test("a plan does not say that there are more diffs where the last one has filled the room", async (t) => {
  const deploys = await Deploys.make(t);
  const diff = (lines: number) => "x\n".repeat(lines);
  await deploys.build({ web: { files: { zlast: diff(2_000) } } }, { hosts: [A] });
  assert.doesNotMatch((await deploys.deploy({ dry_run: true })).text, /more diffs/);
  await deploys.build({ web: { files: { first: diff(2_000), zlast: diff(1) } } }, { hosts: [A] });
  assert.match((await deploys.deploy({ dry_run: true })).text, /\nmore diffs are in plan\.json\n/);
});

test("the diffs of a plan are bounded: what other workers have already goes first, then the rest", async (t) => {
  const deploys = await Deploys.make(t);
  const files = Object.fromEntries(
    Array.from({ length: 6 }, (_, index) => [`f${String(index).padStart(2, "0")}`, `${index}\n`.repeat(20_000)]),
  );
  await deploys.build({ web: { files } }, { hosts: [A, B] });
  const run = await deploys.deploy({ dry_run: true });
  const [a, b] = [A, B].map((host) => shown(on(jobIn(planOf(run), "web"), host))) as [
    Record<string, string>,
    Record<string, string>,
  ];
  assert.match(a.f00 ?? "", /^@@/);
  assert.equal(b.f00, `(as on ${A})`);
  assert.equal(a.f05, "(the plan is too long)");
  assert.ok(readFileSync(path.join(run.folder, "plan.json")).length < 500 * 1024);
  assert.match(run.text, /\nmore diffs are in plan\.json\n/);
  assert.ok(run.text.split("\n").length < 50_000);
});

test("secrets are masked in a plan, replaced ones too; where that cannot be done the file is not shown", async (t) => {
  const deploys = await Deploys.make(t);
  const kv = deploys.bucket.kv();
  const put = (key: string, value: string) => {
    kv.put("secrets/job/web", key, value);
    kv.flush();
  };
  const [old, now] = ["correct-horse-battery", "staple-of-the-day"];
  const jobs = (port: string): JobsSpec => ({
    web: {
      files: {
        "app.conf.tpl": `port=${port}\npassword={{ getSecret "password" }}\n`,
        "cut.conf.tpl": `port=${port}\n{{ slice (getSecret "password") 0 6 }}\n`,
        "pin.conf.tpl": `port=${port}\npin={{ getSecret "pin" }}\n`,
        "only.conf.tpl": '{{ getSecret "password" }}\n',
      },
    },
  });
  put("password", old);
  put("pin", "4711");
  await deploys.build(jobs("1"), { hosts: [A] });
  assert.equal((await deploys.deploy()).error, undefined);
  put("password", now);
  await deploys.build(jobs("2"), { hosts: [A] });
  const run = await carryOut(deploys.bucket, "deploy", deploy, { dry_run: true }, { secrets: [now, "4711"] });
  assert.equal(run.error, undefined);
  const cannot = "(a secret was read for it that cannot be masked)";
  assert.deepEqual(shown(on(jobIn(run.result as DeployPlan, "web"), A)), {
    "app.conf": "@@ -1,2 +1,2 @@\n-port=1\n+port=2\n password=***\n",
    "cut.conf": cannot,
    "pin.conf": cannot,
    "only.conf": "(only secrets in it change)",
  });
  const said = run.text + JSON.stringify(run.result);
  for (const secret of [old, now, old.slice(0, 6), now.slice(0, 6), "pin=4711"]) assert.ok(!said.includes(secret), secret);
});

test("a dry run asks each worker once for files changed by hand, missing, or in the way, and says who is unreachable", async (t) => {
  const deploys = await Deploys.make(t);
  const jobs = (text: string): JobsSpec => ({ web: { files: { "conf/a": "one\n", "conf/b": text } }, db: { files: { a: "1" } } });
  await deploys.build(jobs("1"));
  await deploys.deploy();
  await deploys.build({ ...jobs("2"), app: { files: { a: "1" } } });
  const file = (host: string, name: string) => path.join(deploys.folder(host), "jobs", name);
  writeFileSync(file(A, "web/conf/a"), "two\n");
  writeFileSync(file(A, "web/conf/extra"), "");
  rmSync(file(A, "web/conf/b"));
  rmSync(file(B, "db/a"));
  const back = await deploys.cutOff(C);
  const run = await deploys.deploy({ dry_run: true });
  assert.equal(run.error, undefined);
  const plan = planOf(run);
  const web = on(jobIn(plan, "web"), A);
  assert.equal(web.drift?.outcome, "drifted");
  assert.deepEqual(
    web.drift?.files.map(({ path, state, diff }) => [path, state, diff]),
    [
      ["conf/a", "changed", "@@ -1 +1 @@\n-one\n+two\n"],
      ["conf/b", "missing", null],
    ],
  );
  assert.deepEqual(
    [on(jobIn(plan, "db"), A).drift?.outcome, on(jobIn(plan, "app"), A).drift?.outcome],
    [...["in_sync", "not_promoted"]],
  );
  assert.deepEqual([on(jobIn(plan, "web"), C).drift, plan.unreachable.map(({ worker }) => worker)], [null, [C]]);
  assert.match(run.text, /127\.0\.0\.1: changed by hand\n\s+changed conf\/a\n\s+@@/);
  assert.match(run.text, /127\.0\.0\.2: changed by hand, and stays so: only --force puts it back\n\s+missing a\n/);
  assert.match(run.text, /warning: nothing could be done there now: Cannot connect to worker 127\.0\.0\.3: /);
  back();

  const runId = path.basename(run.folder);
  writeFileSync(file(A, "web/conf/a"), "three\n");
  const stale = await deploys.deploy({ plan: runId });
  assert.match(stale.error?.message ?? "", /web: the plan does not hold any more.*127\.0\.0\.1: changed by hand: conf\/a$/);
  assert.equal(readFileSync(file(A, "web/conf/a"), "utf8"), "three\n");
  const known = await deploys.deploy({ dry_run: true });
  const carriedOut = await deploys.deploy({ plan: path.basename(known.folder) });
  assert.equal(carriedOut.error, undefined, "what the plan knew has not moved");
  assert.equal(readFileSync(file(A, "web/conf/a"), "utf8"), "one\n");
});

test("a worker where something is only to be stopped is asked, too, whether it is there", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: {} }, { hosts: [A, B] });
  await deploys.deploy();
  await deploys.build({ db: { manifest: { selectors: ["nobody"] } } }, { hosts: [A, B] });
  const back = await deploys.cutOff(B);
  const { error, result } = await deploys.deploy({ dry_run: true, jobs: ["db"] });
  assert.equal(error, undefined);
  const { reconcile, unreachable } = result as DeployPlan;
  assert.deepEqual(
    reconcile.map(({ worker, action }) => `${action} ${worker}`),
    [`remove ${A}`, `remove ${B}`],
  );
  assert.deepEqual(
    unreachable.map(({ worker, outcome }) => [worker, outcome]),
    [[B, "unreachable"]],
  );
  back();
});

test("a plan names the hooks that would run, by event, and none for a job that is skipped but those for pre_deploy", async (t) => {
  const deploys = await Deploys.make(t);
  const events = ["pre_deploy", "after_allocation_started", "after_allocation_stopped", "post_deploy", "health_check"];
  const files = { "_hooks/go.py": RECORD, "_hooks/own.py": RECORD };
  const hooked = (text: string): JobsSpec => ({
    web: { manifest: hooksOf({ go: events }), files: { a: text, ...files } },
    own: { manifest: hooksOf({ go: ["after_allocation_started"], own: ["job_control"] }), files },
  });
  await deploys.build(hooked("1"), { hosts: [A] });
  const hooksIn = async (params = {}) => {
    const plan = planOf(await deploys.deploy({ dry_run: true, ...params }));
    const hooks = ({ hooks }: PlannedJob) => hooks.map(({ event, names }) => `${event} ${names}`);
    return [hooks(jobIn(plan, "web")), hooks(jobIn(plan, "own")), plan.reconcile.map(({ hooks }) => hooks)];
  };
  const all = ["pre_deploy go", "after_allocation_started go", "health_check go", "post_deploy go"];
  assert.deepEqual(await hooksIn(), [all, ["job_control own"], []]);
  await deploys.deploy();
  assert.deepEqual(await hooksIn(), [["pre_deploy go"], [], []]);
  await deploys.build(hooked("2"), { hosts: [A] });
  assert.deepEqual((await hooksIn({ sync_only: true }))[0], ["pre_deploy go", "post_deploy go"]);
  await deploys.build(hooked("2"), { hosts: [A], disabled: { web: [A] } });
  assert.deepEqual((await hooksIn())[2], [["go"]]);
});
