import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, readlink, rm, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { describe, type TestContext, test } from "node:test";
import { bootId, identify, signalProcess } from "../../../lib/core/process.ts";
import {
  jobsJson,
  lastTarget,
  RUNNER_EXIT,
  RUNNER_PATH,
  runnerText,
  runTarget,
  type TargetOrder,
  workerJson,
} from "../../../lib/transport/ask/runner.ts";
import { patience } from "../../../scripts/patience.ts";
import { until } from "../../helpers/temporary.ts";
import { installJob, processesIn, type TestWorker, temporaryWorker, USERLANDS, type Userland } from "../../helpers/worker.ts";

const RUN_ID = "0190a5e8-0000-7000-8000-0000000000aa";

const MAKEFILE = `
start:
	@(while :; do echo tick; echo x >>beats; sleep 0.02; done) & echo $$! >pid
	@echo started $(CURRENT_VERSION) $(NEW_VERSION)
stop:
	@kill $$(cat pid)
env:
	@echo "$$SETTING"; pwd; echo to stderr >&2
input:
	@cat
fail:
	@echo before; exit 7
hang:
	@echo hangs; sleep 600 & sleep 600
deaf:
	@trap '' TERM; while :; do sleep 600; done
work:
	@mkdir held || { echo overlap; exit 1; }
	@a=$$(readlink ../../.runner/web.lock); sleep 0.07; b=$$(readlink ../../.runner/web.lock); \\
	  [ -n "$$a" ] && [ "$$a" = "$$b" ] || { echo stolen; exit 1; }
	@rmdir held
many:
	@i=0; while [ $$i -lt 20000 ]; do echo "line $$i"; i=$$((i + 1)); done
`;

async function workerWithJob(t: TestContext, userland: Userland = "system"): Promise<TestWorker & { job: string }> {
  const worker = await temporaryWorker(t, userland);
  return { ...worker, job: await installJob(worker, "web", MAKEFILE) };
}

function run(worker: TestWorker, target: string, rest: Partial<TargetOrder> = {}) {
  return runTarget(worker.transport, { job: "web", target, runId: RUN_ID, timeoutMs: patience(60_000), ...rest });
}

function lockOf(worker: TestWorker): string {
  return path.join(worker.folder, ".runner/web.lock");
}

async function isHeld(worker: TestWorker): Promise<boolean> {
  return readlink(lockOf(worker)).then(
    () => true,
    () => false,
  );
}

/** Gives a program of a worker with busybox a random delay, so that others get in between what they must not. */
async function slowDown({ folder }: TestWorker, program: string): Promise<void> {
  const file = path.join(path.dirname(folder), "busybox-bin", program);
  const real = await readlink(file);
  await rm(file);
  await writeFile(file, `#!/bin/sh\nsleep 0.0$(($$ % 10))\nexec ${real} ${program} "$@"\n`, { mode: 0o755 });
}

