import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { control } from "../../../lib/operation/control/job-control.ts";
import type { ControlKind } from "../../../lib/run/protocol.ts";
import { Deploys, HOSTS, type JobsSpec, outcomes } from "../../helpers/deploys.ts";
import { hooksOf, RECORD, traces } from "../../helpers/hooks.ts";
import { carryOut, type Ended } from "../../helpers/operations.ts";
import { until } from "../../helpers/temporary.ts";

const [A, B, C] = HOSTS;

/** A service that runs where the file `running` is; each target notes itself. */
const MAKEFILE = `note = @mkdir -p data; echo "$@ $$CURRENT_VERSION $$NEW_VERSION" >> data/history
start restart:
	$(note); touch running
	@if [ -f ../../fail ]; then echo "no disk" >&2; exit 3; fi
stop:
	$(note); rm -f running
reload dump.all:
	$(note)
status:
	@test -f running && echo up || { echo down; exit 3; }
`;
const CHECK = { checks: [{ type: "ssh", command: "test -f jobs/web/running" }], wait: { attempts: 1 } };

async function setUp(
  t: TestContext,
  options: { manifest?: Record<string, unknown>; files?: Record<string, string>; disabled?: string[] } = {},
) {
  const deploys = await Deploys.make(t);
  const jobs = (version: string): JobsSpec => ({
    web: { manifest: { version, ...options.manifest }, files: { Makefile: MAKEFILE, ...options.files } },
  });
  const build = (version: string) =>
    deploys.build(jobs(version), { disabled: options.disabled ? { web: options.disabled } : {} });
  await build("1.0.0");
  assert.equal((await deploys.deploy()).error, undefined);
  const begun = new Map(HOSTS.map((host) => [host, deploys.history("web", host).length]));
  const run = (kind: ControlKind, params: Record<string, unknown> = {}, signal?: AbortSignal) =>
    carryOut(deploys.bucket, kind, control(kind), { jobs: ["web"], ...params }, signal && { signal });
  const since = (host: string) => deploys.history("web", host).slice(begun.get(host as typeof A));
  const isRunning = (host: string) => existsSync(path.join(deploys.folder(host), "jobs/web/running"));
  return { deploys, build, run, since, isRunning };
}

function outcomesOf({ result }: Ended): Record<string, string> {
  const { allocations } = result.jobs[0];
  return Object.fromEntries(allocations.map(({ worker, outcome }: { worker: string; outcome: string }) => [worker, outcome]));
}

const all = (outcome: string) => Object.fromEntries(HOSTS.map((host) => [host, outcome]));

for (const [kind, id, target, params] of [
  ["job_start", "CP-280", "start", {}],
  ["job_stop", "CP-281", "stop", {}],
  ["job_restart", "CP-282", "restart", {}],
  ["job_reload", "HR-123", "reload", {}],
  ["job_run", "CP-283", "dump.all", { target: "dump.all" }],
  ["job_run", "CP-283", "restart", { target: "Restart" }],
] as const)
  test(`${id} ${kind} ${JSON.stringify(params)} runs make ${target}, with the version that runs there`, async (t) => {
    const { build, run, since } = await setUp(t, { disabled: [C] });
    await build("2.0.0");
    const ended = await run(kind, params);
    assert.equal(ended.error, undefined);
    assert.deepEqual(outcomesOf(ended), { [A]: "ok", [B]: "ok", [C]: "skipped" });
    assert.equal(ended.result.target, target);
    assert.deepEqual([since(A), since(B), since(C)], [[`${target} 1.0.0 1.0.0`], [`${target} 1.0.0 1.0.0`], []]);
    assert.match(ended.text, /web: skipped where disabled, on 127\.0\.0\.3/);
    assert.match(ended.text, /batch 1 of 2: .* on 127\.0\.0\.1\n(.*\n)*.*batch 2 of 2/);
  });

