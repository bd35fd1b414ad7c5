import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { Database } from "../../../lib/bucket/base/database.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { findBucket } from "../../../lib/bucket/source/root.ts";
import type { Schedule } from "../../../lib/bucket/workspace/schedules.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { Failure } from "../../../lib/core/errors.ts";
import type { Pulse } from "../../../lib/server/watch/pulse.ts";
import { jitterOf, Scheduler } from "../../../lib/server/watch/scheduler.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const FULL_HOUR = Date.UTC(2026, 10, 27, 12);
const at = (minutes: number) => FULL_HOUR + minutes * 60_000;
const iso = (minutes: number) => new Date(at(minutes)).toISOString();
const UPTIME = { name: "uptime", every: "1h", kind: "worker_uptime" };

/** A scheduler of a bucket with these schedules, 20 minutes before a full hour; runs are only noted. */
function world(t: TestContext, given: object, root = temporaryFolder(t)) {
  const id = uuidV7();
  const layout = layoutOf(path.join(root, id));
  for (const folder of [path.dirname(layout.database), layout.internal]) mkdirSync(folder, { recursive: true });
  writeFileSync(layout.bucketJson, "{}");
  let [text, version, now, reads] = ["", "", at(-20), 0];
  const store = (next: object) => {
    text = JSON.stringify(next);
    version += "x";
    writeFileSync(layout.database, version);
  };
  store(given);
  const made = {
    started: [] as string[],
    said: [] as string[],
    statuses: new Map<string, string>(),
    recorded: new Map<string, { due: number; runId: string }>(),
    /** What a start answers or throws. */
    answer: async () => "r1",
    broken: undefined as Error | undefined,
    /** How often the records were looked through. */
    searches: 0,
  };
  const read = async (_: unknown, work: (db: Database) => unknown) => {
    reads++;
    if (made.broken) throw made.broken;
    return work({ get: () => ({ schedules: text }) } as unknown as Database);
  };
  const runs = {
    start: async (bucket: { id: string }, { name }: Schedule, due: number, check: () => Promise<void>) => {
      assert.equal(bucket.id, id);
      await check();
      made.started.push(`${name} ${new Date(due).toISOString()}`);
      return await made.answer();
    },
    async recorded() {
      made.searches++;
      return made.recorded;
    },
    statusOf: (_: unknown, run: string) => made.statuses.get(run),
  };
  const log = (line: string) => made.said.push(line.replace(id, "b").replace(root, "ROOT"));
  const own = { root, labels: "bucket.json", readers: { read }, runs, log, now: () => now };
  const scheduler = new Scheduler(own as never);
  const bucket = findBucket(root, id);
  const look = async (minutes: number) => {
    now = at(minutes);
    const next = await scheduler.look();
    await scheduler.idle();
    return next;
  };
  const states = () => JSON.parse(readFileSync(layout.scheduleStates, "utf8"));
  const last = async () => (await scheduler.list(bucket))[0]?.state.last;
  const clock = (minutes: number) => {
    now = at(minutes);
  };
  return Object.assign(made, { scheduler, bucket, layout, look, states, last, store, clock, reads: () => reads });
}

const one = (...schedules: object[]) => ({ schedules });
const STARTED = { outcome: "started", reason: null, run_id: "r1", status: "running" };

test("CP-962 what is due is started with its due time, and what became of it is on the disk", async (t) => {
  const { look, states, scheduler, bucket, started, statuses, said } = world(t, one(UPTIME));
  assert.equal(await look(-20), at(0));
  const rhythm = JSON.stringify([{ everyMs: 3_600_000 }, 0]);
  assert.deepEqual(states(), { uptime: { last: null, paused: null, rhythm, decided: iso(-20) } });
  statuses.set("r1", "running");
  assert.equal(await look(0), at(60));
  assert.deepEqual(started, [`uptime ${iso(0)}`]);
  const last = { ...STARTED, due: iso(0) };
  assert.deepEqual(states(), { uptime: { last, paused: null, rhythm, decided: iso(0) } });
  const [listed] = await scheduler.list(bucket);
  assert.deepEqual([listed?.schedule.name, listed?.state.last, listed?.next], ["uptime", last, iso(60)]);
  statuses.set("r1", "succeeded");
  assert.equal(await look(1), at(60));
  assert.deepEqual(states().uptime.last, { ...last, status: "succeeded" });
  assert.deepEqual([started.length, said], [1, []]);
  assert.equal((await scheduler.find(bucket, "UPTIME")).name, "uptime");
  await assert.rejects(scheduler.find(bucket, "nope"), { code: "not_found", message: 'there is no schedule "nope"' });
});

