import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { appendFileSync, existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { acquireLock, readLock } from "../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { pollMs } from "../../lib/server/routes/shapes.ts";
import { runFolderExists, TestServer } from "../helpers/server.ts";
import { until } from "../helpers/temporary.ts";

async function setUp(t: Parameters<typeof TestServer.start>[0]) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const start = async (kind = "build", body: unknown = {}) => {
    const reply = await server.call("POST", `${bucket.path}/${kind}`, { body });
    assert.equal(reply.status, 202);
    return reply.body.run_id as string;
  };
  return { server, bucket, start };
}

test("CP-023 CP-024 CP-025 CP-140 CP-209 CP-257 a start answers run_id alone, and the run is there and running", async (t) => {
  const { server, bucket } = await setUp(t);
  server.hold();
  const { status, body } = await server.call("POST", `${bucket.path}/build`);
  assert.deepEqual([status, Object.keys(body)], [202, ["run_id"]]);
  assert.ok(runFolderExists(bucket.folder, body.run_id));
  const run = (await server.call("GET", `${bucket.path}/runs/${body.run_id}`)).body;
  assert.deepEqual(
    [run.kind, run.status, run.origin, run.params, run.bucket_id, run.finished_at, run.error],
    ["build", "running", "server", { purge_job_kv: false }, bucket.id, null, null],
  );
  const shown = (await server.call("GET", bucket.path)).body;
  assert.deepEqual([shown.active_run, shown.last_run.status], [body.run_id, "running"]);
});

test("CP-141 CP-142 CP-144 CP-210 CP-264 CP-503 an ended run shows times, end state and who started it", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const run = await server.ended(bucket.path, await start());
  assert.equal(run.status, "succeeded", run.error);
  assert.ok(run.duration_ms >= 0 && run.log_size_bytes > 0);
  assert.ok(Date.parse(run.finished_at) >= Date.parse(run.started_at));
  const [{ action, actor, request_id }] = run.audit;
  assert.deepEqual([action, actor], ["start", { name: "root", address: "127.0.0.1", via: "bearer" }]);
  assert.ok(server.lines.some((line) => line.includes(`/build 202`) && line.includes(request_id)));
  const shown = (await server.call("GET", bucket.path)).body;
  assert.deepEqual([shown.active_run, shown.last_run.id, shown.last_run.status], [null, run.id, "succeeded"]);
});

test("CP-258 deploy takes jobs, build and force, and keeps them as the run's params", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const first = await server.ended(bucket.path, await start("deploy"));
  const defaults = { adopt: false, build: false, dry_run: false, with_hooks: false, force: false, sync_only: false };
  assert.deepEqual([first.kind, first.params], ["deploy", defaults]);
  const body = { jobs: ["web"], build: true, force: true };
  const second = await server.ended(bucket.path, await start("deploy", body));
  assert.deepEqual(second.params, { ...defaults, ...body });
});

for (const body of [{ jobs: "web" }, { jobs: [] }, { jobs: [""] }, { build: "yes" }, { dryrun: true }])
  test(`a deploy with ${JSON.stringify(body)} is refused and starts nothing`, async (t) => {
    const { server, bucket } = await setUp(t);
    const reply = await server.call("POST", `${bucket.path}/deploy`, { body });
    assert.deepEqual([reply.status, reply.body.error], [400, "invalid_request"]);
    assert.deepEqual((await server.call("GET", `${bucket.path}/runs`)).body.items, []);
  });

test("CP-112 CP-113 CP-114 CP-115 a second start of any kind is 409, names the run in the way and changes nothing", async (t) => {
  const { server, bucket, start } = await setUp(t);
  server.hold();
  const active = await start();
  const before = readdirSync(path.join(bucket.folder, "logs", "runs"));
  for (const kind of ["build", "deploy", "push"]) {
    const reply = await server.call("POST", `${bucket.path}/${kind}`);
    assert.deepEqual([reply.status, reply.body.error, reply.body.run_id], [409, "bucket_busy", active]);
    assert.equal(reply.body.message, "bucket busy: another ops operation is in progress");
    assert.ok(Date.parse(reply.body.details.since) > 0);
  }
  assert.deepEqual(readdirSync(path.join(bucket.folder, "logs", "runs")), before);
});

test("CP-112 of simultaneous starts exactly one is accepted", async (t) => {
  const { server, bucket } = await setUp(t);
  server.hold();
  const starts = Array.from({ length: 8 }, () => server.call("POST", `${bucket.path}/build`));
  const statuses = (await Promise.all(starts)).map(({ status }) => status).sort();
  assert.deepEqual(statuses, [202, ...Array(7).fill(409)]);
});

test("a start while a command holds the lock is 409 and tells who, and works once the lock is free", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const lock = await acquireLock(layoutOf(bucket.folder), uuidV7(), "build");
  const reply = await server.call("POST", `${bucket.path}/build`);
  assert.deepEqual([reply.status, reply.body.error, reply.body.details.command], [409, "bucket_busy", "build"]);
  await lock.release();
  await start();
});

test("CP-116 buckets do not wait for each other", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const other = await server.createBucket();
  server.hold();
  const first = await start();
  const second = (await server.call("POST", `${other.path}/build`)).body.run_id;
  for (const [at, id] of [
    [bucket.path, first],
    [other.path, second],
  ])
    assert.equal((await server.call("GET", `${at}/runs/${id}`)).body.status, "running");
});

