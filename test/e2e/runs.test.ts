import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type Layout, layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { acquireLock, type LockContent, readLock } from "../../lib/bucket/base/lock.ts";
import { identify } from "../../lib/core/process.ts";
import type { Progress } from "../../lib/run/progress.ts";
import { LocalServer, ops, PROGRAM, type Run } from "../../scripts/local-server.ts";
import { runningConfiguration, WORKERS, writeServices } from "../helpers/service.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const BUSY = "bucket busy: another ops operation is in progress";

/** A bucket whose job `base` runs `before` when it starts, pushed and built. */
async function setUp(t: TestContext, before = "") {
  const folder = temporaryFolder(t);
  const root = path.join(folder, "root");
  const rig = { folder, root, workers: path.join(folder, "workers"), server: await LocalServer.start(root) };
  t.after(() => rig.server.stop("SIGKILL"));
  const bucket = await rig.server.createBucket();
  const source = path.join(folder, "source");
  const push = async (commands: string) => {
    writeServices(source, rig.workers, { version: "1.0.0", before: commands });
    return await rig.server.push(bucket, source);
  };
  const pushed = await push(before);
  assert.equal(pushed.code, 0, pushed.stdout + pushed.stderr);
  const layout = layoutOf(path.join(root, bucket));
  return { ...rig, rig, bucket, layout, push, base: `/api/buckets/${bucket}` };
}

/** A command of a Makefile that says it has begun and then sleeps, deaf to TERM if wanted. */
function sleeper(folder: string, deaf = false): string {
  return `\t@${deaf ? "trap '' TERM; " : ""}echo $$$$ > ${folder}/begun; sleep 300 & wait; sleep 300\n`;
}