test("CP-965 what is due while the last run goes on is skipped; a run without a record has no status", async (t) => {
  const { look, last, said, statuses } = world(t, one(UPTIME));
  statuses.set("r1", "running");
  for (const minutes of [-20, 0, 60]) await look(minutes);
  const reason = "its last run has not ended";
  assert.deepEqual(await last(), { ...STARTED, outcome: "skipped", reason, due: iso(60) }, "the run that goes on stays known");
  assert.deepEqual(said, [`bucket b: schedule uptime of ${iso(60)} is skipped: ${reason}`]);
  statuses.clear();
  await look(61);
  assert.equal((await last())?.status, null);
});

test("CP-962 where nothing has changed nothing is written; a clock that is set back by hours begins anew", async (t) => {
  const { look, states, layout, statuses, started } = world(t, one(UPTIME));
  statuses.set("r1", "running");
  for (const minutes of [-20, 0]) await look(minutes);
  rmSync(layout.scheduleStates);
  await look(1);
  assert.ok(!existsSync(layout.scheduleStates), "a run that goes on is no change");
  await look(-59);
  assert.ok(!existsSync(layout.scheduleStates), "less than an hour is no change either");
  await look(-61);
  assert.equal(states().uptime.decided, iso(-61));
  assert.equal(started.length, 1);
});

test("a scheduler ends once what it starts has started; a root that cannot be read is told once, and again after it was well", async (t) => {
  const made = world(t, one(UPTIME));
  const once = () => {
    const stop = new AbortController();
    const over = made.scheduler.run(stop.signal, { pulse: { looked() {} } as Pulse, isIdle: false });
    stop.abort();
    return over;
  };
  await once();
  const { promise, resolve } = Promise.withResolvers<string>();
  made.answer = () => promise;
  made.clock(0);
  let isOver = false;
  const over = once().then(() => {
    isOver = true;
  });
  await until("the start", () => made.started.length === 1);
  await new Promise(setImmediate);
  assert.equal(isOver, false);
  resolve("r1");
  await over;
  const root = path.dirname(made.layout.root);
  const away = `${root}.away`;
  t.after(() => rmSync(away, { recursive: true, force: true }));
  for (let round = 0; round < 2; round++) {
    renameSync(root, away);
    for (let look = 0; look < 2; look++) await once();
    renameSync(away, root);
    await once();
  }
  assert.deepEqual(
    made.said.map((line) => line.slice(0, line.indexOf(":"))),
    ["Cannot look at the schedules of ROOT", "Cannot look at the schedules of ROOT"],
  );
});

test("CP-964 what is noticed over a minute late is missed, and with catch_up done all the same", async (t) => {
  const { look, scheduler, bucket, started } = world(t, one({ ...UPTIME, name: "a" }, { ...UPTIME, name: "b", catch_up: true }));
  await look(-20);
  assert.equal(await look(130), at(180));
  assert.deepEqual(started, [`b ${iso(120)}`]);
  const [a, b] = (await scheduler.list(bucket)).map(({ state }) => state.last);
  const reason = "the server was away, or its clock was put forward";
  assert.deepEqual(a, { due: iso(120), outcome: "missed", reason, run_id: null, status: null });
  assert.deepEqual(b, { ...STARTED, due: iso(120) });
});

test("CP-969 CP-971 a start that fails is skipped where it may pass, and else refused; at the end of the server the next one decides", async (t) => {
  const rows: [thrown: Error, outcome: string | undefined, reason?: string][] = [
    [new Failure("bucket_busy", "it is busy", { details: { holder: "held by x" } }), "skipped", "it is busy; held by x"],
    [new Failure("busy", "too many runs"), "skipped", "too many runs"],
    [new Failure("frozen", "it is frozen"), "skipped", "it is frozen"],
    [new Failure("unknown_name", "no such job"), "refused", "no such job"],
    [new Error("a defect"), "refused", "a defect"],
    [new Failure("shutting_down", "the end"), undefined],
    [new Failure("cancelled", "cancelled"), undefined],
  ];
  for (const [thrown, outcome, reason] of rows) {
    const made = world(t, one(UPTIME));
    made.answer = () => Promise.reject(thrown);
    for (const minutes of [-20, 0]) await made.look(minutes);
    const last = outcome === undefined ? null : { due: iso(0), outcome, reason, run_id: null, status: null };
    assert.deepEqual(await made.last(), last, thrown.message);
    assert.equal(made.states().uptime.decided, iso(outcome === undefined ? -20 : 0));
    await made.look(0.5);
    assert.equal(made.started.length, outcome === undefined ? 2 : 1);
  }
});

