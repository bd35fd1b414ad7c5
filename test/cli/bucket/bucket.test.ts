import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { runLayout } from "../../../lib/bucket/base/layout.ts";
import { acquireLock, type LockContent, readLock } from "../../../lib/bucket/base/lock.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../../lib/bucket/kv/kv-access.ts";
import { runInBucket } from "../../../lib/cli/bucket/bucket.ts";
import { identify, signalProcess } from "../../../lib/core/process.ts";
import { build as buildBucket } from "../../../lib/operation/build/build.ts";
import { type RunRecord, readRecord } from "../../../lib/run/record.ts";
import { PROGRAM } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { diskSteps, linesOf } from "../../helpers/disk-record.ts";
import { printed } from "../../helpers/printed.ts";
import { storedRuns } from "../../helpers/runs.ts";
import { runningConfiguration, serviceHistory, writeServices } from "../../helpers/service.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { makeBucket, makeWorkspace } from "../../helpers/workspace.ts";

/** A bucket of one's own, built, whose job `base` runs these commands when it starts. */
async function setUp(t: TestContext, before = "") {
  const { dir, layout, bucketId, context } = await makeBucket(t);
  const workers = temporaryFolder(t);
  const build = async (commands: string) => {
    writeServices(dir, workers, { version: "1.0.0", before: commands });
    await buildBucket(context(), {});
  };
  await build(before);
  const newest = async () => (await storedRuns(layout))[0] as RunRecord;
  const deploy = (env: Record<string, string> = {}) => ops(["deploy", "--bucket-dir", dir], { env });
  const spawnDeploy = (stdout: "ignore" | "pipe" = "ignore") =>
    spawn(process.execPath, [PROGRAM, "deploy", "--bucket-dir", dir], { stdio: ["ignore", stdout, "pipe"] });
  return { dir, layout, bucketId, workers, build, newest, deploy, spawnDeploy };
}

async function begun(file: string): Promise<number> {
  await until("the target to begin", () => existsSync(file) && readFileSync(file, "utf8").trim() !== "");
  return Number(readFileSync(file, "utf8"));
}

test("CP-121 a command is a run: its files, its lock, its output on stdout and in activity.log", async (t) => {
  const { layout, newest, deploy, dir, bucketId } = await setUp(t);
  const { code, stdout, stderr } = await deploy();
  assert.deepEqual([code, stderr], [0, ""]);
  const run = await newest();
  assert.deepEqual([run.bucket_id, run.origin, run.kind, run.status, run.exit_code], [bucketId, "cli", "deploy", "succeeded", 0]);
  assert.match(run.audit[0]?.actor.address ?? "", /^\w+@.+ \(process \d+\)$/);
  const { activity, activityTimes } = runLayout(layout, run.id);
  assert.equal(readFileSync(activity, "utf8"), stdout);
  assert.match(readFileSync(activityTimes, "utf8"), /^0 \d{13}\n(\d+ \d{13}\n)*$/);
  assert.equal(await readLock(layout), undefined);
  assert.equal((await ops(["build"], { cwd: dir })).code, 0, "the current folder is the bucket");
});

test("a list of revisions that cannot be read stops no run that does without it", async (t) => {
  const { layout, deploy } = await setUp(t);
  mkdirSync(path.dirname(layout.revisionsFile), { recursive: true });
  writeFileSync(layout.revisionsFile, "{");
  const { code, stdout } = await deploy();
  assert.equal(code, 0);
  assert.match(stdout, /^deploy of bucket \S+, no known revision, run /);
});

test("a run that fails ends with 1, its errors on stderr", async (t) => {
  const { newest, deploy } = await setUp(t, "\t@exit 3\n");
  const { code, stdout, stderr } = await deploy();
  assert.equal(code, 1);
  assert.match(
    stderr,
    /^error: base: job base failed on 2 workers: .*\n(error: .*\n)*error: deploy failed after [\d.]+ s: .*\n$/,
  );
  assert.doesNotMatch(stdout, /error/);
  const run = await newest();
  assert.deepEqual([run.status, run.exit_code], ["failed", 1]);
});