describe("bin/runner", { concurrency: 4 }, () => {
  for (const userland of USERLANDS) {
    test(`a target runs in the job's folder with the environment it is given (${userland})`, async (t) => {
      const worker = await workerWithJob(t, userland);
      const lines: string[] = [];
      const done = await run(worker, "env", { env: { SETTING: "a 'b' $c" }, onLine: (line) => lines.push(line) });
      assert.deepEqual([done.reason, done.exitCode], ["exit", 0]);
      assert.deepEqual(lines, ["a 'b' $c", worker.job, "to stderr"]);
      assert.equal(await isHeld(worker), false);
    });

    test(`a daemon neither keeps the lock nor the channel and outlives both (${userland})`, async (t) => {
      const worker = await workerWithJob(t, userland);
      const beats = () => stat(path.join(worker.job, "beats")).then((found) => found.size);
      const env = { CURRENT_VERSION: "1.0.0", NEW_VERSION: "2.0.0" };
      const done = await run(worker, "start", { env });
      assert.deepEqual([done.reason, done.exitCode], ["exit", 0]);
      assert.match(done.stdout, /^started 1\.0\.0 2\.0\.0$/m);
      assert.equal(await isHeld(worker), false);
      assert.deepEqual(worker.launcher.groups, []);
      const then = await beats();
      await until("the daemon goes on, though it writes where nobody reads", async () => (await beats()) > then + 10);
      assert.equal((await run(worker, "stop")).exitCode, 0);
      await until("nothing is left of the daemon", () => processesIn(worker.folder).length === 0);
    });

    test(`a dead holder's lock is taken over by exactly one of many (${userland})`, async (t) => {
      const worker = await workerWithJob(t, userland);
      if (userland === "busybox") await slowDown(worker, "rm");
      const hanging = run(worker, "hang");
      await until("the lock is taken", () => isHeld(worker));
      for (const group of worker.launcher.groups) signalProcess(-group.pgid, "SIGKILL");
      assert.equal((await hanging).signal, "SIGKILL");
      assert.equal(await isHeld(worker), true);
      const all = await Promise.all(Array.from({ length: 5 }, () => run(worker, "work")));
      assert.deepEqual(new Set(all.map((one) => `${one.exitCode}${one.stdout}${one.stderr}`)), new Set(["0"]));
      assert.deepEqual(await readdir(path.join(worker.folder, ".runner")), ["web.last"]);
    });
  }

  test("a daemon does not hold the channel open for a caller that reads it to its end", async (t) => {
    const worker = await workerWithJob(t);
    const child = spawn("sh", [RUNNER_PATH, "web", "start"], { cwd: worker.folder, stdio: ["ignore", "pipe", "pipe"] });
    child.stdout.resume();
    await once(child, "close", { signal: AbortSignal.timeout(patience(10_000)) });
    assert.equal(child.exitCode, 0);
    assert.ok(identify(Number(await readFile(path.join(worker.job, "pid"), "utf8"))));
  });

  test("a target whose caller is gone runs to its end and is recorded", async (t) => {
    const worker = await workerWithJob(t);
    const child = spawn("sh", [RUNNER_PATH, "web", "many"], { cwd: worker.folder, stdio: ["ignore", "pipe", "pipe"] });
    await once(child.stdout, "readable");
    child.stdout.destroy();
    child.stderr.destroy();
    await once(child, "exit", { signal: AbortSignal.timeout(patience(10_000)) });
    assert.equal((await lastTarget(worker.transport, "web"))?.target, "many");
  });

  test("nothing is lost where what passes the output on begins long after the target has ended, and a daemon has an older pipe", async (t) => {
    const worker = await workerWithJob(t, "busybox");
    const cat = path.join(path.dirname(worker.folder), "busybox-bin/cat");
    const real = await readlink(cat);
    await rm(cat);
    await writeFile(cat, `#!/bin/sh\nsleep 2\nexec '${real}' cat "$@"\n`, { mode: 0o755 });
    // The daemon has the pipe of a target that is over, at the same path.
    assert.equal((await run(worker, "start")).exitCode, 0);
    const { exitCode, stdout } = await run(worker, "fail");
    assert.deepEqual([exitCode, stdout.split("\n")[0]], [2, "before"]);
    assert.equal((await run(worker, "stop")).exitCode, 0);
  });

  test("nothing of a long output is lost", async (t) => {
    const worker = await workerWithJob(t);
    const { stdout } = await run(worker, "many");
    assert.equal(stdout.split("\n").length, 20_001);
    assert.ok(stdout.endsWith("\nline 19999\n"));
  });

  test("a target has no standard input to wait for", async (t) => {
    const worker = await workerWithJob(t);
    const done = await worker.transport.script("exec sh bin/runner web input", { input: "not for make" });
    assert.deepEqual([done.exitCode, done.stdout], [0, ""]);
  });

  test("the last target that succeeded is recorded with its hash, and a failure takes the record back", async (t) => {
    const worker = await workerWithJob(t);
    const last = () => lastTarget(worker.transport, "web");
    assert.equal(await last(), undefined);
    await run(worker, "env", { hash: "a".repeat(64) });
    assert.deepEqual(await last(), { hash: "a".repeat(64), target: "env" });
    const failed = await run(worker, "fail", { hash: "b".repeat(64) });
    assert.deepEqual([failed.exitCode, failed.stdout.split("\n")[0]], [2, "before"]);
    assert.equal(await last(), undefined, "nobody knows what state the job is in");
    await run(worker, "work");
    assert.deepEqual(await last(), { hash: undefined, target: "work" });
    assert.equal(await isHeld(worker), false);
  });

  test("what ran before the worker's last start counts no more", async (t) => {
    const worker = await workerWithJob(t);
    await run(worker, "work");
    const file = path.join(worker.folder, ".runner/web.last");
    const record = await readFile(file, "utf8");
    await writeFile(file, record.replace(/[^ ]+\n$/, "0190a5e8-0000-4000-8000-000000000000\n"));
    assert.equal(await lastTarget(worker.transport, "web"), undefined);
    await writeFile(file, record);
    assert.equal((await lastTarget(worker.transport, "web"))?.target, "work");
  });

  test("a record that is not one is a failure that names job and worker", async (t) => {
    const worker = await workerWithJob(t);
    await mkdir(path.join(worker.folder, ".runner"));
    await writeFile(path.join(worker.folder, ".runner/web.last"), "gibberish\n");
    await assert.rejects(lastTarget(worker.transport, "web"), /^Failure: Cannot read what ran last for web on 127\.0\.0\.1/);
    await assert.rejects(lastTarget(worker.transport, "web", { signal: AbortSignal.abort() }), { code: "cancelled" });
  });

  for (const [what, args, code, sentence] of [
    ["no target", ["web"], RUNNER_EXIT.arguments, /^runner: usage: /],
    ["too many arguments", ["web", "start", "r", "h", "1", "x", "y"], RUNNER_EXIT.arguments, /^runner: usage: /],
    ["a job that leads elsewhere", ["../web", "start"], RUNNER_EXIT.arguments, /"\.\.\/web" is not the name of a job/],
    ["a target that is an option", ["web", "-f/etc/x"], RUNNER_EXIT.arguments, /is not the name of a target/],
    ["a target that sets a variable", ["web", "SHELL=x"], RUNNER_EXIT.arguments, /is not the name of a target/],
    ["a run id with a slash", ["web", "start", "a/b"], RUNNER_EXIT.arguments, /is not a run id/],
    ["a hash with a blank", ["web", "start", "r", "a b"], RUNNER_EXIT.arguments, /is not a hash/],
    ["a wait that is no number", ["web", "start", "r", "h", "x"], RUNNER_EXIT.arguments, /is not a number of seconds/],
    ["a list of runs with a blank", ["web", "start", "r", "h", "1", "a b"], RUNNER_EXIT.arguments, /is not a list of run ids/],
    ["a job that is not listed", ["we", "start"], RUNNER_EXIT.unknownJob, /the job we is not allocated to this worker/],
    ["a missing folder", ["gone", "start"], RUNNER_EXIT.missingFolder, /jobs\/gone is missing on this worker/],
  ] as const)
    test(`${what} is refused by one line and exit code ${code}`, async (t) => {
      const worker = await workerWithJob(t);
      const jobs = ["web", "gone"].map((job) => ({ job, disabled: false }));
      await writeFile(path.join(worker.folder, "jobs.json"), jobsJson(jobs));
      const outcome = await worker.transport.script('exec sh bin/runner "$@"', { args });
      assert.deepEqual([outcome.exitCode, outcome.stdout], [code, ""]);
      assert.match(outcome.stderr, sentence);
      assert.equal(outcome.stderr.trim().split("\n").length, 1);
      assert.deepEqual(processesIn(worker.folder), []);
    });

  test("a worker without jobs.json knows no job, one without bin/runner says so", async (t) => {
    const worker = await workerWithJob(t);
    await rm(path.join(worker.folder, "jobs.json"));
    assert.equal((await run(worker, "work")).exitCode, RUNNER_EXIT.unknownJob);
    await rm(path.join(worker.folder, "bin"), { recursive: true });
    const outcome = await run(worker, "work");
    assert.equal(outcome.exitCode, RUNNER_EXIT.missingFolder);
    assert.match(outcome.stderr, /^bin\/runner is missing on this worker/);
  });

  test("a job that is listed no more can still be stopped", async (t) => {
    const worker = await workerWithJob(t);
    await run(worker, "start");
    await writeFile(path.join(worker.folder, "jobs.json"), jobsJson([]));
    assert.equal((await run(worker, "start")).exitCode, RUNNER_EXIT.unknownJob);
    assert.equal((await run(worker, "stop")).exitCode, 0);
  });

  test("a missing program is named", async (t) => {
    const worker = await workerWithJob(t, "busybox");
    await rm(path.join(path.dirname(worker.folder), "busybox-bin/make"));
    const outcome = await run(worker, "work");
    assert.equal(outcome.exitCode, RUNNER_EXIT.missingProgram);
    assert.match(outcome.stderr, /^runner: make is not installed on this worker$/m);
  });

  test("the lock names its holder, and who waits in vain is told", async (t) => {
    const worker = await workerWithJob(t);
    const stop = new AbortController();
    const hanging = run(worker, "hang", { signal: stop.signal });
    await until("the target runs", () => processesIn(worker.job).length > 0);
    const [pid, start, boot, runId] = (await readlink(lockOf(worker))).split(".");
    assert.deepEqual(identify(Number(pid)), { pid: Number(pid), start_time: start });
    assert.deepEqual([boot, runId], [bootId(), RUN_ID]);
    const second = await worker.transport.script("exec sh bin/runner web work other - 0");
    assert.equal(second.exitCode, RUNNER_EXIT.busy);
    assert.match(second.stderr, new RegExp(`is held by process ${pid} of run ${RUN_ID}`));
    assert.match(second.stderr, /another target of web is still running after 0 seconds/);
    assert.equal(await isHeld(worker), true);
    stop.abort();
    assert.equal((await hanging).reason, "cancelled");
  });

  for (const [what, target] of [
    ["ends when it is asked to", "hang"],
    ["ignores TERM", "deaf"],
  ] as const)
    test(`a target that ${what}, left by a run that is over, is ended and not waited for`, async (t) => {
      const worker = await workerWithJob(t);
      const hanging = run(worker, target);
      await until("the target runs", () => processesIn(worker.job).length > 0);
      const others = { runId: "another", timeoutMs: 1_500 };
      const waiting = await run(worker, "work", { ...others, overRuns: ["some", "more"] });
      assert.equal(waiting.exitCode, RUNNER_EXIT.busy, "of a run that nobody knows to be over");
      const rest = { ...others, timeoutMs: patience(60_000), overRuns: ["some", RUN_ID, "more"] };
      assert.equal((await run(worker, "work", rest)).exitCode, 0);
      assert.notEqual((await hanging).exitCode, 0);
      assert.equal(await isHeld(worker), false);
      await until("nothing is left of the target", () => processesIn(worker.folder).length === 0);
    });

  test("another job's target does not wait", async (t) => {
    const worker = await workerWithJob(t);
    await mkdir(path.join(worker.folder, "jobs/db"));
    await writeFile(path.join(worker.folder, "jobs/db/Makefile"), MAKEFILE);
    const jobs = ["web", "db"].map((job) => ({ job, disabled: false }));
    await writeFile(path.join(worker.folder, "jobs.json"), jobsJson(jobs));
    const stop = new AbortController();
    const hanging = run(worker, "hang", { signal: stop.signal });
    await until("the target runs", () => processesIn(worker.job).length > 0);
    assert.equal((await run(worker, "env", { job: "db", timeoutMs: patience(10_000) })).exitCode, 0);
    stop.abort();
    await hanging;
  });

  for (const [what, end] of [
    ["a cancel", (_worker: TestWorker, stop: AbortController) => stop.abort()],
    [
      "the signal TERM",
      ({ launcher }: TestWorker) => {
        for (const { pgid } of launcher.groups) signalProcess(-pgid, "SIGTERM");
      },
    ],
  ] as const)
    test(`${what} ends the target and releases the lock`, async (t) => {
      const worker = await workerWithJob(t);
      const stop = new AbortController();
      const hanging = run(worker, "hang", { signal: stop.signal, hash: "h" });
      await until("the target runs", () => processesIn(worker.job).length > 1);
      end(worker, stop);
      const outcome = await hanging;
      assert.notEqual(outcome.exitCode, 0);
      await until("nothing is left of the target", () => processesIn(worker.folder).length === 0);
      assert.equal(await isHeld(worker), false);
      assert.equal(await lastTarget(worker.transport, "web"), undefined);
    });

  test("a target that is out of time is ended", async (t) => {
    const worker = await workerWithJob(t);
    assert.equal((await run(worker, "hang", { timeoutMs: 150 })).reason, "timeout");
    await until("nothing is left of the target", () => processesIn(worker.folder).length === 0);
  });

  for (const [what, text] of [
    ["whose process has ended", `${2 ** 22 - 1}.1.${bootId()}.${RUN_ID}`],
    ["whose process number somebody else has now", `${process.pid}.1.${bootId()}.${RUN_ID}`],
    ["from before the machine's last start", `${process.pid}.${identify(process.pid)?.start_time}.other.${RUN_ID}`],
    ["that says nothing", "?"],
  ] as const)
    test(`a lock ${what} is taken over`, async (t) => {
      const worker = await workerWithJob(t);
      await mkdir(path.join(worker.folder, ".runner"));
      await symlink(text, lockOf(worker));
      // So does one that somebody began to take over when he was killed.
      await symlink(text, `${lockOf(worker)}.x`);
      assert.equal((await run(worker, "work")).exitCode, 0);
      assert.equal(await isHeld(worker), false);
    });

  test("what another one began to put in place is there before the target runs", async (t) => {
    const worker = await workerWithJob(t);
    const staged = path.join(worker.folder, ".sync/web");
    await mkdir(path.join(staged, "new"), { recursive: true });
    await mkdir(path.join(worker.job, "was-a-file"));
    for (const [name, content] of Object.entries({ old: "old\n", "was-a-file/placed": "new\n" }))
      await writeFile(path.join(worker.job, name), content);
    for (const [name, content] of Object.entries({
      commit: "",
      "new/1": "done:\n\t@cat was-a-file/placed deep/er; ls\n",
      "new/3": "new\n",
      moves: "jobs/web/Makefile\njobs/web/was-a-file/placed\njobs/web/deep/er\n",
      parents: "",
      removals: "jobs/web/was-a-file\njobs/web/old\n",
      emptied: "jobs/web/gone\n",
      list: "",
    }))
      await writeFile(path.join(staged, name), content);
    const done = await run(worker, "done");
    assert.equal(done.stdout, "new\nnew\nMakefile\ndeep\nwas-a-file\n");
    assert.ok(!existsSync(staged));
  });

  test("committed files that cannot be put in place stop the runner with a reason", async (t) => {
    const worker = await workerWithJob(t);
    const staged = path.join(worker.folder, ".sync/web");
    await mkdir(path.join(staged, "new"), { recursive: true });
    for (const name of ["commit", "new/1", "parents", "removals", "emptied"]) await writeFile(path.join(staged, name), "");
    await writeFile(path.join(staged, "moves"), "jobs/web/data\n");
    await mkdir(path.join(worker.job, "data"));
    const outcome = await run(worker, "work");
    assert.equal(outcome.exitCode, RUNNER_EXIT.unfinishedSync);
    assert.match(outcome.stderr, /jobs\/web\/data is a folder on the worker/);
    assert.match(outcome.stderr, /^runner: the files of web could not be brought up to date$/m);
    await rm(path.join(worker.job, "data"), { recursive: true });
    assert.equal((await run(worker, "work")).exitCode, 0);
  });

  test("a .runner folder that cannot be made is a refusal", async (t) => {
    const worker = await workerWithJob(t);
    await writeFile(path.join(worker.folder, ".runner"), "");
    const outcome = await run(worker, "work");
    assert.equal(outcome.exitCode, RUNNER_EXIT.unwritable);
    assert.match(outcome.stderr, /^runner: cannot make the folder \.runner/);
  });

  test("the exit codes are those that the script describes", () => {
    const described = runnerText().match(/^# {3}6[4-9][\s\S]*?^$/m)?.[0] ?? "";
    const codes = [...described.matchAll(/ {3,}(\d\d) {2}/g)].map((match) => Number(match[1]));
    assert.deepEqual(codes.sort(), Object.values(RUNNER_EXIT).sort());
  });

  test("worker.json and jobs.json have their fields, sorted", () => {
    const facts = { bucketId: "b", workerId: "w", workerIp: "10.0.0.1", labels: ["worker", "db"], updateSeq: 3 };
    assert.equal(
      workerJson(facts),
      `${JSON.stringify({ bucket_id: "b", worker_id: "w", worker_ip: "10.0.0.1", labels: ["db", "worker"], update_seq: 3 }, null, 3)}\n`,
    );
    const jobs = [
      { job: "web", disabled: true },
      { job: "db", disabled: false },
    ];
    assert.deepEqual(JSON.parse(jobsJson(jobs)), [
      { job: "db", disabled: 0 },
      { job: "web", disabled: 1 },
    ]);
  });
});
