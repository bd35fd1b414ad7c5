import assert from "node:assert/strict";
import fs, { existsSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import {
  type actorText,
  addAudit,
  askedBy,
  COMMAND_ENDED,
  createRecord,
  durationOf,
  hasFreshKey,
  isCancelled,
  RECORD_DAMAGED,
  type RunRecord,
  readRecord,
  readRecordHead,
  removedRuns,
  runIds,
  runNamed,
  runNotFound,
  runOfKey,
  SERVER_RESTARTED,
  saveRecord,
  settle,
} from "../../lib/run/record.ts";
import { failing } from "../helpers/faults.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { makeBucket } from "../helpers/workspace.ts";

const actor = { address: "192.0.2.7", via: "bearer" } as const;
const AT = Date.UTC(2026, 0, 2, 3, 4, 5);
const HOUR_MS = 3_600_000;

type Start = Parameters<typeof createRecord>[1];

function setUp(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  const start = (more: Partial<Start> = {}): Start => {
    return { id: uuidV7(), bucket_id: "b", origin: "server", kind: "build", params: {}, actor, requestId: "r", ...more };
  };
  const begin = async (more?: Partial<Start>) => await createRecord(layout, start(more));
  const write = (id: string, text: string) => writeFileSync(runLayout(layout, id).record, text);
  return { layout, start, begin, write };
}

const OPEN = { finished_at: null, exit_code: null, signal: null, error: null, result: null };

test("CP-140 a record that begins has every field, and is readable for its owner alone", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: AT });
  const { layout, begin } = setUp(t);
  const now = "2026-01-02T03:04:05.000Z";
  const record = await begin();
  const wanted = {
    id: record.id,
    bucket_id: "b",
    origin: "server",
    kind: "build",
    schedule: null,
    approval: null,
    break_glass: null,
    params: {},
    revision: null,
    status: "running",
    created_at: now,
    started_at: now,
    ...OPEN,
    audit: [{ at: now, action: "start", actor, request_id: "r" }],
  };
  assert.deepEqual([record, readRecord(layout, record.id)], [wanted, wanted]);
  const { folder, record: file } = runLayout(layout, record.id);
  assert.deepEqual(
    [folder, file].map((one) => statSync(one).mode & 0o777),
    [0o700, 0o600],
  );
  assert.match(readFileSync(file, "utf8"), /^\{\n {2}"id": [\s\S]*\n\}\n$/);
  const schedule = { name: "nightly", due: "2026-01-02T03:00:00.000Z" };
  const start_key = { key: "k", sum: "s" };
  const approval = { proposal: "p", required: 1, by: ["ben"] };
  const given = await begin({ kind: "push", params: { revision: "x", note: undefined }, schedule, start_key, approval });
  assert.deepEqual(given.schedule, { ...schedule, sum: null, repeats: 0, since: now });
  assert.deepEqual(
    [given.origin, given.start_key, given.approval, given.revision, given.params],
    ["schedule", start_key, approval, "x", { revision: "x" }],
  );
  assert.ok(!("actor" in given || "requestId" in given));
});

test("a record keeps no secret: neither those of its run nor those of the bucket in a command or a reason", async (t) => {
  const { layout, kv } = await makeBucket(t);
  const store = kv();
  store.put("secrets/job/web", "password", "hunter2-hunter2");
  store.flush();
  const run = { id: uuidV7(), bucket_id: "b", origin: "server", actor, requestId: null } as const;
  const command = "echo hunter2-hunter2";
  const ran = await createRecord(layout, { ...run, kind: "run_command", params: { command }, breakGlass: command });
  assert.deepEqual([ran.params.command, ran.break_glass], ["echo ***", "echo ***"]);
  const params = { note: "hunter2-hunter2", passphrase: "a long passphrase" };
  const made = await createRecord(layout, { ...run, id: uuidV7(), kind: "snapshot_create", params });
  assert.deepEqual(made.params, { note: "hunter2-hunter2" }, "only commands and reasons are looked through");
  writeFileSync(layout.database, "damaged");
  const broken = await createRecord(layout, { ...run, id: uuidV7(), kind: "snapshot_restore", params: {}, breakGlass: command });
  assert.equal(broken.break_glass, command, "who restores a damaged bucket may say why");
  await assert.rejects(createRecord(layout, { ...run, id: uuidV7(), kind: "run_command", params: { command } }), {
    code: "database_damaged",
  });
  rmSync(layout.database);
  await assert.rejects(createRecord(layout, { ...run, id: uuidV7(), kind: "gc", params: {}, breakGlass: "x" }));
});

