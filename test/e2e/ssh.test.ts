import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { hasMembers, isGroupAlive, signalProcess } from "../../lib/core/process.ts";
import type { Progress } from "../../lib/run/progress.ts";
import { LocalServer, type Run } from "../../scripts/local-server.ts";
import { runningConfiguration, type ServiceOptions, serviceHistory, WORKERS, writeServices } from "../helpers/service.ts";
import { keepersOf, SshFleet, sshFolders } from "../helpers/ssh-fleet.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

interface DeployResult {
  jobs: { job: string; outcome: string; allocations: { outcome: string }[] }[];
  cancelled?: { workers: { worker: string; receipt: string }[]; unconfirmed: number };
}

/** A server with a bucket whose two workers are reached over ssh; the key comes over the API, as an operator gives it. */
async function setUp(t: TestContext, pushed: Partial<ServiceOptions> = {}, isTrusted = true) {
  const fleet = await SshFleet.start(t, { hosts: WORKERS });
  const folder = temporaryFolder(t);
  const server = await LocalServer.start(path.join(folder, "root"));
  t.after(() => server.stop("SIGKILL"));
  const bucket = await server.createBucket();
  const base = `/api/buckets/${bucket}`;
  const roots = path.join(fleet.folder, "roots");
  const source = path.join(folder, "source");
  const push = async (service: Partial<ServiceOptions>) => {
    const { user: ssh_user, port: ssh_port } = fleet.sshd;
    writeServices(source, roots, { version: "1.0.0", worker: { connection: "ssh", ssh_user, ssh_port }, ...service });
    // Root needs no sudo, and anybody else who runs this has none.
    const sudo = process.getuid?.() === 0;
    const options = "[ssh_options]\nServerAliveInterval = 1\nServerAliveCountMax = 3\n";
    writeFileSync(path.join(source, "ops.conf"), `ssh_key = "fleet.key"\nuse_sudo = ${sudo}\n${options}`);
    const pushed = await server.push(bucket, source);
    assert.equal(pushed.code, 0, pushed.stderr + pushed.stdout);
  };
  const deploy = async (params: object = {}) => {
    let text = "";
    const run = await server.run(bucket, "deploy", params, (part) => {
      text += part;
    });
    return { run, text, jobs: (run.result as DeployResult | null)?.jobs ?? [] };
  };
  await push(pushed);
  const stored = await server.call("PUT", `${base}/secrets/ssh_key`, { private_key: readFileSync(fleet.sshd.clientKey, "utf8") });
  assert.equal(stored.status, 200);
  if (isTrusted) {
    const { knownHosts } = layoutOf(path.join(folder, "root", bucket));
    mkdirSync(path.dirname(knownHosts), { recursive: true, mode: 0o700 });
    copyFileSync(fleet.knownHostsFile, knownHosts);
  }
  const running = (job: string) => WORKERS.map((host) => runningConfiguration(roots, host, bucket, job));
  const history = (job: string) => WORKERS.map((host) => serviceHistory(roots, host, bucket, job));
  return { fleet, folder, server, bucket, base, roots, push, deploy, running, history };
}

test("CP-248 CP-395 upload of the key, trust, deploy, skip and upgrade over ssh, with one connection per worker, and nothing left without the key", async (t) => {
  const { fleet, folder, server, bucket, base, push, deploy, running, history } = await setUp(t, {}, false);
  const trusted = await server.run(bucket, "workers/trust");
  assert.equal(trusted.status, "succeeded", trusted.error ?? "");
  const first = await deploy();
  assert.equal(first.run.status, "succeeded", first.text);
  assert.deepEqual(
    running("app"),
    WORKERS.map((host) => `app 1.0.0 on ${host}\n`),
  );
  assert.equal(fleet.logins, WORKERS.length);

  const second = await deploy();
  assert.deepEqual(
    second.jobs.map((job) => job.outcome),
    ["skipped", "skipped"],
  );
  assert.equal(fleet.logins, WORKERS.length, "what is promoted needs no look at the workers");

  await push({ version: "1.1.0", manifest: { max_concurrent_upgrades: 1 } });
  const third = await deploy();
  assert.equal(third.run.status, "succeeded", third.text);
  assert.deepEqual(
    running("base"),
    WORKERS.map((host) => `base 1.1.0 on ${host}\n`),
  );
  assert.deepEqual(history("base")[0], ["start 1.0.0", "restart 1.1.0"]);

  assert.equal(fleet.logins, WORKERS.length, "the connections of the first run serve the third");
  await until("no session of a run is left", () => fleet.shells.length === 0);
  assert.equal((await server.call("DELETE", `${base}/secrets/ssh_key`)).status, 204);
  await until("the workers' side is gone", () => fleet.sessions.length === 0);
  await until("the folder is gone", () => sshFolders(path.join(folder, "root", bucket)).length === 0);
  const secret = readFileSync(fleet.sshd.clientKey, "utf8").split("\n")[1] as string;
  assert.ok(!`${first.text}${third.text}`.includes(secret));
});

