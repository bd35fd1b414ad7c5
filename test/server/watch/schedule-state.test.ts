import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { readStates, type ScheduleState, writeStates } from "../../../lib/server/watch/schedule-state.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const AT = "2026-11-26T10:00:00.000Z";
const STATE: ScheduleState = {
  rhythm: "[]",
  decided: AT,
  last: { due: AT, outcome: "skipped", reason: "busy", run_id: null, status: "failed" },
  paused: { at: AT, by: "ada" },
};

test("what is kept of schedules is read as it was written; a file that cannot be understood counts as none", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  assert.deepEqual(readStates(layout), new Map());
  mkdirSync(layout.internal, { recursive: true });
  const states = new Map([
    ["nightly", STATE],
    ["never", { ...STATE, last: null, paused: null }],
  ]);
  await writeStates(layout, states);
  assert.deepEqual(readStates(layout), states);
  assert.equal(readFileSync(layout.scheduleStates, "utf8"), `${JSON.stringify(Object.fromEntries(states), null, 2)}\n`);
  const { rhythm: _, ...without } = STATE;
  const wrong = [
    without,
    { ...STATE, decided: 1 },
    { ...STATE, paused: { at: AT } },
    { ...STATE, last: { ...STATE.last, outcome: "x" } },
  ];
  for (const text of ["{", "[]", "null", ...wrong.map((one) => JSON.stringify({ nightly: one }))]) {
    writeFileSync(layout.scheduleStates, text);
    assert.deepEqual(readStates(layout), new Map(), text);
  }
});

test("no bucket is looked for below a file", (t) => {
  const file = path.join(temporaryFolder(t), "file");
  writeFileSync(file, "");
  assert.deepEqual(readStates(layoutOf(file)), new Map());
  const long = layoutOf(path.join(file, "..", "x".repeat(300)));
  assert.throws(() => readStates(long), { code: "ENAMETOOLONG" }, "what else is wrong is told");
});

test("what a killed server left half-written goes with the next write, and nothing else does", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(layout.internal, { recursive: true });
  const others = [".schedules.json.0a1b.tmp.old", ".schedules.json.xyz.tmp", "a.schedules.json.0a1b.tmp", ".schedules.json..tmp"];
  for (const name of [".schedules.json.0a1b.tmp", ".schedules.json.f.tmp", ...others])
    writeFileSync(path.join(layout.internal, name), "{");
  await writeStates(layout, new Map());
  assert.deepEqual(readdirSync(layout.internal).toSorted(), [...others, "schedules.json"].toSorted());
  assert.deepEqual(readStates(layout), new Map());
});
