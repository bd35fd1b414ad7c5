import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { addAudit, createRecord, readRecord, removedRuns, runIds, saveRecord, settle } from "../../lib/run/record.ts";
import { finishRun, notActive, pruneRuns, recoverBucket } from "../../lib/run/recovery.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const ACTOR = { address: "192.0.2.7", via: "bearer" } as const;
const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 5, 1);

function setUp(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(layout.data, { recursive: true });
  const begin = async (origin: "server" | "cli" = "server", more: object = {}) => {
    const start = { id: uuidV7(), bucket_id: "b", origin, kind: "build", params: {}, actor: ACTOR, requestId: null } as const;
    return await createRecord(layout, { ...start, ...more });
  };
  const end = (record: Awaited<ReturnType<typeof begin>>) => {
    settle(record, { exitCode: 0, signal: null, outcome: { ok: true, error: null, result: null } });
    return saveRecord(layout, record);
  };
  return { layout, begin, end };
}

test("why a run cannot be cancelled is told: it is unknown, has ended, is just ending, or is somebody's command", async (t) => {
  const { layout, begin, end } = setUp(t);
  const told = (id: string) => {
    const { code, message } = notActive(layout, id);
    return [code, message.replace(id, "RUN")];
  };
  assert.deepEqual(told(uuidV7()), ["run_not_found", 'run "RUN" does not exist']);
  const record = await begin();
  assert.deepEqual(told(record.id), ["run_not_active", "run RUN is just ending"]);
  await end(record);
  assert.deepEqual(told(record.id), ["run_not_active", "run RUN has already ended: succeeded"]);
  const command = await begin("cli");
  const here = "run RUN was started on the command line by";
  assert.deepEqual(told(command.id), ["run_not_active", `${here} 192.0.2.7; stop it there`]);
  await saveRecord(layout, { ...command, audit: [] });
  assert.deepEqual(told(command.id), ["run_not_active", `${here} an unknown process; stop it there`]);
});

test("what a run reported when its server was gone is its result, and does not make it succeed", async (t) => {
  const { layout, begin } = setUp(t);
  const outcome = JSON.stringify({ ok: true, error: null, result: { built: 3 } });
  const restarted = "server restarted before run completed";
  for (const [origin, leave, cancelled, wanted] of [
    ["server", (file: string) => writeFileSync(file, outcome), false, ["failed", restarted, { built: 3 }]],
    ["server", (file: string) => writeFileSync(file, outcome), true, ["cancelled", null, { built: 3 }]],
    ["cli", (file: string) => writeFileSync(file, '{"ok": tr'), false, ["failed", "command ended before it completed", null]],
    ["server", (file: string) => symlinkSync("/dev/null", file), false, ["failed", restarted, null]],
  ] as const) {
    const record = await begin(origin);
    if (cancelled) addAudit(record, "cancel", ACTOR, null);
    await saveRecord(layout, record);
    const file = runLayout(layout, record.id).outcome;
    leave(file);
    const [settled, ...others] = await recoverBucket(layout);
    assert.deepEqual([settled?.id, others], [record.id, []]);
    const { status, error, result, exit_code, signal } = readRecord(layout, record.id) ?? {};
    assert.deepEqual([status, error, result, exit_code, signal], [...wanted, null, null]);
    assert.ok(!existsSync(file));
  }
});

test("the end of a run without an error is noted with its time alone", async (t) => {
  const { layout, begin, end } = setUp(t);
  const record = await begin();
  record.created_at = "2026-01-01T00:00:00.000Z";
  await end(record);
  await finishRun(layout, { ...record, finished_at: "2026-01-01T00:00:02.500Z" });
  const own = readFileSync(runLayout(layout, record.id).opsLog, "utf8");
  assert.match(own, / ops=build worker=- phase=build action=succeeded duration_ms=2500\n$/);
  writeFileSync(layout.opsConf, 'log_format = "json"\n');
  await finishRun(layout, { ...record, finished_at: "2026-01-01T00:00:02.500Z" });
  const last = JSON.parse(readFileSync(runLayout(layout, record.id).opsLog, "utf8").split("\n").at(-2) ?? "");
  assert.deepEqual([last.event, last.action, last.duration_ms, "reason" in last], ["run_end", "succeeded", 2_500, false]);
});

test("CP-149 a run of just as many days stays; its key outlives it, and goes after an hour", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: NOW });
  const { layout, begin, end } = setUp(t);
  const aged = async (ms: number, more = {}) => {
    t.mock.timers.setTime(NOW - ms);
    const record = await begin("server", { id: uuidV7(NOW - ms), ...more });
    await end(record);
    t.mock.timers.setTime(NOW);
    return record.id;
  };
  const [over, just] = [await aged(2 * DAY_MS + 1), await aged(2 * DAY_MS)];
  const keyed = await aged(5, { start_key: { key: "k", sum: "s" } });
  const newest = await aged(0);
  await pruneRuns(layout, 0, 2);
  assert.deepEqual(await runIds(layout), [just, keyed, newest], over);
  await pruneRuns(layout, 1, 0);
  assert.deepEqual([await runIds(layout), await runIds(removedRuns(layout))], [[newest], [keyed]]);
  assert.deepEqual(readRecord(removedRuns(layout), keyed)?.start_key, { key: "k", sum: "s" });
  t.mock.timers.setTime(NOW + 3_600_000 - 5);
  await pruneRuns(layout, 0, 0);
  assert.deepEqual(await runIds(removedRuns(layout)), []);
});
