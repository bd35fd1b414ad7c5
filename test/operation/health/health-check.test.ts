import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { catalogJobs } from "../../../lib/bucket/catalog/catalog.ts";
import { healthCheck } from "../../../lib/operation/health/health-check.ts";
import { Deploys, HOSTS, type JobsSpec } from "../../helpers/deploys.ts";
import { hooksOf, RECORD, traces } from "../../helpers/hooks.ts";
import { carryOut } from "../../helpers/operations.ts";
import { SshFleet } from "../../helpers/ssh-fleet.ts";
import { until } from "../../helpers/temporary.ts";

const [A, B, C] = HOSTS;

/** Healthy where no file `sick` lies beside the jobs; its first line is what the probe says. */
const PROBE = { type: "ssh", command: "if [ -f sick ]; then cat sick; exit 7; fi; echo fine" };

function probed(more: Record<string, unknown> = {}, wait = { attempts: 2, interval_seconds: 1 }) {
  return { manifest: { health_check: { checks: [PROBE], wait }, ...more } };
}

async function setUp(t: TestContext, jobs: JobsSpec, disabled: Record<string, string[]> = {}) {
  const deploys = await Deploys.make(t);
  await deploys.build(jobs, { disabled });
  assert.equal((await deploys.deploy()).error, undefined);
  const check = (params: Record<string, unknown> = {}, options: { signal?: AbortSignal; secrets?: readonly string[] } = {}) =>
    carryOut(deploys.bucket, "health_check", healthCheck, params, options);
  const sicken = (host: string, text = "sick\n") => writeFileSync(path.join(deploys.folder(host), "sick"), text);
  return { deploys, check, sicken };
}

const outcomesOf = (allocations: { worker: string; outcome: string }[]) =>
  Object.fromEntries(allocations.map(({ worker, outcome }) => [worker, outcome]));

test("CP-259 HR-058 HR-063 a health check tells of every job how each active allocation is, and why others are skipped", async (t) => {
  const jobs = { web: probed(), idle: {}, off: probed(), part: probed(), zed: probed() };
  const { check } = await setUp(t, jobs, { off: [...HOSTS], part: [B], zed: [A, B] });
  const { error, result, text } = await check({ verbose: true });
  assert.equal(error, undefined);
  assert.deepEqual(
    result.workers.map(({ worker, outcome, attempts }: Record<string, unknown>) => [worker, outcome, attempts]),
    HOSTS.map((host) => [host, "ok", 1]),
  );
  assert.deepEqual(
    result.jobs.map(({ job, outcome, reason }: Record<string, unknown>) => [job, outcome, reason]),
    [
      ["idle", "skipped", "it has neither probes nor hooks for health_check"],
      ["off", "skipped", "it has no active allocation"],
      ["part", "ok", null],
      ["web", "ok", null],
      ["zed", "ok", null],
    ],
  );
  assert.deepEqual(outcomesOf(result.jobs[2].allocations), { [A]: "ok", [C]: "ok" });
  const [first] = result.jobs[3].allocations;
  assert.deepEqual(
    { ...first, checks: first.checks.map(({ ok, evidence }: Record<string, unknown>) => [ok, evidence]) },
    {
      worker: A,
      outcome: "ok",
      error: null,
      attempts: 1,
      evidence: null,
      checks: [[true, `command on ${A}: exit code 0: fine`]],
    },
  );
  assert.match(text, /^idle: skipped, it has neither probes nor hooks for health_check$/m);
  assert.match(text, /^web@127\.0\.0\.1: command on 127\.0\.0\.1: exit code 0: fine \(\d+ ms\)$/m);
  assert.match(text, /^part: healthy on 127\.0\.0\.1, 127\.0\.0\.3$/m);
  assert.match(text, /^zed: healthy on 127\.0\.0\.3$/m);
  assert.match(text, /^jobs: 3 healthy, 0 failed, 0 unreachable, 2 skipped$/m);
});

