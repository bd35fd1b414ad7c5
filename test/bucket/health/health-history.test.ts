import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import {
  healthChanges,
  healthRecords,
  noteHealth,
  notWellNow,
  type Observation,
} from "../../../lib/bucket/health/health-history.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { seeded } from "../../helpers/random.ts";
import { makeBucket, makeWorkspace } from "../../helpers/workspace.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const BEGIN = Date.parse("2026-01-01T00:00Z");
const WORKER = "10.0.0.1";

const health = (state: string, reason = ""): Observation => ({ job: "web", worker: WORKER, aspect: "health", state, reason });

async function built(t: TestContext) {
  const bucket = await makeBucket(t, { workers: [WORKER, "10.0.0.2"], jobs: { web: { selectors: ["worker"] } } });
  await build(bucket.context(), {});
  return bucket;
}

test("CP-980 a change is kept with time, reason and run; what is found again as it was is not", async (t) => {
  const { db } = await built(t);
  noteHealth(db, "run 1", [health("healthy")], BEGIN);
  noteHealth(db, "run 2", [health("healthy")], BEGIN + HOUR_MS);
  noteHealth(db, "run 3", [health("unhealthy", "no answer")], BEGIN + 2 * HOUR_MS);
  noteHealth(db, "run 4", [health("unhealthy", "still none")], BEGIN + 3 * HOUR_MS);
  const { items } = healthChanges(db, {}, { before: Number.MAX_SAFE_INTEGER, limit: 10 });
  assert.deepEqual(
    items.map(({ at, state, reason, run_id }) => [at, state, reason, run_id]),
    [
      [new Date(BEGIN + 2 * HOUR_MS).toISOString(), "unhealthy", "no answer", "run 3"],
      [new Date(BEGIN).toISOString(), "healthy", "", "run 1"],
    ],
  );
  assert.deepEqual(
    notWellNow(db).map(({ job, worker, state }) => [job, worker, state]),
    [["web", WORKER, "unhealthy"]],
  );
});

test("CP-981 a record tells since when, how often, and the share of the known time in the good state", async (t) => {
  const { db } = await built(t);
  const states = ["healthy", "unhealthy", "healthy", "unreachable"];
  for (const [index, state] of states.entries()) noteHealth(db, `run ${index}`, [health(state)], BEGIN + index * HOUR_MS);
  const [record] = healthRecords(db, { job: "web" }, BEGIN + 10 * HOUR_MS);
  assert.deepEqual(
    [record?.state, record?.at, record?.changes, record?.known_since, record?.good_percent],
    ["unreachable", new Date(BEGIN + 3 * HOUR_MS).toISOString(), 3, new Date(BEGIN).toISOString(), 20],
  );
});

test("CP-981 after 90 days changes go, but the state at the beginning and now stays known", async (t) => {
  const { db } = await built(t);
  noteHealth(db, "old", [health("healthy")], BEGIN);
  noteHealth(db, "older trouble", [health("unhealthy")], BEGIN + DAY_MS);
  noteHealth(db, "well again", [health("healthy")], BEGIN + 2 * DAY_MS);
  const now = BEGIN + 100 * DAY_MS;
  noteHealth(db, "new", [health("unhealthy")], now - 5 * DAY_MS);
  const [record] = healthRecords(db, {}, now);
  assert.deepEqual([record?.good_percent, record?.changes], [94.4, 1]);
  assert.equal(record?.known_since, new Date(now - 90 * DAY_MS).toISOString());
  const { items } = healthChanges(db, {}, { before: Number.MAX_SAFE_INTEGER, limit: 10 });
  assert.deepEqual(
    items.map(({ run_id }) => run_id),
    ["new", "well again"],
  );
});

test("CP-981 the share of good time is that of a walk over the hours, whatever is found when", async (t) => {
  const { db } = await built(t);
  const random = seeded();
  const hours: boolean[] = [];
  let state = "healthy";
  for (let hour = 0; hour < 500; hour++) {
    if (random() < 0.2) state = ["healthy", "unhealthy", "unreachable"][Math.floor(random() * 3)] as string;
    noteHealth(db, `run ${hour}`, [health(state)], BEGIN + hour * HOUR_MS);
    hours.push(state === "healthy");
  }
  const [record] = healthRecords(db, {}, BEGIN + 500 * HOUR_MS);
  assert.equal(record?.good_percent, Math.round((hours.filter(Boolean).length / 500) * 1_000) / 10);
});

test("CP-982 a bucket that is calm does not grow; what leaves the catalog leaves the history", async (t) => {
  const bucket = await built(t);
  const { db } = bucket;
  const all = (state: string): Observation[] => [
    { job: "", worker: WORKER, aspect: "reach", state: "reachable", reason: "" },
    { job: "", worker: "10.0.0.2", aspect: "reach", state: "reachable", reason: "" },
    health(state),
    { ...health(state), worker: "10.0.0.2" },
    { ...health(state), job: "gone" },
  ];
  for (let check = 0; check < 50; check++) noteHealth(db, `run ${check}`, all("healthy"), BEGIN + check * HOUR_MS);
  const count = () => db.get<{ rows: number }>("SELECT COUNT(*) AS rows FROM health_change")?.rows;
  assert.equal(count(), 4);
  makeWorkspace(bucket.dir, { workers: [WORKER], jobs: { web: { selectors: ["worker"] } } });
  await build(bucket.context(), {});
  db.run("DELETE FROM allocations WHERE worker_ip = '10.0.0.2'");
  db.run("DELETE FROM worker WHERE worker_ip = '10.0.0.2'");
  noteHealth(db, "last", [health("unhealthy")], BEGIN + 60 * HOUR_MS);
  assert.deepEqual(
    healthRecords(db).map(({ job, worker }) => [job, worker]),
    [
      ["", WORKER],
      ["web", WORKER],
    ],
  );
});

test("CP-982 10,000 calm allocations take less than 10 MB", async (t) => {
  const { db, layout } = await built(t);
  const places = Array.from({ length: 10_000 }, (_, index) => ({
    ...health("healthy"),
    worker: `10.1.${index >> 8}.${index & 255}`,
  }));
  using other = openDatabase(layout.database);
  other.transaction(() => {
    for (const { worker } of places)
      other.run(
        "INSERT INTO allocations (alloc_id, worker_ip, job, disabled, removed, deployment_seq, new_version) VALUES (?, ?, 'web', 0, 0, 0, '1')",
        ...[worker, worker],
      );
  });
  const bytes = () => Number(db.get<{ page_count: number }>("PRAGMA page_count")?.page_count) * 4_096;
  const before = bytes();
  noteHealth(db, "first", places, BEGIN);
  const once = bytes();
  assert.ok(once - before < 10_000_000, `${once - before} bytes`);
  for (const day of [1, 2, 30]) noteHealth(db, `run ${day}`, places, BEGIN + day * DAY_MS);
  assert.equal(bytes(), once);
  assert.equal(healthRecords(db).length, 10_000);
});
