import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import { setGate } from "../../../lib/bucket/catalog/promotions.ts";
import { type Deployed, Deploys, HOSTS, outcomes } from "../../helpers/deploys.ts";
import { hooksOf } from "../../helpers/hooks.ts";

const [A, B, C] = HOSTS;
const idOf = ({ folder }: Deployed) => path.basename(folder);
const movedIn = ({ error }: Deployed) => [error?.code, (error?.details as { moved?: string[] })?.moved];

test("a plan is carried out as it is, with the options it was made with", async (t) => {
  const deploys = await Deploys.make(t);
  const jobs = (text: string) => ({ web: { files: { "conf/a": text } }, db: { files: { a: text } } });
  await deploys.build(jobs("1"));
  assert.equal((await deploys.deploy()).error, undefined);
  await deploys.build(jobs("2"));
  const plan = await deploys.deploy({ dry_run: true, jobs: ["web"], sync_only: true });
  const run = await deploys.deploy({ plan: idOf(plan) });
  assert.equal(run.error, undefined);
  assert.deepEqual(outcomes(run), { web: "deployed" }, "only what was planned");
  assert.deepEqual(deploys.targets("web", A), ["start"], "nothing is restarted, as it was planned");
  assert.equal(readFileSync(path.join(deploys.folder(A), "jobs/web/conf/a"), "utf8"), "2");
  assert.deepEqual((run.result as { plan: unknown }).plan, { force: false, sync_only: true, adopt: false, differences: [] });
  const again = await deploys.deploy({ plan: idOf(plan) });
  assert.equal(again.error?.code, "plan_stale", "a plan is carried out once");
  for (const id of [idOf(run), "../../../../../../../../etc/hostname", "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70"])
    assert.equal((await deploys.deploy({ plan: id })).error?.code, "run_not_found");
  const other = await deploys.deploy({ plan: idOf(plan), force: true }).catch((error) => ({ error }));
  assert.equal(other.error?.code, "invalid_request");
});

test("a plan is stale once the bucket was built, a key written or something deployed; nothing is done then", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: {}, db: {} });
  const plan = await deploys.deploy({ dry_run: true });
  await deploys.build({ web: {}, db: {} });
  assert.deepEqual(movedIn(await deploys.deploy({ plan: idOf(plan) })), [...["plan_stale", ["the bucket was built again"]]]);
  const second = await deploys.deploy({ dry_run: true });
  const kv = deploys.bucket.kv();
  kv.put("vars/job/web", "key", "value");
  kv.flush();
  assert.deepEqual(movedIn(await deploys.deploy({ plan: idOf(second) })), ["plan_stale", ["keys were written"]]);
  const third = await deploys.deploy({ dry_run: true });
  assert.deepEqual(deploys.targets("db", A), []);
  await deploys.deploy({ jobs: ["db"] });
  const [code, moved] = movedIn(await deploys.deploy({ plan: idOf(third) }));
  assert.deepEqual(
    [code, moved?.[0], moved?.at(-1)],
    ["plan_stale", "another deploy had work to do", `what is promoted has changed on db@${A}, db@${B}, db@${C}`],
  );
  assert.deepEqual(deploys.targets("web", A), []);
  const fourth = await deploys.deploy({ dry_run: true });
  const { db } = deploys.bucket;
  const { id } = catalogAllocations(db).find(({ job, worker }) => job === "db" && worker === B) ?? { id: "" };
  setGate(db, "db", [id], "failed");
  assert.deepEqual(movedIn(await deploys.deploy({ plan: idOf(fourth) })), [
    ...["plan_stale", [`what is promoted has changed on db@${B}`]],
  ]);
});