test("HR-059 HR-060 probes go in the order of the KV store, one worker at a time where upgrades do", async (t) => {
  const deploys = await Deploys.make(t);
  const shared = deploys.workers;
  const command = `mkdir ${shared}/busy && echo $PWD >> ${shared}/order && sleep 0.05 && rmdir ${shared}/busy`;
  await deploys.build({ web: { manifest: { health_check: { checks: [{ type: "ssh", command }] } } } });
  const kv = deploys.bucket.kv();
  kv.put("ops/job/web", "rollout_order", [C, B, A].join());
  kv.flush();
  assert.equal((await deploys.deploy()).error, undefined);
  writeFileSync(path.join(shared, "order"), "");
  assert.equal((await carryOut(deploys.bucket, "health_check", healthCheck)).error, undefined);
  assert.deepEqual(
    readFileSync(path.join(shared, "order"), "utf8").trim().split("\n"),
    [C, B, A].map((host) => deploys.folder(host)),
  );
});

test("HR-066 in a batch all probes of all workers run at the same time", async (t) => {
  const deploys = await Deploys.make(t);
  const all = path.join(deploys.workers, "all");
  /** Ends when as many as there are have begun. */
  const meet = (name: string) => ({
    type: "ssh",
    timeout_seconds: 30,
    command: `touch ${all}.$(basename $(dirname $PWD)).${name}; until [ "$(ls ${all}.* | wc -l)" = 6 ]; do sleep 0.02; done`,
  });
  const health_check = { checks: [meet("one"), meet("two")] };
  await deploys.build({ web: { manifest: { max_concurrent_upgrades: 3, health_check } } });
  assert.equal((await deploys.deploy()).error, undefined);
});

test("HR-125 the jobs of a health check do not wait for each other", async (t) => {
  const deploys = await Deploys.make(t);
  const mark = path.join(deploys.workers, "second");
  const health = (command: string) => ({ health_check: { checks: [{ type: "ssh", command, timeout_seconds: 30 }] } });
  const jobs = (first: string, second: string): JobsSpec => ({
    first: { manifest: health(first) },
    second: { manifest: health(second), demands: "first" },
  });
  await deploys.build(jobs("true", "true"), { hosts: [A] });
  assert.equal((await deploys.deploy()).error, undefined);
  await deploys.build(jobs(`until [ -e ${mark} ]; do sleep 0.02; done`, `touch ${mark}`), { hosts: [A] });
  const { error } = await carryOut(deploys.bucket, "health_check", healthCheck);
  assert.equal(error, undefined);
});

test("HR-020 what is not healthy fails the run, with the probe's answer, the logs and the status as evidence", async (t) => {
  const makefile = "start:\n\t@true\nstatus:\n\t@echo stopped; exit 3\n";
  const { deploys, check, sicken } = await setUp(t, { web: { ...probed(), files: { Makefile: makefile } } });
  sicken(B, "no answer from the disk\n");
  const logs = path.join(deploys.folder(B), "jobs/web/logs");
  mkdirSync(logs, { recursive: true });
  writeFileSync(path.join(logs, "app.log"), Array.from({ length: 50 }, (_, at) => `line ${at}\n`).join(""));
  const { error, result, text } = await check();
  assert.equal(error?.code, "ErrHealthCheckFailed");
  const sentence = `web: ${B} after 1 attempt: command on ${B}: exit code 7: no answer from the disk`;
  assert.equal(error?.message, `not everything is well: ${sentence}`);
  const [web] = result.jobs;
  assert.deepEqual(outcomesOf(web.allocations), { [A]: "ok", [B]: "failed", [C]: "ok" });
  const { evidence } = web.allocations[1];
  assert.deepEqual(evidence.errors, []);
  assert.deepEqual(
    evidence.logs.map((log: { file: string; lines: string[] }) => [log.file, log.lines.length, log.lines.at(-1)]),
    [["app.log", 20, "line 49"]],
  );
  assert.equal(evidence.status.exit_code, 2);
  assert.equal(evidence.status.lines[0], "stopped");
  assert.match(text, /^web@127\.0\.0\.2 \| end of logs\/app\.log:\nweb@127\.0\.0\.2 \| {3}line 30\n/m);
  assert.match(text, /^web@127\.0\.0\.2 \| make status: exit code 2\nweb@127\.0\.0\.2 \| {3}stopped\n/m);
  assert.equal(deploys.promotion("web", B).gate, "passed", "nothing is stored");
});