test("what holds a server's secrets does not reach the commands of a bucket", async (t) => {
  const { deploy } = await setUp(t, '\t@echo "token=$$OPS_SERVE_TOKEN root=$$OPS_SERVE_ROOT home=$$HOME"\n');
  const { stdout } = await deploy({ OPS_SERVE_TOKEN: "very secret token", OPS_SERVE_ROOT: "/r", HOME: "/h" });
  assert.match(stdout, /base@127\.0\.0\.1 \| token= root= home=\/h\n/);
});

test("a reader that goes away does not end the run", async (t) => {
  const { newest, spawnDeploy, layout, workers, bucketId } = await setUp(t);
  const child = spawnDeploy("pipe");
  const exited = once(child, "exit");
  await once(child.stdout as NodeJS.ReadableStream, "data");
  child.stdout?.destroy();
  assert.deepEqual(await exited, [0, null]);
  const run = await newest();
  assert.equal(run.status, "succeeded");
  assert.match(readFileSync(runLayout(layout, run.id).activity, "utf8"), /deploy succeeded in [\d.]+ s\n$/);
  assert.equal(runningConfiguration(workers, "127.0.0.2", bucketId, "app"), "app 1.0.0 on 127.0.0.2\n");
});

test("a log that cannot be written fails the run with that sentence; the record says so and the bucket is free", async (t) => {
  const { newest, deploy, layout, workers, bucketId } = await setUp(t);
  const log = path.join(layout.logs, "ops.log");
  rmSync(log);
  mkdirSync(log);
  const { code, stderr } = await deploy();
  assert.equal(code, 1);
  assert.match(stderr, /Cannot write .*ops\.log: EISDIR/);
  const run = await newest();
  assert.equal(run.status, "failed");
  assert.match(run.error ?? "", /^Cannot write .*ops\.log: EISDIR/);
  assert.equal(await readLock(layout), undefined);
  assert.deepEqual(serviceHistory(workers, "127.0.0.1", bucketId, "base"), []);
  rmSync(log, { recursive: true });
  assert.equal((await deploy()).code, 0);
});

test("a command that was killed is settled by the next one, and its commands are ended", async (t) => {
  const file = path.join(temporaryFolder(t), "begun");
  const { dir, layout, spawnDeploy, newest } = await setUp(t, `\t@echo $$$$ > ${file}; sleep 300\n`);
  const child = spawnDeploy();
  const target = await begun(file);
  // A command's group is in the lock a moment after it has begun.
  const group = groupOf(target);
  await until("the lock to know of it", async () =>
    ((await readLock(layout)) as LockContent).groups.some(({ pgid }) => pgid === group),
  );
  const { id } = await newest();
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.equal((await ops(["build", "--bucket-dir", dir])).code, 0);
  assert.equal(identify(target), undefined);
  const { status, error } = readRecord(layout, id) as RunRecord;
  assert.deepEqual([status, error], ["failed", "command ended before it completed"]);
});

function groupOf(pid: number): number {
  const [, fields = ""] = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ");
  return Number(fields.split(" ")[2]);
}

test("Ctrl-C, also twice, cancels: exit code 130, nothing is left running, the bucket is free", async (t) => {
  const file = path.join(temporaryFolder(t), "begun");
  const deaf = `\t@trap '' TERM INT; echo $$$$ > ${file}; while :; do sleep 1; done\n`;
  const { spawnDeploy, newest, layout } = await setUp(t, deaf);
  const child = spawnDeploy();
  const target = await begun(file);
  child.kill("SIGINT");
  setTimeout(() => child.kill("SIGINT"), 400);
  assert.deepEqual(await once(child, "exit"), [130, null]);
  assert.equal(identify(target), undefined);
  const run = await newest();
  assert.deepEqual([run.status, run.exit_code, run.error], ["cancelled", 130, null]);
  assert.deepEqual(
    run.audit.map((entry) => entry.action),
    ["start", "cancel"],
  );
  assert.equal(await readLock(layout), undefined);
});

