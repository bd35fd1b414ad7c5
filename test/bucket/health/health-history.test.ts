import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { beginChange } from "../../../lib/bucket/catalog/promotions.ts";
import {
  ASPECTS,
  healthChanges,
  healthChangesAfter,
  healthRecords,
  noteHealth,
  noteInSync,
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

test("CP-980 the history is read by job and worker, in pages, and onwards from a change", async (t) => {
  const { db } = await built(t);
  const places: Observation[] = [
    { job: "", worker: WORKER, aspect: "reach", state: "reachable", reason: "" },
    { job: "", worker: WORKER, aspect: "load", state: "high", reason: "load 9" },
    health("unhealthy", "x".repeat(500)),
    { ...health("unreachable", `${"x".repeat(499)}\u{1f600}`), worker: "10.0.0.2" },
    { job: "web", worker: "10.0.0.2", aspect: "files", state: "in_sync", reason: "" },
  ];
  for (const [index, place] of places.entries()) noteHealth(db, `run ${index}`, [place], BEGIN + index * 1_000);
  const named = (wanted: object) => healthRecords(db, wanted).map(({ job, worker, aspect }) => `${job}@${worker} ${aspect}`);
  const [reach, load, first, files, second] = [
    ...[`@${WORKER} reach`, `@${WORKER} load`, `web@${WORKER} health`, "web@10.0.0.2 files", "web@10.0.0.2 health"],
  ];
  assert.deepEqual(named({}), [load, reach, first, files, second]);
  assert.deepEqual(
    [named({ job: "web" }), named({ worker: "10.0.0.2" }), named({ job: "", worker: "10.0.0.2" })],
    [[first, files, second], [files, second], []],
  );
  const page = (before: number, limit: number, wanted = {}) => {
    const { items, next } = healthChanges(db, wanted, { before, limit });
    return [items.map(({ run_id }) => Number(run_id.slice(4))), next];
  };
  assert.deepEqual(
    [page(99, 5), page(99, 2), page(4, 2), page(2, 2)],
    [
      [[4, 3, 2, 1, 0], null],
      [[4, 3], 4],
      [[2, 1], 2],
      [[0], null],
    ],
  );
  assert.deepEqual(
    [page(99, 9, { job: "web" }), page(99, 9, { worker: WORKER })],
    [
      [[4, 3, 2], null],
      [[2, 1, 0], null],
    ],
  );
  const after = (id: number) => {
    const { last, changes } = healthChangesAfter(db, id);
    return [last, changes.map(({ run_id }) => Number(run_id.slice(4)))];
  };
  assert.deepEqual(
    [after(0), after(3), after(5)],
    [
      [5, [0, 1, 2, 3, 4]],
      [5, [3, 4]],
      [5, []],
    ],
  );
  const lost = healthChanges(db, {}, { before: 5, limit: 2 }).items.map(({ reason }) => reason);
  assert.deepEqual(lost, [`${"x".repeat(499)}\ufffd`, "x".repeat(500)], "500 characters are kept");
  assert.deepEqual(
    notWellNow(db).map(({ aspect, state }) => `${aspect} ${state}`),
    ["load high", "health unhealthy", "health unreachable"],
  );
  assert.deepEqual(ASPECTS, {
    health: ["healthy", "unhealthy", "unreachable"],
    files: ["in_sync", "drifted"],
    reach: ["reachable", "unreachable"],
    load: ["normal", "high"],
  });
});

test("files that a deploy has put right are in sync again, and those of a deploy that did not end count as no drift", async (t) => {
  const { db } = await built(t);
  const files = (worker: string, state: string): Observation => ({ job: "web", worker, aspect: "files", state, reason: "" });
  assert.deepEqual(healthChangesAfter(db, 0), { last: 0, changes: [] });
  noteHealth(db, "drift", [files(WORKER, "drifted"), files("10.0.0.2", "drifted")], BEGIN);
  db.transaction(() => noteInSync(db, "deploy", "web", [WORKER, "10.0.0.9"]));
  const now = () => healthRecords(db, {}).map(({ worker, state, run_id }) => [worker, state, run_id]);
  assert.deepEqual(now(), [
    [WORKER, "in_sync", "deploy"],
    ["10.0.0.2", "drifted", "drift"],
  ]);
  db.transaction(() => noteInSync(db, "again", "web", [WORKER]));
  assert.equal(healthChangesAfter(db, 0).last, 3, "what is in sync already is no change");
  const id = db.get<{ id: string }>("SELECT alloc_id AS id FROM allocations WHERE worker_ip = '10.0.0.2'")?.id ?? "";
  assert.equal(notWellNow(db).length, 1);
  beginChange(db, "web", [id]);
  assert.deepEqual([notWellNow(db), now()], [[], [[WORKER, "in_sync", "deploy"]]]);
});

test("CP-981 what was found only now is wholly in its state, and 90 days are the most that is known", async (t) => {
  const { db } = await built(t);
  noteHealth(db, "r", [health("healthy"), { ...health("unhealthy"), worker: "10.0.0.2" }], BEGIN);
  const at = (now: number) => healthRecords(db, {}, now).map((one) => [one.good_percent, one.changes, one.known_since]);
  const begin = new Date(BEGIN).toISOString();
  assert.deepEqual(at(BEGIN), [
    [100, 0, begin],
    [0, 0, begin],
  ]);
  assert.deepEqual(at(BEGIN + 90 * DAY_MS)[0], [100, 0, begin]);
  assert.deepEqual(at(BEGIN + 91 * DAY_MS)[0], [100, 0, new Date(BEGIN + DAY_MS).toISOString()]);
});
