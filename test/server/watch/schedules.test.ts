import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import type { RootBucket } from "../../../lib/bucket/source/root.ts";
import { type Schedule, storedSchedules } from "../../../lib/bucket/workspace/schedules.ts";
import { Lines } from "../../../lib/server/line.ts";
import { LockedRuns } from "../../../lib/server/watch/scheduled-runs.ts";
import { auditLines, blockAudit } from "../../helpers/audit-log.ts";
import { TestServer } from "../../helpers/server.ts";
import { until } from "../../helpers/temporary.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** A server with a bucket whose last build found these schedules; its clock stands a while before a full hour. */
async function scheduled(t: TestContext, ...schedules: object[]) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const store = (all: object[]) => {
    using db = openDatabase(layoutOf(bucket.folder).database);
    db.run("UPDATE bucket SET schedules = ?", JSON.stringify({ schedules: all }));
  };
  server.aheadMs = HOUR_MS - (Date.now() % HOUR_MS) + HOUR_MS - 20 * MINUTE_MS;
  store(schedules);
  const list = async () => (await server.call("GET", `${bucket.path}/schedules`)).body.items;
  const one = async (name: string) => (await list()).find((found: { name: string }) => found.name === name);
  // From then on its due times count.
  await until("the server has seen the schedules", () => existsSync(layoutOf(bucket.folder).scheduleStates));
  /** Puts the clock to an hour and minute after the first full hour. */
  const begin = Date.now() + server.aheadMs + 20 * MINUTE_MS;
  const full = begin - (begin % HOUR_MS);
  const clock = (minutes: number) => {
    server.aheadMs = full + minutes * MINUTE_MS + 1_000 - Date.now();
  };
  const at = (minutes: number) => new Date(full + minutes * MINUTE_MS).toISOString();
  const last = async (name: string, minutes: number) => {
    await until(`the decision about ${name} of ${minutes}`, async () => (await one(name))?.last?.due === at(minutes));
    return (await one(name)).last;
  };
  const runs = async () => (await server.call("GET", `${bucket.path}/runs`)).body.items;
  return { server, bucket, store, list, one, clock, at, last, runs };
}

const UPTIME = { name: "uptime", every: "1h", kind: "worker_uptime" };

test("CP-962 CP-967 what is due starts as a run of its own: its origin, its actor, its schedule; the list tells how it went", async (t) => {
  const { server, bucket, one, clock, at, last } = await scheduled(t, { ...UPTIME, kind: "snapshot_create", if_busy: "skip" });
  assert.deepEqual([(await one("uptime")).last, (await one("uptime")).next], [null, at(0)]);
  clock(0);
  const { run_id, outcome, reason } = await last("uptime", 0);
  assert.deepEqual([outcome, reason], ["started", null]);
  const run = await server.ended(bucket.path, run_id);
  assert.deepEqual([run.origin, run.kind, run.status], ["schedule", "snapshot_create", "succeeded"]);
  assert.deepEqual(run.audit[0].actor, { name: "schedule:uptime", address: "", via: "schedule" });
  assert.deepEqual([run.schedule.name, run.schedule.due, run.schedule.repeats], ["uptime", at(0), 0]);
  assert.match(readFileSync(path.join(bucket.folder, "logs", "runs", run_id, "activity.log"), "utf8"), /by schedule:uptime/);
  await until("the status is noted", async () => (await one("uptime")).last.status === "succeeded");
  assert.equal((await one("uptime")).next, at(60));
});

test("CP-990 the start of a schedule's run has its line before the run begins, and one with its outcome", async (t) => {
  const { server, bucket, clock, last } = await scheduled(t, UPTIME);
  clock(0);
  const { run_id } = await last("uptime", 0);
  await server.ended(bucket.path, run_id);
  const lines = (await auditLines(server.root)).filter(({ via }) => via === "schedule");
  assert.deepEqual(
    lines.map(({ what, who, bucket: of, run, kind, outcome }) => [what, who, of, run, kind, outcome]),
    [
      ["start", "schedule:uptime", bucket.id, run_id, "worker_uptime", undefined],
      ["outcome", "schedule:uptime", bucket.id, run_id, "worker_uptime", "done"],
    ],
  );
  assert.equal(lines[1]?.of, lines[0]?.n);
});

