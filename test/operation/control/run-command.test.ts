import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { runLayout } from "../../../lib/bucket/base/layout.ts";
import { Failure } from "../../../lib/core/errors.ts";
import type { CancelReceipts } from "../../../lib/operation/base/fleet.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { type CommandResult, runCommand } from "../../../lib/operation/control/run-command.ts";
import { SshFleet } from "../../helpers/ssh-fleet.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { makeBucket, type WorkspaceSpec } from "../../helpers/workspace.ts";

interface Result {
  workers: CommandResult[];
  health_checks?: { batch: number; job: string; error: string | null }[];
  cancelled?: CancelReceipts;
}

const HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

async function bucketOf(t: TestContext, workers: Record<string, unknown>[], spec: WorkspaceSpec = {}) {
  const bucket = await makeBucket(t, { ...spec, workers });
  await build(bucket.context("build"), {});
  bucket.activity.length = 0;
  const run = async (params: Record<string, unknown>, signal?: AbortSignal) => {
    const context = bucket.context("run_command", signal);
    try {
      return { error: undefined, runId: context.run.id, ...((await runCommand(context, params)) as Result) };
    } catch (error) {
      assert.ok(error instanceof Failure, String(error));
      const { workers = [], ...rest } = (error.details ?? {}) as Partial<Result>;
      return { error, runId: context.run.id, workers, ...rest };
    } finally {
      context.log.close();
    }
  };
  return { ...bucket, run, said: () => bucket.activity.join("") };
}

/** Three workers that are this machine, each with a root of its own. */
async function localBucket(t: TestContext, spec: WorkspaceSpec = {}) {
  const root = temporaryFolder(t);
  const workers = HOSTS.map((host) => ({
    host,
    connection: "local",
    root: path.join(root, host),
    labels: host.endsWith("3") ? ["last"] : ["first"],
  }));
  const bucket = await bucketOf(t, workers, spec);
  const folder = (host: string) => path.join(root, host, bucket.bucketId);
  const makeFolders = () => {
    for (const host of HOSTS) mkdirSync(folder(host), { recursive: true, mode: 0o755 });
  };
  return { ...bucket, root, folder, makeFolders };
}

async function sshBucket(t: TestContext, fleet: SshFleet) {
  const workers = fleet.workers.map(({ host, root, sshUser, sshPort }) => ({ host, root, ssh_user: sshUser, ssh_port: sshPort }));
  const bucket = await bucketOf(t, workers);
  mkdirSync(path.dirname(bucket.layout.knownHosts), { recursive: true });
  writeFileSync(bucket.layout.knownHosts, readFileSync(fleet.knownHostsFile));
  writeFileSync(path.join(bucket.layout.secrets, "worker.key"), readFileSync(fleet.sshd.clientKey), { mode: 0o600 });
  return bucket;
}

const grades = ({ workers }: { workers: CommandResult[] }) =>
  workers.map(({ outcome, exit_code: exit }) => (exit === null ? outcome : `${outcome} ${exit}`));
const outputs = ({ workers }: { workers: CommandResult[] }) => workers.map(({ output }) => output);

test("HR-126 a command runs on the workers in the order of the catalog, in the bucket's folder where there is one", async (t) => {
  const { run, bucketId, folder, said } = await localBucket(t);
  mkdirSync(folder("127.0.0.2"), { recursive: true, mode: 0o755 });
  const ended = await run({ command: 'echo "$BUCKET_ID $WORKER_IP"; pwd' });
  assert.equal(ended.error, undefined);
  assert.deepEqual(outputs(ended), [
    `${bucketId} 127.0.0.1\n${homedir()}\n`,
    `${bucketId} 127.0.0.2\n${folder("127.0.0.2")}\n`,
    `${bucketId} 127.0.0.3\n${homedir()}\n`,
  ]);
  assert.equal(existsSync(folder("127.0.0.1")), false);
  assert.match(said(), /^127\.0\.0\.1 \| .* 127\.0\.0\.1\n/m);
  const [first] = ended.workers;
  assert.deepEqual(Object.keys(first ?? {}).sort(), [
    ...["duration_ms", "error", "exit_code", "outcome", "output", "output_sha256", "worker"],
  ]);
});

test("after a batch that failed nothing further starts, and the run fails", async (t) => {
  const { run, makeFolders, folder, said } = await localBucket(t);
  makeFolders();
  const command = 'touch ran; [ "$WORKER_IP" != 127.0.0.2 ] || { echo why >&2; exit 3; }';
  const ended = await run({ command });
  assert.deepEqual(grades(ended), ["ok 0", "failed 3", "not_started"]);
  assert.equal(ended.error?.message, "2 of 3 workers are not ok: 127.0.0.2 (failed), 127.0.0.3 (not started)");
  assert.equal(ended.workers[1]?.error, "exit code 3");
  assert.equal(existsSync(path.join(folder("127.0.0.3"), "ran")), false);
  assert.match(said(), /^127\.0\.0\.2 ! why$/m);
  assert.match(said(), /^error: batch 2 of 3 failed: no other one is started$/m);
  assert.deepEqual(grades(await run({ command, concurrency: 2 })), ["ok 0", "failed 3", "not_started"]);
  assert.deepEqual(grades(await run({ command, concurrency: 3 })), ["ok 0", "failed 3", "ok 0"]);
});

