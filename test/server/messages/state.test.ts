import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import {
  type Incident,
  type Message,
  openAtAGlance,
  readMessageState,
  writeMessageState,
} from "../../../lib/server/messages/state.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const AT = "2026-11-26T10:00:00.000Z";

const incident = (id: string, event: Incident["event"], more: Partial<Incident> = {}): Incident => ({
  ...{ id, event, subject: `Subject ${id}`, reason: "why", job: null, run_id: "r", opened_at: AT, checks: 1, ends_at: null },
  ...{ over_at: null, places: ["a"], left: ["a"], told: [], settled: false, ...more },
});
const message = (id: string, state: Message["state"]): Message => ({
  ...{ id, at: AT, event: "drift", subject: "", target: "hook", incident: "i", state, attempts: 0, next_at: null },
  ...{ error: null, sent_at: null },
});

test("what is kept of messages is read as it was written, in a folder that nobody else may enter", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(path.dirname(layout.messages), { recursive: true });
  assert.equal(await readMessageState(layout), undefined);
  const state = { runs: ["r"], change: 7, incidents: [incident("i", "drift")], messages: [message("m", "failed")] };
  for (let round = 0; round < 2; round++) await writeMessageState(layout, JSON.stringify(state));
  assert.equal(statSync(layout.messages).mode & 0o777, 0o700);
  for (const name of ["state.json.1.tmp", "other"]) writeFileSync(path.join(layout.messages, name), "{");
  assert.deepEqual(await readMessageState(layout), state);
  assert.deepEqual(readdirSync(layout.messages), ["other", "state.json"], "what was left half-written is gone");
  const [one, sent] = [
    { ...state.incidents[0], checks: 0 },
    { ...state.messages[0], attempts: -1 },
  ];
  for (const change of [{ change: 0.5 }, { runs: [1] }, { incidents: [one] }, { messages: [sent] }]) {
    writeFileSync(path.join(layout.messages, "state.json"), JSON.stringify({ ...state, ...change }));
    assert.equal(await readMessageState(layout), undefined, JSON.stringify(change));
  }
  for (const damaged of ["{", "{}"]) {
    writeFileSync(path.join(layout.messages, "state.json"), damaged);
    assert.equal(await readMessageState(layout), undefined, damaged);
  }
});

test("nothing is kept of a bucket that is gone", async (t) => {
  const layout = layoutOf(path.join(temporaryFolder(t), "gone"));
  await assert.rejects(writeMessageState(layout, "{}"), { code: "ENOENT", syscall: "mkdir" });
  assert.ok(!existsSync(layout.root));
});

test("a summary has the open incidents about runs, newest first, and how many messages wait or were given up", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  assert.deepEqual(await openAtAGlance(layout), { incidents: [], messages: { waiting: 0, failed: 0 } });
  mkdirSync(layout.messages, { recursive: true });
  const about = ["run_failed", "snapshot_failed", "schedule_missed", "drift", "gate_failed"] as const;
  const incidents = about.map((event, at) => incident(`i${at}`, event));
  incidents.push(incident("over", "run_failed", { over_at: AT }));
  const messages = (["waiting", "failed", "failed", "sent", "sent", "sent"] as const).map((state) => message("m", state));
  await writeMessageState(layout, JSON.stringify({ runs: [], change: 0, incidents, messages }));
  const found = await openAtAGlance(layout);
  assert.deepEqual(
    found.incidents.map(({ id }) => id),
    ["i2", "i1", "i0"],
  );
  const { id, event, subject, reason, job, run_id, opened_at } = incidents[2] as Incident;
  assert.deepEqual(found.incidents[0], { id, event, subject, reason, job, run_id, opened_at });
  assert.deepEqual(found.messages, { waiting: 1, failed: 2 });
});