test("CP-991 CP-971 where the audit cannot be written a due run is refused and not started, and the schedule goes on", async (t) => {
  const { server, bucket, clock, last, runs } = await scheduled(t, UPTIME);
  const unblock = await blockAudit(server.root);
  clock(0);
  const { outcome, reason } = await last("uptime", 0);
  assert.equal(outcome, "refused");
  assert.match(reason, /^the audit cannot be written, so nothing is changed: /);
  assert.deepEqual(await runs(), []);
  unblock();
  clock(60);
  const { run_id } = await last("uptime", 60);
  await server.ended(bucket.path, run_id);
});

test("CP-968 runs of a schedule that end the same way fold: the first stays, and the last one counts", async (t) => {
  const { server, bucket, clock, last, runs } = await scheduled(t, UPTIME);
  const ids: string[] = [];
  for (const minutes of [0, 60, 120, 180]) {
    clock(minutes);
    const { run_id } = await last("uptime", minutes);
    ids.push(run_id);
    await server.ended(bucket.path, run_id);
  }
  await until("the runs are folded", async () => (await runs()).length === 2);
  const [newest, first] = await runs();
  assert.deepEqual([newest.id, first.id], [ids[3], ids[0]]);
  assert.deepEqual([newest.schedule.repeats, newest.schedule.since], [3, first.created_at]);
});

test("CP-968 runs of a deploy never fold: a plan stays, and each deploy is history", async (t) => {
  const plans = { ...UPTIME, kind: "deploy", parameters: { dry_run: true } };
  const { server, bucket, clock, last, runs } = await scheduled(t, plans);
  for (const minutes of [0, 60, 120]) {
    clock(minutes);
    await server.ended(bucket.path, (await last("uptime", minutes)).run_id);
  }
  const repeats = (await runs()).map(({ schedule }: { schedule: { repeats: number } }) => schedule.repeats);
  assert.deepEqual(repeats, [0, 0, 0]);
});

test("CP-969 a busy bucket: a schedule that waits stands in line, one that does not is skipped with the reason", async (t) => {
  const { server, bucket, clock, last, one } = await scheduled(
    t,
    { ...UPTIME, name: "patient", if_busy: "1h" },
    { ...UPTIME, name: "hasty", if_busy: "skip" },
  );
  server.hold();
  const { run_id } = (await server.call("POST", `${bucket.path}/snapshots`, { body: {} })).body;
  clock(0);
  const { outcome, reason } = await last("hasty", 0);
  assert.equal(outcome, "skipped");
  assert.match(reason, /^bucket busy: .*; held by snapshot_create/);
  const queue = async () => (await server.call("GET", `${bucket.path}/queue`)).body.items;
  await until("it stands in line", async () => (await queue()).length === 1);
  const [waiting] = await queue();
  assert.deepEqual([waiting.key, waiting.kind, waiting.by.name], ["schedule@patient", "worker_uptime", "schedule:patient"]);
  assert.equal((await one("patient")).last, null);
  const headers = { "Idempotency-Key": "schedule@patient", "Ops-Wait": "0" };
  const { status } = await server.call("POST", `${bucket.path}/snapshots`, { body: {}, headers });
  assert.equal(status, 400, "no request takes its place");
  server.release();
  await server.ended(bucket.path, run_id);
  assert.equal((await last("patient", 0)).outcome, "started");
});

test("CP-969 a start in line that somebody gives up is skipped", async (t) => {
  const { server, bucket, clock, last } = await scheduled(t, { ...UPTIME, if_busy: "1h" });
  server.hold();
  await server.call("POST", `${bucket.path}/snapshots`, { body: {} });
  clock(0);
  const leave = () => server.call("DELETE", `${bucket.path}/queue/schedule@uptime`);
  await until("it stands in line", async () => (await leave()).status === 204);
  assert.equal((await last("uptime", 0)).outcome, "skipped");
});

