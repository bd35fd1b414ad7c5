import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { type LockContent, readLock } from "../../lib/bucket/base/lock.ts";
import { identify, type ProcessIdentity } from "../../lib/core/process.ts";
import { selfArguments } from "../../lib/core/self.ts";
import type { Launcher } from "../../lib/core/spawn.ts";
import { NO_DEPLOY } from "../../lib/run/progress.ts";
import { type RunRecord, readRecord, saveRecord } from "../../lib/run/record.ts";
import { Supervisor } from "../../lib/run/supervisor.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const ACTOR = { address: "192.0.2.7", via: "bearer" } as const;
const HOOK_USER = { name: "hooks", uid: 77, gid: 78, home: "/" };

const locked = async (layout: Layout) => (await readLock(layout)) as LockContent | undefined;

/** A process that does nothing, in a group of its own. */
function sleeper(t: TestContext) {
  const child = spawn("sleep", ["600"], { detached: true, stdio: "ignore" });
  t.after(() => child.kill("SIGKILL"));
  return { child, pid: child.pid as number, exited: once(child, "exit") };
}

/** A supervisor whose run processes are played: what each was sent, and a way to have it say something and exit. */
function setUp(t: TestContext, slots?: number) {
  const runs: { argv: readonly string[]; sent: unknown[]; says(message: unknown): void; exit(exitCode?: number): void }[] = [];
  const said: string[] = [];
  const launcher = {
    async channel(argv: readonly string[], _: unknown, says: (message: unknown) => void) {
      const { child, pid } = sleeper(t);
      const { promise: ended, resolve } = Promise.withResolvers<unknown>();
      const exit = (exitCode = 0) => {
        child.kill("SIGKILL");
        resolve({ exitCode, signal: null });
      };
      const sent: unknown[] = [];
      runs.push({ argv, sent, says, exit });
      return { pid, send: (message: unknown) => void sent.push(message), output: null, ended };
    },
  } as unknown as Launcher;
  const options = { launcher, log: (message: string) => void said.push(message), hookUser: HOOK_USER };
  const supervisor = new Supervisor({ ...options, ...(slots !== undefined && { slots }) });
  // Else a run whose folder is gone is saved again and again.
  t.after(() => supervisor.stop());
  const layout = () => layoutOf(temporaryFolder(t));
  const begin = async (bucket = layout()) => {
    const reservation = await supervisor.reserve(bucket, "b", "push");
    await reservation.start({ note: "n", archive: undefined }, { actor: ACTOR, requestId: "r" });
    const id = reservation.runId;
    const record = () => readRecord(bucket, id) as RunRecord;
    return { id, layout: bucket, record, over: () => until("the end", () => supervisor.load().active === 0) };
  };
  return { supervisor, runs, said, begin, layout };
}

test("the process of a run gets its orders, and what it reports is its progress, its groups in the lock and its result", async (t) => {
  const { supervisor, runs, said, begin } = setUp(t);
  const { id, layout, record } = await begin();
  const [run] = runs;
  assert.ok(run);
  assert.deepEqual(run.argv, selfArguments("worker", "run"));
  const orders = { type: "orders", runId: id, bucketDir: layout.root, bucketId: "b", kind: "push", revision: null };
  const asked = { params: { note: "n" }, secrets: {}, by: "bearer from 192.0.2.7", breakGlass: null, hookUser: HOOK_USER };
  assert.deepEqual(run.sent, [{ ...orders, ...asked }]);
  assert.equal(supervisor.progress(id), null);
  const progress = { phase: "p", done: 1, total: 2, waiting: [], ...NO_DEPLOY, cancel: null };
  run.says({ type: "progress", progress });
  assert.deepEqual(supervisor.progress(id), progress);
  assert.equal(supervisor.progress("another"), null);
  const [one, two] = [sleeper(t), sleeper(t)].map(({ pid }) => identify(pid)) as [ProcessIdentity, ProcessIdentity];
  const group = ({ pid, ...rest }: ProcessIdentity) => ({ pgid: pid, ...rest });
  const groups = async () => (await locked(layout))?.groups;
  for (const each of [one, two]) run.says({ type: "group_open", group: group(each) });
  await until("both groups", async () => (await groups())?.length === 2);
  run.says({ type: "group_close", group: group(one) });
  await until("one group", async () => (await groups())?.length === 1);
  assert.deepEqual(await groups(), [group(two)]);
  run.says({ type: "unheard of" });
  run.says({ type: "outcome", ok: true, error: null, result: { a: 1 } });
  assert.deepEqual([supervisor.load(), record().status], [{ active: 1, queued: 0 }, "running"]);
  run.exit();
  await until("the end", () => record().status !== "running");
  const { status, exit_code, result } = record();
  assert.deepEqual([status, exit_code, result], ["succeeded", 0, { a: 1 }]);
  await until("the run to be over", () => supervisor.load().active === 0);
  assert.deepEqual([supervisor.progress(id), await readLock(layout), said], [null, undefined, []]);
  assert.deepEqual(identify(one.pid), one, "a group that was closed is nobody's to end");
});