test("evidence of a hostile job is harmless, bounded and without secrets", async (t) => {
  const secret = "correct horse battery";
  const makefile = `start:\n\t@true\nstatus:\n\t@printf '\\033]0;owned\\007\\033[31mred\\033[0m ${secret}\\000\\n'\n`;
  const { deploys, check, sicken } = await setUp(t, { web: { ...probed(), files: { Makefile: makefile } } });
  sicken(A, `\x1b[2J${secret}\n`);
  const logs = path.join(deploys.folder(A), "jobs/web/logs");
  mkdirSync(logs, { recursive: true });
  writeFileSync(path.join(logs, "huge"), Buffer.alloc(10_000_000, secret));
  writeFileSync(path.join(logs, "odd\n>name"), `\u202Ebidi\n${secret}\n`);
  writeFileSync(path.join(logs, "-n"), Buffer.from([0x1b, 0x5b, 0x41, 0xff, 0xfe, 0x00, 0x0d, 0x61, 0x0a, 0x3e, 0x62]));
  writeFileSync(path.join(deploys.folder(A), "elsewhere"), "not a log\n");
  symlinkSync(path.join(deploys.folder(A), "elsewhere"), path.join(logs, "link"));
  execFileSync("mkfifo", [path.join(logs, "pipe")]);
  const { error, result, text } = await check({}, { secrets: [secret] });
  const { evidence, checks } = result.jobs[0].allocations[0];
  const shown = JSON.stringify([error?.message, result, text]);
  assert.doesNotMatch(shown, /correct horse|not a log|owned/);
  assert.doesNotMatch([error?.message, text].join(""), /[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]/);
  assert.equal(checks[0].evidence, `command on ${A}: exit code 7: ***`);
  assert.deepEqual(evidence.status.lines, ["red ***\ufffd"]);
  assert.deepEqual(evidence.logs.map(({ file }: { file: string }) => file).sort(), ["-n", "huge"]);
  const linesOf = (name: string) => evidence.logs.find(({ file }: { file: string }) => file === name).lines;
  assert.deepEqual(linesOf("-n").slice(1), [">b"]);
  // The part of the file that is read begins within the secret.
  assert.deepEqual(linesOf("huge"), [`${"*".repeat(400)}…`]);
  assert.ok(text.length < 10_000, String(text.length));
  // A service may put a link in the place of its own folder: ops may read more than the service.
  renameSync(logs, path.join(deploys.folder(A), "moved"));
  symlinkSync(path.join(deploys.folder(A), "moved"), logs);
  assert.deepEqual((await check({})).result.jobs[0].allocations[0].evidence.logs, []);
});

test("a worker that cannot be reached fails its own allocations only", async (t) => {
  const { deploys, check } = await setUp(t, {
    web: { manifest: { ...probed().manifest, ...hooksOf({ go: ["health_check"] }) }, files: { "_hooks/go.py": RECORD } },
    alone: probed({ selectors: ["alone"] }),
  });
  await deploys.cutOff(B);
  traces(deploys.bucket.dir);
  const { error, result } = await check();
  assert.equal(error?.code, "ErrHealthCheckFailed");
  assert.match(error?.message ?? "", /^not everything is well: web: Cannot connect to worker 127\.0\.0\.2/);
  assert.deepEqual(
    result.jobs.map(({ job, outcome }: Record<string, unknown>) => [job, outcome]),
    [
      ["alone", "skipped"],
      ["web", "unreachable"],
    ],
  );
  assert.deepEqual(outcomesOf(result.jobs[1].allocations), { [A]: "ok", [C]: "ok", [B]: "unreachable" });
  assert.deepEqual(
    traces(deploys.bucket.dir)
      .map(({ ALLOCATION_IP }) => ALLOCATION_IP)
      .sort(),
    [A, C],
  );
});