test("nothing remains of a run whose record cannot be written", async (t) => {
  const { layout, start } = setUp(t);
  const one = start();
  failing(t, fs, "openSync", "ENOSPC");
  failing(t, fs.promises, "open", "ENOSPC");
  await assert.rejects(createRecord(layout, one), { code: "ENOSPC" });
  assert.ok(!existsSync(runLayout(layout, one.id).folder));
});

test("a record that is damaged is shown as that of a failed run, with what its id and its text tell", async (t) => {
  const { layout, begin, write } = setUp(t);
  const { id } = await begin({ id: uuidV7(AT) });
  const at = "2026-01-02T03:04:05.000Z";
  const damaged = (kind: string) => ({
    id,
    bucket_id: path.basename(layout.root),
    origin: "server",
    approval: null,
    schedule: null,
    break_glass: null,
    params: {},
    revision: null,
    kind,
    ...OPEN,
    status: "failed",
    created_at: at,
    started_at: at,
    finished_at: at,
    error: RECORD_DAMAGED,
    audit: [],
  });
  for (const [text, kind] of [
    ["", "unknown"],
    ['{"kind": "deploy"', "deploy"],
    ['{"kind": "toString"', "unknown"],
    ['{"kind": "run-command"', "unknown"],
    ["null", "unknown"],
    [`{"id": "${id}", "kind": "gc"}`, "gc"],
    [`{"id": "${id}", "audit": {}, "kind": "gc"}`, "gc"],
    [`{"id": "${uuidV7()}", "audit": []}`, "unknown"],
  ] as const) {
    write(id, text);
    assert.deepEqual([readRecord(layout, id), readRecordHead(layout, id)], [damaged(kind), damaged(kind)], text);
  }
});

test("a run without a record file is none; trouble with the disk is told", async (t) => {
  const { layout, begin } = setUp(t);
  const { id } = await begin();
  const { record, folder } = runLayout(layout, id);
  const mend = failing(t, fs, "openSync", "EMFILE", record);
  assert.throws(() => readRecord(layout, id), { code: "EMFILE" });
  assert.throws(() => readRecordHead(layout, id), { code: "EMFILE" });
  mend();
  rmSync(record);
  assert.equal(readRecord(layout, id), undefined);
  symlinkSync("/dev/null", record);
  assert.equal(readRecord(layout, id), undefined);
  rmSync(folder, { recursive: true });
  assert.equal(readRecordHead(layout, id), undefined);
  writeFileSync(folder, "");
  assert.equal(readRecord(layout, id), undefined);
});

test("the head of a record is all but its result and its audit, however large the result is", async (t) => {
  const { layout, begin } = setUp(t);
  const record = await begin({ start_key: { key: "k", sum: "s" }, params: { note: '\n  "result": ' } });
  for (const result of [1, "x".repeat(100_000)]) {
    await saveRecord(layout, { ...record, result });
    assert.deepEqual(readRecordHead(layout, record.id), { ...record, result: null, audit: [] });
  }
  const long = { ...record, params: { note: "x".repeat(20_000) }, result: 1 };
  await saveRecord(layout, long);
  assert.deepEqual(readRecordHead(layout, record.id), long, "one that is longer is read as a whole");
});

test("a run lasts from its begin to its end, or until now, and never less than nothing", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: AT });
  const lasted = (created: number, finished: number | null) => {
    const time = (ms: number) => new Date(AT + ms).toISOString();
    return durationOf({ created_at: time(created), finished_at: finished === null ? null : time(finished) } as RunRecord);
  };
  assert.deepEqual([lasted(-5_000, -2_000), lasted(-5_000, null), lasted(0, -1)], [3_000, 5_000, 0]);
});

