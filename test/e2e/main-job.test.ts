import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { after, type TestContext, test } from "node:test";
import { freePorts } from "../../scripts/example.ts";
import { LocalServer, type Run } from "../../scripts/local-server.ts";
import { runningConfiguration, type ServiceOptions, serviceHistory, WORKERS, writeServices } from "../helpers/service.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

interface JobResult {
  job: string;
  outcome: string;
  reason: string;
  allocations: { worker: string; action: string; outcome: string; error: string | null }[];
}

/** One for all tests, each of which has a bucket of its own. */
const server = await LocalServer.start(path.join(temporaryFolder(), "root"));
after(() => server.stop("SIGKILL"));

async function setUp(t: TestContext) {
  const folder = temporaryFolder(t);
  const bucket = await server.createBucket();
  const workers = path.join(folder, "workers");
  const source = path.join(folder, "source");
  const push = async (options: ServiceOptions) => {
    writeServices(source, workers, options);
    return await server.push(bucket, source);
  };
  const deploy = async (params: object = {}) => {
    let text = "";
    const run = await server.run(bucket, "deploy", params, (part) => {
      text += part;
    });
    return { run, text, jobs: (run.result as { jobs: JobResult[] } | null)?.jobs ?? [] };
  };
  const running = (job: string) => WORKERS.map((host) => runningConfiguration(workers, host, bucket, job));
  const history = (job: string) => WORKERS.map((host) => serviceHistory(workers, host, bucket, job));
  return { folder, bucket, workers, push, deploy, running, history };
}

test("CP-151 CP-163 CP-164 HR-087 HR-099 HR-104 HR-105 HR-119 push, build, deploy, skip, force and upgrade", async (t) => {
  const { bucket, push, deploy, running, history } = await setUp(t);
  const pushed = await push({ version: "1.0.0" });
  assert.equal(pushed.code, 0, pushed.stderr);
  assert.deepEqual(running("base"), [undefined, undefined], "a push never deploys");

  const first = await deploy();
  assert.equal(first.run.status, "succeeded", first.text);
  assert.deepEqual(
    running("app"),
    WORKERS.map((host) => `app 1.0.0 on ${host}\n`),
  );
  assert.ok(first.text.indexOf("wave 0: base") < first.text.indexOf("base: deployed"));
  assert.ok(first.text.indexOf("base: deployed") < first.text.indexOf("wave 1: app"), "the higher wave waits");

  const second = await deploy();
  assert.deepEqual(
    second.jobs.map((job) => [job.job, job.outcome, job.reason]),
    [
      ["base", "skipped", "already_promoted"],
      ["app", "skipped", "already_promoted"],
    ],
  );
  assert.deepEqual(history("base"), [["start 1.0.0"], ["start 1.0.0"]]);

  await deploy({ force: true, jobs: ["base"] });
  assert.deepEqual(history("base")[0], ["start 1.0.0", "restart 1.0.0"]);
  assert.deepEqual(history("app")[0], ["start 1.0.0"], "HR-100: only the named job");

  await push({ version: "1.1.0", manifest: { max_concurrent_upgrades: 1 } });
  const upgrade = await deploy();
  assert.deepEqual(
    running("base"),
    WORKERS.map((host) => `base 1.1.0 on ${host}\n`),
  );
  assert.match(
    upgrade.text,
    /^deploy of bucket [\da-f-]{36}, revision [\da-f-]{36}, run [\da-f-]{36} by root, bearer from 127\.0\.0\.1\n/,
  );
  assert.match(upgrade.text, /base: batch 1 of 2 \(update\): restart on 127\.0\.0\.1\n/);
  const { body } = await server.call<{ items: Run[] }>("GET", `/api/buckets/${bucket}/runs`);
  const [last, before] = body.items;
  assert.equal(last?.revision, before?.params.revision, "what was pushed last is what was deployed");
  assert.ok(upgrade.text.includes(`, revision ${last?.revision}, `));
  assert.deepEqual(
    body.items.map((run) => `${run.kind} ${run.status}`),
    [...["deploy succeeded", "push succeeded", "deploy succeeded", "deploy succeeded", "deploy succeeded", "push succeeded"]],
  );
});