test("CP-969 what is due while an earlier start of the schedule waits in line is skipped, and says so", async (t) => {
  const { server, bucket, clock, last, at, runs } = await scheduled(t, { ...UPTIME, if_busy: "1h", catch_up: true });
  server.hold();
  const { run_id: before } = (await server.call("POST", `${bucket.path}/snapshots`, { body: {} })).body;
  clock(0);
  const queue = async () => (await server.call("GET", `${bucket.path}/queue`)).body.items;
  await until("it stands in line", async () => (await queue()).length === 1);
  clock(65);
  server.release();
  await server.ended(bucket.path, before);
  const { outcome, reason, run_id } = await last("uptime", 60);
  assert.deepEqual([outcome, reason], ["skipped", `its start of ${at(0)} waited in line`]);
  const { schedule } = await server.ended(bucket.path, run_id);
  assert.deepEqual([schedule.due, (await runs()).length], [at(0), 2]);
});

test("CP-965 never two runs of one schedule: what is due while its run goes on is skipped", async (t) => {
  const { server, bucket, clock, last } = await scheduled(t, UPTIME);
  server.hold();
  clock(0);
  const { run_id } = await last("uptime", 0);
  clock(60);
  const { outcome, reason } = await last("uptime", 60);
  assert.deepEqual([outcome, reason], ["skipped", "its last run has not ended"]);
  server.release();
  await server.ended(bucket.path, run_id);
});

test("CP-964 what was due while the server was away starts once with catch_up, and is missed without", async (t) => {
  const { server, bucket, clock, last, runs } = await scheduled(t, { ...UPTIME, catch_up: true }, { ...UPTIME, name: "strict" });
  await server.stop();
  clock(185);
  await server.open();
  assert.equal((await last("strict", 180)).outcome, "missed");
  const { outcome, run_id } = await last("uptime", 180);
  assert.equal(outcome, "started");
  await server.ended(bucket.path, run_id);
  assert.equal((await runs()).length, 1);
});

test("CP-963 a run whose start the killed server could not note any more is not started again", async (t) => {
  const { server, bucket, clock, last, at, runs } = await scheduled(t, UPTIME);
  const states = layoutOf(bucket.folder).scheduleStates;
  const before = readFileSync(states);
  clock(0);
  const { run_id } = await last("uptime", 0);
  await server.ended(bucket.path, run_id);
  await server.stop();
  // As if the process had died between the record of the run and the note about it.
  writeFileSync(states, before);
  await server.open();
  const { due, run_id: adopted } = await last("uptime", 0);
  assert.deepEqual([due, adopted, (await runs()).length], [at(0), run_id, 1]);
});

test("CP-970 a paused schedule starts nothing, goes on with its next due time, and can be started by hand", async (t) => {
  const { server, bucket, clock, last, one, at } = await scheduled(t, UPTIME, { ...UPTIME, name: "other" });
  const post = (name: string, what: string) => server.call("POST", `${bucket.path}/schedules/${name}/${what}`, { body: {} });
  const paused = (await post("uptime", "pause")).body;
  assert.deepEqual([paused.paused.by, paused.next], ["root", null]);
  assert.deepEqual((await post("uptime", "pause")).body.paused, paused.paused);
  clock(0);
  await last("other", 0);
  assert.equal((await one("uptime")).last, null);
  await server.stop();
  await server.open();
  assert.equal((await one("uptime")).paused.by, "root");
  const { run_id } = (await post("Uptime", "run")).body;
  const run = await server.ended(bucket.path, run_id);
  assert.deepEqual([run.kind, run.origin, run.schedule], ["worker_uptime", "server", null]);
  const resumed = (await post("uptime", "resume")).body;
  assert.deepEqual([resumed.paused, resumed.last, resumed.next], [null, null, at(60)]);
  clock(60);
  assert.equal((await last("uptime", 60)).outcome, "started");
  for (const what of ["run", "pause", "resume"]) assert.equal((await post("nope", what)).body.error, "not_found");
});