test("who asked for a run is told in words, and who approved it", () => {
  const asked = (by: string[] | undefined, ...actors: Parameters<typeof actorText>) => {
    const audit = actors.map((one) => ({ at: "", action: "start" as const, actor: one, request_id: null }));
    return askedBy({ audit, approval: by ? { proposal: "p", required: 1, by } : null });
  };
  assert.equal(asked(undefined, { name: "ada", ...actor }), "ada, bearer from 192.0.2.7");
  assert.equal(asked(["ben"], { name: "ada", address: "::1", via: "session" }), "ada, session from ::1, approved by ben");
  assert.equal(asked(["ben", "eva"], { ...actor }), "bearer from 192.0.2.7, approved by ben and eva");
  assert.equal(asked([], { name: "schedule:nightly", address: "", via: "schedule" }), "schedule:nightly");
  assert.equal(askedBy({ audit: [], approval: null }), " on the command line");
});

test("CP-143 the end of a run has its time, exit, signal and result, and only a failed run has an error", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: AT });
  const ended = (outcome: { ok: boolean; result: unknown } | undefined, cancelled = false) => {
    const record = { audit: [], status: "running" } as unknown as RunRecord;
    if (cancelled) addAudit(record, "cancel", actor, "r2");
    assert.equal(isCancelled(record), cancelled);
    settle(record, { exitCode: 0, signal: "SIGTERM", outcome: outcome && { ...outcome, error: null } });
    return record;
  };
  const at = "2026-01-02T03:04:05.000Z";
  const end = { exit_code: 0, signal: "SIGTERM", finished_at: at, error: null };
  assert.deepEqual(ended({ ok: true, result: { a: 1 } }), { audit: [], status: "succeeded", ...end, result: { a: 1 } });
  const audit = [{ at, action: "cancel", actor, request_id: "r2" }];
  assert.deepEqual(ended(undefined, true), { audit, status: "cancelled", ...end, result: null });
  const why = "the run's process ended by signal SIGTERM before it reported a result";
  assert.deepEqual(ended({ ok: false, result: 0 }), { audit: [], status: "failed", ...end, error: why, result: 0 });
  assert.deepEqual(
    [SERVER_RESTARTED, COMMAND_ENDED],
    ["server restarted before run completed", "command ended before it completed"],
  );
});

test("CP-444 a key is remembered for an hour, with the runs that are there and those that were removed", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: AT });
  const { layout, begin } = setUp(t);
  const keyed = async (ageMs: number, key?: string) => {
    const record = await begin({ id: uuidV7(AT - ageMs), ...(key !== undefined && { start_key: { key, sum: "s" } }) });
    const aged = { ...record, created_at: new Date(AT - ageMs).toISOString() };
    await saveRecord(layout, aged);
    return aged;
  };
  const runs = [await keyed(HOUR_MS, "old"), await keyed(HOUR_MS - 1, "fresh"), await keyed(5), await keyed(1, "new")] as const;
  assert.deepEqual([undefined, ...runs].map(hasFreshKey), [false, false, true, false, true]);
  const [, fresh, , newest] = runs;
  const gone = removedRuns(layout);
  mkdirSync(runLayout(gone, newest.id).folder, { recursive: true });
  await saveRecord(gone, newest);
  rmSync(runLayout(layout, newest.id).folder, { recursive: true });
  const found = ["new", "fresh", "old", "none"].map(async (key) => (await runOfKey(layout, key))?.id);
  assert.deepEqual(await Promise.all(found), [newest.id, fresh.id, undefined, undefined]);
});

test("the ids of runs are the folders with such a name, oldest first, and are named by their beginning or end", async (t) => {
  const { layout, begin } = setUp(t);
  assert.deepEqual(await runIds(layout), []);
  const [late, early] = [await begin({ id: uuidV7(AT + 1) }), await begin({ id: uuidV7(AT) })];
  mkdirSync(path.join(layout.runs, "no-run"));
  assert.deepEqual(await runIds(layout), [early.id, late.id]);
  assert.equal(await runNamed(layout, late.id.slice(-12)), late.id);
  await assert.rejects(runNamed(layout, "ffffffffff"), { code: "run_not_found", message: 'there is no run "ffffffffff"' });
  assert.deepEqual([runNotFound("x").code, runNotFound("x").message], ["run_not_found", 'run "x" does not exist']);
});