test("CP-125 CP-126 a run goes on with the settings and the key that it began with", async (t) => {
  const folder = temporaryFolder(t);
  const file = path.join(folder, "begun");
  const wait = `\t@echo $$$$ > ${file}; while [ ! -f ${folder}/go ]; do sleep 0.02; done\n`;
  const { dir, layout, workers, bucketId, spawnDeploy, newest } = await setUp(t, wait);
  {
    using db = openDatabase(layout.database);
    const kv = new KvStore(db, await loadKvKey(layout));
    kv.put("secrets/job/app", "password", "open sesame");
    kv.flush();
  }
  writeFileSync(path.join(dir, "workspace/jobs/app/app.conf.tpl"), '{{ getSecret "password" }}\n');
  await ops(["build", "--bucket-dir", dir]);
  const child = spawnDeploy();
  const exited = once(child, "exit");
  await begun(file);
  const key = readFileSync(layout.kvKey);
  writeFileSync(layout.kvKey, Buffer.alloc(32, 7));
  writeFileSync(layout.opsConf, 'log_format = "json"\n');
  writeFileSync(`${folder}/go`, "");
  assert.deepEqual(await exited, [0, null]);
  assert.equal(runningConfiguration(workers, "127.0.0.1", bucketId, "app"), "open sesame\n");
  const log = readFileSync(runLayout(layout, (await newest()).id).opsLog, "utf8");
  assert.match(log, /^ts=.* msg="deploy succeeded in [\d.]+ s"$/m);
  writeFileSync(layout.kvKey, key);
  assert.equal((await ops(["build", "--bucket-dir", dir])).code, 0);
});

test("CP-139 what a command started in a session of its own is not followed; the run ends all the same", async (t) => {
  const file = path.join(temporaryFolder(t), "begun");
  const detached = `\t@setsid sh -c 'echo $$$$ >> ${file}; exec sleep 60' >/dev/null 2>&1 & sleep 60\n`;
  const { spawnDeploy, newest, layout } = await setUp(t, detached);
  const child = spawnDeploy();
  const daemons = () => readFileSync(file, "utf8").trim().split("\n").map(Number);
  await until("a daemon on both workers", () => existsSync(file) && daemons().length === 2);
  const pids = daemons();
  t.after(() => pids.forEach((pid) => void signalProcess(pid, "SIGKILL")));
  child.kill("SIGTERM");
  assert.deepEqual(await once(child, "exit"), [130, null]);
  assert.ok(pids.every((pid) => identify(pid)));
  assert.deepEqual([(await newest()).status, await readLock(layout)], ["cancelled", undefined]);
});

test("CP-123 init takes no lock, but to finish what was cut off", async (t) => {
  const { dir, layout, bucketId } = await makeBucket(t);
  const init = (...flags: string[]) => ops(["init", "--bucket-dir", dir, ...flags]);
  const lock = await acquireLock(layout, "019a0000-0000-7000-8000-000000000000", "deploy");
  assert.match((await init()).stdout, /was up to date/);
  const files = { certificate: readFileSync(layout.caCertificate, "utf8"), key: readFileSync(layout.caKey, "utf8") };
  const cut = [
    [layout.journal, { tree: `restores/${bucketId}`, paths: [] }],
    [layout.caChange, { files }],
  ] as const;
  mkdirSync(layout.internal, { recursive: true });
  for (const [file, change] of cut) {
    writeFileSync(file, JSON.stringify(change));
    assert.equal((await init()).code, 75);
    if (file === layout.journal) rmSync(file);
  }
  await lock.release();
  for (const [file, change] of cut) {
    writeFileSync(file, JSON.stringify(change));
    const { code, stderr } = await init();
    assert.deepEqual([code, stderr], [0, ""]);
    assert.equal(existsSync(file), false);
  }
  writeFileSync(layout.bucketJson, "{}");
  const renamed = await init("--id", "019a0000-0000-7000-8000-000000000000");
  assert.deepEqual(
    [renamed.code, renamed.stderr],
    [1, `ops: ${dir} is a bucket of a server: its id is the name of its folder\n`],
  );
});