test("CP-970 a schedule is started by hand with the role that its kind needs, and deploy at least", async (t) => {
  const kinds = ["snapshot_create", "gc", "worker_uptime"];
  const { server, bucket } = await scheduled(t, ...kinds.map((kind) => ({ ...UPTIME, name: kind, kind })));
  const found: string[] = [];
  for (const role of ["operate", "deploy", "admin"])
    for (const kind of kinds) {
      const { authorization } = await server.makeToken({ name: `${role}-${kind}`, role });
      const { status, body } = await server.call("POST", `${bucket.path}/schedules/${kind}/run`, { authorization, body: {} });
      found.push(`${role} ${kind} ${status}`);
      if (status === 202) await server.ended(bucket.path, body.run_id);
    }
  assert.deepEqual(found, [
    "operate snapshot_create 403",
    "operate gc 403",
    "operate worker_uptime 403",
    "deploy snapshot_create 403",
    "deploy gc 403",
    "deploy worker_uptime 202",
    "admin snapshot_create 202",
    "admin gc 202",
    "admin worker_uptime 202",
  ]);
});

test("CP-971 a run that cannot be started is refused with the reason, and the schedule goes on", async (t) => {
  const { clock, last } = await scheduled(t, { ...UPTIME, kind: "health_check", parameters: { jobs: ["gone"] } });
  for (const minutes of [0, 60]) {
    clock(minutes);
    const { outcome, reason } = await last("uptime", minutes);
    assert.equal(outcome, "refused");
    assert.match(reason, /there is no job "gone"/);
  }
});

test("CP-971 a schedule with another rhythm begins anew; one that is gone is not listed", async (t) => {
  const { store, clock, last, list, at, one } = await scheduled(t, UPTIME);
  clock(0);
  await last("uptime", 0);
  store([{ ...UPTIME, every: "30m" }]);
  await until("the new rhythm is read", async () => (await one("uptime")).next === at(30));
  store([]);
  await until("the schedule is gone", async () => (await list()).length === 0);
});

test("CP-978 in a bucket that needs approvals no schedule deploys or runs a command", async (t) => {
  const refused: [schedule: object, approvals: number][] = [
    [{ kind: "deploy", deploy: true }, 1],
    [{ kind: "run_command", parameters: { command: "true" } }, 2],
    [{ kind: "deploy", parameters: { dry_run: true } }, 1],
    [{ kind: "deploy", deploy: true }, 0],
  ];
  const found: boolean[] = [];
  for (const [more, approvals] of refused) {
    const started: string[] = [];
    const reserve = async () => ({ runId: "run", start: async () => started.push("run"), release: async () => {} });
    const runs = new LockedRuns({
      supervisor: { reserve } as never,
      lines: new Lines(),
      beside: { ask: async () => null } as never,
      access: { approvalsOf: () => approvals },
      audit: { started: (_, start) => start() },
      signal: t.signal,
    });
    const [schedule] = storedSchedules(JSON.stringify({ schedules: [{ ...UPTIME, ...more }] })).schedules;
    const bucket = { id: "bucket", layout: layoutOf("/srv/nowhere") } as RootBucket;
    const starting = runs.start(bucket, schedule as Schedule, 0, async () => {});
    const message = await starting.then(String, (error: Error) => error.message);
    found.push(/needs approvals/.test(message));
    assert.equal(started.length === 0, found.at(-1), message);
  }
  assert.deepEqual(found, [true, true, false, false]);
});

test("CP-978 a schedule that waits in line while its bucket begins to need approvals starts nothing", async (t) => {
  const command = { ...UPTIME, kind: "run_command", parameters: { command: "true" }, if_busy: "1h" };
  const { server, bucket, clock, last } = await scheduled(t, command);
  server.hold();
  const { run_id } = (await server.call("POST", `${bucket.path}/snapshots`, { body: {} })).body;
  clock(0);
  const queue = async () => (await server.call("GET", `${bucket.path}/queue`)).body.items;
  await until("it stands in line", async () => (await queue()).length === 1);
  assert.equal((await server.call("PUT", bucket.path, { body: { approvals: 1 } })).status, 200);
  server.release();
  await server.ended(bucket.path, run_id);
  const { outcome, reason } = await last("uptime", 0);
  assert.deepEqual([outcome, /needs approvals/.test(reason)], ["refused", true]);
});
