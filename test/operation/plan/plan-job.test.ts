import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { catalogAllocations, catalogJobs, catalogWorkers } from "../../../lib/bucket/catalog/catalog.ts";
import { beginChange, promote, recordSynced, setGate, setStopped } from "../../../lib/bucket/catalog/promotions.ts";
import { Fleet } from "../../../lib/operation/base/fleet.ts";
import { allUpstreamOf, upstreamOf } from "../../../lib/operation/hooks/hook-script.ts";
import { hasOpenGate, type JobPlan, planJob } from "../../../lib/operation/plan/plan-job.ts";
import { Deploys, HOSTS, type JobsSpec } from "../../helpers/deploys.ts";

const [A, B] = HOSTS;

async function setUp(t: TestContext, jobs: JobsSpec, disabled: Record<string, string[]> = {}) {
  const deploys = await Deploys.make(t);
  await deploys.build(jobs, { hosts: [A, B], disabled });
  const { db } = deploys.bucket;
  const plan = (options: { force?: boolean; syncOnly?: boolean; updateSeq?: number; job?: string } = {}) => {
    const { force = false, syncOnly = false, updateSeq = 7, job: name = "web" } = options;
    const context = deploys.bucket.context("deploy");
    const job = catalogJobs(db).find((one) => one.name === name);
    assert.ok(job);
    const own = catalogAllocations(db).filter((one) => one.job === name && !one.removed);
    const fleet = new Fleet(context, catalogWorkers(db));
    return planJob({ context, fleet, options: { force, syncOnly } }, job, own, updateSeq);
  };
  /** What a deploy that ended well would have noted. */
  const promoteAll = (planned: JobPlan, gate: "" | "pending" = "") => {
    for (const { allocation, tree, updateSeq } of planned.allocations) {
      beginChange(db, allocation.job, [allocation.id]);
      recordSynced(db, allocation.job, [{ id: allocation.id, hash: tree.hash, files: tree.digests, updateSeq }]);
      promote(db, allocation, allocation.newVersion, gate);
    }
  };
  return { deploys, db, plan, promoteAll };
}

const actions = (plan: JobPlan) => plan.allocations.map((one) => one.decision.action);

test("HR-103 HR-104 a plan compares what would be there with what was promoted; equal everywhere means no work", async (t) => {
  const { deploys, plan, promoteAll } = await setUp(t, { web: { files: { page: "1" } } });
  const first = plan();
  assert.deepEqual([actions(first), first.needsWork], [["start", "start"], true]);
  promoteAll(first);
  assert.deepEqual([actions(plan()), plan().needsWork], [["skip", "skip"], false]);
  assert.deepEqual([actions(plan({ force: true })), plan({ force: true }).needsWork], [["restart", "restart"], true]);
  await deploys.build({ web: { files: { page: "2" } } }, { hosts: [A, B] });
  assert.deepEqual(actions(plan()), ["restart", "restart"]);
});

test("T-39 planning notes nothing: only what was promoted counts", async (t) => {
  const { db, plan } = await setUp(t, { web: {} });
  plan();
  assert.equal(db.get<{ count: number }>("SELECT count(*) AS count FROM hash")?.count, 0);
  assert.deepEqual(actions(plan()), ["start", "start"]);
});

test("HR-146 HR-147 T-45 the dot of a template is the allocation's, in full", async (t) => {
  const dot = [
    ..."AllocationID Job CurrentVersion NewVersion BucketID WorkerID WorkerIP UpdateSeq BucketPath JobPath".split(" "),
  ].map((field) => `{{ .${field} }}`);
  const { deploys, db, plan, promoteAll } = await setUp(t, {
    web: { manifest: { version: "2.1.0" }, files: { "all.tpl": `${dot.join("\n")}\n{{ join .Labels "," }}` } },
  });
  const textOf = (planned: JobPlan) =>
    planned.allocations[0]?.tree.files
      .find((file) => file.path === "all")
      ?.content.toString()
      .split("\n");
  const planned = plan();
  const [worker] = catalogWorkers(db);
  const { bucketId } = deploys.bucket;
  const folder = deploys.folder(A);
  assert.deepEqual(textOf(planned), [
    ...[catalogAllocations(db)[0]?.id, "web", "0.0.0", "2.1.0", bucketId, worker?.id, A, "7"],
    ...[folder, `${folder}/jobs/web`, "worker"],
  ]);
  promoteAll(planned);
  assert.equal(textOf(plan())?.[2], "2.1.0");
});

