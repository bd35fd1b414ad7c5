import assert from "node:assert/strict";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { type Layout, layoutOf, runLayout } from "../../lib/bucket/layout.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { listRuns, pruneRuns } from "../../lib/run/history.ts";
import {
  addAudit,
  createRecord,
  type RunRecord,
  readRecord,
  saveRecord,
  settle,
} from "../../lib/run/record.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const actor = { address: "127.0.0.1", via: "bearer" as const };
const DAY_MS = 86_400_000;

async function addRun(layout: Layout, ageDays: number, end?: "ok" | "failed"): Promise<RunRecord> {
  const id = uuidV7(Date.now() - ageDays * DAY_MS);
  const start = {
    id,
    bucket_id: "b",
    origin: "server" as const,
    kind: "build" as const,
    params: {},
    actor,
    requestId: "r",
  };
  const record = await createRecord(layout, start);
  if (end === undefined) return record;
  settle(record, {
    exitCode: 0,
    signal: null,
    outcome: { ok: end === "ok", error: { message: "no" }, result: 1 },
  });
  await saveRecord(layout, record);
  return record;
}

test("CP-140 CP-141 CP-142 CP-144 a run that began has its folder, status, times and who started it", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const { id } = await addRun(layout, 0);
  const record = await readRecord(layout, id);
  assert.equal(record?.status, "running");
  assert.match(record?.created_at ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.deepEqual(record?.audit, [{ at: record?.created_at, action: "start", actor, request_id: "r" }]);
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
    [
      false,
      ok,
      1,
      null,
      undefined,
      "failed",
      "the run's process ended with exit code 1 before it reported a result",
    ],
    [
      false,
      undefined,
      null,
      "SIGKILL",
      undefined,
      "failed",
      "the run's process ended by signal SIGKILL before it reported a result",
    ],
    [
      false,
      ok,
      0,
      null,
      "server restarted before run completed",
      "failed",
      "server restarted before run completed",
    ],
  ];
  for (const [cancelled, outcome, exitCode, signal, stopped, status, error] of cases) {
    const record = { audit: [], status: "running" } as unknown as RunRecord;
    if (cancelled) addAudit(record, "cancel", actor, "r");
    settle(record, { exitCode, signal, outcome }, stopped);
    assert.deepEqual([record.status, record.error], [status, error]);
  }
});

test("CP-146 CP-263 runs are listed newest first, page by page, by status and kind", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const ids: string[] = [];
  for (const age of [5, 4, 3, 2, 1]) ids.push((await addRun(layout, age, age === 3 ? "failed" : "ok")).id);
  const newest = ids.toReversed();
  const first = await listRuns(layout, { limit: 2 });
  assert.deepEqual(
    first.items.map((run) => run.id),
    newest.slice(0, 2),
  );
  const second = await listRuns(layout, { limit: 2, cursor: first.next_cursor as string });
  assert.deepEqual(
    second.items.map((run) => run.id),
    newest.slice(2, 4),
  );
  const third = await listRuns(layout, { limit: 2, cursor: second.next_cursor as string });
  assert.deepEqual([third.items.map((run) => run.id), third.next_cursor], [newest.slice(4), null]);
  assert.deepEqual(
    (await listRuns(layout, { limit: 9, status: "failed" })).items.map((run) => run.id),
    [newest[2]],
  );
  assert.deepEqual((await listRuns(layout, { limit: 9, kind: "deploy" })).items, []);
  await assert.rejects(listRuns(layout, { limit: 2, cursor: "../x" }), { code: "invalid_request" });
});

test("a record that is cut off or of another run is passed over", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const { id } = await addRun(layout, 1, "ok");
  const broken = uuidV7();
  mkdirSync(runLayout(layout, broken).folder);
  writeFileSync(runLayout(layout, broken).record, '{"id": "');
  mkdirSync(`${layout.runs}/not-a-run`);
  assert.deepEqual(
    (await listRuns(layout, { limit: 9 })).items.map((run) => run.id),
    [id],
  );
});

test("CP-148 CP-149 CP-150 pruning keeps the newest, what runs, and what the settings allow", async (t) => {
  const remaining = async (count: number, days: number, ages: number[], running: number[] = []) => {
    const layout = layoutOf(temporaryFolder(t));
    for (const age of ages) await addRun(layout, age, running.includes(age) ? undefined : "ok");
    await pruneRuns(layout, count, days);
    const ids = readdirSync(layout.runs).sort();
    return ids.map((id) =>
      Math.round((Date.now() - Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16)) / DAY_MS),
    );
  };
  assert.deepEqual(await remaining(2, 0, [40, 30, 20, 10]), [20, 10]);
  assert.deepEqual(await remaining(0, 25, [40, 30, 20, 10]), [20, 10]);
  assert.deepEqual(await remaining(0, 0, [400, 30]), [400, 30]);
  assert.deepEqual(await remaining(1, 5, [40, 30]), [30]);
  assert.deepEqual(await remaining(1, 0, [40, 30, 20], [40]), [40, 20]);
});