test("CP-134 CP-135 a cancelled deploy says of each worker what became of its command, and goes on later", async (t) => {
  // The second worker's target does not end when it is asked to.
  const stubborn = "case \"$$PWD\" in */127.0.0.2/*) trap '' TERM ;; esac";
  const before = `\t@test -f ../../go || { ${stubborn}; touch ../../begun; while :; do sleep 300; done; }\n`;
  const { fleet, server, bucket, base, roots, deploy, history } = await setUp(t, { before });
  const id = await server.startRun(bucket, "deploy");
  let text = "";
  const followed = server.follow(bucket, id, (part) => {
    text += part;
  });
  const begun = WORKERS.map((host) => path.join(roots, host, bucket, "begun"));
  await until("both targets run", () => begun.every((file) => existsSync(file)));
  const progress = async () => (await server.call<{ progress: Progress | null }>("GET", `${base}/runs/${id}`)).body.progress;
  const waitsForTargets = ({ waiting }: Progress) =>
    WORKERS.every((host) => waiting.some(({ on, until }) => on === `base@${host}: make start` && until !== null));
  await until("the run to tell what it waits for", async () => {
    const told = await progress();
    return told !== null && waitsForTargets(told) && told.rollouts[0]?.running === 2;
  });
  assert.equal((await server.call<Run>("POST", `${base}/runs/${id}/cancel`)).status, 202);
  const run = await followed;
  assert.equal(run.status, "cancelled");
  assert.match(text, /^127\.0\.0\.1: the command that was running there is stopped$/m);
  assert.match(text, /^127\.0\.0\.2: the command that was running there is killed$/m);
  assert.match(text, /^cancelled on 2 workers, 0 of them unconfirmed$/m);
  const { workers = [], unconfirmed } = (run.result as DeployResult).cancelled ?? {};
  const receipts = Object.fromEntries(workers.map(({ worker, receipt }) => [worker, receipt]));
  assert.deepEqual([receipts, unconfirmed], [{ "127.0.0.1": "stopped", "127.0.0.2": "killed" }, 0]);
  assert.deepEqual(fleet.processes, []);
  for (const host of WORKERS) writeFileSync(path.join(roots, host, bucket, "go"), "");
  assert.equal((await deploy()).run.status, "succeeded", "the next deploy goes on");
  assert.deepEqual(history("app").flat(), ["start 1.0.0", "start 1.0.0"]);
});

test("a retry after a cancel and after a kill -9 of the server goes on where it was, and asks no worker twice", async (t) => {
  const before = "\t@[ ! -f ../../hang ] || { touch ../../begun; sleep 300; }\n";
  const { fleet, folder, server, bucket, base, roots, push, deploy, history } = await setUp(t, { before });
  const [first, second] = WORKERS as [string, string];
  const hang = path.join(roots, second, bucket, "hang");
  const begun = path.join(roots, second, bucket, "begun");
  const isBegun = () => until("the second worker to hang", () => existsSync(begun));
  const letGo = () => {
    rmSync(hang);
    rmSync(begun);
  };
  const upgrade = (version: string) => push({ version, before, manifest: { max_concurrent_upgrades: 1 } });
  const baseOn = () => history("base").map((lines) => lines.slice(1));
  const grades = ({ result }: Run) =>
    (result as DeployResult | null)?.jobs.map(({ allocations }) => allocations.map(({ outcome }) => outcome));
  assert.equal((await deploy()).run.status, "succeeded");

  await upgrade("2.0.0");
  writeFileSync(hang, "");
  const id = await server.startRun(bucket, "deploy");
  await isBegun();
  assert.equal((await server.call("POST", `${base}/runs/${id}/cancel`)).status, 202);
  const cancelled = await server.follow(bucket, id);
  assert.equal(cancelled.status, "cancelled");
  assert.deepEqual(grades(cancelled), [
    ["changed", "cancelled"],
    ["not_started", "not_started"],
  ]);
  letGo();
  const retried = await deploy({ retry_of: id });
  assert.equal(retried.run.status, "succeeded", retried.text);
  assert.deepEqual(baseOn(), [["restart 2.0.0"], ["restart 2.0.0"]]);

  await upgrade("3.0.0");
  writeFileSync(hang, "");
  const killed = await server.startRun(bucket, "deploy");
  await isBegun();
  await server.stop("SIGKILL");
  const next = await LocalServer.start(path.join(folder, "root"), { token: server.token });
  t.after(() => next.stop("SIGKILL"));
  const left = (await next.call<Run>("GET", `${base}/runs/${killed}`)).body;
  assert.deepEqual([left.status, left.error], ["failed", "server restarted before run completed"]);
  await until("nothing of it is at work on the workers", () => fleet.processes.length === 0);
  letGo();
  const afterKill = await next.run(bucket, "deploy", { retry_of: killed });
  assert.equal(afterKill.status, "succeeded", afterKill.error ?? "");
  assert.deepEqual(
    baseOn(),
    WORKERS.map(() => ["restart 2.0.0", "restart 3.0.0"]),
  );

  writeFileSync(hang, "");
  const command = "echo asked >> asked; [ ! -f hang ] || { touch begun; sleep 300; }";
  const asking = await next.startRun(bucket, "run_command", { command });
  await isBegun();
  await next.stop("SIGKILL");
  const last = await LocalServer.start(path.join(folder, "root"), { token: server.token });
  t.after(() => last.stop("SIGKILL"));
  letGo();
  const asked = await last.run(bucket, "run_command", { retry_of: asking });
  assert.equal(asked.status, "succeeded", asked.error ?? "");
  const timesOn = (host: string) =>
    readFileSync(path.join(roots, host, bucket, "asked"), "utf8")
      .trim()
      .split("\n").length;
  assert.deepEqual([timesOn(first), timesOn(second)], [1, 2]);
});

