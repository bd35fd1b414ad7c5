import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import type { RunKind } from "../../lib/run/protocol.ts";
import { createRecord, readRecord, settle } from "../../lib/run/record.ts";
import { compareWithLast, newestOfSchedules, saveEnd } from "../../lib/run/repeats.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

interface Run {
  kind?: RunKind;
  schedule?: string | null;
  due?: string;
  error?: string;
  result?: unknown;
}

/** Runs that end one after the other, as a server records them. */
function setUp(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  // The ids of one millisecond have no order.
  let now = Date.now();
  const begin = async ({ kind = "health_check", schedule = "check", due = "2026-01-01T00:00:00.000Z" }: Run = {}) => {
    const actor = { address: "here", via: "schedule", name: "schedule:check" } as const;
    const of = schedule === null ? {} : { schedule: { name: schedule, due } };
    const id = uuidV7(now++);
    return await createRecord(layout, { id, bucket_id: id, origin: "server", kind, params: {}, actor, requestId: null, ...of });
  };
  const end = async (run: Run = {}) => {
    const record = await begin(run);
    const { error, result = null } = run;
    const failure = error === undefined ? null : { message: error };
    settle(record, { exitCode: 0, signal: null, outcome: { ok: failure === null, error: failure, result } });
    await compareWithLast(layout, record);
    await saveEnd(layout, record);
    return record.id;
  };
  const isThere = (id: string) => existsSync(runLayout(layout, id).folder);
  const scheduleOf = async (id: string) => readRecord(layout, id)?.schedule;
  const repeats = async (id: string) => (await scheduleOf(id))?.repeats;
  return { layout, begin, end, isThere, scheduleOf, repeats };
}

test("of the runs of a schedule that end the same way the first and the last one stay, and the last one counts them", async (t) => {
  const { end, isThere, scheduleOf, repeats } = setUp(t);
  const ids: string[] = [];
  for (let round = 0; round < 4; round++) ids.push(await end());
  assert.deepEqual(ids.map(isThere), [true, false, false, true]);
  const [first = "", , , last = ""] = ids;
  assert.deepEqual([await repeats(first), await repeats(last)], [0, 3]);
  assert.equal((await scheduleOf(last))?.since, (await scheduleOf(first))?.since);
  const other = await end({ error: "broken" });
  assert.deepEqual([await repeats(other), isThere(last)], [0, true]);
  const again = await end({ error: "broken" });
  assert.deepEqual([await repeats(again), isThere(other)], [1, true], "the first that ended so stays");
});

test("runs of other schedules, and those of people, are no repetitions and stand in the way of none", async (t) => {
  const { end, isThere, repeats } = setUp(t);
  const first = await end();
  const other = await end({ schedule: "other" });
  const person = await end({ schedule: null });
  const second = await end();
  assert.deepEqual([await repeats(other), await repeats(second)], [0, 1]);
  await end();
  assert.deepEqual([first, other, person, second].map(isThere), [true, true, true, false]);
});

test("the same way is: status, cause, and what was found where; not how long it took, nor what was said", async (t) => {
  const { end, repeats } = setUp(t);
  const result = { jobs: [{ job: "web", outcome: "ok", duration_ms: 5, allocations: [{ worker: "w1", outcome: "ok" }] }] };
  const slower = structuredClone(result);
  Object.assign(slower.jobs[0] ?? {}, { duration_ms: 6, note: "slow" });
  const sick = structuredClone(result);
  Object.assign(sick.jobs[0]?.allocations[0] ?? {}, { outcome: "failed" });
  await end({ result });
  assert.equal(await repeats(await end({ result: slower })), 1);
  assert.equal(await repeats(await end({ result: sick })), 0);
  assert.equal(await repeats(await end({ result: sick, error: 'no answer from "w1" after 5 s' })), 0);
  assert.equal(await repeats(await end({ result: sick, error: 'no answer from "w2" after 7 s' })), 1);
  assert.equal(await repeats(await end({ result: [1], error: 'no answer from "w2" after 7 s' })), 0);
});

test("a deploy repeats none", async (t) => {
  const { end, isThere, scheduleOf } = setUp(t);
  const ids = [await end({ kind: "deploy" }), await end({ kind: "deploy" }), await end({ kind: "deploy" })];
  assert.deepEqual(ids.map(isThere), [true, true, true]);
  const of = await scheduleOf(ids[2] ?? "");
  assert.deepEqual([of?.repeats, of?.sum], [0, null]);
});

test("of each schedule the last due time is known, and the run that it began", async (t) => {
  const { layout, begin } = setUp(t);
  const late = await begin({ due: "2026-01-01T02:00:00.000Z" });
  await begin({ due: "2026-01-01T01:00:00.000Z" });
  await begin({ schedule: null });
  const other = await begin({ schedule: "other", due: "2026-01-01T03:00:00.000Z" });
  assert.deepEqual(
    [...(await newestOfSchedules(layout))],
    [
      ["check", { due: Date.UTC(2026, 0, 1, 2), runId: late.id }],
      ["other", { due: Date.UTC(2026, 0, 1, 3), runId: other.id }],
    ],
  );
});

test("each field that tells what was found where makes another way to end, at any depth; no other one does", async (t) => {
  const { end, repeats } = setUp(t);
  const telling = "jobs job workers worker allocations outcome state action exit_code files path waves removed reconciled";
  for (const field of telling.split(" ")) {
    await end({ result: { [field]: [{ [field]: 1 }] } });
    assert.equal(await repeats(await end({ result: { [field]: [{ [field]: 2 }] } })), 0, field);
    assert.equal(await repeats(await end({ result: { [field]: [{ [field]: 2, said: 3 }], took: 4 } })), 1, field);
  }
});
