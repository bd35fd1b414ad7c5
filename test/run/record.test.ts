import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { type Layout, layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import {
  actorText,
  addAudit,
  askedBy,
  createRecord,
  type RunRecord,
  readRecord,
  runIds,
  runOfKey,
  saveRecord,
  settle,
} from "../../lib/run/record.ts";
import { pruneRuns } from "../../lib/run/recovery.ts";
import { diskSteps, linesOf } from "../helpers/disk-record.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const actor = { address: "127.0.0.1", via: "bearer" as const };
const DAY_MS = 86_400_000;

async function addRun(layout: Layout, ageDays: number, end?: "ok" | "failed"): Promise<RunRecord> {
  const id = uuidV7(Date.now() - ageDays * DAY_MS);
  const start = { id, bucket_id: "b", origin: "server" as const, kind: "build" as const, params: {}, actor, requestId: "r" };
  const record = await createRecord(layout, start);
  if (end === undefined) return record;
  settle(record, { exitCode: 0, signal: null, outcome: { ok: end === "ok", error: { message: "no" }, result: 1 } });
  await saveRecord(layout, record);
  return record;
}

test("CP-148 CP-444 the keys of the newest 1,000 runs of an hour are remembered, also when the runs are removed", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const plain = await addRun(layout, 0, "ok");
  const ids = Array.from({ length: 1_001 }, (_, at) => uuidV7(Date.now() + 1 + at));
  for (const [at, id] of ids.entries()) {
    const { folder, record } = runLayout(layout, id);
    mkdirSync(folder);
    writeFileSync(record, JSON.stringify({ start_key: { key: `key ${at}`, sum: "" }, ...plain, id }, null, 2));
  }
  const found = async (key: string) => (await runOfKey(layout, key))?.id;
  const remembered = [ids[1000], ids[1], undefined];
  assert.deepEqual([await found("key 1000"), await found("key 1"), await found("key 0")], remembered);
  await pruneRuns(layout, 1, 0);
  assert.deepEqual(await runIds(layout), ids.slice(-1));
  assert.deepEqual([await found("key 1000"), await found("key 1"), await found("key 0")], remembered);
});

test("a run that began has its record on the disk, and the name of its folder", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const steps = linesOf(await diskSteps(layout.root, () => addRun(layout, 0)));
  const folder = path.relative(layout.root, layout.runs);
  assert.deepEqual(steps.slice(-2), [`flush ${folder}/${(await runIds(layout))[0]}`, `flush ${folder}`]);
});

test("CP-140 CP-141 CP-142 CP-144 a run that began has its folder, status, times and who started it", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const { id } = await addRun(layout, 0);
  const record = readRecord(layout, id);
  assert.equal(record?.status, "running");
  assert.match(record?.created_at ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.deepEqual(record?.audit, [{ at: record?.created_at, action: "start", actor, request_id: "r" }]);
});

test("CP-503 a record says who asked by name, and one of an earlier program shows what is there", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const record = await addRun(layout, 0);
  assert.equal(askedBy(readRecord(layout, record.id) as RunRecord), "bearer from 127.0.0.1");
  const named = { ...record, audit: record.audit.map((entry) => ({ ...entry, actor: { name: "ada", ...actor } })) };
  await saveRecord(layout, named);
  assert.equal(askedBy(readRecord(layout, record.id) as RunRecord), "ada, bearer from 127.0.0.1");
  assert.equal(actorText({ address: "ada@desk", via: "cli" }), "ada@desk on the command line");
});

test("CP-143 CP-208 CP-210 CP-211 CP-214 the end of a run follows from cancel, outcome and exit", async () => {
  const ok = { ok: true, error: null, result: { jobs: 1 } };
  const bad = { ok: false, error: { message: "port taken" }, result: null };
  const cases: [
    cancelled: boolean,
    outcome: typeof ok | typeof bad | undefined,
    exit: number | null,
    signal: string | null,
    stopped: string | undefined,
    status: string,
    error: string | null,
  ][] = [
    [false, ok, 0, null, undefined, "succeeded", null],
    [true, ok, 0, null, undefined, "cancelled", null],
    [true, undefined, null, "SIGKILL", undefined, "cancelled", null],
    [true, ok, 0, null, "server restarted before run completed", "cancelled", null],
    [false, bad, 1, null, undefined, "failed", "port taken"],
    [false, ok, 1, null, undefined, "failed", "the run's process ended with exit code 1 before it reported a result"],
    [
      false,
      undefined,
      null,
      "SIGKILL",
      undefined,
      "failed",
      "the run's process ended by signal SIGKILL before it reported a result",
    ],
    [false, ok, 0, null, "server restarted before run completed", "failed", "server restarted before run completed"],
  ];
  for (const [cancelled, outcome, exitCode, signal, stopped, status, error] of cases) {
    const record = { audit: [], status: "running" } as unknown as RunRecord;
    if (cancelled) addAudit(record, "cancel", actor, "r");
    settle(record, { exitCode, signal, outcome }, stopped);
    assert.deepEqual([record.status, record.error], [status, error]);
  }
});
