import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs, { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type Layout, layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { acquireLock, type LockContent, readLock } from "../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { bootId, identify, type ProcessIdentity } from "../../lib/core/process.ts";
import { addAudit, createRecord, type RunRecord, readRecord, saveRecord } from "../../lib/run/record.ts";
import { recoverBucket, takeBucket } from "../../lib/run/recovery.ts";
import { failing } from "../helpers/faults.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const ACTOR = { address: "127.0.0.1", via: "bearer" as const };
const GONE: ProcessIdentity = { pid: process.pid, start_time: "1" };

function setUp(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(layout.data, { recursive: true });
  mkdirSync(layout.uploads, { recursive: true });
  const run = async (origin: "server" | "cli" = "server") => {
    const start = { id: uuidV7(), bucket_id: "b", origin, kind: "build" as const, params: {} };
    return await createRecord(layout, { ...start, actor: ACTOR, requestId: null });
  };
  const end = async (id: string) => {
    const record = readRecord(layout, id) as RunRecord;
    return [record.status, record.error];
  };
  return { layout, run, end };
}

function lockBy(layout: Layout, runId: string, holders: ProcessIdentity[], groups: LockContent["groups"] = []): void {
  const since = "2026-01-02T03:04:05.000Z";
  const content = { run_id: runId, command: "build", since, boot_id: bootId(), host: hostname(), holders, groups };
  writeFileSync(layout.lock, JSON.stringify(content));
}

function sleeper(t: TestContext) {
  const child = spawn("sleep", ["60"], { detached: true, stdio: "ignore" });
  t.after(() => child.kill("SIGKILL"));
  return { ended: once(child, "exit"), identity: identify(child.pid as number) as ProcessIdentity };
}

test("CP-216 CP-217 a run of a server that is gone is failed, its process and its commands are ended, the lock is free", async (t) => {
  const { layout, run, end } = setUp(t);
  const record = await run();
  const [worker, command] = [sleeper(t), sleeper(t)];
  const group = { pgid: command.identity.pid, start_time: command.identity.start_time };
  lockBy(layout, record.id, [GONE, worker.identity], [group]);
  const said = await recoverBucket(layout);
  await Promise.all([worker.ended, command.ended]);
  assert.deepEqual(await end(record.id), ["failed", "server restarted before run completed"]);
  assert.deepEqual(
    said.map(({ id, kind, status }) => [id, kind, status]),
    [[record.id, "build", "failed"]],
  );
  assert.equal(await readLock(layout), undefined);
  assert.match(readFileSync(runLayout(layout, record.id).opsLog, "utf8"), /event=run_end .*action=failed/);
  assert.deepEqual(await recoverBucket(layout), [], "once");
});

test("T-15 a cancel that had been accepted decides after a restart too", async (t) => {
  const { layout, run, end } = setUp(t);
  const record = await run();
  addAudit(record, "cancel", ACTOR, null);
  await saveRecord(layout, record);
  await recoverBucket(layout);
  assert.deepEqual(await end(record.id), ["cancelled", null]);
});

test("a command that lives is left alone, all other runs are settled by what they were", async (t) => {
  const { layout, run, end } = setUp(t);
  const [old, dead, living] = [await run(), await run("cli"), await run("cli")];
  const command = sleeper(t);
  lockBy(layout, living.id, [command.identity]);
  await recoverBucket(layout);
  assert.deepEqual(await end(old.id), ["failed", "server restarted before run completed"]);
  assert.deepEqual(await end(dead.id), ["failed", "command ended before it completed"]);
  assert.deepEqual(await end(living.id), ["running", null]);
  assert.ok(identify(command.identity.pid));
  assert.equal(((await readLock(layout)) as LockContent).run_id, living.id);
});

test("runs are settled though an interrupted change of the source cannot be", async (t) => {
  const { layout, run, end } = setUp(t);
  const record = await run();
  writeFileSync(layout.journal, "no journal");
  await assert.rejects(recoverBucket(layout), { message: /journal\.json/ });
  assert.deepEqual(await end(record.id), ["failed", "server restarted before run completed"]);
  assert.equal(await readLock(layout), undefined);
});

test("T-81 a record that is cut off, a lock that is not ours and a run id that is a path do no harm", async (t) => {
  const { layout, run, end } = setUp(t);
  const record = await run();
  const broken = uuidV7();
  mkdirSync(runLayout(layout, broken).folder);
  writeFileSync(runLayout(layout, broken).record, '{"id": "');
  writeFileSync(layout.lock, "");
  await recoverBucket(layout);
  assert.deepEqual(await end(record.id), ["failed", "server restarted before run completed"]);
  lockBy(layout, "../../outside", [GONE]);
  await (await takeBucket(layout, uuidV7(), "build")).release();
  assert.equal(await readLock(layout), undefined);
});

test("CP-148 CP-150 history is pruned at the start of a server", async (t) => {
  const { layout, run } = setUp(t);
  writeFileSync(layout.opsConf, "log_run_retention_count = 2\n");
  for (let count = 0; count < 4; count++) await run();
  await recoverBucket(layout);
  assert.equal(readdirSync(layout.runs).length, 2);
});

test("whoever takes a bucket over settles the run that was abandoned in it, and the source; a busy bucket stays as it is", async (t) => {
  const { layout, run, end } = setUp(t);
  const [abandoned, other] = [await run("cli"), await run("cli")];
  lockBy(layout, abandoned.id, [GONE]);
  const upload = path.join(layout.uploads, "orphan");
  mkdirSync(upload);
  const lock = await takeBucket(layout, uuidV7(), "build");
  assert.deepEqual(await end(abandoned.id), ["failed", "command ended before it completed"]);
  assert.deepEqual(await end(other.id), ["running", null], "its command may just be ending");
  assert.ok(!existsSync(upload));
  await assert.rejects(takeBucket(layout, uuidV7(), "deploy"), { code: "bucket_busy" });
  await lock.release();
});

test("a bucket whose source cannot be settled is not taken, and not kept", async (t) => {
  const { layout } = setUp(t);
  writeFileSync(layout.journal, "no journal");
  await assert.rejects(takeBucket(layout, uuidV7(), "build"), { message: /journal\.json/ });
  const lock = await acquireLock(layout, uuidV7(), "build");
  await lock.release();
});

test("an outcome that cannot be read now settles nothing; one that is not there does", async (t) => {
  const { layout, run, end } = setUp(t);
  const { id } = await run();
  const mend = failing(t, fs, "openSync", "EMFILE", runLayout(layout, id).outcome);
  await assert.rejects(recoverBucket(layout), { code: "EMFILE" });
  assert.deepEqual(await end(id), ["running", null]);
  mend();
  await recoverBucket(layout);
  assert.equal((await end(id))[0], "failed");
});