test("CP-146 CP-263 runs are listed newest first, in pages, by status and kind, also after a restart", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const ids: string[] = [];
  for (const kind of ["build", "deploy", "build"]) {
    ids.unshift(await start(kind));
    await server.ended(bucket.path, ids[0] as string);
  }
  await server.stop();
  await server.open();
  const list = async (query: string) => (await server.call("GET", `${bucket.path}/runs?${query}`)).body;
  const idsOf = (page: { items: { id: string }[] }) => page.items.map(({ id }) => id);
  const first = await list("limit=2");
  assert.deepEqual(idsOf(first), ids.slice(0, 2));
  const rest = await list(`limit=2&cursor=${first.next_cursor}`);
  assert.deepEqual([idsOf(rest), rest.next_cursor], [ids.slice(2), null]);
  assert.deepEqual(idsOf(await list("kind=deploy")), [ids[1]]);
  assert.deepEqual(idsOf(await list("status=cancelled")), []);
  for (const query of ["status=done", "kind=snap", "cursor=x", "limit=501"])
    assert.equal((await server.call("GET", `${bucket.path}/runs?${query}`)).status, 400, query);
});

test("CP-026 CP-145 CP-147 CP-265 the log pieces add up to activity.log, also after a restart", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const id = await start();
  await server.ended(bucket.path, id);
  const file = path.join(bucket.folder, "logs", "runs", id, "activity.log");
  appendFileSync(file, "zwölf € 🙂\n");
  await server.stop();
  await server.open();
  const whole = readFileSync(file);
  const logs = (query: string) => server.call("GET", `${bucket.path}/runs/${id}/logs?${query}`);
  const { body } = await logs("");
  assert.deepEqual([body.data, body.next, body.done], [whole.toString(), whole.length, true]);
  const tail = (await logs(`after=${whole.length - 5}`)).body;
  assert.deepEqual([tail.after, tail.data], [whole.length - 5, "🙂\n"]);
  assert.equal((await logs(`after=${whole.length + 1}`)).status, 400);
  for (const query of ["after=-1", "after=x", "timeout=soon"]) assert.equal((await logs(query)).status, 400, query);
});

test("CP-266 CP-267 CP-332 a log poll waits for text no longer than told, and answers as soon as there is some", async (t) => {
  const { server, bucket, start } = await setUp(t);
  server.hold();
  const id = await start();
  const logs = (query: string) => server.call("GET", `${bucket.path}/runs/${id}/logs?${query}`);
  for (const timeout of [0, -5]) {
    const { body } = await logs(`timeout=${timeout}`);
    assert.deepEqual([body.data, body.done, body.status], ["", false, "running"]);
  }
  assert.deepEqual([300, 60, 59].map(pollMs), [60_000, 60_000, 59_000]);
  const waiting = logs("timeout=300");
  server.release();
  assert.notEqual((await waiting).body.data, "");
});

test("CP-212 CP-213 CP-268 a cancel is accepted with the run, which ends cancelled; twice is the same", async (t) => {
  const { server, bucket, start } = await setUp(t);
  server.hold();
  const id = await start();
  const cancel = () => server.call("POST", `${bucket.path}/runs/${id}/cancel`);
  // The run may end before the second of them is looked at: then that one comes too late.
  const [first, second] = (await Promise.all([cancel(), cancel()])).sort((a, b) => a.status - b.status);
  assert.deepEqual([first?.status, first?.body.id], [202, id]);
  assert.ok(second?.status === 202 || second?.body.error === "run_not_active", JSON.stringify(second));
  const run = await server.ended(bucket.path, id);
  assert.deepEqual([run.status, run.audit.map(({ action }: { action: string }) => action)], ["cancelled", ["start", "cancel"]]);
  const late = await cancel();
  assert.deepEqual([late.status, late.body.error], [409, "run_not_active"]);
  assert.equal((await server.call("GET", `${bucket.path}/runs/${id}`)).body.status, "cancelled");
  await start();
});

test("an unknown run is 404 on every path below it, whatever its name", async (t) => {
  const { server, bucket } = await setUp(t);
  for (const id of [randomUUID(), "x", "..%2f.."])
    for (const [method, below] of [
      ["GET", ""],
      ["GET", "/logs"],
      ["POST", "/cancel"],
    ] as const) {
      const { status, body } = await server.call(method, `${bucket.path}/runs/${id}${below}`);
      assert.equal(status, 404);
      assert.match(body.error, /^(run_)?not_found$/);
    }
});

test("CP-216 CP-217 stopping the server answers long-polls at once and fails active runs with that reason", async (t) => {
  const { server, bucket, start } = await setUp(t);
  server.hold();
  const id = await start();
  const poll = server.call("GET", `${bucket.path}/runs/${id}/logs?timeout=60`);
  await until("the run's process", async () => {
    const lock = await readLock(layoutOf(bucket.folder));
    return typeof lock === "object" && lock.holders.length === 2;
  });
  await server.stop();
  assert.equal((await poll).status, 200);
  assert.equal(existsSync(path.join(bucket.folder, "data", "ops.lock")), false);
  await server.open();
  const run = (await server.call("GET", `${bucket.path}/runs/${id}`)).body;
  assert.deepEqual([run.status, run.error], ["failed", "server restarted before run completed"]);
});
