import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { PROGRAM } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { storedRuns } from "../../helpers/runs.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

async function bucket(t: TestContext) {
  const dir = temporaryFolder(t);
  assert.equal((await ops(["init", "--bucket-dir", dir])).code, 0);
  const root = temporaryFolder(t);
  const hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
  makeWorkspace(dir, {
    jobs: { web: { version: "1.0.0", selectors: ["worker"] } },
    workers: hosts.map((host) => ({ host, connection: "local", root: path.join(root, host) })),
  });
  assert.equal((await ops(["build", "--bucket-dir", dir])).code, 0);
  return { dir, run: (...args: string[]) => ops(["run_command", ...args], { cwd: dir }) };
}

test("ops run_command shows each line with its worker, and stops with 1 at the first batch that fails", async (t) => {
  const { dir, run } = await bucket(t);
  const fine = await run("echo $WORKER_IP; echo err >&2");
  assert.deepEqual([fine.code, fine.stderr], [0, ""]);
  assert.match(fine.stdout, /\n127\.0\.0\.1 \| 127\.0\.0\.1\n127\.0\.0\.1 ! err\n127\.0\.0\.2 \| /);
  const failed = await run("exit 7", "-w", "127.0.0.2,127.0.0.3");
  assert.equal(failed.code, 1);
  assert.match(failed.stderr, /^error: batch 1 of 2 failed: no other one is started\nerror: 127\.0\.0\.2: exit code 7\n/);
  assert.equal((await ops(["run-command", "exit 7", "--ignore-failure", "-c", "2"], { cwd: dir })).code, 0);
});

test("without a command it is workspace/command.sh; where there is none, that is wrong usage", async (t) => {
  const { dir, run } = await bucket(t);
  const none = await run();
  assert.equal(none.code, 2);
  assert.match(none.stderr, /the command is missing: type it, or write it into workspace\/command\.sh/);
  const file = path.join(dir, "workspace", "command.sh");
  writeFileSync(file, "#!/bin/bash\necho from the file\n");
  assert.match((await run("-l", "worker")).stdout, /^127\.0\.0\.3 \| from the file$/m);
  writeFileSync(file, "\ufeff#!/bin/bash\n[[ web == w* ]] && echo behind a byte order mark\n");
  assert.match((await run("-l", "worker")).stdout, /^127\.0\.0\.3 \| behind a byte order mark$/m);
  writeFileSync(file, Buffer.from([0xff, 0xfe]));
  assert.match((await run()).stderr, /workspace\/command\.sh is not UTF-8 text/);
});

test("a command.sh that is a link is refused", async (t) => {
  const { dir, run } = await bucket(t);
  symlinkSync("/etc/hostname", path.join(dir, "workspace", "command.sh"));
  const { code, stderr } = await run();
  assert.equal(code, 1);
  assert.match(stderr, /command\.sh/);
});

test("--fold shows at the end who had the same output, and nothing that a terminal would obey", async (t) => {
  const { run } = await bucket(t);
  const { code, stdout, stderr } = await run(
    ...["[ $WORKER_IP = 127.0.0.2 ] && printf '\\033[31mred\\n' || echo same", "--fold", "-c", "3"],
  );
  assert.deepEqual([code, stderr], [0, ""]);
  assert.equal(stdout, "--- 127.0.0.2: ok\n\\x1b[31mred\n--- 127.0.0.[1,3] (2 workers): ok\nsame\n");
});

test("CP-350 CP-351 output beyond run_output_limit is left out of the run, which says so at its end", async (t) => {
  const { dir, run } = await bucket(t);
  writeFileSync(path.join(dir, "ops.conf"), 'run_output_limit = "1KiB"\n');
  const { code, stdout } = await run("seq 1000 1099", "-w", "127.0.0.1");
  assert.equal(code, 0);
  assert.match(stdout, /^127\.0\.0\.1 \| 1000$/m);
  assert.doesNotMatch(stdout, /\| 1099$/m);
  const said = "127\\.0\\.0\\.1 ! … \\d+ B more of this worker's output were left out \\(run_output_limit\\)";
  assert.match(stdout, new RegExp(`\n${said}\nrun_command succeeded`));
});