/** A built bucket with one worker over ssh, where each login runs `login`. */
async function overSsh(t: TestContext, login: string) {
  const fleet = await SshFleet.start(t, { hosts: [A], login });
  const { user: ssh_user, port: ssh_port, clientKey } = fleet.sshd;
  const deploys = await Deploys.make(t, () => ({ connection: "ssh", ssh_user, ssh_port }));
  const { layout, dir } = deploys.bucket;
  for (const folder of [layout.secrets, layout.ssh]) mkdirSync(folder, { recursive: true, mode: 0o700 });
  copyFileSync(clientKey, path.join(dir, "secrets", "fleet.key"));
  copyFileSync(fleet.knownHostsFile, layout.knownHosts);
  await deploys.build({ web: probed() }, { hosts: [A], conf: 'ssh_key = "fleet.key"\nuse_sudo = false\n' });
  return { deploys, fleet };
}

test("a worker that answers but runs no script has failed, and is not unreachable", async (t) => {
  const { deploys } = await overSsh(t, "exit 3");
  const { error, result } = await carryOut(deploys.bucket, "health_check", healthCheck, {});
  assert.equal(error?.code, "ErrHealthCheckFailed");
  const [{ outcome, error: why }] = result.workers;
  assert.deepEqual([outcome, why], ["failed", `Cannot run commands on worker ${A}: it closed the session`]);
});

test("HR-052 HR-299 HR-307 HR-319 T-35 hooks follow the probes, for disabled allocations too, and store nothing; a failed probe keeps them from running", async (t) => {
  const hook = `${RECORD}print(ops.put_job_variable("a", "b").text)\n`;
  const { deploys, check, sicken } = await setUp(
    t,
    { web: { manifest: { ...probed().manifest, ...hooksOf({ go: ["health_check"] }) }, files: { "_hooks/go.py": hook } } },
    { web: [C] },
  );
  traces(deploys.bucket.dir);
  const { error, text } = await check();
  assert.equal(error, undefined);
  const seen = traces(deploys.bucket.dir).map(
    ({ ALLOCATION_IP, EVENT, DEPLOY_PHASE, DISABLED }) => `${ALLOCATION_IP} ${EVENT} ${DEPLOY_PHASE} ${DISABLED}`,
  );
  assert.deepEqual(
    seen,
    [A, B, C].map((host) => `${host} health_check health_check ${host === C ? 1 : 0}`),
  );
  assert.match(text, /KV writes are not allowed during health_check/);
  assert.equal(deploys.bucket.kv().get("vars/job/web", "a"), undefined);
  sicken(A);
  assert.notEqual((await check()).error, undefined);
  assert.deepEqual(traces(deploys.bucket.dir), []);
});

test("HR-052 hooks for health_check run where every allocation of the job is disabled; a job with probes alone is skipped", async (t) => {
  const go = { manifest: { ...probed().manifest, ...hooksOf({ go: ["health_check"] }) }, files: { "_hooks/go.py": RECORD } };
  const { deploys, check } = await setUp(t, { off: probed(), web: go }, { off: [...HOSTS], web: [...HOSTS] });
  traces(deploys.bucket.dir);
  const { error, result } = await check();
  assert.equal(error, undefined);
  const seen = traces(deploys.bucket.dir).map(({ ALLOCATION_IP, DISABLED }) => `${ALLOCATION_IP} ${DISABLED}`);
  assert.deepEqual(
    seen,
    [A, B, C].map((host) => `${host} 1`),
  );
  const [off, web] = result.jobs;
  assert.deepEqual([off.outcome, off.reason], ["skipped", "it has no active allocation"]);
  assert.deepEqual([web.outcome, outcomesOf(web.allocations)], ["ok", { [A]: "ok", [B]: "ok", [C]: "ok" }]);
});

test("HR-020 a hook that fails makes its worker unhealthy, with evidence", async (t) => {
  const hook = `import ops, sys\nif ops.allocation_ip() == "${B}": sys.exit("replica is behind")\n`;
  const jobs = (text: string) => ({
    web: { manifest: { ...hooksOf({ go: ["health_check"] }), max_concurrent_upgrades: 3 }, files: { "_hooks/go.py": text } },
  });
  const { deploys, check } = await setUp(t, jobs(""));
  await deploys.build(jobs(hook));
  const { error, result } = await check();
  assert.equal(error?.message, `not everything is well: web: ${B}: hook go: exit code 1: replica is behind`);
  assert.deepEqual(outcomesOf(result.jobs[0].allocations), { [B]: "failed" });
  assert.match(result.jobs[0].allocations[0].evidence.status.lines.join(), /No rule to make target 'status'/);
});