test("CP-283 status tells what each job says on each worker; one that is down hides no other", async (t) => {
  const { deploys, run } = await setUp(t);
  assert.equal((await run("job_status")).error, undefined);
  rmSync(path.join(deploys.folder(A), "jobs/web/running"));
  const ended = await run("job_status");
  assert.equal(ended.error?.code, "ErrRunCommand");
  assert.deepEqual(outcomesOf(ended), { ...all("ok"), [A]: "failed" });
  const [first, second] = ended.result.jobs[0].allocations;
  assert.deepEqual(second.status, { exit_code: 0, lines: ["up"] });
  assert.deepEqual([first.status.exit_code, first.status.lines[0]], [2, "down"]);
  assert.match(ended.text, /^web@127\.0\.0\.2 \| up$/m);
  assert.doesNotMatch(ended.text, /skipped/);
  const last = readFileSync(path.join(deploys.folder(A), ".runner/web.last"), "utf8");
  assert.match(last, /^\w+ start\b/, "a question is not what ran last");
});

test("what is stopped stays so in a deploy that changes nothing; forgotten, it is started as new", async (t) => {
  const { deploys, run, isRunning } = await setUp(t);
  await run("job_stop", { allocations: [A] });
  await run("job_run", { allocations: [C], target: "Stop" });
  assert.deepEqual(HOSTS.map(isRunning), [false, true, false]);
  assert.deepEqual(outcomes(await deploys.deploy()), { web: "skipped" });
  assert.deepEqual(HOSTS.map(isRunning), [false, true, false]);
  await run("job_stop", { allocations: [A, B], forget: true });
  assert.deepEqual([deploys.promotion("web", A).hash, deploys.promotion("web", A).version], ["", "1.0.0"]);
  const { jobs } = await deploys.deploy();
  assert.deepEqual(
    jobs[0]?.allocations.map(({ action }) => action),
    ["start", "start", "skip"],
  );
  assert.deepEqual(HOSTS.map(isRunning), [true, true, false]);
});

test("a batch that fails keeps the next from starting, and nothing of it is forgotten", async (t) => {
  const { deploys, run, since } = await setUp(t);
  writeFileSync(path.join(deploys.folder(B), "fail"), "");
  const ended = await run("job_restart");
  assert.deepEqual(outcomesOf(ended), { [A]: "ok", [B]: "failed", [C]: "not_started" });
  assert.match(ended.error?.message ?? "", /^restart failed: web@127\.0\.0\.2: `make restart` of job web on 127\.0\.0\.2 failed/);
  assert.match(
    ended.error?.message ?? "",
    /; web@127\.0\.0\.3: not started; web@127\.0\.0\.2: may be stopped, not started again: /,
  );
  assert.deepEqual(since(C), []);
});

test("a worker that cannot be reached, or is not in sync, is left out; the others go on", async (t) => {
  const { deploys, run, since } = await setUp(t);
  const file = path.join(deploys.folder(B), "worker.json");
  const facts = JSON.parse(readFileSync(file, "utf8"));
  for (const [text, why] of [
    [JSON.stringify({ ...facts, update_seq: 0 }), "worker.json there has update sequence 0, 1 was synced last"],
    [JSON.stringify({ ...facts, update_seq: "\x1b[31m" }), "worker.json there has update sequence no, 1 was synced last"],
    [JSON.stringify({ ...facts, worker_id: "x" }), "worker.json there is that of another worker"],
    [JSON.stringify({ ...facts, bucket_id: "x" }), "worker.json there is that of another bucket"],
    ["{", "worker.json there cannot be read"],
    ["", "worker.json is missing there"],
  ] as const) {
    writeFileSync(file, text);
    const ended = await run("job_reload");
    assert.deepEqual(outcomesOf(ended), { ...all("ok"), [B]: "failed" }, why);
    assert.equal(
      ended.error?.message,
      `reload failed: web@${B}: worker ${B} is not in sync: ${why}; its files may be others than the bucket knows: run \`ops deploy --force\``,
    );
  }
  writeFileSync(file, JSON.stringify({ ...facts, update_seq: 0 }));
  const { db } = deploys.bucket;
  db.run("UPDATE worker SET synced_seq = 0 WHERE worker_ip = ?", B);
  const never = `reload failed: web@${B}: worker ${B} is not in sync: nothing was deployed to it yet; run \`ops deploy\``;
  assert.equal((await run("job_reload")).error?.message, never);
  assert.deepEqual(since(B), []);
  assert.equal((await deploys.deploy({ force: true })).error, undefined);
  await deploys.cutOff(C);
  const ended = await run("job_reload");
  assert.deepEqual(outcomesOf(ended), { ...all("ok"), [C]: "unreachable" });
});

