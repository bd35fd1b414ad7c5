import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chmod, chown, mkdir, rm, stat, symlink } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { sleep } from "../../../lib/core/async.ts";
import { localTransport } from "../../../lib/transport/base/local.ts";
import { NEEDS_ROOT, NOBODY } from "../../helpers/other-user.ts";
import { BUCKET_ID } from "../../helpers/ssh-fleet.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { processesIn, temporaryWorker } from "../../helpers/worker.ts";

test("a script runs in the bucket's folder, which is made with its parents", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  await rm(path.dirname(folder), { recursive: true });
  const outcome = await transport.script("pwd");
  assert.equal(outcome.stdout, `${folder}\n`);
  assert.equal((await stat(folder)).mode & 0o777, 0o755);
});

test("arguments, environment and input reach the script as they are and never become part of its text", async (t) => {
  const { transport } = await temporaryWorker(t);
  const hostile = [`a b`, `$(touch x)`, `'"; exit 9 #`, "-e", "\\n", "ü\n"];
  const outcome = await transport.script('printf "%s|" "$@" "$VALUE"; cat', {
    args: hostile,
    env: { VALUE: "`id`" },
    input: "in",
  });
  assert.deepEqual([outcome.exitCode, outcome.stdout], [0, [...hostile, "`id`", "in"].join("|")]);
});

test("the outcome tells the exit code, the signal and both outputs, and lines are handed out as they come", async (t) => {
  const { transport } = await temporaryWorker(t);
  const lines: string[] = [];
  const failed = await transport.script("echo out; echo err >&2; exit 3", {
    onLine: (line, stream) => lines.push(`${stream}: ${line}`),
  });
  assert.deepEqual([failed.reason, failed.exitCode, failed.stdout, failed.stderr], ["exit", 3, "out\n", "err\n"]);
  assert.deepEqual(lines.sort(), ["stderr: err", "stdout: out"]);
  assert.equal((await transport.script("kill -9 $$")).signal, "SIGKILL");
});

test("CP-135 a cancelled script unwinds with all it has started", async (t) => {
  const { transport, folder, launcher } = await temporaryWorker(t);
  const stop = new AbortController();
  const running = transport.script("sleep 600 & sleep 600", { signal: stop.signal, onLine: () => {} });
  while (processesIn(folder).length < 3) await sleep(5);
  stop.abort();
  assert.equal((await running).reason, "cancelled");
  assert.deepEqual(processesIn(folder), []);
  assert.deepEqual(launcher.groups, []);
});

test("a script that is out of time is ended", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  assert.equal((await transport.script("sleep 600", { timeoutMs: 20 })).reason, "timeout");
  assert.deepEqual(processesIn(folder), []);
});

test("a bucket folder that others may write to, or that is a link, is refused", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  await chmod(folder, 0o777);
  const refused = { code: "failed", message: /^Cannot use .+ on worker 127\.0\.0\.1: it must be a folder of/ };
  await assert.rejects(transport.script("true"), refused);
  await rm(folder, { recursive: true });
  await mkdir(`${folder}-elsewhere`);
  await symlink(`${folder}-elsewhere`, folder);
  await assert.rejects(transport.script("true"), refused);
});

test("a folder that cannot be made is a failure that names the worker", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  await rm(folder, { recursive: true });
  await symlink("/dev/null", folder);
  await assert.rejects(transport.script("true"), {
    code: "failed",
    message: /^Cannot make the folder of worker 127\.0\.0\.1: Error: /,
  });
});

test("where the folder is optional, none is made: the script runs at home; where there is one, in it", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  assert.equal((await transport.script("pwd", { isFolderOptional: true })).stdout, `${folder}\n`);
  await rm(folder, { recursive: true });
  assert.equal((await transport.script("pwd", { isFolderOptional: true })).stdout, `${homedir()}\n`);
  assert.equal(existsSync(folder), false);
});

test("as another user, commands run as that user in a folder that the user has made", { skip: NEEDS_ROOT }, async (t) => {
  const { launcher } = await temporaryWorker(t);
  const root = path.join(temporaryFolder(t), "root");
  await mkdir(root);
  await chmod(path.dirname(root), 0o711);
  const transport = localTransport({ host: "127.0.0.1", connection: "local", root }, BUCKET_ID, launcher, NOBODY);
  const refused = { code: "failed", message: new RegExp(`as nobody: .*make it: install -d -o nobody ${transport.folder}$`) };
  await assert.rejects(transport.script("true"), refused);
  assert.equal((await transport.script("pwd", { isFolderOptional: true })).stdout, "/\n");
  await chown(root, NOBODY.uid, NOBODY.gid);
  const { stdout } = await transport.script("id -u; pwd; echo $HOME $X", { env: { X: "x" } });
  assert.equal(stdout, `65534\n${transport.folder}\n/ x\n`);
  const { uid, mode } = await stat(transport.folder);
  assert.deepEqual([uid, mode & 0o777], [NOBODY.uid, 0o755]);
  await chown(transport.folder, 0, 0);
  const advice = new RegExp(`must be a folder of nobody \\(--hook-user\\), .*; run: chown -R nobody: ${transport.folder}$`);
  await assert.rejects(transport.script("true"), { code: "failed", message: advice });
});

test("as another user, a link in the place of the folder leads to nothing that the user could not enter", {
  skip: NEEDS_ROOT,
}, async (t) => {
  const { launcher } = await temporaryWorker(t);
  const [root, closed] = [temporaryFolder(t), temporaryFolder(t)];
  await mkdir(path.join(closed, "readable"), { mode: 0o755 });
  await chmod(root, 0o755);
  const transport = localTransport({ host: "127.0.0.1", connection: "local", root }, BUCKET_ID, launcher, NOBODY);
  await symlink(path.join(closed, "readable"), transport.folder);
  await assert.rejects(transport.script("true"), { code: "failed", message: /must be a folder of nobody/ });
  // The same where the link comes after the look.
  const outcome = await launcher.run(["ls"], { user: NOBODY, cwd: transport.folder });
  assert.notEqual(outcome.exitCode, 0);
});