test("a worker that hangs when a deploy is cancelled is counted as unconfirmed", async (t) => {
  const { fleet, server, bucket, base, roots } = await setUp(t, { before: "\t@touch ../../begun; sleep 300\n" });
  const id = await server.startRun(bucket, "deploy");
  await until("both targets run", () => WORKERS.every((host) => existsSync(path.join(roots, host, bucket, "begun"))));
  fleet.freeze();
  fleet.freezeListener();
  assert.equal((await server.call<Run>("POST", `${base}/runs/${id}/cancel`)).status, 202);
  const told = new Set<string>();
  await until("the end of the run", async () => {
    const { body } = await server.call<Run & { progress: Progress | null }>("GET", `${base}/runs/${id}`);
    if (body.progress?.cancel) told.add(JSON.stringify(body.progress.cancel));
    return body.status !== "running";
  });
  assert.deepEqual([...told], ['{"confirmed":0,"total":2}']);
  const run = await server.follow(bucket, id);
  assert.equal(run.status, "cancelled");
  assert.deepEqual((run.result as DeployResult).cancelled?.unconfirmed, 2);
  assert.equal(
    run.audit.some((entry) => entry.action === "force_kill"),
    false,
    "it ended by itself in time",
  );
});

test("a target that never ends fails its job in time, and says what became of it", async (t) => {
  const manifest = { lifecycle_timeout_seconds: 1 };
  const { fleet, deploy } = await setUp(t, { before: "\t@sleep 300\n", manifest });
  const { run } = await deploy();
  assert.equal(run.status, "failed");
  assert.match(run.error ?? "", /`make start` of job base on 127\.0\.0\.1 was stopped at its time limit of 1 s/);
  assert.deepEqual(fleet.processes, []);
});

test("a run of a server that no worker lets in ends before anything is touched, and says what to do there or in the console", async (t) => {
  const { fleet, base, server, deploy, running } = await setUp(t, { manifest: { max_concurrent_starts: 0 } });
  const key = fleet.strangersKey();
  await server.call("PUT", `${base}/secrets/ssh_key`, { private_key: readFileSync(key, "utf8") });
  const wrong = await deploy();
  assert.equal(wrong.run.status, "failed");
  const told = `no worker was touched: Cannot sign in on workers 127.0.0.[1-2] as ${fleet.sshd.user}: the key secrets/fleet.key is not accepted there;`;
  assert.ok(wrong.run.error?.startsWith(told), wrong.run.error ?? "");
  assert.match(wrong.run.error ?? "", /: `ops ssh-key set`, or Keys under Source in the console$/);
  assert.deepEqual(running("base"), [undefined, undefined]);
  await server.call("DELETE", `${base}/secrets/ssh_key`);
  const none = await deploy();
  assert.match(
    none.run.error ?? "",
    /there is no private key secrets\/fleet\.key; make one: `ops ssh-key create`, or store yours/,
  );
});