test("HR-004 HR-057 HR-157 HR-311 hooks for job_control stand for make, on active workers of the filter, with TARGET", async (t) => {
  const hook = `${RECORD}ops.put_job_variable("last", os.environ.get("TARGET", "deploy")).raise_for_status()\n`;
  const { deploys, run, since } = await setUp(t, {
    disabled: [C],
    manifest: hooksOf({ act: ["job_control"] }),
    files: { "_hooks/act.py": hook },
  });
  traces(deploys.bucket.dir);
  for (const [kind, params, target] of [
    ["job_start", {}, "start"],
    ["job_stop", {}, "stop"],
    ["job_restart", {}, "restart"],
    ["job_reload", {}, "reload"],
    ["job_run", { target: "dump.all" }, "dump.all"],
  ] as const) {
    assert.equal((await run(kind, params)).error, undefined);
    assert.deepEqual(
      traces(deploys.bucket.dir).map(
        ({ ALLOCATION_IP, TARGET, EVENT, BATCH_COUNT, NEW_ALLOCATIONS }) =>
          `${ALLOCATION_IP} ${TARGET} ${EVENT} ${BATCH_COUNT} ${NEW_ALLOCATIONS}`,
      ),
      [A, B].map((host) => `${host} ${target} job_control 2 undefined`),
    );
    assert.equal(deploys.bucket.kv().get("vars/job/web", "last"), target);
  }
  await run("job_stop", { allocations: [B] });
  assert.deepEqual(
    traces(deploys.bucket.dir).map(({ ALLOCATION_IP }) => ALLOCATION_IP),
    [B],
  );
  await run("job_status");
  assert.deepEqual(traces(deploys.bucket.dir), [], "a question runs no script");
  assert.deepEqual(since(A), []);
});

test("a hook that fails, fails its worker; later batches do not start and stop --forget forgets nothing there", async (t) => {
  const hook = `import os, sys\nif os.environ.get("TARGET") and os.environ["ALLOCATION_IP"] == "${B}": sys.exit("busy")\n`;
  const { deploys, run } = await setUp(t, { manifest: hooksOf({ act: ["job_control"] }), files: { "_hooks/act.py": hook } });
  const ended = await run("job_stop", { forget: true });
  assert.deepEqual(outcomesOf(ended), { [A]: "ok", [B]: "failed", [C]: "not_started" });
  assert.equal(ended.result.jobs[0].allocations[1].error, "hook act: exit code 1: busy");
  assert.deepEqual(
    HOSTS.map((host) => deploys.promotion("web", host).hash === ""),
    [true, false, false],
  );
});

test("where a hook fails on one worker, a worker without its later hooks is not ok and stop --forget forgets nothing there", async (t) => {
  const hook = `import os, sys\nif os.environ.get("TARGET") and os.environ["ALLOCATION_IP"] == "${B}": sys.exit("busy")\n`;
  const manifest = { ...hooksOf({ act: ["job_control"], clear: ["job_control"] }), max_concurrent_upgrades: 2 };
  for (const [failing, other, expected] of [
    ["act", "clear", "failed"],
    ["clear", "act", "ok"],
  ] as const) {
    const files = { [`_hooks/${failing}.py`]: hook, [`_hooks/${other}.py`]: "" };
    const { deploys, run } = await setUp(t, { manifest, files });
    const ended = await run("job_stop", { forget: true });
    assert.deepEqual(outcomesOf(ended), { [A]: expected, [B]: "failed", [C]: "not_started" });
    assert.equal(deploys.promotion("web", A).hash === "", expected === "ok");
    if (expected === "failed")
      assert.match(ended.result.jobs[0].allocations[0].error, /^a hook failed on another worker, so not all /);
  }
});

test("with health_check each batch has to be well before the next; a stop looks at what is left, a start at what has begun", async (t) => {
  const { run, isRunning } = await setUp(t, { manifest: { health_check: CHECK } });
  const stopped = await run("job_stop", { health_check: true });
  assert.equal(stopped.error, undefined);
  assert.equal(stopped.text.match(/health check passed/g)?.length, 2);
  assert.deepEqual(HOSTS.map(isRunning), [false, false, false]);
  const reloaded = await run("job_reload", { health_check: true });
  assert.deepEqual(outcomesOf(reloaded), { [A]: "failed", [B]: "not_started", [C]: "not_started" });
  assert.match(reloaded.result.jobs[0].allocations[0].error, /after 1 attempt: command on 127\.0\.0\.1: exit code 1/);
  assert.equal(reloaded.result.jobs[0].allocations[0].evidence.status.lines[0], "down");
  const started = await run("job_start", { health_check: true });
  assert.deepEqual([started.error, outcomesOf(started)], [undefined, all("ok")]);
  assert.equal(started.text.match(/health check passed/g)?.length, 3);
});

