import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { ops, PROGRAM } from "../../scripts/local-server.ts";
import { SshFleet } from "../helpers/ssh-fleet.ts";
import { until } from "../helpers/temporary.ts";
import { makeBucket } from "../helpers/workspace.ts";

const LOCAL = "127.0.0.1";
const REMOTE = "127.0.0.2";
const MAKEFILE = `start restart:
	@mkdir -p logs; echo "began" > logs/web.log; touch running
stop:
	@rm -f running
reload:
	@touch ../../busy; sleep 60
status:
	@test -f running && echo "\\033[32mup\\033[0m" || { echo down; exit 3; }
`;

/** A bucket with a job on this machine and on a worker over ssh, deployed. */
async function deployed(t: TestContext) {
  const fleet = await SshFleet.start(t, { hosts: [REMOTE, LOCAL] });
  const { user: ssh_user, port: ssh_port } = fleet.sshd;
  const entry = (host: string) => ({ host, root: fleet.worker(host).root });
  const checks = [{ type: "ssh", command: "test -f jobs/web/running", timeout_seconds: 2 }];
  const { dir, layout, bucketId } = await makeBucket(t, {
    workers: [
      { ...entry(LOCAL), connection: "local" },
      { ...entry(REMOTE), ssh_user, ssh_port },
    ],
    jobs: {
      web: {
        version: "1.0.0",
        selectors: ["worker"],
        max_concurrent_upgrades: 2,
        health_check: { checks, wait: { attempts: 2, interval_seconds: 1 } },
      },
    },
    files: { "ops.conf": 'ssh_key = "worker.key"\n[ssh_options]\nConnectTimeout = 1\n', "workspace/jobs/web/Makefile": MAKEFILE },
  });
  copyFileSync(fleet.sshd.clientKey, path.join(layout.secrets, "worker.key"));
  copyFileSync(fleet.knownHostsFile, layout.knownHosts);
  const run = (...args: string[]) => ops([...args, "--bucket-dir", dir]);
  const done = await run("deploy", "--build");
  assert.equal(done.code, 0, done.stdout + done.stderr);
  const folder = (host: string) => path.join(fleet.worker(host).root, bucketId);
  const isRunning = (host: string) => existsSync(path.join(folder(host), "jobs/web/running"));
  return { fleet, dir, run, folder, isRunning };
}

test("jobs are stopped, asked, checked and started over ssh and right here", async (t) => {
  const { run, isRunning } = await deployed(t);
  const healthy = await run("health_check", "--json");
  assert.equal(healthy.code, 0, healthy.stderr);
  const { workers, jobs } = JSON.parse(healthy.stdout);
  assert.deepEqual(Object.keys(workers[0]), ["worker", "outcome", "error", "attempts", "duration_ms"]);
  assert.deepEqual(Object.keys(jobs[0]), ["job", "outcome", "reason", "allocations"]);
  assert.deepEqual(Object.keys(jobs[0].allocations[0]).sort(), [
    ...["attempts", "checks", "error", "evidence", "outcome", "worker"],
  ]);

  const stopped = await run("job", "stop", "WEB", "--allocations", REMOTE);
  assert.equal(stopped.code, 0, stopped.stderr);
  assert.deepEqual([LOCAL, REMOTE].map(isRunning), [true, false]);

  const asked = await run("job", "status", "web");
  assert.equal(asked.code, 1);
  assert.match(asked.stdout, /^web@127\.0\.0\.1 \| \\x1b\[32mup/m);
  assert.match(asked.stdout, /^web@127\.0\.0\.2 \| down$/m);
  assert.match(asked.stderr, /^error: job_status failed after [\d.]+ s: status failed: web@127\.0\.0\.2: exit code 2/m);

  const sick = await run("health_check", "--wait", "--json");
  assert.equal(sick.code, 1);
  const [, remote] = JSON.parse(sick.stdout).jobs[0].allocations;
  assert.deepEqual([remote.outcome, remote.attempts, remote.evidence.logs[0].lines], ["failed", 2, ["began"]]);
  assert.equal(remote.evidence.status.lines[0], "down");

  const started = await run("job", "start", "web", "--health-check", "--json");
  assert.equal(started.code, 0, started.stderr);
  const result = JSON.parse(started.stdout);
  assert.deepEqual([result.target, result.jobs[0].job, result.jobs[0].outcome], ["start", "web", "ok"]);
  assert.deepEqual(Object.keys(result.jobs[0].allocations[0]), ["worker", "version", "outcome", "error", "duration_ms"]);
  assert.deepEqual([LOCAL, REMOTE].map(isRunning), [true, true]);
});

test("wrong usage of job commands is told before anything starts", async (t) => {
  const { run } = await deployed(t);
  for (const [args, code, sentence] of [
    [["job", "start"], 2, /jobs: is missing/],
    [["job", "start", "web,,db"], 2, /jobs: expected names with commas between them/],
    [["job", "run", "web"], 2, /--target: is missing/],
    [["job", "run", "web", "--target", "x; reboot"], 2, /--target: expected the name of a target/],
    [["job", "start", "web", "--forget"], 2, /has no flag "--forget"/],
    [["job", "start", "web,nobody"], 1, /there is no job "nobody"/],
    [["job", "stop", "web", "--allocations", "10.0.0.1"], 1, /there is no allocation on worker "10\.0\.0\.1"/],
    [["health_check", "--jobs", "wep"], 1, /there is no job "wep"; did you mean "web"\?/],
  ] as const) {
    const ended = await run(...args);
    assert.equal(ended.code, code, args.join(" "));
    assert.match(ended.stderr, sentence);
  }
});

test("of two operators at once the second is told that the bucket is busy", async (t) => {
  const { dir, run, folder } = await deployed(t);
  const first = spawn(process.execPath, [PROGRAM, "job", "reload", "web", "--bucket-dir", dir], { stdio: "ignore" });
  const ended = once(first, "exit");
  t.after(() => first.kill("SIGKILL"));
  await until("the target to run", () => existsSync(path.join(folder(REMOTE), "busy")));
  for (const args of [["job", "stop", "web"], ["health_check"]]) {
    const second = await run(...args);
    assert.equal(second.code, 75);
    assert.match(second.stderr, /bucket busy: another ops operation is in progress\n.*job_reload/);
  }
  first.kill("SIGINT");
  assert.deepEqual(await ended, [130, null]);
});

test("a worker that hangs is unreachable in bounded time, and hides no other", async (t) => {
  const { fleet, run } = await deployed(t);
  fleet.freeze();
  fleet.freezeListener();
  const { code, stdout, stderr } = await run("health_check", "--json");
  assert.equal(code, 1);
  const { workers, jobs } = JSON.parse(stdout);
  assert.deepEqual(
    workers.map(({ worker, outcome }: Record<string, string>) => [worker, outcome]),
    [
      [LOCAL, "ok"],
      [REMOTE, "unreachable"],
    ],
  );
  assert.deepEqual(
    jobs[0].allocations.map(({ worker, outcome }: Record<string, string>) => [worker, outcome]),
    [
      [LOCAL, "ok"],
      [REMOTE, "unreachable"],
    ],
  );
  assert.match(stderr, /health_check failed after [\d.]+ s: not everything is well: web: /);
});