test("HR-116 a target that fails stops its job and what demands it, tells where, and the next deploy goes on", async (t) => {
  const { push, deploy, running, history } = await setUp(t);
  await push({ version: "1.0.0", before: "\t@test -f ../../repaired || { echo 'disk is not there' >&2; exit 3; }\n" });
  const { run, jobs, text } = await deploy();
  assert.equal(run.status, "failed");
  assert.match(
    run.error ?? "",
    /job base failed on 2 workers: 127\.0\.0\.1: `make start` of job base on 127\.0\.0\.1 failed: exit code 2/,
  );
  assert.match(text, /base@127\.0\.0\.1 \| disk is not there/);
  assert.deepEqual(
    jobs.map((job) => [job.job, job.outcome]),
    [
      ["base", "failed"],
      ["app", "not_started"],
    ],
  );
  assert.deepEqual(running("app"), [undefined, undefined]);

  await push({ version: "1.0.0" });
  assert.equal((await deploy()).run.status, "succeeded");
  assert.deepEqual(history("base"), [["start 1.0.0"], ["start 1.0.0"]]);
});

test("T-39 going back to what was promoted repairs what a failed upgrade left, instead of skipping it", async (t) => {
  const { push, deploy, running, history } = await setUp(t);
  await push({ version: "1.0.0" });
  await deploy();
  await push({ version: "2.0.0", before: "\t@rm -f data/running; exit 1\n" });
  assert.equal((await deploy()).run.status, "failed");
  assert.deepEqual(running("base"), [undefined, "base 1.0.0 on 127.0.0.2\n"], "the first batch broke its worker");
  await push({ version: "1.0.0" });
  const { run, jobs } = await deploy();
  assert.equal(run.status, "succeeded");
  assert.equal(jobs[0]?.outcome, "deployed");
  assert.deepEqual(
    running("base"),
    WORKERS.map((host) => `base 1.0.0 on ${host}\n`),
  );
  assert.deepEqual(history("base")[0], ["start 1.0.0", "restart 1.0.0"]);
  assert.deepEqual(
    (await deploy()).jobs.map((job) => job.outcome),
    ["skipped", "skipped"],
  );
});

test("a target that hangs is stopped after lifecycle_timeout_seconds, what ran goes on", async (t) => {
  const { push, deploy, running } = await setUp(t);
  await push({ version: "1.0.0" });
  await deploy();
  await push({
    version: "2.0.0",
    before: "\t@sleep 300\n",
    manifest: { lifecycle_timeout_seconds: 2, max_concurrent_upgrades: 1 },
  });
  const { run } = await deploy();
  assert.equal(run.status, "failed");
  assert.match(run.error ?? "", /`make restart` of job base on 127\.0\.0\.1 was stopped at its time limit of 2 s/);
  assert.deepEqual(
    running("base"),
    WORKERS.map((host) => `base 1.0.0 on ${host}\n`),
  );
});

test("a template that needs a missing key fails its job with file, line and key, before anything is touched", async (t) => {
  const { push, deploy, running } = await setUp(t);
  await push({ version: "1.0.0" });
  await deploy();
  await push({ version: "2.0.0", template: 'one\n{{ get "vars/bucket" "no_such_key" }}\n' });
  const { run } = await deploy();
  assert.equal(run.status, "failed");
  assert.match(run.error ?? "", /job base on 127\.0\.0\.1.*app\.conf\.tpl:2:.*no_such_key.*missing in namespace vars\/bucket/);
  assert.deepEqual(
    running("base"),
    WORKERS.map((host) => `base 1.0.0 on ${host}\n`),
  );
});