test("the bucket is free before its run's record tells the end, and of the run only its log is still open", async (t) => {
  const { dir, layout } = await makeBucket(t);
  makeWorkspace(dir, {});
  const steps = await diskSteps(dir, async () => {
    const { answer } = await printed(t, () => runInBucket("build", {}, dir, {}));
    assert.equal(answer, 0);
  });
  const lines = linesOf(steps);
  const ends = [/^remove .*ops\.lock/, /^rename .*server-run\.json/].map((wanted) =>
    lines.findLastIndex((one) => wanted.test(one)),
  );
  assert.deepEqual(
    [ends[0], ends[1]].toSorted((a = 0, b = 0) => a - b),
    ends,
    lines.join("\n"),
  );
  const run = path.join(layout.runs, (await storedRuns(layout))[0]?.id ?? "");
  const placeOf = (fd: string) => existsSync(`/proc/self/fd/${fd}`) && readlinkSync(`/proc/self/fd/${fd}`);
  const open = readdirSync("/proc/self/fd").filter((fd) => String(placeOf(fd)).startsWith(run));
  assert.deepEqual(open.map(placeOf), [runLayout(layout, path.basename(run)).activity]);
  // Here the process goes on.
  closeSync(Number(open[0]));
});

test("what is no bucket is refused and stays untouched", async (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(path.join(folder, "mine"), "");
  const { code, stderr } = await ops(["deploy", "--bucket-dir", folder]);
  assert.deepEqual([code, stderr], [1, `ops: ${folder} is not an initialised bucket: run \`ops init\` there first\n`]);
  assert.deepEqual(readdirSync(folder), ["mine"]);
});

test("a deploy of a bucket that was never built asks whether it was, and so does its plan", async (t) => {
  const { dir } = await makeBucket(t);
  for (const args of [["deploy"], ["deploy", "--dry-run"]]) {
    const { code, stdout } = await ops([...args, "--bucket-dir", dir]);
    assert.equal(code, 0);
    assert.match(stdout, /^warning: the catalog has no allocations: was it built \(`ops build`\)\?$/m, args.join(" "));
  }
});

test("a folder within a bucket is told with the bucket that it lies in, whatever the command", async (t) => {
  const { dir, layout } = await makeBucket(t);
  mkdirSync(layout.jobs, { recursive: true });
  writeFileSync(layout.opsConf, "");
  const inside = { cwd: layout.jobs };
  const said = `ops: ${layout.jobs} is not an initialised bucket: it lies in ${dir}; go there, or give --bucket-dir ${dir}\n`;
  for (const args of [["status"], ["deploy"], ["cat", "jobs"], ["logs", "web"], ["kv", "export"], ["job", "create", "web"]])
    assert.deepEqual(await ops(args, inside), { code: 1, stdout: "", stderr: said }, args.join(" "));
  rmSync(layout.data, { recursive: true });
  assert.equal((await ops(["status"], inside)).stderr, said, "of a bucket on a server there is only the source");
});

test("with --json stdout is the run's result and nothing else; what happens is on stderr, also of a run that fails", async (t) => {
  const { dir, newest, build } = await setUp(t);
  const deployed = await ops(["deploy", "--json", "--bucket-dir", dir]);
  assert.equal(deployed.code, 0);
  assert.deepEqual(JSON.parse(deployed.stdout), (await newest()).result);
  assert.match(
    deployed.stderr,
    /^deploy of bucket [\da-f-]{36}, no known revision, run [\da-f-]{36} by \S+@\S+ \(process \d+\) on the command line\n/,
  );
  assert.match(deployed.stderr, /\ndeploy succeeded in [\d.]+ s\n$/);
  await build("\t@exit 3\n");
  const failed = await ops(["deploy", "--json", "--force", "--bucket-dir", dir]);
  assert.equal(failed.code, 1);
  assert.deepEqual(JSON.parse(failed.stdout), (await newest()).result);
  const unknown = await ops(["deploy", "--json", "--jobs", "nosuch", "--bucket-dir", dir]);
  assert.deepEqual([unknown.code, unknown.stdout], [1, ""], "there is no run, and so no result");
});

test("what a command's output would make a terminal do is written out on the terminal, and in activity.log as it was", async (t) => {
  const { deploy, newest, layout } = await setUp(t, "\t@printf '\\033[2Jclear\\007\\000\\377end\\n'\n");
  const { code, stdout } = await deploy();
  assert.equal(code, 0);
  assert.match(stdout, /base@127\.0\.0\.1 \| \\x1b\[2Jclear\\x07\\x00\ufffdend\n/);
  const { activity } = runLayout(layout, (await newest()).id);
  assert.match(readFileSync(activity, "utf8"), /\| \x1b\[2Jclear\x07\0\ufffdend\n/);
});
