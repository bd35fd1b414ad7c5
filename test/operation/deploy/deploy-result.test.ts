import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import { keptContent } from "../../../lib/bucket/catalog/contents.ts";
import { setGate } from "../../../lib/bucket/catalog/promotions.ts";
import type { DeployResult } from "../../../lib/operation/deploy/deploy-result.ts";
import { Deploys, HOSTS, outcomes } from "../../helpers/deploys.ts";
import { until } from "../../helpers/temporary.ts";
import { processesIn } from "../../helpers/worker.ts";

const [A, B, C] = HOSTS;
const TWO = { hosts: [A, B] };
const GATE = { health_check: { checks: [{ type: "ssh", command: "test ! -f sick" }], wait: { attempts: 1 } } };

test("CP-131 CP-133 a cancelled deploy tells what was cancelled, what was done and what never started, and leaves nothing at work", async (t) => {
  const deploys = await Deploys.make(t);
  const waits = `start:\n\t@touch ../../begun; case "$$PWD" in */${B}/*) while :; do sleep 300; done ;; esac\n`;
  await deploys.build({ base: { files: { Makefile: waits } }, plain: {}, app: { demands: "base" } }, TWO);
  const stop = new AbortController();
  const running = deploys.deploy({}, stop.signal);
  const begun = path.join(deploys.folder(B), "begun");
  const log = path.join(deploys.bucket.layout.logs, `${A}.log`);
  const hasEnded = () => /event=command_end .*job=base /.test(readFileSync(log, "utf8"));
  const isDeployed = () => deploys.bucket.activity.join("").includes("plain: deployed");
  await until("one target to run", () => isDeployed() && existsSync(begun) && hasEnded());
  stop.abort();
  const { error, jobs, result } = await running;
  assert.equal(error?.code, "cancelled");
  assert.deepEqual(
    jobs.map((job) => [job.job, job.outcome, job.allocations.map((one) => one.outcome).join()]),
    [
      ["base", "cancelled", "changed,cancelled"],
      ["plain", "deployed", "changed,changed"],
      ["app", "not_started", "not_started,not_started"],
    ],
  );
  const { workers, summary, cancelled } = result as DeployResult;
  assert.deepEqual(workers, [
    { worker: A, outcome: "not_started" },
    { worker: B, outcome: "cancelled" },
  ]);
  assert.equal(summary.allocations.cancelled, 1);
  assert.equal(cancelled?.unconfirmed, 0);
  await until("nothing to be left", () => processesIn(deploys.folder(B)).length === 0);
  const { hash, unfinished } = deploys.promotion("base", A);
  assert.deepEqual([hash, unfinished], ["", true]);
});

test("an allocation whose gate was open and has passed is ok; the summary counts allocations and workers", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: { manifest: GATE }, other: {} }, TWO);
  await deploys.deploy();
  const web = catalogAllocations(deploys.bucket.db).find(({ job, worker }) => job === "web" && worker === B);
  setGate(deploys.bucket.db, "web", [web?.id ?? ""], "pending");
  const { jobs, result, text } = await deploys.deploy();
  assert.deepEqual(
    jobs.find(({ job }) => job === "web")?.allocations.map(({ worker, outcome }) => `${worker} ${outcome}`),
    [`${A} skipped`, `${B} ok`],
  );
  const { summary } = result as DeployResult;
  assert.deepEqual([summary.allocations.ok, summary.allocations.skipped, summary.workers.ok], [1, 3, 1]);
  assert.match(text, /workers: 1 skipped, 1 ok; allocations: 3 skipped, 1 ok/);
});

test("a gate that fails is blamed on the workers that are not healthy", async (t) => {
  const deploys = await Deploys.make(t);
  const check = { type: "ssh", command: `case "$PWD" in */${B}/*) exit 1 ;; esac` };
  const manifest = { max_concurrent_upgrades: 2, health_check: { checks: [check], wait: { attempts: 1 } } };
  await deploys.build({ web: { manifest } }, TWO);
  const { jobs, error } = await deploys.deploy();
  assert.match(error?.message ?? "", /the health check of job web failed: 127\.0\.0\.2 after 1 attempt/);
  assert.deepEqual(
    jobs[0]?.allocations.map((one) => `${one.worker} ${one.outcome}`),
    [`${A} changed`, `${B} failed`],
  );
  assert.deepEqual(jobs[0]?.stopped_in, { batch: 1, batches: 1 });
});

test("HR-113 targets are noted in the worker's log from their begin to their end, and the status of the job at its end in the bucket's", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: {}, off: {} }, { hosts: [A], disabled: { off: [A] } });
  const { folder } = await deploys.deploy();
  const lines = readFileSync(path.join(folder, `${A}.log`), "utf8").split("\n");
  const [begin = "", end = ""] = ["command_begin", "command_end"].map((event) =>
    lines.find((line) => line.includes(`event=${event} `)),
  );
  assert.match(begin, /worker=127\.0\.0\.1 job=web phase=rollout action=start cmd="make start"$/);
  assert.match(end, /job=web phase=rollout action=start cmd="make start" exit=0 duration_ms=\d+$/);
  const bucket = readFileSync(path.join(folder, "ops.log"), "utf8");
  assert.match(bucket, /event=post_deploy_status .*job=web phase=rollout reason="1 changed"/);
  assert.ok(bucket.indexOf("post_deploy_status") > bucket.indexOf("batch 1 of 1"));
  assert.match(lines.join("\n"), /event=reconcile_skip_stop .*job=off phase=reconcile reason=not_deployed/);
});