test("with ignore_failure all run and the run succeeds; the result tells who failed", async (t) => {
  const { run, root } = await localBucket(t);
  writeFileSync(path.join(root, "127.0.0.2"), "no folder");
  mkdirSync(path.join(root, "x"));
  const ended = await run({ command: "exit 4", ignore_failure: true });
  assert.equal(ended.error, undefined);
  assert.deepEqual(grades(ended), ["failed 4", "failed 4", "failed 4"]);
});

test("a worker that cannot take the command has failed without an exit code", async (t) => {
  const { run, folder, makeFolders } = await localBucket(t);
  makeFolders();
  rmSync(folder("127.0.0.2"), { recursive: true });
  writeFileSync(folder("127.0.0.2"), "no folder");
  const ended = await run({ command: "true" });
  assert.deepEqual(grades(ended), ["ok 0", "failed", "not_started"]);
  assert.match(ended.workers[1]?.error ?? "", /127\.0\.0\.2/);
});

for (const [what, params, message] of [
  ["an unknown worker", { workers: ["127.0.0.9; id"] }, /there is no worker "127\.0\.0\.9; id"/],
  ["an unknown label", { labels: ["lost"] }, /there is no label "lost"; did you mean "last"\?/],
  ["both filters", { workers: HOSTS, labels: ["last"] }, /labels excludes workers: give one of the two/],
  ["an empty command", { command: " \n" }, /command expected a command/],
  ["a command with a NUL", { command: "echo a\0b" }, /command expected a command without NUL/],
  ["an unknown field", { generate_workers: true }, /is not a known field/],
] as const)
  test(`${what} is an error before anything runs`, async (t) => {
    const { run, makeFolders, folder } = await localBucket(t);
    makeFolders();
    const { error } = await run({ command: "touch ran", ...params });
    assert.match(error?.message ?? "", message);
    for (const host of HOSTS) assert.equal(existsSync(path.join(folder(host), "ran")), false);
  });

test("labels choose any of them, and a name may be written in capitals and with blanks", async (t) => {
  const { run } = await localBucket(t);
  const ran = async (params: Record<string, unknown>) =>
    (await run({ command: "true", ...params })).workers.map(({ worker }) => worker);
  assert.deepEqual(await ran({ labels: ["LAST"] }), ["127.0.0.3"]);
  assert.deepEqual(await ran({ labels: ["last", "first"] }), HOSTS);
  assert.deepEqual(await ran({ workers: ["127.0.0.3", "127.0.0.1"] }), ["127.0.0.1", "127.0.0.3"]);
});

for (const [what, command, output] of [
  ["quotes, dollars and backslashes", `printf '%s|' "a b" '$(id)' \\\\ "\\$x"`, "a b|$(id)|\\|$x|\n"],
  ["a here document", "cat <<EOF\n$((1+1))\nEOF", "2\n"],
  ["a command that reads its input", "cat; echo end", "end\n"],
  ["a comment at the end", "echo a # b", "a\n"],
  ["a first line for sh", "#!/bin/sh -e\necho a", "a\n"],
  ["arrays, with a first line for bash", "#!/usr/bin/env bash\na=(x y); [[ x = x ]] && echo $a", "x\n"],
  ["an unset variable", 'echo "[$NOPE]"', "[]\n"],
] as const)
  test(`${what} means what a shell makes of it`, async (t) => {
    const { run } = await localBucket(t);
    const ended = await run({ command, workers: ["127.0.0.1"] });
    assert.deepEqual([grades(ended), outputs(ended)], [["ok 0"], [output]]);
  });

test("a command with a mistake in it runs not at all", async (t) => {
  const { run, makeFolders, folder } = await localBucket(t);
  makeFolders();
  const ended = await run({ command: "touch ran\nif true; then", workers: ["127.0.0.1"] });
  assert.equal(ended.workers[0]?.outcome, "failed");
  assert.equal(existsSync(path.join(folder("127.0.0.1"), "ran")), false);
});