test("CP-970 a paused schedule starts nothing, and goes on with its next due time", async (t) => {
  const { scheduler, bucket, look, states, started, clock } = world(t, one(UPTIME));
  await look(-20);
  await scheduler.pause(bucket, "Uptime", "ada");
  clock(-10);
  await scheduler.pause(bucket, "uptime", "bob");
  assert.deepEqual(states().uptime.paused, { at: iso(-20), by: "ada" });
  assert.equal((await scheduler.list(bucket))[0]?.next, null);
  assert.equal(await look(0), Number.POSITIVE_INFINITY);
  clock(10);
  await scheduler.pause(bucket, "uptime", null);
  assert.deepEqual([states().uptime.paused, states().uptime.decided], [null, iso(10)]);
  assert.equal((await scheduler.list(bucket))[0]?.next, iso(60));
  assert.equal(await look(11), at(60));
  assert.deepEqual(started, []);
  await assert.rejects(scheduler.pause(bucket, "nope", null), { code: "not_found" });
});

test("CP-971 with another rhythm a schedule begins anew; one that is gone is forgotten unless it is paused", async (t) => {
  const { look, states, store, scheduler, bucket, started, reads } = world(t, one(UPTIME, { ...UPTIME, name: "kept" }));
  await look(-20);
  await scheduler.pause(bucket, "kept", "ada");
  await look(0);
  const before = reads();
  await look(1);
  assert.equal(reads(), before, "what has not changed is not read again");
  store(one({ ...UPTIME, every: "30m" }));
  assert.equal(await look(2), at(30));
  await look(2.5);
  assert.equal(reads(), before + 1);
  assert.deepEqual(
    [states().uptime.decided, states().uptime.last.due, Object.keys(states())],
    [iso(2), iso(0), ["uptime", "kept"]],
  );
  store(one({ ...UPTIME, every: "30m", jitter: "10m" }));
  assert.equal(await look(20), at(30) + jitterOf(bucket.id, "uptime", 600_000));
  assert.equal(states().uptime.decided, iso(20));
  store(one({ ...UPTIME, name: "other" }));
  await look(21);
  assert.deepEqual(Object.keys(states()).toSorted(), ["kept", "other"]);
  assert.equal(started.length, 1);
});

test("CP-969 what is due while an earlier start waits in line is skipped, and its schedule is left alone until then", async (t) => {
  const made = world(t, one(UPTIME));
  const { promise, resolve } = Promise.withResolvers<string>();
  made.answer = () => promise;
  await made.look(-20);
  made.clock(0);
  assert.equal(await made.scheduler.look(), at(60));
  made.clock(61);
  assert.equal(await made.scheduler.look(), Number.POSITIVE_INFINITY, "it waits in line");
  await made.scheduler.idle(new Map([["uptime", 1]]));
  resolve("r1");
  await made.scheduler.idle();
  assert.deepEqual(made.started, [`uptime ${iso(0)}`]);
  const reason = `its start of ${iso(0)} waited in line`;
  assert.deepEqual(await made.last(), { ...STARTED, due: iso(60), outcome: "skipped", reason });
  assert.equal(made.states().uptime.decided, iso(60));
});

test("a schedule that is resumed while its start waits in line has dealt with later times", async (t) => {
  const made = world(t, one(UPTIME));
  const { promise, resolve } = Promise.withResolvers<string>();
  made.answer = () => promise;
  await made.look(-20);
  made.clock(0);
  await made.scheduler.look();
  made.clock(30);
  await made.scheduler.pause(made.bucket, "uptime", "ada");
  await made.scheduler.pause(made.bucket, "uptime", null);
  resolve("r1");
  await made.scheduler.idle();
  assert.deepEqual([made.states().uptime.decided, made.states().uptime.last.due], [iso(30), iso(0)]);
});

test("CP-963 a run that a killed server started and could not note any more is taken over", async (t) => {
  const kept = (decided: number) => ({
    last: null,
    paused: null,
    rhythm: JSON.stringify([{ everyMs: 3_600_000 }, 0]),
    decided: iso(decided),
  });
  const { layout, recorded, last, look, started, statuses, states } = world(t, one(UPTIME, { ...UPTIME, name: "b" }));
  writeFileSync(layout.scheduleStates, JSON.stringify({ uptime: kept(-20), b: kept(0) }));
  recorded
    .set("uptime", { due: at(0), runId: "r9" })
    .set("b", { due: at(0), runId: "r8" })
    .set("gone", { due: at(0), runId: "r7" });
  statuses.set("r9", "running");
  await look(0.5);
  assert.deepEqual([await last(), started], [{ ...STARTED, due: iso(0), run_id: "r9" }, []]);
  assert.deepEqual([states().b.last, Object.keys(states())], [null, ["uptime", "b"]]);
  const fresh = world(t, one(UPTIME));
  fresh.recorded.set("uptime", { due: at(0), runId: "r9" });
  await fresh.look(0);
  assert.deepEqual([await fresh.last(), fresh.searches], [null, 0], "a bucket that was never looked at has started nothing");
  const alone = world(t, one(UPTIME));
  writeFileSync(alone.layout.scheduleStates, JSON.stringify({ uptime: kept(-20) }));
  alone.recorded.set("uptime", { due: at(0), runId: "r9" });
  await alone.look(0.5);
  assert.deepEqual([(await alone.last())?.run_id, alone.searches], ["r9", 1]);
});