test("files that were changed by hand since the plan stop their job before anything is touched, others go on", async (t) => {
  const deploys = await Deploys.make(t);
  const jobs = (text: string) => ({ web: { files: { "conf/a": text, "conf/b": "b" } }, db: { files: { a: text } } });
  await deploys.build(jobs("1"));
  await deploys.deploy();
  await deploys.build(jobs("2"));
  const plan = await deploys.deploy({ dry_run: true });
  const file = (host: string, name: string) => path.join(deploys.folder(host), "jobs/web/conf", name);
  writeFileSync(file(B, "a"), "by hand");
  writeFileSync(file(C, "extra"), "is in nobody's way");
  const run = await deploys.deploy({ plan: idOf(plan) });
  assert.equal(run.error?.code, "failed");
  assert.match(
    run.error?.message ?? "",
    /web: the plan does not hold any more, nothing was done: 127\.0\.0\.2: changed by hand: conf\/a$/,
  );
  assert.deepEqual(outcomes(run), { web: "failed", db: "deployed" });
  const web = run.jobs.find(({ job }) => job === "web");
  assert.deepEqual(
    web?.allocations.map(({ outcome }) => outcome),
    ["not_started", "failed", "not_started"],
  );
  assert.equal(readFileSync(file(A, "a"), "utf8"), "1");
  assert.equal(readFileSync(file(B, "a"), "utf8"), "by hand");
  assert.deepEqual(deploys.targets("web", A), ["start"]);

  rmSync(file(B, "a"));
  writeFileSync(file(B, "a"), "1");
  const back = await deploys.cutOff(C);
  const next = await deploys.deploy({ plan: idOf(await deploys.deploy({ dry_run: true })) });
  assert.deepEqual(
    next.jobs.find(({ job }) => job === "web")?.allocations.map(({ outcome }) => outcome),
    ["changed", "changed", "unreachable"],
    "a worker that is down since is no reason to refuse the plan",
  );
  back();
});

test("what the hooks of the deploy itself write is no reason to refuse it, and the result lists what it changed", async (t) => {
  const deploys = await Deploys.make(t);
  const hook = `import ops\nops.put_job_variable("port", "8")\n`;
  const files = { "conf.tpl": '{{ get "vars/job/web" "port" }}', "_hooks/go.py": hook };
  await deploys.build({ web: { manifest: hooksOf({ go: ["pre_deploy"] }), files } }, { hosts: [A] });
  const run = await deploys.deploy({ plan: idOf(await deploys.deploy({ dry_run: true })) });
  assert.equal(run.error, undefined);
  const { differences } = (run.result as { plan: { differences: Record<string, unknown>[] } }).plan;
  assert.deepEqual(
    differences.map(({ job, worker, planned_action, action }) => [job, worker, planned_action, action]),
    [["web", A, "unknown", "start"]],
  );
  assert.match(run.text, /web@127\.0\.0\.1: not as planned: .*conf/);
});

test("a file that the deploy's own hooks make other than planned is listed, though the action is the planned one", async (t) => {
  const deploys = await Deploys.make(t);
  const hook = `import ops\nops.put_job_variable("port", "8")\n`;
  const files = { "conf.tpl": '{{ get "vars/job/web" "port" }}', other: "1", "_hooks/go.py": hook };
  await deploys.build({ web: { manifest: hooksOf({ go: ["pre_deploy"] }), files } }, { hosts: [A] });
  const kv = deploys.bucket.kv();
  kv.put("vars/job/web", "port", "7");
  kv.flush();
  const run = await deploys.deploy({ plan: idOf(await deploys.deploy({ dry_run: true })) });
  assert.equal(run.error, undefined);
  assert.deepEqual((run.result as { plan: { differences: unknown } }).plan.differences, [
    { job: "web", worker: A, planned_action: "start", action: "start", files: ["conf"] },
  ]);
  assert.match(run.text, /web@127\.0\.0\.1: not as planned: conf\n/);
});

test("force_only forces what is named and nothing else, also in a plan", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: { manifest: { max_concurrent_upgrades: 1 } }, db: {} });
  await deploys.deploy();
  const only = { force_only: [`web@${B}`, `WEB@${C}`] };
  assert.equal((await deploys.deploy({ ...only, jobs: ["web"] })).error, undefined);
  const restarts = () => HOSTS.map((host) => deploys.targets("web", host).filter((target) => target === "restart").length);
  assert.deepEqual(restarts(), [0, 1, 1]);
  assert.deepEqual(deploys.targets("db", A), ["start"]);
  const plan = await deploys.deploy({ ...only, dry_run: true });
  assert.equal((await deploys.deploy({ plan: idOf(plan) })).error, undefined);
  assert.deepEqual(restarts(), [0, 2, 2]);
  const unknown = await deploys.deploy({ ...only, jobs: ["db"], force: true });
  assert.equal(unknown.error?.code, "unknown_name");
});