test("HR-107 a file shows the update sequence of the wave that changed its allocation last, and only another change renews it", async (t) => {
  const template = "{{ .UpdateSeq }}";
  const { deploys, plan, promoteAll } = await setUp(t, { web: { files: { "seq.tpl": template } } });
  const shown = (planned: JobPlan) =>
    planned.allocations.map(({ tree }) => tree.files.find((one) => one.path === "seq")?.content.toString());
  promoteAll(plan({ updateSeq: 3 }));
  const later = plan({ updateSeq: 4 });
  assert.deepEqual(
    [actions(later), shown(later)],
    [
      ["skip", "skip"],
      ["3", "3"],
    ],
  );
  const forced = plan({ updateSeq: 4, force: true });
  assert.deepEqual(
    [actions(forced), shown(forced)],
    [
      ["restart", "restart"],
      ["4", "4"],
    ],
  );
  await deploys.build({ web: { files: { "seq.tpl": template, page: "1" } } }, { hosts: [A, B] });
  const changed = plan({ updateSeq: 5 });
  assert.deepEqual(
    [actions(changed), shown(changed)],
    [
      ["restart", "restart"],
      ["5", "5"],
    ],
  );
});

test("an open gate is work, unless its allocation is disabled or changes anyway", async (t) => {
  const { deploys, db, plan, promoteAll } = await setUp(t, { web: {} });
  promoteAll(plan(), "pending");
  const open = (planned: JobPlan) => planned.allocations.map(hasOpenGate);
  assert.deepEqual([open(plan()), plan().needsWork], [[true, true], true]);
  const [first] = catalogAllocations(db);
  setGate(db, "web", [first?.id ?? ""], "passed");
  assert.deepEqual(open(plan()), [false, true]);
  await deploys.build({ web: {} }, { hosts: [A, B], disabled: { web: [B] } });
  assert.deepEqual([open(plan()), plan().needsWork], [[false, false], false]);
  await deploys.build({ web: { files: { page: "1" } } }, { hosts: [A, B] });
  assert.deepEqual(open(plan()), [false, false]);
});

test("what was begun, stopped or enabled again is not complete", async (t) => {
  const { deploys, db, plan, promoteAll } = await setUp(t, { web: {} });
  promoteAll(plan());
  const ids = catalogAllocations(db).map((one) => one.id) as [string, string];
  beginChange(db, "web", [ids[0]]);
  setStopped(db, "web", ids[1], "done");
  assert.deepEqual(
    plan().allocations.map((one) => `${one.decision.action}: ${one.decision.reason}`),
    ["restart: an earlier deploy did not finish", "start: it was stopped"],
  );
  promoteAll(plan());
  await deploys.build({ web: {} }, { hosts: [A, B], disabled: { web: [A, B] } });
  assert.deepEqual(actions(plan()), ["skip", "skip"]);
  await deploys.build({ web: {} }, { hosts: [A, B] });
  assert.deepEqual(actions(plan()), ["start", "start"]);
});

test("HR-089 HR-341 HR-345 T-31 the upstream of a job reaches through others, by every way", async (t) => {
  const { db } = await setUp(t, {
    base: {},
    store: { demands: "base" },
    api: { demands: "store" },
    web: { demands: "api", manifest: { after: ["late"] } },
    late: { manifest: { after: ["other"] } },
    other: {},
  });
  const jobs = catalogJobs(db);
  const job = (name: string) => jobs.find((one) => one.name === name) as (typeof jobs)[number];
  assert.deepEqual(upstreamOf(job("web")), ["api"]);
  assert.deepEqual(allUpstreamOf(job("web"), jobs), ["api", "late", "store", "other", "base"]);
  assert.deepEqual([allUpstreamOf(job("base"), jobs), allUpstreamOf(job("other"), jobs)], [[], []]);
});

test("a template that cannot be rendered is a failure that names job, worker, file and place", async (t) => {
  const { plan } = await setUp(t, { web: { files: { "conf/app.tpl": 'a\n{{ get "vars/bucket" "nope" }}' } } });
  assert.throws(plan, {
    code: "ErrKeyMissing",
    message:
      /^Cannot render a template of job web on 127\.0\.0\.1: .*conf\/app\.tpl:2:.*"nope" is missing in namespace vars\/bucket/,
  });
});