test("with health_check a status looks at what is up, also where that is one allocation, and at nothing where none is", async (t) => {
  const { deploys, run } = await setUp(t, { manifest: { health_check: CHECK }, disabled: [B, C] });
  const up = await run("job_status", { health_check: true });
  assert.equal(up.text.match(/health check passed/g)?.length, 1);
  rmSync(path.join(deploys.folder(A), "jobs/web/running"));
  const down = await run("job_status", { health_check: true });
  assert.deepEqual([down.error?.code, down.text.includes("health check")], ["ErrRunCommand", false]);
});

test("of what a status says the last lines of its first 64 KiB are kept", async (t) => {
  const loud = `start restart stop reload:\n\t@true\nstatus:\n\t@seq 1 20000\n`;
  const { run } = await setUp(t, { files: { Makefile: loud } });
  const { error, result } = await run("job_status");
  assert.equal(error, undefined);
  const { lines } = result.jobs[0].allocations[0].status;
  assert.equal(lines.length, 100);
  assert.ok(Number(lines.at(-1)) < 20_000, lines.at(-1));
});

test("HR-057 a filter must match, jobs must be known, and nothing runs otherwise", async (t) => {
  const { run, since } = await setUp(t);
  for (const [params, code, message] of [
    [{ jobs: ["wep"] }, "unknown_name", 'in the catalog there is no job "wep"; did you mean "web"?'],
    [
      { allocations: [A, "127.0.0.9"] },
      "unknown_name",
      'of web there is no allocation on worker "127.0.0.9"; did you mean "127.0.0.1"?',
    ],
    [{ allocations: [] }, "invalid_request", "Cannot start job_stop: allocations expected at least 1 item, found 0"],
  ] as const) {
    const { error } = await run("job_stop", params);
    assert.deepEqual([error?.code, error?.message], [code, message]);
  }
  assert.deepEqual(HOSTS.map(since), [[], [], []]);
});

for (const target of ["a b", "$(id)", ";id", "-f", "a=b", "../x", "a\nb", "", "`id`"])
  test(`the target ${JSON.stringify(target)} is refused before anything starts`, async (t) => {
    const { error } = await carryOut((await Deploys.make(t)).bucket, "job_run", control("job_run"), { jobs: ["web"], target });
    assert.equal(error?.code, "invalid_request");
  });

test("CP-212 a cancel ends the target and leaves the rest alone, and says so of each allocation", async (t) => {
  const makefile = `start restart:\n\t@true\nreload:\n\t@touch ../../begun; sleep 60\n`;
  const { deploys, run } = await setUp(t, { files: { Makefile: makefile } });
  const cancel = new AbortController();
  const running = run("job_reload", {}, cancel.signal);
  await until("the target to run", () => existsSync(path.join(deploys.folder(A), "begun")));
  cancel.abort();
  const ended = await running;
  assert.equal(ended.error?.code, "cancelled");
  assert.deepEqual(outcomesOf(ended), { [A]: "cancelled", [B]: "not_started", [C]: "not_started" });
});

test("an allocation is named by its worker, or by its job and worker where several jobs are meant", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: {}, db: {} });
  assert.equal((await deploys.deploy()).error, undefined);
  const run = (allocations: string[]) =>
    carryOut(deploys.bucket, "job_restart", control("job_restart"), { jobs: ["web", "db"], allocations });
  assert.equal((await run([`web@${A}`, `DB@${B}`, C])).error, undefined);
  const restarted = (job: string) => HOSTS.filter((host) => deploys.targets(job, host).includes("restart"));
  assert.deepEqual(
    [restarted("web"), restarted("db")],
    [
      [A, C],
      [B, C],
    ],
  );
  assert.equal((await run([`app@${A}`])).error?.code, "unknown_name");
});
