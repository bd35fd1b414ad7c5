import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { createRecord, saveRecord, settle } from "../../lib/run/record.ts";
import { finishRun, pruneHistory, pruneRuns } from "../../lib/run/recovery.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const DAY_MS = 86_400_000;

function setUp(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  const run = async (ageDays = 0) => {
    const start = { id: uuidV7(Date.now() - ageDays * DAY_MS), bucket_id: "b", origin: "server" as const };
    const actor = { address: "127.0.0.1", via: "bearer" as const };
    const record = await createRecord(layout, { ...start, kind: "push", params: {}, actor, requestId: null });
    const error = { message: 'port "http" is taken' };
    settle(record, { exitCode: 1, signal: null, outcome: { ok: false, error, result: null } });
    return record;
  };
  return { layout, run };
}

test("CP-167 T-47 the outcome is noted in the run's ops.log and in the bucket's", async (t) => {
  const { layout, run } = setUp(t);
  const record = await run();
  const { opsLog } = runLayout(layout, record.id);
  writeFileSync(opsLog, "what hooks said\n");
  await finishRun(layout, record);
  const [said, ...lines] = readFileSync(opsLog, "utf8").split("\n");
  assert.equal(said, "what hooks said");
  const own = lines.join("\n");
  const [, fields = ""] = own.split("level=info ");
  assert.equal(
    fields.replace(/duration_ms=\d+/, "duration_ms=5"),
    `event=run_end run=${record.id} ops=push worker=- phase=push action=failed duration_ms=5 reason="port \\"http\\" is taken"\n`,
  );
  assert.equal(readFileSync(path.join(layout.logs, "ops.log"), "utf8"), own);
});

test("CP-148 CP-149 CP-150 the bucket's settings bound its history; without a readable ops.conf their defaults do", async (t) => {
  const { layout, run } = setUp(t);
  const folders = () => readdirSync(layout.runs).length;
  for (const age of [40, 3, 2, 1]) await run(age);
  await pruneHistory(layout);
  assert.equal(folders(), 4, "what runs stays, however old");
  writeFileSync(layout.opsConf, "log_run_retention_count = 1\nlog_run_retention_days = 2\n");
  const last = await run();
  await finishRun(layout, last);
  assert.equal(folders(), 5);
  for (const age of [39, 4]) await saveRecord(layout, await run(age));
  await finishRun(layout, last);
  assert.equal(folders(), 5, "what has ended goes by count and age");
  writeFileSync(layout.opsConf, "this is [no TOML");
  await saveRecord(layout, await run(31));
  await saveRecord(layout, await run(29));
  await pruneHistory(layout);
  assert.equal(folders(), 6, "30 days");
});

test("a log that cannot be written is told to the caller", async (t) => {
  const { layout, run } = setUp(t);
  const record = await run();
  mkdirSync(runLayout(layout, record.id).opsLog);
  await assert.rejects(finishRun(layout, record), { code: "failed", message: /^Cannot write .*ops\.log: EISDIR/ });
});

test("CP-148 CP-149 CP-150 T-48 pruning keeps the newest, what runs, and what the settings allow", async (t) => {
  const remaining = async (count: number, days: number, ages: number[], running: number[] = [], withoutRecord: number[] = []) => {
    const { layout, run } = setUp(t);
    for (const age of ages) {
      const record = await run(age);
      if (!running.includes(age)) await saveRecord(layout, record);
    }
    for (const age of withoutRecord) rmSync(runLayout(layout, (await run(age)).id).record);
    await pruneRuns(layout, count, days);
    const ids = readdirSync(layout.runs).sort();
    return ids.map((id) => Math.round((Date.now() - Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16)) / DAY_MS));
  };
  assert.deepEqual(await remaining(2, 0, [40, 30, 20, 10]), [20, 10]);
  assert.deepEqual(await remaining(0, 25, [40, 30, 20, 10]), [20, 10]);
  assert.deepEqual(await remaining(0, 0, [400, 30]), [400, 30]);
  assert.deepEqual(await remaining(1, 5, [40, 30]), [30]);
  assert.deepEqual(await remaining(1, 0, [40, 30, 20], [40]), [40, 20]);
  assert.deepEqual(await remaining(2, 0, [40, 10], [], [30, 20]), [20, 10]);
});

test("CP-149 a run is as old as its record or its folder says, whatever its id says", async (t) => {
  const { layout, run } = setUp(t);
  const aged: string[] = [];
  for (const field of ["created_at", "finished_at"] as const) {
    const record = await run(1);
    record[field] = new Date(Date.now() - 3 * DAY_MS).toISOString();
    await saveRecord(layout, record);
    aged.push(record.id);
  }
  const touched = await run(1);
  await saveRecord(layout, touched);
  const longAgo = (Date.now() - 3 * DAY_MS) / 1000;
  utimesSync(runLayout(layout, touched.id).folder, longAgo, longAgo);
  aged.push(touched.id);
  const { id } = await run(1);
  await run();
  await pruneRuns(layout, 0, 2);
  assert.deepEqual(
    readdirSync(layout.runs).filter((one) => aged.includes(one)),
    [],
  );
  assert.ok(readdirSync(layout.runs).includes(id));
});