test("of as many runs as there are slots each has a process, two for each core; the others wait in their order", async (t) => {
  const few = setUp(t, 1);
  const first = await few.begin();
  const [second, third] = [await few.begin(), await few.begin()];
  assert.deepEqual([few.runs.length, few.supervisor.load()], [1, { active: 3, queued: 2 }]);
  const wait = few.supervisor.progress(second.id)?.waiting[0];
  assert.deepEqual(wait, {
    on: "a free slot",
    since: second.record().created_at,
    ...{ until: null, reason: "slot", job: null, worker: null, detail: "", more: 0 },
  });
  few.runs[0]?.exit();
  await until("the next one", () => few.runs.length === 2 && few.runs[1]?.sent.length === 1);
  assert.equal((few.runs[1]?.sent[0] as { runId: string } | undefined)?.runId, second.id);
  assert.deepEqual([few.supervisor.progress(second.id), few.supervisor.progress(third.id)?.phase], [null, "queued"]);
  assert.equal((await few.supervisor.cancel(third.layout, third.id, ACTOR, "r2")).status, "running");
  await until("its end", () => third.record().status === "cancelled");
  few.runs[1]?.exit();
  await second.over();
  assert.equal(first.record().error, "the run's process ended with exit code 0 before it reported a result");
  const many = setUp(t);
  for (let count = 0; count <= 2 * availableParallelism(); count++) await many.begin();
  assert.deepEqual([many.runs.length, many.supervisor.load().queued], [2 * availableParallelism(), 1]);
  for (let ended = 0; ended <= 2 * availableParallelism(); ended++) {
    await until("its process", () => many.runs.length > ended);
    many.runs[ended]?.exit();
  }
  await until("all ends", () => many.supervisor.load().active === 0);
});

test("a run that does not unwind in 10 s after a cancel is killed, and its audit says for whom; a second cancel changes nothing", async (t) => {
  const { supervisor, runs, begin } = setUp(t);
  const { id, layout, record } = await begin();
  const left = sleeper(t);
  runs[0]?.says({ type: "group_open", group: { pgid: left.pid, start_time: identify(left.pid)?.start_time } });
  await until("the group", async () => (await locked(layout))?.groups?.length === 1);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const told: string[] = [];
  supervisor.events.onChange = (change) => told.push(change);
  const cancelled = await supervisor.cancel(layout, id, ACTOR, "r2");
  assert.deepEqual(await supervisor.cancel(layout, id, ACTOR, "r3"), cancelled);
  assert.deepEqual(runs[0]?.sent.slice(1), [{ type: "cancel" }]);
  assert.equal((await locked(layout))?.ending, true);
  t.mock.timers.tick(9_999);
  await nextRound();
  assert.equal(cancelled.audit.length, 2);
  t.mock.timers.tick(1);
  await nextRound();
  assert.equal(cancelled.audit.length, 3);
  assert.equal((await left.exited)[1], "SIGKILL");
  t.mock.timers.reset();
  runs[0]?.exit();
  await until("its end", () => record().status === "cancelled");
  const asked = record().audit.map(({ action, actor, request_id }) => [action, actor, request_id]);
  assert.deepEqual(asked, [
    ["start", ACTOR, "r"],
    ["cancel", ACTOR, "r2"],
    ["force_kill", ACTOR, null],
  ]);
  assert.deepEqual(told, ["cancelling", "ended"]);
  const message = `run ${id} has already ended: cancelled`;
  await assert.rejects(supervisor.cancel(layout, id, ACTOR, "r4"), { code: "run_not_active", message });
});

