import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import type { Answer } from "../../../lib/http/message.ts";
import { HEALTH_ROUTES, SCHEDULE_ROUTES } from "../../../lib/server/watch/routes.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

/** Asks the routes about a bucket, as an admin. */
function asker(t: TestContext) {
  const [root, id] = [temporaryFolder(t), uuidV7()];
  mkdirSync(path.join(root, id));
  writeFileSync(path.join(root, id, "bucket.json"), "{}");
  const identity = { name: "ada", role: "admin", ends: new AbortController().signal };
  const ask = async (address: string, call: Record<string, unknown>, services: object) => {
    const all = [...SCHEDULE_ROUTES, ...HEALTH_ROUTES];
    const found = all.find((one) => one.path === `/api/buckets/{bucket_id}/${address}`) ?? assert.fail(address);
    const handle = found.handle as unknown as (call: object, context: object) => Promise<Answer>;
    const params = { bucket_id: id, ...(call.params as object) };
    const answer = await handle({ ...call, params }, { root, labels: "bucket.json", identity, ...services });
    assert.equal(answer.status, 200);
    return answer.body === undefined ? undefined : JSON.parse(String(answer.body));
  };
  return { ask, id };
}

test("each route of schedules and of health is there; only what changes a schedule needs more than the role read", () => {
  const shown = [...SCHEDULE_ROUTES, ...HEALTH_ROUTES].map(
    ({ method, path: place, role }) => `${method} ${place.slice("/api/buckets/{bucket_id}".length)} ${role}`,
  );
  assert.deepEqual(shown, [
    "GET /schedules read",
    ...["run", "pause", "resume"].map((what) => `POST /schedules/{schedule}/${what} deploy`),
    ...["GET /health read", "GET /health/changes read"],
  ]);
});

const KEPT = { last: { due: "x" }, paused: { at: "y", by: "ada" } };
const base = { kind: "gc", parameters: { a: 1 }, jitterMs: 2_000, waitMs: 300_000, catchUp: true };
const LISTED = [
  { schedule: { ...base, name: "often", rhythm: { everyMs: 900_000 } }, state: KEPT, next: "z" },
  {
    schedule: { ...base, name: "nightly", rhythm: { cron: "0 3 * * *", timezone: "UTC" } },
    state: { last: null, paused: null },
    next: null,
  },
];
const shownBase = { kind: "gc", parameters: { a: 1 }, jitter_seconds: 2, wait_seconds: 300, catch_up: true };
const OFTEN = { name: "often", ...shownBase, every_seconds: 900, cron: null, timezone: null, next: "z", ...KEPT };
const NIGHTLY = {
  ...{ name: "nightly", ...shownBase, every_seconds: null, cron: "0 3 * * *", timezone: "UTC" },
  ...{ next: null, last: null, paused: null },
};

test("CP-967 schedules are shown with their rhythm, in seconds or as cron, and with what is kept of them", async (t) => {
  const { ask } = asker(t);
  assert.deepEqual(await ask("schedules", {}, { scheduler: { list: async () => LISTED } }), { items: [OFTEN, NIGHTLY] });
});

test("CP-970 a schedule is paused by whoever asks, resumed by anybody, and shown as it is then", async (t) => {
  const { ask, id } = asker(t);
  const paused: unknown[] = [];
  const scheduler = {
    list: async () => LISTED,
    pause: async (bucket: { id: string }, ...more: unknown[]) => paused.push([bucket.id, ...more]),
  };
  const answers = [];
  for (const what of ["pause", "resume"])
    answers.push(await ask(`schedules/{schedule}/${what}`, { params: { schedule: "Nightly" }, body: {} }, { scheduler }));
  assert.deepEqual(answers, [NIGHTLY, NIGHTLY]);
  assert.deepEqual(paused, [
    [id, "Nightly", "ada"],
    [id, "Nightly", null],
  ]);
});

test("CP-984 health and its changes are read from where the page before has ended", async (t) => {
  const { ask } = asker(t);
  const asked: unknown[] = [];
  const beside = {
    async answer(name: string, layout: { root: string }, of: object) {
      assert.ok(layout.root);
      asked.push([name, of]);
      return { status: 200, headers: {} };
    },
  };
  const wanted = { job: "web", worker: "a" };
  for (const address of ["health", "health/changes"])
    for (const cursor of [undefined, "7"]) await ask(address, { query: { limit: 3, cursor, ...wanted } }, { beside });
  assert.deepEqual(asked, [
    ["health", { ...wanted, limit: 3, offset: 0 }],
    ["health", { ...wanted, limit: 3, offset: 7 }],
    ["healthChanges", { ...wanted, limit: 3, before: Number.MAX_SAFE_INTEGER }],
    ["healthChanges", { ...wanted, limit: 3, before: 7 }],
  ]);
});