test("CP-972 a freeze holds back a start by hand and by schedule, and a database that is damaged freezes nothing", async (t) => {
  const freeze = [{ from: "2026-11-27T00:00", to: "2026-11-28T00:00", timezone: "UTC", reason: "why" }];
  const command = { ...UPTIME, kind: "run_command", parameters: { command: "true" } };
  const made = world(t, { schedules: [command], freeze });
  for (const minutes of [-20, 0]) await made.look(minutes);
  assert.deepEqual([made.started, (await made.last())?.outcome], [[], "skipped"]);
  assert.match((await made.last())?.reason ?? "", /the bucket is frozen until 2026-11-28T00:00:00\.000Z: why/);
  const thaw = () => made.scheduler.requireThawed(made.bucket, { kind: "deploy", params: {} });
  await assert.rejects(thaw, { code: "frozen" });
  await made.scheduler.requireThawed(made.bucket, { kind: "deploy", params: { dry_run: true } });
  await made.scheduler.requireThawed(made.bucket, { kind: "build", params: {} });
  made.store({});
  await thaw();
  made.store({ freeze });
  made.broken = new Failure("database_damaged", "damaged");
  await thaw();
  made.broken = new Failure("database_busy", "busy");
  await assert.rejects(thaw, { code: "database_busy" });
  made.broken = new Error("a defect");
  await assert.rejects(thaw, /a defect/);
});

test("a bucket that cannot be looked at is told once, and again after it was well; one without a database has no schedules", async (t) => {
  const made = world(t, one(UPTIME));
  made.broken = new Failure("bucket_not_initialized", "no database");
  assert.equal(await made.look(-20), Number.POSITIVE_INFINITY);
  const told = "Cannot look at the schedules of bucket b: damaged";
  const look = async (broken: Error | undefined) => {
    made.broken = broken;
    made.store(one(UPTIME));
    await made.look(-20);
    return made.said;
  };
  const damaged = new Failure("database_damaged", "damaged");
  assert.deepEqual(await look(damaged), [told]);
  assert.deepEqual(await look(damaged), [told]);
  assert.deepEqual(await look(undefined), [told]);
  assert.deepEqual(await look(damaged), [told, told]);
  assert.deepEqual(await look(new Error("a defect")), [told, told, told.replace("damaged", "a defect")]);
});

test("a bucket that was removed is forgotten; what cannot be written is told", async (t) => {
  const made = world(t, one(UPTIME));
  await made.look(-20);
  rmSync(made.layout.internal, { recursive: true });
  for (const minutes of [0, 1]) await made.look(minutes);
  assert.match(made.said[0] ?? "", /^Cannot write .+\/\.ops\/schedules\.json: /);
  rmSync(made.layout.root, { recursive: true });
  assert.equal(await made.look(2), Number.POSITIVE_INFINITY);
  for (const folder of [path.dirname(made.layout.database), made.layout.internal]) mkdirSync(folder, { recursive: true });
  writeFileSync(made.layout.bucketJson, "{}");
  made.store(one(UPTIME));
  await made.look(3);
  assert.deepEqual([await made.last(), made.states().uptime.decided], [null, iso(3)]);
});

test("the start of a schedule is put off by whole seconds, up to its jitter, which follow from bucket and name", () => {
  const found = Array.from({ length: 500 }, (_, index) => jitterOf("bucket", `name ${index}`, 10_000));
  assert.deepEqual(
    [...new Set(found)].sort((a, b) => a - b),
    Array.from({ length: 11 }, (_, second) => second * 1_000),
  );
  assert.equal(jitterOf("bucket", "name 0", 10_000), found[0]);
  assert.notDeepEqual(
    found,
    found.map((_, index) => jitterOf("other", `name ${index}`, 10_000)),
  );
  assert.equal(jitterOf("bucket", "name", 0), 0);
});
