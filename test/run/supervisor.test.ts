import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { runLayout } from "../../lib/bucket/base/layout.ts";
import { type LockContent, readLock } from "../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { sleep } from "../../lib/core/async.ts";
import { Failure } from "../../lib/core/errors.ts";
import { identify } from "../../lib/core/process.ts";
import { Launcher } from "../../lib/core/spawn.ts";
import { NO_DEPLOY } from "../../lib/run/progress.ts";
import { createRecord, type RunRecord, readRecord, runIds } from "../../lib/run/record.ts";
import { Supervisor } from "../../lib/run/supervisor.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";
import { makeBucket, makeWorkspace } from "../helpers/workspace.ts";

const ACTOR = { address: "127.0.0.1", via: "bearer" as const };

/** A supervisor and an empty bucket; run processes wait at their very start while they are held. */
async function setUp(t: TestContext, slots?: number) {
  const bucket = await makeBucket(t);
  const hold = path.join(temporaryFolder(t), "hold");
  const wait = `import{existsSync}from"node:fs";while(existsSync(${JSON.stringify(hold)}))await new Promise((go)=>setTimeout(go,5))`;
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(wait)}`;
  const said: string[] = [];
  const supervisor = new Supervisor({
    launcher: new Launcher({ ...process.env, NODE_OPTIONS }),
    log: (message) => said.push(message),
    ...(slots !== undefined && { slots }),
  });
  t.after(async () => {
    rmSync(hold, { force: true });
    await supervisor.stop();
  });
  const { layout, bucketId } = bucket;
  const record = async (id: string) => readRecord(layout, id) as RunRecord;
  const reserve = () => supervisor.reserve(layout, bucketId, "build");
  const ended = async (id: string) => {
    await until("the end of the run", async () => ((await record(id))?.status ?? "running") !== "running");
    return await record(id);
  };
  const begin = async () => {
    const reservation = await reserve();
    await reservation.start({}, { actor: ACTOR, requestId: "request-1" });
    return reservation.runId;
  };
  const builds = () => bucket.db.get<{ build_seq: number }>("SELECT build_seq FROM bucket")?.build_seq;
  const cancel = (id: string) => supervisor.cancel(layout, id, ACTOR, "request-2");
  return { ...bucket, supervisor, said, record, reserve, ended, begin, builds, cancel, hold };
}

/** In the way of a file that is about to be replaced, as a full disk would be. */
function block(file: string): () => void {
  rmSync(file, { force: true });
  mkdirSync(path.join(file, "in the way"), { recursive: true });
  return () => rmSync(file, { recursive: true });
}

test("CP-112 CP-113 T-75 a bucket is taken before anything of a run exists, and free again when the run does not begin", async (t) => {
  const { reserve, layout, supervisor, bucketId } = await setUp(t);
  const [first, second] = await Promise.allSettled([reserve(), reserve()]);
  const [taken, refused] = first.status === "fulfilled" ? [first, second] : [second, first];
  assert.ok(taken.status === "fulfilled" && refused.status === "rejected");
  assert.equal((refused.reason as Failure).code, "bucket_busy");
  assert.equal(supervisor.activeRun(bucketId), null);
  await taken.value.release();
  await (await reserve()).release();
  assert.equal(await readLock(layout), undefined);
});

test("CP-140 CP-209 CP-210 a run is `running` at once, and its lock is free before its end can be seen", async (t) => {
  const { begin, record, layout, supervisor, bucketId } = await setUp(t);
  const id = await begin();
  assert.equal((await record(id)).status, "running");
  assert.equal(supervisor.activeRun(bucketId), id);
  let locked: boolean;
  do locked = (await readLock(layout)) !== undefined;
  while ((await record(id)).status === "running");
  const { status, exit_code, result } = await record(id);
  assert.deepEqual([status, exit_code, (result as { jobs: number }).jobs], ["succeeded", 0, 0]);
  assert.ok(!locked || (await readLock(layout)) === undefined);
  assert.equal(supervisor.activeRun(bucketId), null);
});

test("CP-214 T-76 a cancel at the moment of the exit is refused or ends `cancelled`, never anything else", async (t) => {
  const { begin, ended, record, cancel } = await setUp(t);
  for (let round = 0; round < 12; round++) {
    const id = await begin();
    await sleep(round * 14);
    const accepted = await cancel(id).then(
      () => true,
      (error: unknown) => {
        assert.equal((error as Failure).code, "run_not_active");
        return false;
      },
    );
    assert.equal((await record(id)).audit.length, accepted ? 2 : 1, "the acceptance is on the disk");
    const { status } = await ended(id);
    assert.equal(status, accepted ? "cancelled" : "succeeded");
  }
});

test("T-76 a run that is cancelled before it has a process carries nothing out", async (t) => {
  const { reserve, ended, supervisor, cancel, bucketId, builds, layout } = await setUp(t);
  const reservation = await reserve();
  const starting = reservation.start({}, { actor: ACTOR, requestId: "request-1" });
  while (supervisor.activeRun(bucketId) === null) await nextRound();
  await cancel(reservation.runId);
  await starting;
  assert.equal((await ended(reservation.runId)).status, "cancelled");
  assert.equal(builds(), 0);
  assert.equal(await readLock(layout), undefined);
});

test("a server that stops ends runs that are just starting, and those that start afterwards", async (t) => {
  const { reserve, record, supervisor, bucketId, builds, layout } = await setUp(t);
  const first = await reserve();
  const starting = first.start({}, { actor: ACTOR, requestId: "request-1" });
  while (supervisor.activeRun(bucketId) === null) await nextRound();
  await supervisor.stop();
  await starting;
  const { status, error } = await record(first.runId);
  assert.deepEqual([status, error], ["failed", "server restarted before run completed"]);
  assert.equal(await readLock(layout), undefined);
  await assert.rejects(reserve(), { code: "shutting_down" });

  const other = await setUp(t);
  const late = await other.reserve();
  await other.supervisor.stop();
  await late.start({}, { actor: ACTOR, requestId: "request-1" });
  assert.equal((await other.ended(late.runId)).status, "failed");
  assert.equal(await readLock(other.layout), undefined);
  assert.deepEqual([builds(), other.builds()], [0, 0]);
});

/** A run that takes the only slot, held at its start, and one of another bucket that waits for the slot. */
async function withWaitingRun(t: TestContext) {
  const own = await setUp(t, 1);
  writeFileSync(own.hold, "");
  const working = await own.begin();
  const other = await makeBucket(t);
  const begin = async () => {
    const reservation = await own.supervisor.reserve(other.layout, other.bucketId, "build");
    await reservation.start({}, { actor: ACTOR, requestId: "request-3" });
    return reservation.runId;
  };
  const stored = (id: string) => readRecord(other.layout, id) as RunRecord;
  const done = async (id: string) => {
    await until("the end of the waiting run", () => stored(id).status !== "running");
    return stored(id);
  };
  return { ...own, working, waiting: await begin(), other: { ...other, begin, stored, done } };
}

test("CP-370 a run beyond the slots holds its lock without a process, shows what it waits for, and begins when a slot is free", async (t) => {
  const { supervisor, hold, ended, working, waiting, other } = await withWaitingRun(t);
  const { created_at, status } = other.stored(waiting);
  const words = { on: "a free slot", detail: "", reason: "slot", job: null, worker: null, more: 0 };
  const slot = { ...words, since: created_at, until: null };
  const shown = { phase: "queued", done: 0, total: 0, waiting: [slot], ...NO_DEPLOY, cancel: null };
  assert.deepEqual([status, supervisor.progress(waiting)], ["running", shown]);
  assert.deepEqual(
    ((await readLock(other.layout)) as LockContent).holders.map(({ pid }) => pid),
    [process.pid],
  );
  assert.equal(supervisor.progress(working), null);
  await assert.rejects(supervisor.reserve(other.layout, other.bucketId, "build"), { code: "bucket_busy" });
  rmSync(hold);
  assert.equal((await ended(working)).status, "succeeded");
  assert.equal((await other.done(waiting)).status, "succeeded");
  assert.notEqual(await other.begin(), waiting);
});

test("CP-371 a run that waits for a slot ends `cancelled` at a cancel, without a process, and leaves the slots as they were", async (t) => {
  const { supervisor, cancel, ended, working, waiting, other } = await withWaitingRun(t);
  const answered = await supervisor.cancel(other.layout, waiting, ACTOR, "request-4");
  assert.equal(answered.status, "running");
  const { status, exit_code, signal, audit } = await other.done(waiting);
  assert.deepEqual(
    [status, exit_code, signal, audit.map(({ action }) => action)],
    ["cancelled", null, null, ["start", "cancel"]],
  );
  assert.equal(await readLock(other.layout), undefined);
  const next = await other.begin();
  assert.equal(supervisor.progress(next)?.phase, "queued");
  await cancel(working);
  assert.equal((await ended(working)).status, "cancelled");
  await until("the next run to get the slot", () => supervisor.progress(next)?.phase !== "queued");
});

test("CP-371 a server that stops ends a run that waits for a slot", async (t) => {
  const { supervisor, waiting, other } = await withWaitingRun(t);
  await supervisor.stop();
  const { status, error } = other.stored(waiting);
  assert.deepEqual([status, error], ["failed", "server restarted before run completed"]);
  assert.equal(await readLock(other.layout), undefined);
  assert.equal(other.db.get<{ build_seq: number }>("SELECT build_seq FROM bucket")?.build_seq, 0);
});

test("CP-215 a run is signalled and ends, and its bucket is free, though the cancel could not be recorded", async (t) => {
  const { begin, ended, cancel, layout, hold } = await setUp(t);
  writeFileSync(hold, "");
  const id = await begin();
  const unblock = block(runLayout(layout, id).record);
  await assert.rejects(cancel(id), { code: "failed", message: /is being stopped, but this could not be recorded: / });
  await until("the lock to be free", async () => (await readLock(layout)) === undefined);
  unblock();
  const { status, signal } = await ended(id);
  assert.deepEqual([status, signal], ["cancelled", "SIGTERM"]);
});

test("an end that could not be stored is stored as soon as there is room, and keeps nobody from starting", async (t) => {
  const { begin, ended, layout, supervisor, bucketId, said, hold } = await setUp(t);
  writeFileSync(hold, "");
  const id = await begin();
  const unblock = block(runLayout(layout, id).record);
  rmSync(hold);
  await until("the end of the run", () => supervisor.activeRun(bucketId) === null);
  await until("the failure to be told", () => said.some((line) => line.includes(`Cannot finish run ${id}`)));
  const next = await begin();
  assert.equal((await ended(next)).status, "succeeded");
  unblock();
  assert.equal((await ended(id)).status, "succeeded");
});

test("a lock that cannot be written fails the run before it begins, and is free afterwards", async (t) => {
  const { begin, ended, layout, builds } = await setUp(t);
  const unblock = block(path.join(layout.data, ".ops.lock.update"));
  const id = await begin();
  const { status, error } = await ended(id);
  assert.equal(status, "failed");
  assert.match(error ?? "", /EISDIR/);
  assert.deepEqual([builds(), await readLock(layout)], [0, undefined]);
  unblock();
  assert.equal((await ended(await begin())).status, "succeeded");
});

test("a log that cannot be written fails the run with that sentence, and its bucket is free", async (t) => {
  const { begin, ended, layout, said } = await setUp(t);
  const unblock = block(path.join(layout.logs, "ops.log"));
  const { status, error, id } = await ended(await begin());
  assert.equal(status, "failed");
  assert.match(error ?? "", /^Cannot write .*ops\.log: /);
  assert.ok(said.some((line) => line.includes(`Cannot finish run ${id}`)));
  assert.equal(await readLock(layout), undefined);
  unblock();
});

test("nothing of a run that could not be recorded remains", async (t) => {
  const { reserve, layout } = await setUp(t);
  const reservation = await reserve();
  const { folder } = runLayout(layout, reservation.runId);
  writeFileSync(folder, "in the way");
  await assert.rejects(reservation.start({}, { actor: ACTOR, requestId: "request-1" }));
  assert.throws(() => readFileSync(folder), { code: "ENOENT" });
  await reservation.release();
});

test("the run of a command that was killed gets its end state from whoever takes its lock over", async (t) => {
  const { reserve, record, layout, bucketId, begin, ended } = await setUp(t);
  const old = await reserve();
  const { runId } = old;
  const start = { id: runId, bucket_id: bucketId, origin: "cli" as const, kind: "build" as const, params: {} };
  await createRecord(layout, { ...start, actor: { address: "here", via: "cli" }, requestId: null });
  const lock = (await readLock(layout)) as LockContent;
  const gone = { ...lock, holders: [{ pid: process.pid, start_time: "1" }] };
  writeFileSync(layout.lock, JSON.stringify(gone));
  const id = await begin();
  const { status, error } = await record(runId);
  assert.deepEqual([status, error], ["failed", "command ended before it completed"]);
  assert.equal((await ended(id)).status, "succeeded");
});

test("CP-117 CP-211 the process of a run that dies is told by how it died", async (t) => {
  const { begin, ended, layout, hold } = await setUp(t);
  writeFileSync(hold, "");
  const id = await begin();
  const worker = ((await readLock(layout)) as LockContent).holders[1]?.pid as number;
  process.kill(worker, "SIGKILL");
  const { status, signal, error } = await ended(id);
  assert.deepEqual([status, signal], ["failed", "SIGKILL"]);
  assert.match(error ?? "", /ended by signal SIGKILL/);
  assert.equal(identify(worker), undefined);
});

const DEAF = `import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("deaf.pid", "w") as file: file.write(str(os.getpid()))
time.sleep(600)
`;

test("CP-120 T-77 a script that ignores TERM is gone before the lock, though its run's process dies after the cancel", async (t) => {
  const { begin, ended, cancel, dir, layout } = await setUp(t);
  const web = { version: "1.0.0", selectors: ["worker"], hooks: { deaf: { executed_on: ["post_build"] } } };
  makeWorkspace(dir, { jobs: { web }, workers: ["10.0.0.1"], files: { "workspace/jobs/web/_hooks/deaf.py": DEAF } });
  const id = await begin();
  const file = path.join(dir, "deaf.pid");
  const script = () => (existsSync(file) ? Number(readFileSync(file)) : 0);
  const locked = async () => (await readLock(layout)) as LockContent;
  await until("the script", async () => script() > 0 && (await locked()).groups.length > 0);
  const { holders, groups } = await locked();
  await cancel(id);
  // bash, which leads the group, ends at the TERM of the cancel.
  await until("the end of the leader", () => groups.every(({ pgid }) => identify(pgid) === undefined));
  process.kill(holders[1]?.pid as number, "SIGKILL");
  assert.equal((await ended(id)).status, "cancelled");
  assert.deepEqual([identify(script()), await readLock(layout)], [undefined, undefined]);
});

test("a short change has the bucket to itself and frees it, also when it fails", async (t) => {
  const { supervisor, layout, reserve } = await setUp(t);
  const change = supervisor.exclusively(layout, "ssh_key", async () => {
    assert.equal(((await readLock(layout)) as LockContent).command, "ssh_key");
    await assert.rejects(reserve(), { code: "bucket_busy" });
    throw new Failure("failed", "no");
  });
  await assert.rejects(change, { message: "no" });
  await (await reserve()).release();
});

test("a run of a server that is still stored as running, but has no process here, is just ending", async (t) => {
  const { supervisor, layout, bucketId, cancel } = await setUp(t);
  const id = uuidV7();
  const start = { id, bucket_id: bucketId, origin: "server", kind: "build", params: {} } as const;
  await createRecord(layout, { ...start, actor: ACTOR, requestId: null });
  assert.equal(supervisor.activeRun(bucketId), null);
  await assert.rejects(cancel(id), { code: "run_not_active", message: `run ${id} is just ending` });
});

test("a process that does not end with its task is ended after its time", async (t) => {
  const child = spawn("sleep", ["600"], { detached: true, stdio: "ignore" });
  t.after(() => child.kill("SIGKILL"));
  const ended = once(child, "exit");
  const channel = async () => ({ pid: child.pid, send() {}, ended });
  const supervisor = new Supervisor({ launcher: { channel } as unknown as Launcher, log() {} });
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const initialised = supervisor.task({ name: "init", bucketDir: "/none", bucketId: "b", input: null }, "initialise bucket b");
  const refused = assert.rejects(initialised, { code: "failed", message: "Cannot initialise bucket b: its process failed" });
  await nextRound();
  t.mock.timers.tick(80_000);
  await nextRound();
  t.mock.timers.reset();
  assert.deepEqual((await ended)[1], "SIGTERM");
  await refused;
});

test("a bucket that cannot be recovered is told, and keeps no other one from it", async (t) => {
  const [broken, sound] = [await setUp(t), await setUp(t)];
  const left = async ({ layout, bucketId }: typeof sound) => {
    const start = { id: uuidV7(), bucket_id: bucketId, origin: "server", kind: "build", params: {} } as const;
    return (await createRecord(layout, { ...start, actor: ACTOR, requestId: null })).id;
  };
  const id = await left(sound);
  writeFileSync(broken.layout.journal, "no journal");
  await broken.supervisor.recover([broken.layout, sound.layout]);
  assert.match(broken.said.join("\n"), new RegExp(`^Cannot recover bucket ${broken.dir}: .*journal\\.json.*\n.*${id}`));
  assert.equal((await sound.record(id)).status, "failed");
});

test("CP-527 a run that lacks its approval is started for nobody, and leaves nothing", async (t) => {
  const { layout, bucketId } = await setUp(t);
  const own = new Supervisor({ launcher: new Launcher({}), log() {}, approvals: (id) => (id === bucketId ? 2 : 0) });
  const reservation = await own.reserve(layout, bucketId, "run_command");
  const by = { actor: ACTOR, requestId: null };
  await assert.rejects(reservation.start({ command: "true" }, by), {
    code: "approval_required",
    details: { required: 2, given: 0, missing: 2, proposal: null },
  });
  assert.deepEqual(own.load(), { active: 0, queued: 0 });
  assert.deepEqual(await runIds(layout), []);
  await reservation.release();
});