test("a run whose process is killed leaves no connection behind", async (t) => {
  const before = "\t@test -f ../../go || { touch ../../begun; sleep 300; }\n";
  const { fleet, folder, server, bucket, roots, deploy } = await setUp(t, { before });
  const id = await server.startRun(bucket, "deploy");
  await until("both targets run", () => WORKERS.every((host) => existsSync(path.join(roots, host, bucket, "begun"))));
  const lock = JSON.parse(readFileSync(path.join(folder, "root", bucket, "data", "ops.lock"), "utf8"));
  process.kill(lock.holders[1].pid, "SIGKILL");
  assert.equal((await server.follow(bucket, id)).status, "failed");
  await until("no connection is open", () => fleet.sessions.length === 0);
  for (const { pgid, start_time } of lock.groups) assert.equal(isGroupAlive({ pgid, start_time }), false);

  // Nobody was left to end what ran on the workers.
  for (const pid of fleet.processes) signalProcess(pid, "SIGKILL");
  for (const host of WORKERS) writeFileSync(path.join(roots, host, bucket, "go"), "");
  await until("the folder is gone", () => sshFolders(path.join(folder, "root", bucket)).length === 0);
  assert.equal((await deploy()).run.status, "succeeded");
});

test("CP-415 the next run shows what the commands of a run whose process was killed have printed, and how they ended", async (t) => {
  const { folder, server, bucket, roots, deploy } = await setUp(t);
  assert.equal((await deploy()).run.status, "succeeded");
  const place = (host: string, name: string) => path.join(roots, host, bucket, name);
  const [short, long] = WORKERS as [string, string];
  const command = `echo "begun on $WORKER_IP"; : >begun; [ "$WORKER_IP" = ${short} ] || sleep 300; until [ -e go ]; do sleep 0.1; done; echo done; : >done; exit 3`;
  const id = await server.startRun(bucket, "run_command", { command, concurrency: 2 });
  await until("both commands run", () => WORKERS.every((host) => existsSync(place(host, "begun"))));
  const lock = JSON.parse(readFileSync(path.join(folder, "root", bucket, "data", "ops.lock"), "utf8"));
  process.kill(lock.holders[1].pid, "SIGKILL");
  assert.equal((await server.follow(bucket, id)).status, "failed");
  writeFileSync(place(short, "go"), "");
  const spools = (host: string) => readdirSync(place(host, ".")).filter((name) => name.startsWith(".ops-"));
  await until(
    "the command to end",
    () => existsSync(place(short, "done")) && spools(short).some((name) => name.endsWith(".code")),
  );

  let text = "";
  const next = await server.run(bucket, "workers/uptime", {}, (part) => {
    text += part;
  });
  assert.equal(next.status, "succeeded", text);
  const left = (host: string, ...lines: string[]) => {
    const own = text.split("\n").filter((line) => line.startsWith(host) && !line.includes(" ! "));
    assert.deepEqual(own.slice(0, lines.length), lines, text);
  };
  const name = `the command of run ${id}`;
  left(
    short,
    `${short}: a run that is over has left ${name}; what it printed there:`,
    `${short} | begun on ${short}`,
    `${short} | done`,
    `${short}: ${name} has ended with exit code 3`,
  );
  left(
    long,
    `${long}: a run that is over has left ${name}; what it printed there:`,
    `${long} | begun on ${long}`,
    `${long}: ${name} was still running: it is stopped`,
  );
  await until("nothing to be left", () => WORKERS.every((host) => spools(host).length === 0));
});

for (const way of ["stops", "is killed"] as const)
  test(`CP-397 when the server ${way}, kept connections end with it`, async (t) => {
    const { fleet, folder, server, bucket, deploy } = await setUp(t);
    assert.equal((await deploy()).run.status, "succeeded");
    assert.equal(fleet.sessions.length > 0, true);
    const keepers = keepersOf(path.join(folder, "root", bucket));
    assert.equal(keepers.length, 1);
    await server.stop(way === "stops" ? "SIGTERM" : "SIGKILL");
    await until("the connections to end", () => fleet.sessions.length === 0 && !keepers.some(hasMembers));
    await until("the folder to go", () => sshFolders(path.join(folder, "root", bucket)).length === 0);
  });

test("CP-396 when a bucket is deleted, kept connections to its workers end", async (t) => {
  const { fleet, folder, server, bucket, base, deploy } = await setUp(t);
  assert.equal((await deploy()).run.status, "succeeded");
  const keepers = keepersOf(path.join(folder, "root", bucket));
  const { name } = (await server.call<{ name: string }>("GET", base)).body;
  const deleted = await server.call("DELETE", base, { confirm: name });
  assert.equal(deleted.status, 204, JSON.stringify(deleted.body));
  await until("the connections to end", () => fleet.sessions.length === 0 && !keepers.some(hasMembers));
});