test("with wait a job has as many attempts as its manifest says; without it one", async (t) => {
  const count = { type: "ssh", command: 'echo x >> tries; [ "$(wc -l < tries)" -ge 3 ]' };
  const { deploys, check } = await setUp(t, { web: { manifest: { selectors: ["worker"] } } });
  const wait = { attempts: 3, interval_seconds: 1 };
  await deploys.build({ web: { manifest: { health_check: { checks: [count], wait } } } }, { hosts: [A] });
  const tries = () => readFileSync(path.join(deploys.folder(A), "tries"), "utf8").length / 2;
  assert.notEqual((await check()).error, undefined);
  assert.equal(tries(), 1);
  const { error, result } = await check({ wait: true });
  // The second probe comes early and is no attempt.
  assert.deepEqual([error, result.jobs[0].allocations[0].attempts, tries()], [undefined, 1, 3]);
});

test("only the given jobs are checked, and only their workers asked; an unknown one starts nothing", async (t) => {
  const { deploys, check } = await setUp(t, { web: probed(), db: probed() });
  const { result } = await check({ jobs: ["WEB"] });
  assert.deepEqual(
    result.jobs.map(({ job }: { job: string }) => job),
    ["web"],
  );
  const { error } = await check({ jobs: ["web", "dbb"] });
  assert.deepEqual([error?.code, error?.message], ["unknown_name", 'in the catalog there is no job "dbb"; did you mean "db"?']);
  deploys.bucket.db.run("DELETE FROM job");
  assert.deepEqual(catalogJobs(deploys.bucket.db), []);
  assert.deepEqual((await check()).result.jobs, []);
});

test("CP-133 a cancel ends a health check that waits", async (t) => {
  const { check, sicken } = await setUp(t, { web: probed({}, { attempts: 100_000, interval_seconds: 1 }) });
  sicken(A);
  const cancel = new AbortController();
  setTimeout(() => cancel.abort(), 300);
  assert.equal((await check({ wait: true }, { signal: cancel.signal })).error?.code, "cancelled");
});

test("CP-133 a cancel while a worker is asked says nothing against the worker", async (t) => {
  const login = ': >"$HOME/asked"; sleep 300';
  const { deploys, fleet } = await overSsh(t, login);
  const cancel = new AbortController();
  const running = carryOut(deploys.bucket, "health_check", healthCheck, {}, { signal: cancel.signal });
  await until("the worker to be asked", () => existsSync(path.join(fleet.folder, "asked")));
  cancel.abort();
  const { error, text } = await running;
  assert.equal(error?.code, "cancelled");
  assert.doesNotMatch(text, /Cannot run/);
});

test("the gate of a deploy collects the same evidence before it goes on", async (t) => {
  const { deploys, sicken } = await setUp(t, { web: { manifest: { max_concurrent_upgrades: 3 } } });
  for (const host of HOSTS) sicken(host, "bad disk\n");
  const wait = { attempts: 1, interval_seconds: 1 };
  const makefile = "start restart:\n\t@true\nstatus:\n\t@echo broken\n";
  await deploys.build({ web: { ...probed({ version: "2.0.0" }, wait), files: { Makefile: makefile } } });
  const { error, text } = await deploys.deploy();
  assert.match(error?.message ?? "", /127\.0\.0\.1 after 1 attempt: command on 127\.0\.0\.1: exit code 7: bad disk/);
  assert.match(text, /web@127\.0\.0\.1 \| make status: exit code 0\nweb@127\.0\.0\.1 \| {3}broken\n/);
  assert.doesNotMatch(text, / \(\d+ ms\)$/m, "its probes are told one by one only where that was asked for");
  assert.ok(text.indexOf("make status") < text.indexOf("error: web:"));
  assert.ok(existsSync(path.join(deploys.folder(B), "jobs/web/Makefile")));
});
