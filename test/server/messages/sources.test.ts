import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { test } from "node:test";
import { layoutOf, runLayout } from "../../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { createRecord, saveRecord } from "../../../lib/run/record.ts";
import { BucketSources } from "../../../lib/server/messages/sources.ts";
import { Readers } from "../../../lib/server/reading.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

test("CP-861 a run that a look finds between its folder and its record is told of once it has ended", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const readers = new Readers();
  t.after(() => readers.close());
  const approvals = { required: () => 0, standing: () => ({ now: Date.now() }) } as never;
  const sources = new BucketSources({ supervisor: { activeRun: () => null }, approvals, readers, now: Date.now });
  const bucket = { id: uuidV7(), layout } as never;
  const state = { runs: [], change: 0, incidents: [], messages: [] };
  const id = uuidV7();
  mkdirSync(runLayout(layout, id).folder, { recursive: true });
  const early = await sources.look(bucket, state);
  assert.deepEqual([early.ended, early.runs], [[], []]);
  const record = await createRecord(layout, {
    id,
    bucket_id: "",
    kind: "build",
    origin: "api",
    params: {},
    actor: null,
    requestId: null,
  } as never);
  const during = await sources.look(bucket, { ...state, runs: early.runs });
  assert.deepEqual([during.ended, during.runs, during.isActive], [[], [], true]);
  await saveRecord(layout, { ...record, status: "failed", finished_at: new Date().toISOString() });
  const late = await sources.look(bucket, { ...state, runs: during.runs });
  assert.deepEqual([late.ended.map((one) => one.id), late.runs, late.isActive], [[id], [id], false]);
  const last = await sources.look(bucket, { ...state, runs: late.runs });
  assert.deepEqual([last.ended, last.runs], [[], [id]]);
});
