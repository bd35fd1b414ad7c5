import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { ops } from "../../../scripts/local-server.ts";
import { TestServer } from "../../helpers/server.ts";
import { until } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const HOUR_MS = 3_600_000;

const wallTime = (ms: number) => new Date(ms).toISOString().slice(0, 16);
const freezeOf = (fromMs: number, toMs: number, reason: string) => ({ from: wallTime(fromMs), to: wallTime(toMs), reason });
const store = (folder: string, value: object) => {
  using db = openDatabase(layoutOf(folder).database);
  db.run("UPDATE bucket SET schedules = ?", JSON.stringify(value));
};

async function frozenBucket(t: TestContext, more: object = {}) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const freeze = [freezeOf(Date.now() - HOUR_MS, Date.now() + HOUR_MS, "holidays")];
  store(bucket.folder, { freeze, ...more });
  const post = (path: string, body: object = {}, headers: Record<string, string> = {}) =>
    server.call("POST", `${bucket.path}/${path}`, { body, headers });
  return { server, bucket, post };
}

test("CP-972 in a freeze whatever changes workers is refused with the window and the reason; all else goes on", async (t) => {
  const { server, bucket, post } = await frozenBucket(t);
  const refused: [path: string, body?: object][] = [
    ["deploy"],
    ["source/rollback"],
    ["run_command", { command: "true" }],
    ["hooks", { hook: "x" }],
    ["snapshots/none/restore"],
  ];
  for (const [path, body] of refused) {
    const { status, body: answer } = await post(path, body);
    assert.deepEqual([status, answer.error, answer.details.reason], [409, "frozen", "holidays"], path);
    assert.match(answer.message, /the bucket is frozen until .*Z: holidays; in an emergency an admin gives --break-glass$/);
  }
  for (const [path, body] of [
    ["deploy", { dry_run: true }],
    ["health_check", {}],
    ["snapshots", {}],
    ["build", {}],
  ] as const) {
    const { status, body: answer } = await post(path, body);
    assert.equal(status, 202, `${path}: ${answer.message}`);
    await server.ended(bucket.path, answer.run_id);
  }
});

test("CP-973 an admin goes past a freeze with Ops-Break-Glass, and the run says why", async (t) => {
  const { server, bucket, post } = await frozenBucket(t);
  const { status, body } = await post("deploy", {}, { "Ops-Break-Glass": "The%20site%20is%20down" });
  assert.equal(status, 202);
  assert.equal((await server.ended(bucket.path, body.run_id)).break_glass, "The site is down");
});

test("CP-972 a freeze ends by the clock, and one that repeats begins again", async (t) => {
  const { server, bucket, post } = await frozenBucket(t);
  server.aheadMs = 2 * HOUR_MS;
  const { body } = await post("deploy");
  assert.equal((await server.ended(bucket.path, body.run_id)).kind, "deploy");
  store(bucket.folder, { freeze: [{ cron: "0 * * * *", for: "59m", reason: "always" }] });
  server.aheadMs += HOUR_MS - ((Date.now() + server.aheadMs) % HOUR_MS) + 60_000;
  assert.equal((await post("deploy")).body.details.reason, "always");
  server.aheadMs += 58.5 * 60_000;
  assert.equal((await post("deploy", { dry_run: true })).status, 202);
});

test("CP-972 a schedule skips in a freeze what the freeze holds back", async (t) => {
  const schedule = { name: "deploys", every: "1h", kind: "deploy", deploy: true };
  const freeze = [freezeOf(Date.now() - HOUR_MS, Date.now() + 9 * HOUR_MS, "holidays")];
  const { server, bucket } = await frozenBucket(t, { freeze, schedules: [schedule] });
  const [one] = (await server.call("GET", `${bucket.path}/schedules`)).body.items;
  const due = Date.parse(one.next);
  const last = async () => (await server.call("GET", `${bucket.path}/schedules`)).body.items[0].last;
  await until("the server has seen the schedule", () => existsSync(layoutOf(bucket.folder).scheduleStates));
  server.aheadMs = due + 1_000 - Date.now();
  await until("the due time is decided", async () => (await last()) !== null);
  const { outcome, reason } = await last();
  assert.equal(outcome, "skipped");
  assert.match(reason, /frozen until .*: holidays/);
});

test("CP-972 CP-973 a schedule that is started by hand is judged by its parameters, and an admin goes past a freeze", async (t) => {
  const often = { every: "24h", kind: "deploy" };
  const schedules = [
    { ...often, name: "plan", parameters: { dry_run: true } },
    { ...often, name: "real", deploy: true },
  ];
  const { server, bucket, post } = await frozenBucket(t, { schedules });
  const { body } = await post("schedules/plan/run");
  await server.ended(bucket.path, body.run_id);
  assert.equal((await post("schedules/real/run")).body.error, "frozen");
  const past = await post("schedules/real/run", {}, { "Ops-Break-Glass": "urgent" });
  assert.equal((await server.ended(bucket.path, past.body.run_id)).break_glass, "urgent");
});

test("CP-974 summaries show the freezes that are on or begin within seven days", async (t) => {
  const now = Date.now();
  const freeze = [
    freezeOf(now + 6 * 24 * HOUR_MS, now + 7 * 24 * HOUR_MS, "soon"),
    freezeOf(now + 8 * 24 * HOUR_MS, now + 9 * 24 * HOUR_MS, "later"),
    freezeOf(now - 9 * HOUR_MS, now - 8 * HOUR_MS, "over"),
    freezeOf(now - HOUR_MS, now + HOUR_MS, "on"),
  ];
  const { server, bucket } = await frozenBucket(t, { freeze });
  const reasons = (all: { reason: string }[]) => all.map(({ reason }) => reason);
  assert.deepEqual(reasons((await server.call("GET", `${bucket.path}/summary`)).body.freezes), ["on", "soon"]);
  assert.deepEqual(reasons((await server.call("GET", "/api/summary")).body.items[0].freezes), ["on", "soon"]);
});

test("CP-975 a freeze holds for commands in the bucket's folder, which --break-glass goes past", async (t) => {
  const bucket = await makeBucket(t);
  store(bucket.dir, { freeze: [freezeOf(Date.now() - HOUR_MS, Date.now() + HOUR_MS, "holidays")] });
  const run = (...words: string[]) => ops(words, { cwd: bucket.dir });
  const { code, stderr } = await run("run_command", "true");
  assert.deepEqual([code, /the bucket is frozen until .*: holidays/.test(stderr)], [1, true], stderr);
  const plan = await run("deploy", "--dry-run");
  assert.equal(plan.code, 0);
  assert.match(plan.stderr + plan.stdout, /freeze: a deploy is refused until .*Z: holidays/);
  assert.match((await run("deploy", "--break-glass", "The site is down")).stderr, /BREAK GLASS/);
  assert.match((await run("status")).stdout, /freeze +on until .*: holidays/);
});