test("a gate that fails keeps later batches from starting; it is passed first when nothing changed, without a restart", async (t) => {
  const { push, deploy, history } = await setUp(t);
  const { createServer } = await import("node:net");
  const listener = createServer();
  const listen = (host: string) => new Promise<void>((resolve) => listener.listen(port, host, resolve));
  const port = await freePorts(WORKERS, 1);
  t.after(() => listener.close());
  await push({ version: "1.0.0", healthPort: port, manifest: { max_concurrent_starts: 1 } });
  const failed = await deploy();
  assert.equal(failed.run.status, "failed");
  assert.match(failed.run.error ?? "", /the health check of job base failed: 127\.0\.0\.1 after 2 attempts: /);
  assert.deepEqual(history("base"), [["start 1.0.0"], []], "the second batch did not start");

  const again = await deploy();
  assert.equal(again.run.status, "failed");
  assert.deepEqual(history("base"), [["start 1.0.0"], []], "nothing is restarted for an open gate");

  await listen("0.0.0.0");
  const passed = await deploy();
  assert.equal(passed.run.status, "succeeded", passed.text);
  assert.deepEqual(history("base"), [["start 1.0.0"], ["start 1.0.0"]]);
  assert.deepEqual(
    (await deploy()).jobs.map((job) => job.outcome),
    ["skipped", "skipped"],
  );
});

test("HR-095 HR-096 HR-098 what was disabled or removed is stopped once, the rest of its folder stays", async (t) => {
  const { folder, bucket, workers, push, deploy, running, history } = await setUp(t);
  await push({ version: "1.0.0" });
  await deploy();
  const { writeFileSync, existsSync } = await import("node:fs");
  const disabled = path.join(folder, "source", "workspace", "disabled.json");
  writeFileSync(disabled, JSON.stringify({ jobs: { app: { allocations: ["127.0.0.2"] } } }));
  await push({ version: "1.0.0" });
  assert.equal((await deploy()).run.status, "succeeded");
  assert.deepEqual(running("app"), ["app 1.0.0 on 127.0.0.1\n", undefined]);
  await deploy();
  assert.deepEqual(history("app")[1], ["start 1.0.0", "stop"]);

  writeFileSync(disabled, "{}");
  await push({ version: "1.0.0", manifest: { selectors: ["nobody"] } });
  const { run, text } = await deploy();
  assert.equal(run.status, "succeeded", text);
  assert.deepEqual(running("base"), [undefined, undefined]);
  assert.deepEqual(
    running("app"),
    WORKERS.map((host) => `app 1.0.0 on ${host}\n`),
    "enabled again",
  );
  const job = path.join(workers, "127.0.0.1", bucket, "jobs", "base");
  assert.deepEqual([existsSync(path.join(job, "Makefile")), existsSync(path.join(job, "data/history"))], [false, true]);
  assert.ok((await server.call("GET", `/api/buckets/${bucket}`)).status === 200);
});

test("CP-130 CP-131 CP-136 CP-212 CP-213 CP-268 a cancelled deploy ends its commands and goes on later", async (t) => {
  const { bucket, workers, push, deploy, history } = await setUp(t);
  // It takes a second to end, in which the second cancel comes.
  const before = "\t@trap 'sleep 1; exit 1' TERM; touch ../../begun; test -f ../../go || { sleep 300 & wait; }\n";
  await push({ version: "1.0.0", before });
  const id = await server.startRun(bucket, "deploy");
  const begun = path.join(workers, "127.0.0.1", bucket, "begun");
  await until("the target to run", () => readable(begun));
  const cancel = () => server.call<Run>("POST", `/api/buckets/${bucket}/runs/${id}/cancel`);
  const answers = await Promise.all([cancel(), cancel()]);
  assert.deepEqual(
    answers.map(({ status }) => status),
    [202, 202],
    "twice is the same as once",
  );
  const run = await server.follow(bucket, id);
  assert.equal(run.status, "cancelled");
  assert.deepEqual(
    run.audit.map((entry) => entry.action),
    ["start", "cancel"],
  );
  assert.equal((await cancel()).status, 409);
  assert.deepEqual(history("app"), [[], []]);

  await push({ version: "1.0.0" });
  assert.equal((await deploy()).run.status, "succeeded", "a start right after the end state was seen succeeds");
});

function readable(file: string): boolean {
  try {
    readFileSync(file);
    return true;
  } catch {
    return false;
  }
}