test("secrets of the bucket are masked in the result, in Activity and in the logs", async (t) => {
  const { run, dir, bucketId, layout, db, ...bucket } = await localBucket(t);
  const secret = "hunter2-hunter2";
  const context = bucket.context("run_command");
  context.log.redactor.add(secret);
  const result = (await runCommand(context, { command: `echo ${secret}`, workers: ["127.0.0.1"] })) as Result;
  context.log.close();
  assert.equal(result.workers[0]?.output, "***\n");
  assert.equal(bucket.said().includes(secret), false);
  const { folder } = runLayout(layout, context.run.id);
  const log = readFileSync(path.join(folder, "127.0.0.1.log"), "utf8");
  assert.equal(log.includes(secret), false);
  const events = log.trim().split("\n");
  assert.match(events[0] ?? "", /event=command_begin .* worker=127\.0\.0\.1 phase=run_command cmd="echo \*\*\*"$/);
  assert.match(events.at(-1) ?? "", /event=command_end .* exit=0 duration_ms=\d+$/);
});

test("a secret that stands where a long line is cut is masked, as it is and in hex", async (t) => {
  const { layout, ...bucket } = await localBucket(t);
  const secret = "hunter2-hunter2";
  const hex = Buffer.from(secret).toString("hex");
  const context = bucket.context("run_command");
  context.log.redactor.add(secret);
  const lines = [secret, hex].flatMap((form) =>
    Array.from({ length: form.length + 1 }, (_, at) => `x %${64 * 1024 - at - 2}s${form}\\n`),
  );
  const command = lines.map((line) => `printf '${line}' ''`).join("\n");
  await runCommand(context, { command, workers: ["127.0.0.1"] });
  context.log.close();
  const log = readFileSync(path.join(runLayout(layout, context.run.id).folder, "127.0.0.1.log"), "utf8");
  const said = log.split("\n").filter((line) => line.includes("stream=stdout"));
  const text = said.join("").replaceAll(" ", "");
  assert.equal(text.split("***").length, lines.length + 1);
  for (const part of ["hunter", "r2-h", "68756e", "6e746572"]) assert.equal(text.includes(part), false, part);
  for (const line of said) assert.ok(line.length < 66_000);
});

test("output that is hostile or endless is bounded in the result", async (t) => {
  const { run } = await localBucket(t);
  const command = "head -c 10000000 /dev/zero | tr '\\0' x; printf '\\033]0;t\\007\\000\\377'";
  const [result] = (await run({ command, workers: ["127.0.0.1"] })).workers;
  assert.equal(result?.outcome, "ok");
  assert.match(result?.output ?? "", /^… \d+ bytes left out …\nx+\x1b\]0;t\x07\0\ufffd\n$/);
  assert.ok((result?.output.length ?? 0) < 20_000);
});

test("a command that takes too long is stopped; without code, and told apart from one that fails", async (t) => {
  const { run } = await localBucket(t);
  const ended = await run({ command: "echo begun; sleep 600", workers: ["127.0.0.1"], timeout_seconds: 1 });
  assert.deepEqual(grades(ended), ["failed"]);
  assert.equal(ended.workers[0]?.error, "stopped at its time limit of 1 s");
  assert.equal(ended.workers[0]?.output, "begun\n");
});

test("a signal counts as 128 and its number", async (t) => {
  const { run } = await localBucket(t);
  const ended = await run({ command: "kill -9 $$", workers: ["127.0.0.1"] });
  assert.deepEqual([grades(ended), ended.workers[0]?.error], [["failed 137"], "ended by SIGKILL"]);
});

test("CP-132 over ssh a cancel ends what runs, with a receipt of each worker, and starts nothing further", async (t) => {
  const fleet = await SshFleet.start(t);
  const { run, said } = await sshBucket(t, fleet);
  const stop = new AbortController();
  const running = run({ command: "echo begun; sleep 600", concurrency: 2 }, stop.signal);
  await until("both to begin", () => said().split("| begun").length === 3);
  stop.abort();
  const ended = await running;
  assert.equal(ended.error?.code, "cancelled");
  assert.deepEqual(grades(ended), ["cancelled", "cancelled", "not_started"]);
  const { workers = [], unconfirmed } = ended.cancelled ?? {};
  assert.deepEqual(workers.map(({ worker, receipt }) => `${worker} ${receipt}`).sort(), [
    ...["127.0.0.1 stopped", "127.0.0.2 stopped"],
  ]);
  assert.equal(unconfirmed, 0);
  assert.deepEqual(fleet.processes, []);
});

test("over ssh: output, codes, standard input and where it runs are as on this machine", async (t) => {
  const fleet = await SshFleet.start(t);
  const { run } = await sshBucket(t, fleet);
  const ended = await run({
    command: 'cat; echo "$WORKER_IP" >&2; exit "$(echo "$WORKER_IP" | cut -d. -f4)"',
    ignore_failure: true,
  });
  assert.deepEqual(grades(ended), ["failed 1", "failed 2", "failed 3"]);
  assert.deepEqual(
    outputs(ended),
    HOSTS.map((host) => `${host}\n`),
  );
  assert.equal(existsSync(path.join(fleet.folder, "roots")), false);
});

