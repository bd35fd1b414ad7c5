import assert from "node:assert/strict";
import fs, { mkdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { createRecord, RECORD_DAMAGED, type RunRecord, saveRecord, settle } from "../../lib/run/record.ts";
import { RunList, type RunQuery } from "../../lib/server/run-list.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

function setUp(t: TestContext, list = new RunList()) {
  const layout = layoutOf(temporaryFolder(t));
  let clock = Date.now() - 60_000;
  const add = async (end?: "ok" | "failed"): Promise<RunRecord> => {
    clock += 1_000;
    const actor = { address: "127.0.0.1", via: "bearer" } as const;
    const start = { bucket_id: "b", origin: "server", kind: "build", params: {}, actor, requestId: "r" } as const;
    const record = await createRecord(layout, { ...start, id: uuidV7(clock) });
    if (end !== undefined) await finish(record, end);
    return record;
  };
  const finish = async (record: RunRecord, end: "ok" | "failed") => {
    const outcome = { ok: end === "ok", error: { message: "no" }, result: 1 };
    settle(record, { exitCode: 0, signal: null, outcome });
    await saveRecord(layout, record);
  };
  const page = async (query: Partial<RunQuery> = {}) => {
    const { items, next_cursor } = await list.page(layout, { limit: 50, ...query });
    return { runs: items, next_cursor };
  };
  const ids = async (query: Partial<RunQuery> = {}) => (await page(query)).runs.map(({ id }) => id);
  return { layout, list, add, finish, page, ids };
}

test("CP-146 CP-263 runs are listed newest first, page by page, by status and kind", async (t) => {
  const { list, layout, add, page, ids } = setUp(t);
  const made: string[] = [];
  for (const end of ["ok", "ok", "failed", "ok", "ok"] as const) made.unshift((await add(end)).id);
  const first = await page({ limit: 2 });
  const second = await page({ limit: 2, cursor: first.next_cursor ?? "" });
  const third = await page({ limit: 2, cursor: second.next_cursor ?? "" });
  assert.deepEqual(
    [...first.runs, ...second.runs, ...third.runs].map(({ id }) => id),
    made,
  );
  assert.equal(third.next_cursor, null);
  assert.deepEqual(await ids({ status: "failed" }), [made[2]]);
  assert.deepEqual(await ids({ kind: "deploy" }), []);
  assert.equal((await list.newest(layout))?.id, made[0]);
  await assert.rejects(page({ cursor: "../x" }), { code: "invalid_request" });
});

test("T-48 T-81 a run without a record is passed over; one whose record is cut off has failed", async (t) => {
  const { layout, add, page } = setUp(t);
  const { id } = await add("ok");
  const broken = uuidV7();
  mkdirSync(runLayout(layout, broken).folder);
  writeFileSync(runLayout(layout, broken).record, '{"id": "');
  mkdirSync(`${layout.runs}/not-a-run`);
  mkdirSync(runLayout(layout, uuidV7()).folder);
  assert.deepEqual(
    (await page()).runs.map((run) => [run.id, run.status, run.error]),
    [
      [broken, "failed", RECORD_DAMAGED],
      [id, "succeeded", null],
    ],
  );
});

test("each change is seen at once: runs that begin, end and are removed, however fast", async (t) => {
  const { layout, add, finish, page, ids } = setUp(t);
  assert.deepEqual(await ids(), []);
  const made: RunRecord[] = [];
  for (let count = 0; count < 20; count++) {
    made.unshift(await add());
    assert.deepEqual(
      await ids(),
      made.map(({ id }) => id),
    );
  }
  const [newest] = made as [RunRecord];
  await finish(newest, "ok");
  assert.equal((await page()).runs[0]?.status, "succeeded");
  rmSync(runLayout(layout, newest.id).folder, { recursive: true });
  assert.deepEqual(
    await ids(),
    made.slice(1).map(({ id }) => id),
  );
});

test("a change during the read of the names is seen, even where it comes in the tick of the change before", async (t) => {
  const { layout, add, ids } = setUp(t);
  const first = await add("ok");
  const folder = fs.statSync(layout.runs);
  let now = folder.mtimeMs + 1;
  t.mock.method(Date, "now", () => now);
  const read = ids();
  now += 10_000;
  assert.deepEqual(await read, [first.id]);
  const second = await add("ok");
  const same = t.mock.method(fs, "statSync", () => folder);
  syncBuiltinESMExports();
  t.after(() => {
    same.mock.restore();
    syncBuiltinESMExports();
  });
  assert.deepEqual(await ids(), [second.id, first.id]);
});

test("a run that has ended is read once, one that goes on each time", async (t) => {
  const { layout, add, page } = setUp(t);
  const ended = await add("ok");
  const going = await add();
  const hourAgo = new Date(Date.now() - 3_600_000);
  utimesSync(layout.runs, hourAgo, hourAgo);
  const before = (await page()).runs;
  writeFileSync(runLayout(layout, ended.id).record, "gone");
  writeFileSync(runLayout(layout, going.id).activity, "more");
  const after = (await page()).runs;
  assert.deepEqual(after[1], before[1]);
  assert.deepEqual([before[0]?.log_size_bytes, after[0]?.log_size_bytes], [0, 4]);
});

test("what is kept of runs that have ended makes room for others beyond 16 MiB", async (t) => {
  const { layout, add, page } = setUp(t);
  const old = await add("ok");
  assert.equal((await page()).runs.length, 1);
  await saveRecord(layout, { ...old, error: "read again" });
  assert.equal((await page()).runs[0]?.error, null);
  const large = await add("ok");
  await saveRecord(layout, { ...large, result: "x".repeat(17 * 1024 * 1024) });
  assert.equal((await page()).runs[1]?.error, "read again");
  await saveRecord(layout, { ...large, kind: "deploy" });
  assert.deepEqual((await page({ kind: "deploy" })).runs, [], "of which kind it was is known still");
});

test("of 100 buckets the names of the runs are kept", async (t) => {
  const { layout, list, add } = setUp(t);
  mkdirSync(layout.runs, { recursive: true });
  const folder = fs.statSync(layout.runs);
  folder.mtimeMs -= 10_000;
  const same = t.mock.method(fs, "statSync", () => folder);
  syncBuiltinESMExports();
  t.after(() => {
    same.mock.restore();
    syncBuiltinESMExports();
  });
  assert.equal(await list.count(layout), 0);
  await add("ok");
  for (let others = 0; others < 99; others++) await list.count(layoutOf(`${layout.root}/${others}`));
  assert.equal(await list.count(layout), 0);
  await list.count(layoutOf(`${layout.root}/one-more`));
  assert.equal(await list.count(layout), 1);
});

test("what is kept of runs in short makes room for others, too", async (t) => {
  const { layout, list, add } = setUp(t, new RunList(2));
  const kinds = async () => (await Array.fromAsync(list.inShort(layout))).map(({ kind }) => kind);
  const oldest = await add("ok");
  await add("ok");
  assert.deepEqual(await kinds(), ["build", "build"]);
  await saveRecord(layout, { ...oldest, kind: "deploy" });
  assert.deepEqual(await kinds(), ["build", "build"]);
  await add("ok");
  assert.deepEqual(await kinds(), ["build", "build", "deploy"]);
});

test("more runs than are kept in memory are listed all the same", async (t) => {
  const { layout, page } = setUp(t);
  for (let count = 0; count < 6; count++) {
    const id = uuidV7(Date.now() - count * 1_000);
    mkdirSync(runLayout(layout, id).folder, { recursive: true });
    const record = { id, audit: [], status: "succeeded", created_at: new Date(0), finished_at: new Date(0) };
    writeFileSync(runLayout(layout, id).record, JSON.stringify({ ...record, result: "x".repeat(4 * 1024 * 1024) }));
  }
  for (let round = 0; round < 3; round++) assert.equal((await page()).runs.length, 6);
});