/** A group is noted right after it has begun: waits for that of a target. */
async function groupInLock(layout: Layout, target: number): Promise<void> {
  const [, , group] = readFileSync(`/proc/${target}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  const isNoted = async () => ((await readLock(layout)) as LockContent).groups.some(({ pgid }) => pgid === Number(group));
  await until("the target's group in the lock", isNoted);
}

async function begun(folder: string): Promise<number> {
  const file = path.join(folder, "begun");
  await until("the target to begin", () => existsSync(file) && readFileSync(file, "utf8").trim() !== "");
  return Number(readFileSync(file, "utf8"));
}

test("CP-112 CP-113 CP-114 CP-115 T-75 of many starts at once one is accepted, the others are 409 and leave nothing", async (t) => {
  const { server, bucket, layout, base } = await setUp(t);
  const before = (await server.call<{ items: Run[] }>("GET", `${base}/runs`)).body.items.length;
  const answers = await Promise.all(
    Array.from({ length: 6 }, (_, index) =>
      server.call<{ run_id: string; error: string; message: string }>("POST", `${base}/${index % 2 ? "build" : "deploy"}`),
    ),
  );
  assert.deepEqual(answers.map((answer) => answer.status).sort(), [202, 409, 409, 409, 409, 409]);
  const accepted = answers.find((answer) => answer.status === 202)?.body as { run_id: string };
  assert.deepEqual(Object.keys(accepted), ["run_id"], "CP-024");
  for (const { status, body } of answers)
    if (status === 409) assert.deepEqual([body.error, body.message, body.run_id], ["bucket_busy", BUSY, accepted.run_id]);
  await server.follow(bucket, accepted.run_id);
  assert.equal((await server.call<{ items: Run[] }>("GET", `${base}/runs`)).body.items.length, before + 1);
  assert.equal(await readLock(layout), undefined);
});

test("CP-118 CP-121 CP-122 T-80 server and command line exclude each other", async (t) => {
  const folder = temporaryFolder(t);
  const { server, bucket, layout, base } = await setUp(t, sleeper(folder));
  const run = await server.startRun(bucket, "deploy");
  const target = await begun(folder);
  const lock = (await readLock(layout)) as LockContent;
  assert.deepEqual([lock.run_id, lock.command, lock.holders.length], [run, "deploy", 2]);
  await groupInLock(layout, target);
  const command = await ops(["build", "--bucket-dir", layout.root]);
  assert.equal(command.code, 75);
  assert.match(command.stderr, new RegExp(`^ops: ${BUSY}\nheld by deploy \\(run ${run}\\)`));
  await server.call("POST", `${base}/runs/${run}/cancel`);
  await server.follow(bucket, run);

  const held = await acquireLock(layout, "019a0000-0000-7000-8000-000000000000", "build");
  const refused = await server.call<{ error: string; details: { command: string } }>("POST", `${base}/deploy`);
  assert.deepEqual([refused.status, refused.body.error, refused.body.details.command], [409, "bucket_busy", "build"]);
  await held.release();
  const built = await ops(["build", "--bucket-dir", layout.root]);
  assert.equal(built.code, 0, built.stderr);
  const [newest] = (await server.call<{ items: (Run & { origin: string })[] }>("GET", `${base}/runs`)).body.items;
  assert.deepEqual([newest?.kind, newest?.origin, newest?.status], ["build", "cli", "succeeded"]);
});

test("CP-119 CP-120 CP-138 T-77 what is deaf to TERM is killed, and only then are lock and end state there", async (t) => {
  const folder = temporaryFolder(t);
  const { server, bucket, layout, base } = await setUp(t, sleeper(folder, true));
  const run = await server.startRun(bucket, "deploy");
  const target = await begun(folder);
  assert.equal((await server.call("POST", `${base}/runs/${run}/cancel`)).status, 202);
  const during = await server.call<Run>("GET", `${base}/runs/${run}`);
  assert.equal(during.body.status, "running", "CP-212");
  assert.equal((await server.call("POST", `${base}/build`)).status, 409);
  const ended = await server.follow(bucket, run);
  assert.equal(ended.status, "cancelled");
  assert.equal(identify(target), undefined, "the command is gone");
  assert.equal(await readLock(layout), undefined, "the lock is free");
});

test("while a cancel goes on, its run tells how much of what it waited for has ended", async (t) => {
  const folder = temporaryFolder(t);
  const { server, bucket, base } = await setUp(t);
  const last = `while [ ! -e ${folder}/go ]; do sleep 0.05; done; exit`;
  const command = `[ $WORKER_IP = 127.0.0.1 ] || trap '${last}' TERM
    echo $$ >${folder}/$WORKER_IP; sleep 300 & wait; sleep 300`;
  const run = await server.startRun(bucket, "run_command", { command, concurrency: 2 });
  await until("both to begin", () => WORKERS.every((host) => existsSync(path.join(folder, host))));
  const look = async () => {
    const { body } = await server.call<Run & { progress: Progress | null }>("GET", `${base}/runs/${run}`);
    return { status: body.status, ...body.progress?.cancel };
  };
  assert.deepEqual(await look(), { status: "running" });
  await server.call("POST", `${base}/runs/${run}/cancel`);
  await until("one of two to be confirmed", async () => (await look()).confirmed === 1);
  assert.deepEqual(await look(), { status: "running", confirmed: 1, total: 2 });
  writeFileSync(path.join(folder, "go"), "");
  assert.equal((await server.follow(bucket, run)).status, "cancelled");
});

test("CP-117 a run whose process is killed fails, its commands are ended, the server and later runs go on", async (t) => {
  const folder = temporaryFolder(t);
  const { server, bucket, layout, push, workers } = await setUp(t, sleeper(folder));
  const run = await server.startRun(bucket, "deploy");
  const target = await begun(folder);
  process.kill(((await readLock(layout)) as LockContent).holders[1]?.pid as number, "SIGKILL");
  const ended = await server.follow(bucket, run);
  assert.deepEqual(
    [ended.status, ended.error],
    ["failed", "the run's process ended by signal SIGKILL before it reported a result"],
  );
  assert.equal(identify(target), undefined);
  assert.equal((await push("")).code, 0);
  assert.equal((await server.run(bucket, "deploy")).status, "succeeded");
  assert.equal(runningConfiguration(workers, "127.0.0.1", bucket, "app"), "app 1.0.0 on 127.0.0.1\n");
});

for (const [signal, how] of [
  ["SIGKILL", "killed"],
  ["SIGTERM", "stopped"],
] as const)
  test(`CP-146 CP-216 CP-217 T-79 a server that is ${how} leaves no process, and its run is failed after the next start`, async (t) => {
    const folder = temporaryFolder(t);
    const { rig, server, bucket, layout, root } = await setUp(t, sleeper(folder));
    const run = await server.startRun(bucket, "deploy");
    const target = await begun(folder);
    const worker = ((await readLock(layout)) as LockContent).holders[1]?.pid as number;
    await server.stop(signal);
    if (signal === "SIGTERM") assert.equal(server.process.exitCode, 0);
    rig.server = await LocalServer.start(root);
    assert.deepEqual([identify(worker), identify(target)], [undefined, undefined], "nothing of the run is left");
    const { body } = await rig.server.call<Run>("GET", `/api/buckets/${bucket}/runs/${run}`);
    assert.deepEqual([body.status, body.error], ["failed", "server restarted before run completed"]);
    const started = await rig.server.run(bucket, "build");
    assert.equal(started.status, "succeeded", "a start works at once");
  });

test("CP-216 a run whose server was killed keeps what it has done, and a retry is about the rest", async (t) => {
  const { rig, server, bucket, base, folder, root } = await setUp(t);
  const command = `[ $WORKER_IP = 127.0.0.1 ] || [ -f ${folder}/begun ] || { echo $$ >${folder}/begun; sleep 300; }`;
  const run = await server.startRun(bucket, "run_command", { command });
  const script = await begun(folder);
  await server.stop("SIGKILL");
  rig.server = await LocalServer.start(root);
  assert.equal(identify(script), undefined);
  const { body } = await rig.server.call<Run>("GET", `${base}/runs/${run}`);
  assert.deepEqual([body.status, body.error], ["failed", "server restarted before run completed"]);
  const outcomes = ({ result }: Run) =>
    (result as { workers: { worker: string; outcome: string }[] }).workers.map(({ worker, outcome }) => `${worker} ${outcome}`);
  assert.deepEqual(outcomes(body).slice(0, 2), ["127.0.0.1 ok", "127.0.0.2 cancelled"]);
  const again = await rig.server.run(bucket, "run_command", { retry_of: run });
  assert.ok(!outcomes(again).some((one) => one.startsWith("127.0.0.1 ")), "what was ok is not repeated");
  assert.equal(again.status, "succeeded");
});

test("T-15 a cancel that was accepted before the server died ends cancelled", async (t) => {
  const folder = temporaryFolder(t);
  const { rig, server, bucket, base, root } = await setUp(t, sleeper(folder, true));
  const run = await server.startRun(bucket, "deploy");
  await begun(folder);
  assert.equal((await server.call("POST", `${base}/runs/${run}/cancel`)).status, 202);
  await server.stop("SIGKILL");
  rig.server = await LocalServer.start(root);
  const { body } = await rig.server.call<Run>("GET", `${base}/runs/${run}`);
  assert.equal(body.status, "cancelled");
});

test("CP-128 CP-129 CP-145 CP-166 CP-167 HR-022 HR-025 output is in Activity, in the worker's log and in the run's copy; the token is nowhere", async (t) => {
  const { server, bucket, layout } = await setUp(t, '\t@echo to stdout; echo to stderr >&2; echo "token=$$OPS_SERVE_TOKEN"\n');
  let text = "";
  const run = await server.run(bucket, "deploy", {}, (part) => {
    text += part;
  });
  assert.equal(text, readFileSync(runLayout(layout, run.id).activity, "utf8"));
  for (const line of ["base@127.0.0.1 | to stdout", "base@127.0.0.1 | to stderr", "base@127.0.0.1 | token=\n"])
    assert.ok(text.includes(line), `${line} in ${text}`);
  const whole = readFileSync(path.join(layout.logs, "127.0.0.1.log"), "utf8");
  const own = readFileSync(path.join(runLayout(layout, run.id).folder, "127.0.0.1.log"), "utf8");
  assert.ok(whole.endsWith(own));
  assert.match(
    own,
    new RegExp(
      `^ts=\\S+Z level=info run=${run.id} ops=deploy seq=\\d+ worker=127.0.0.1 job=base phase=rollout action=start stream=stdout msg="to stdout"$`,
      "m",
    ),
  );
  const { items } = (await server.call<{ items: Run[] }>("GET", `/api/buckets/${bucket}/runs`)).body;
  const pushLog = readFileSync(runLayout(layout, items.find((one) => one.kind === "push")?.id as string).opsLog, "utf8");
  assert.match(pushLog, /event=push .*revision/);
  assert.match(pushLog, /event=run_end run=\S+ ops=push worker=- phase=push action=succeeded/);
});

test("an interrupted command is a cancelled run and exit code 130, and leaves the bucket free", async (t) => {
  const folder = temporaryFolder(t);
  const { layout, server, base } = await setUp(t, sleeper(folder));
  const child = spawn(process.execPath, [PROGRAM, "deploy", "--bucket-dir", layout.root], { stdio: "ignore" });
  const target = await begun(folder);
  child.kill("SIGINT");
  assert.deepEqual(await once(child, "exit"), [130, null]);
  assert.equal(identify(target), undefined);
  assert.equal(await readLock(layout), undefined);
  const [newest] = (await server.call<{ items: Run[] }>("GET", `${base}/runs`)).body.items;
  assert.deepEqual([newest?.kind, newest?.status], ["deploy", "cancelled"]);
});

test("a command that is killed leaves a run that the next start of a server settles", async (t) => {
  const folder = temporaryFolder(t);
  const { rig, layout, server, base, root } = await setUp(t, sleeper(folder));
  const child = spawn(process.execPath, [PROGRAM, "deploy", "--bucket-dir", layout.root], { stdio: "ignore" });
  const target = await begun(folder);
  await groupInLock(layout, target);
  child.kill("SIGKILL");
  await once(child, "exit");
  await server.stop();
  rig.server = await LocalServer.start(root);
  const [newest] = (await rig.server.call<{ items: Run[] }>("GET", `${base}/runs`)).body.items;
  assert.deepEqual([newest?.status, newest?.error], ["failed", "command ended before it completed"]);
  // Gone as soon as its new parent, the init of the machine, has taken note.
  await until("the end of the command", () => identify(target) === undefined);
  writeFileSync(path.join(folder, "begun"), "");
});