test("--json prints the result only; the run is in the history", async (t) => {
  const { dir, run } = await bucket(t);
  const { code, stdout } = await run("echo a; exit 2", "--json", "-w", "127.0.0.1", "--timeout-seconds", "9");
  assert.equal(code, 1);
  const result = JSON.parse(stdout);
  const { duration_ms: _, output_sha256: __, ...first } = result.workers[0];
  assert.deepEqual(first, { worker: "127.0.0.1", outcome: "failed", error: "exit code 2", exit_code: 2, output: "a\n" });
  const [newest] = await storedRuns(layoutOf(dir));
  assert.deepEqual([newest?.kind, newest?.status, newest?.result], ["run_command", "failed", result]);
});

test("ops run_command --retry repeats a run on the workers that were not ok, and says why where it cannot", async (t) => {
  const { dir, run } = await bucket(t);
  const command = "[ $WORKER_IP = 127.0.0.1 ] || [ -f ../../fine ] || exit 3; echo here";
  assert.equal((await run(command, "-c", "2")).code, 1);
  const [first] = await storedRuns(layoutOf(dir));
  const workersOf = (text: string) =>
    JSON.parse(text).workers.map(({ worker, outcome }: Record<string, string>) => [worker, outcome]);
  const again = await run("--retry", first?.id.slice(-8) ?? "", "--json");
  assert.equal(again.code, 1);
  assert.deepEqual(workersOf(again.stdout), [
    ["127.0.0.2", "failed"],
    ["127.0.0.3", "failed"],
  ]);
  const [second] = await storedRuns(layoutOf(dir));
  const workers = ["127.0.0.2", "127.0.0.3"];
  assert.deepEqual([second?.params.retry_of, second?.params.workers, second?.params.concurrency], [first?.id, workers, 2]);
  const both = await run("echo", "--retry", first?.id ?? "");
  assert.deepEqual([both.code, /--retry goes alone/.test(both.stderr)], [2, true]);
  const fine = await run("true");
  assert.equal(fine.code, 0);
  const [newest] = await storedRuns(layoutOf(dir));
  assert.match((await run("--retry", newest?.id ?? "")).stderr, /nothing of it is left to be done/);
});

test("a secret of the bucket in a command is stored nowhere, and the worker gets it", async (t) => {
  const { dir, run } = await bucket(t);
  const secret = "s3cret-of-the-job";
  const args = [PROGRAM, "kv", "set-secret", "web", "password"];
  const set = spawnSync(process.execPath, args, { cwd: dir, input: secret });
  assert.equal(set.status, 0, String(set.stderr));
  const { code, stdout } = await run(`[ '${secret}' = 's3cret-of'-the-job ] && echo same ${secret}`, "-w", "127.0.0.1");
  assert.equal(code, 0);
  assert.match(stdout, /^127\.0\.0\.1 \| same \*\*\*$/m);
  const [newest] = await storedRuns(layoutOf(dir));
  assert.equal(newest?.params.command, "[ '***' = 's3cret-of'-the-job ] && echo same ***");
  assert.equal(JSON.stringify(newest).includes(secret), false);
});

for (const [args, message] of [
  [["  "], /command: expected a command/],
  [["df", "/"], /"\/" is not expected here/],
  [["df", "-c", "0"], /--concurrency: expected a number from 1/],
  [["df", "--timeout-seconds", "0"], /--timeout-seconds: expected a number from 1/],
  [["df", "-w", "a", "-l", "b"], /--labels: excludes workers/],
] as const)
  test(`ops run_command ${args.join(" ")} does not run`, async (t) => {
    const { stdout, stderr } = await ops(["run_command", ...args], { cwd: temporaryFolder(t) });
    assert.match(stdout + stderr, message);
  });

test("ops run_command --help tells every flag", async () => {
  const { stdout } = await ops(["run_command", "--help"]);
  for (const flag of [
    ...["-w, --workers A,B", "-l, --labels A,B", "-c, --concurrency N", "--health-check", "--ignore-failure"],
    ...["--timeout-seconds N", "--fold", "--json", "[command]", "--bucket-dir DIR"],
  ])
    assert.ok(stdout.includes(flag), `${flag}\n${stdout}`);
});