test("HR-115 what is promoted is kept with the tree before it, secrets sealed", async (t) => {
  const deploys = await Deploys.make(t);
  const kv = deploys.bucket.kv();
  kv.put("secrets/job/web", "password", "very secret");
  kv.flush();
  const build = (page: string) =>
    deploys.build({ web: { files: { page, "conf.tpl": '{{ getSecret "password" }}' } } }, { hosts: [A] });
  await build("1");
  await deploys.deploy();
  await build("2");
  assert.deepEqual(outcomes(await deploys.deploy()), { web: "deployed" });
  const { db } = deploys.bucket;
  const { files, before } = deploys.promotion("web", A);
  const kept = (digest = "") => keptContent(db, deploys.bucket.kv(), digest.split(":")[1] ?? "");
  assert.deepEqual(
    [kept(before.files.page), kept(files.page)].map(({ content }) => content.toString()),
    ["1", "2"],
  );
  assert.deepEqual(kept(files.conf), { content: Buffer.from("very secret"), isSecret: true, secrets: ["very secret"] });
});

test("CP-438 progress and result tell how far the jobs, the waves and the allocations are, from the start to the end", async (t) => {
  const deploys = await Deploys.make(t);
  const jobs = { base: {}, sick: { demands: "base" }, web: { demands: "base" }, top: { demands: "sick" } };
  await deploys.build(jobs, { disabled: { web: [C] } });
  deploys.fail("sick", "start", B);
  type Told = Parameters<typeof deploys.onProgress>[0];
  const told: Told[] = [];
  deploys.onProgress = (progress) => told.push(structuredClone(progress));
  const { error, result } = await deploys.deploy();
  assert.notEqual(error, undefined);
  const ended = result as DeployResult;
  const [first] = told;
  assert.deepEqual(
    first?.jobs.map(({ job, wave, state, reason, duration_ms }) => [job, wave, state, reason, duration_ms]),
    [
      ["base", 0, "waiting", "", null],
      ["sick", 1, "waiting", "", null],
      ["web", 1, "waiting", "", null],
      ["top", 2, "waiting", "", null],
    ],
  );
  const ends = { failed: 0, cancelled: 0, running: 0 };
  assert.deepEqual(first?.waves, [
    { wave: 0, jobs: 1, done: 0, not_started: 1, ...ends },
    { wave: 1, jobs: 2, done: 0, not_started: 2, ...ends },
    { wave: 2, jobs: 1, done: 0, not_started: 1, ...ends },
  ]);
  const none = { failed: 0, unreachable: 0, running: 0, changed: 0, waiting: 0, skipped: 0, cancelled: 0, disabled: 0 };
  assert.deepEqual(first?.counts, { ...none, waiting: 11, disabled: 1 });
  const sum = (counts: object) => Object.values(counts).reduce((all, one) => all + one, 0);
  for (const { counts, waves } of told) {
    assert.equal(sum(counts ?? {}), 12, "each allocation counts once");
    for (const { wave: _, jobs, ...parts } of waves) assert.equal(sum(parts), jobs);
  }
  assert.ok(told.some(({ jobs, waves }) => jobs[0]?.state === "running" && waves[0]?.running === 1));
  assert.ok(told.some(({ counts }) => (counts?.running ?? 0) > 0));
  assert.deepEqual(ended.waves, [
    { wave: 0, jobs: 1, done: 1, not_started: 0, ...ends },
    { wave: 1, jobs: 2, done: 1, not_started: 0, ...ends, failed: 1 },
    { wave: 2, jobs: 1, done: 0, not_started: 1, ...ends },
  ]);
  assert.deepEqual(
    ended.jobs.map(({ job, wave }) => [job, wave]),
    [
      ["base", 0],
      ["sick", 1],
      ["web", 1],
      ["top", 2],
    ],
  );
  const last = told.at(-1);
  assert.deepEqual(
    last?.jobs.map(({ state }) => state),
    ["changed", "failed", "changed", "not_started"],
  );
  assert.match(last?.jobs[1]?.reason ?? "", /`make start` of job sick on 127\.0\.0\.2 failed/);
  assert.equal(last?.counts?.failed, 1);
  const { not_started, ok, skipped, ...others } = ended.summary.allocations;
  const counted = { ...none, ...others, waiting: not_started, skipped: ok + skipped };
  assert.deepEqual(counted, last?.counts, "the end counts as the progress did");
  assert.equal(counted.disabled, 1);
  assert.equal(ended.jobs[0]?.duration_ms, last?.jobs[0]?.duration_ms);
});