test("a server that stops ends its runs as failed, takes no new ones and no cancel any more", async (t) => {
  const { supervisor, runs, begin, layout: another } = setUp(t);
  const { id, layout, record } = await begin();
  const stopped = supervisor.stop();
  const refused = { code: "shutting_down", message: "the server is shutting down" };
  await assert.rejects(supervisor.reserve(another(), "b", "build"), refused);
  await assert.rejects(
    supervisor.exclusively(another(), "x", async () => {}),
    refused,
  );
  await assert.rejects(supervisor.cancel(layout, id, ACTOR, "r2"), { code: "run_not_active" });
  assert.deepEqual(runs[0]?.sent.slice(1), [{ type: "cancel" }]);
  runs[0]?.exit(7);
  await stopped;
  const { status, error, exit_code, audit } = record();
  assert.deepEqual([status, error, exit_code, audit.length], ["failed", "server restarted before run completed", 7, 1]);
});

test("a task is told with its user of hooks, and answers its result or its failure, of few codes", async (t) => {
  const { supervisor, runs } = setUp(t);
  const task = { name: "init", bucketDir: "/none", bucketId: "b", input: { a: 1 } } as const;
  const done = async (...messages: unknown[]) => {
    const answer = supervisor.task(task, "do it");
    const run = runs.at(-1);
    for (const message of messages) run?.says(message);
    await nextRound();
    run?.exit();
    return await answer;
  };
  const outcome = { type: "outcome", ok: true, error: null, result: 5 };
  assert.equal(await done(outcome, { type: "progress" }), 5);
  assert.deepEqual(runs[0]?.argv, selfArguments("worker", "run"));
  assert.deepEqual(runs[0]?.sent, [{ type: "task", ...task, hookUser: HOOK_USER }]);
  const kept = ["invalid_bucket_id", "schema_too_new", "database_damaged", "database_busy", "unknown_name", "not_found"];
  for (const code of [...kept, "failed"])
    await assert.rejects(done({ ...outcome, ok: false, error: { code, message: "why" } }), {
      code,
      message: "Cannot do it: why",
    });
  const other = { ...outcome, ok: false, error: { code: "bucket_busy", message: "why" } };
  await assert.rejects(done(other), { code: "failed", message: "Cannot do it: why" });
  await assert.rejects(done({ type: "progress" }), { code: "failed", message: "Cannot do it: its process failed" });
});

test("a short change and the end of a bucket hold its lock, named by what they are; what was left is told as settled", async (t) => {
  const { supervisor, said, begin, layout: another, runs } = setUp(t);
  const layout = another();
  const command = async () => (await locked(layout))?.command;
  assert.equal(await supervisor.exclusively(layout, "set", async () => await command()), "set");
  await supervisor.discard(layout, async () => assert.equal(await command(), "delete"));
  assert.equal(await readLock(layout), undefined);
  const { id, layout: left, record } = await begin();
  assert.deepEqual([supervisor.activeRun("b"), supervisor.activeRun("c")], [id, null]);
  await assert.rejects(supervisor.reserve(left, "b", "build"), { code: "bucket_busy" });
  runs[0]?.exit(3);
  await until("its end", () => record().status === "failed");
  const stale = { ...record(), status: "running", finished_at: null };
  await saveRecord(left, stale as RunRecord);
  const told: unknown[] = [];
  supervisor.events.onChange = (change, one) => told.push([change, one.id]);
  await supervisor.recover([left]);
  assert.deepEqual([said, told], [[`run ${id} (push) of bucket b is settled: failed`], [["ended", id]]]);
});