test("CP-412 over ssh a command goes on where its connection is cut, and its output comes whole", async (t) => {
  const fleet = await SshFleet.start(t);
  const { run, said } = await sshBucket(t, fleet);
  const go = path.join(fleet.folder, "go");
  const command = `echo begun; until [ -e ${go} ]; do sleep 0.02; done; echo done; exit 4`;
  const running = run({ command, workers: ["127.0.0.1"] });
  await until("it to begin", () => said().includes("| begun"));
  fleet.cut();
  await until("a second login", () => fleet.logins === 2);
  writeFileSync(go, "");
  const ended = await running;
  assert.deepEqual([grades(ended), outputs(ended)], [["failed 4"], ["begun\ndone\n"]]);
});

test("over ssh a worker that hangs is unreachable, and the others run on", async (t) => {
  const fleet = await SshFleet.start(t);
  const { run, said, dir } = await sshBucket(t, fleet);
  const conf = 'ssh_reattach_seconds = 0\n[ssh_options]\nServerAliveInterval = "1"\nServerAliveCountMax = "1"\n';
  writeFileSync(path.join(dir, "ops.conf"), conf);
  const running = run({ command: "echo begun; sleep 600", workers: ["127.0.0.1"] });
  await until("it to begin", () => said().includes("| begun"));
  fleet.freeze();
  const ended = await running;
  fleet.cut();
  assert.deepEqual(grades(ended), ["unreachable"]);
  assert.match(ended.workers[0]?.error ?? "", /^The connection was lost to worker 127\.0\.0\.1/);
});

const job = (command: string) => ({
  jobs: {
    web: { version: "1.0.0", selectors: ["first"], health_check: { checks: [{ type: "ssh", command }], wait: { attempts: 1 } } },
  },
});

test("with health_check the jobs on a batch's workers are checked before the next one", async (t) => {
  const { run, makeFolders, folder } = await localBucket(t, job("[ ! -e broken ]"));
  makeFolders();
  const fine = await run({ command: "true", health_check: true });
  assert.deepEqual(
    [fine.error, fine.health_checks],
    [
      ...[
        undefined,
        [
          { batch: 1, job: "web", error: null },
          { batch: 2, job: "web", error: null },
        ],
      ],
    ],
  );
  const broken = await run({ command: "touch broken", health_check: true });
  assert.deepEqual(grades(broken), ["ok 0", "not_started", "not_started"]);
  const why = broken.health_checks?.[0]?.error ?? "";
  assert.match(why, /^the health check of job web failed: 127\.0\.0\.1/);
  assert.equal(broken.error?.message, `2 of 3 workers are not ok: 127.0.0.2 (not started), 127.0.0.3 (not started); ${why}`);
  rmSync(path.join(folder("127.0.0.1"), "broken"));
  const ignored = await run({ command: "touch broken", health_check: true, ignore_failure: true });
  assert.deepEqual([ignored.error, grades(ignored)], [undefined, ["ok 0", "ok 0", "ok 0"]]);
});

test("a health check that fails after the last batch fails the run although the command was fine", async (t) => {
  const { run, makeFolders } = await localBucket(t, job("false"));
  makeFolders();
  const ended = await run({ command: "true", health_check: true, workers: ["127.0.0.2"] });
  assert.deepEqual(grades(ended), ["ok 0"]);
  assert.match(ended.error?.message ?? "", /the health check of job web failed/);
});

test("a cancel is no batch that failed", async (t) => {
  const { run, said, makeFolders, folder } = await localBucket(t);
  makeFolders();
  const stop = new AbortController();
  const running = run({ command: "touch begun; sleep 600", concurrency: 1 }, stop.signal);
  await until("the command to begin", () => existsSync(path.join(folder("127.0.0.1"), "begun")));
  stop.abort();
  const ended = await running;
  assert.deepEqual([ended.error?.code, grades(ended)], ["cancelled", ["cancelled", "not_started", "not_started"]]);
  assert.doesNotMatch(said(), /batch 1 of 3/);
});

test("a cancel during a health check is a cancel, although the command was fine", async (t) => {
  const { run, makeFolders, folder } = await localBucket(t, job("touch begun; sleep 600"));
  makeFolders();
  const stop = new AbortController();
  const params = { command: "true", health_check: true, workers: ["127.0.0.1"] };
  const running = run(params, stop.signal);
  await until("the probe to begin", () => existsSync(path.join(folder("127.0.0.1"), "begun")));
  stop.abort();
  const ended = await running;
  assert.deepEqual([ended.error?.code, grades(ended)], ["cancelled", ["ok 0"]]);
  assert.deepEqual(ended.health_checks, [{ batch: 1, job: "web", error: "cancelled" }]);
});
