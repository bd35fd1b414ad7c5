import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { readLock } from "../../lib/bucket/base/lock.ts";
import { component } from "../../lib/server/routes/shapes.ts";
import { ROUTES } from "../../lib/server/routes/table.ts";
import { START_HEADERS } from "../../lib/server/start.ts";
import { type CallOptions, TestServer, TOKEN } from "../helpers/server.ts";
import { archiveBytes } from "../helpers/sources.ts";
import { until } from "../helpers/temporary.ts";

const KEY = "key-of-a-start";

async function setUp(t: TestContext) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const layout = layoutOf(bucket.folder);
  const post = (target: string, headers: Record<string, string>, body: unknown = {}, options: CallOptions = {}) =>
    server.call("POST", `${bucket.path}/${target}`, { body, headers, ...options });
  const keyed = (target: string, body: unknown = {}, key = KEY) => post(target, { "Idempotency-Key": key }, body);
  const waiting = (key: string, seconds = 30, target = "build") =>
    post(target, { "Idempotency-Key": key, "Ops-Wait": String(seconds) });
  const runs = async () => (await server.call("GET", `${bucket.path}/runs`)).body.items;
  const queue = async () => (await server.call("GET", `${bucket.path}/queue`)).body.items;
  const inLine = (count: number) => until(`${count} in line`, async () => (await queue()).length === count);
  const cancel = (run: string) => server.call("POST", `${bucket.path}/runs/${run}/cancel`);
  const ended = (run: string) => server.ended(bucket.path, run);
  /** A run that is held at its start. */
  const occupy = async () => {
    server.hold();
    return (await post("build", {})).body.run_id as string;
  };
  return { server, bucket, layout, post, keyed, waiting, runs, queue, inLine, cancel, ended, occupy };
}

test("CP-440 every route that starts a run takes the headers", () => {
  const starting = ROUTES.filter(({ answer }) => answer.shape?.schema.$ref === component("RunStarted").schema.$ref);
  assert.ok(starting.length > 20);
  for (const { path, headers, failures } of starting) {
    assert.deepEqual({ ...headers, ...START_HEADERS }, headers, path);
    assert.ok(failures?.includes("idempotency_mismatch") && failures.includes("bucket_busy"), path);
  }
});

test("CP-440 a start with the key of a run answers that run, while it runs, after its end and after a restart", async (t) => {
  const { server, keyed, runs, ended } = await setUp(t);
  server.hold();
  const [{ status, body }, again] = [await keyed("build"), await keyed("build")];
  assert.deepEqual([status, Object.keys(body), again.status, again.body], [202, ["run_id"], 202, body]);
  server.release();
  await ended(body.run_id);
  assert.deepEqual((await keyed("build", { purge_job_kv: false })).body, body, "a default that is written out is the same");
  await server.stop();
  await server.open();
  assert.deepEqual((await keyed("build")).body, body);
  assert.equal((await runs()).length, 1);
  assert.notEqual((await keyed("build", {}, "another-key")).body.run_id, body.run_id);
});

test("CP-440 of twenty equal starts at the same moment one becomes a run, and all answer it", async (t) => {
  const { server, keyed, runs } = await setUp(t);
  server.hold();
  const replies = await Promise.all(Array.from({ length: 20 }, () => keyed("build")));
  assert.deepEqual([...new Set(replies.map(({ status }) => status))], [202]);
  assert.equal(new Set(replies.map(({ body }) => body.run_id)).size, 1);
  assert.equal((await runs()).length, 1);
});

test("CP-441 the key of a run with another request is 422 and names the run", async (t) => {
  const { server, keyed, post, runs, waiting, queue } = await setUp(t);
  server.hold();
  const { run_id } = (await keyed("build")).body;
  const key = { "Idempotency-Key": KEY };
  for (const other of [
    await keyed("build", { purge_job_kv: true }),
    await keyed("gc"),
    await waiting(KEY, 30, "gc"),
    await post("push", { ...key, "content-type": "application/x-tar" }, Buffer.from("anything")),
  ])
    assert.deepEqual([other.status, other.body.error, other.body.run_id], [422, "idempotency_mismatch", run_id]);
  assert.deepEqual(await queue(), [], "what is refused does not wait");
  const elsewhere = await server.createBucket();
  const { status, body } = await server.call("POST", `${elsewhere.path}/gc`, { body: {}, headers: key });
  assert.deepEqual([status, body.run_id === run_id], [202, false], "a key counts in its bucket");
  assert.equal((await runs()).length, 1);
});

test("CP-442 a key whose request was refused is not remembered", async (t) => {
  const { server, keyed, occupy, ended } = await setUp(t);
  const run = await occupy();
  assert.equal((await keyed("build")).status, 409);
  server.release();
  await ended(run);
  assert.equal((await keyed("deploy", { jobs: ["none"] })).body.error, "unknown_name");
  assert.equal((await keyed("deploy", { jobs: "none" })).body.error, "invalid_request");
  assert.equal((await keyed("build")).status, 202);
});

test("CP-440 CP-441 a push with the key of a run is compared by its bytes and its note, and kept once", async (t) => {
  const { server, bucket, post, ended } = await setUp(t);
  const archive = await archiveBytes({ "workspace/workers.json": "[]\n" });
  const push = (body: Buffer, note = "first") =>
    post("push", { "Idempotency-Key": KEY, "content-type": "application/x-tar", "Ops-Note": note }, body);
  const [first, second] = await Promise.all([push(archive), push(archive)]);
  assert.deepEqual([first.status, second.body], [202, first.body]);
  await ended(first.body.run_id);
  assert.deepEqual((await push(archive)).body, first.body);
  for (const other of [await push(Buffer.concat([archive, Buffer.alloc(512)])), await push(archive, "second")])
    assert.deepEqual([other.status, other.body.error], [422, "idempotency_mismatch"]);
  const { items } = (await server.call("GET", `${bucket.path}/source/revisions`)).body;
  assert.equal(items.length, 1);
  const rollback = { "Idempotency-Key": "key-of-a-rollback" };
  const back = await post("source/rollback", rollback);
  assert.equal(back.status, 202, back.text);
  assert.deepEqual((await post("source/rollback", rollback)).body, back.body);
});

test("CP-148 CP-444 a key is remembered for an hour, also without its run, in a file for the owner alone", async (t) => {
  const { layout, keyed, ended, runs } = await setUp(t);
  writeFileSync(layout.opsConf, "log_run_retention_count = 1\n");
  const { run_id } = (await keyed("build")).body;
  await ended(run_id);
  assert.equal(statSync(runLayout(layout, run_id).record).mode & 0o777, 0o600);
  const another = (await keyed("build", {}, "another-key")).body.run_id;
  await ended(another);
  await until("one run is left", async () => (await runs()).length === 1);
  assert.deepEqual(readdirSync(layout.runs), [another]);
  assert.deepEqual((await keyed("build")).body, { run_id });
  const { record } = runLayout({ ...layout, runs: layout.startKeys }, run_id);
  assert.equal(statSync(record).mode & 0o777, 0o600);
  const stored = JSON.parse(readFileSync(record, "utf8"));
  assert.equal(stored.start_key.key, KEY);
  const created_at = new Date(Date.now() - 3_600_001).toISOString();
  writeFileSync(record, JSON.stringify({ ...stored, created_at }, null, 2));
  const next = (await keyed("build")).body.run_id;
  assert.notEqual(next, run_id);
  await ended(next);
  await until("after the hour nothing is left of the key", () => !existsSync(record));
});

test("CP-441 CP-444 what is stored with a key tells nobody the secret in a command", async (t) => {
  const { server, keyed, ended } = await setUp(t);
  const start = () => keyed("run_command", { command: "echo 4711" });
  const { status, body } = await start();
  assert.deepEqual([status, (await start()).body], [202, body]);
  await ended(body.run_id);
  await server.stop();
  for (const name of ["audit", "audit.key"]) rmSync(path.join(server.root, name), { recursive: true });
  await server.open();
  assert.equal((await start()).status, 422, "the sum needs the key of the server");
});

test("CP-440 a start that is sent again after the keys of its bucket were changed answers its run", async (t) => {
  const { keyed, ended, runs } = await setUp(t);
  const start = () => keyed("run_command", { command: "true" });
  const { body } = await start();
  await ended(body.run_id);
  const rekeyed = await keyed("kv/rekey", {}, "key-of-a-rekey");
  assert.equal((await ended(rekeyed.body.run_id)).status, "succeeded");
  const again = await start();
  assert.deepEqual([again.status, again.body], [202, body], again.text);
  assert.equal((await runs()).length, 2);
});

test("CP-445 Ops-Wait goes with a key, both have their forms, and a client must sign in first", async (t) => {
  const { post, runs } = await setUp(t);
  for (const [headers, where] of [
    [{ "Ops-Wait": "5" }, "Ops-Wait"],
    [{ "Ops-Wait": "soon", "Idempotency-Key": KEY }, "Ops-Wait"],
    [{ "Ops-Wait": "-1", "Idempotency-Key": KEY }, "Ops-Wait"],
    [{ "Idempotency-Key": "short" }, "Idempotency-Key"],
    [{ "Idempotency-Key": "two words" }, "Idempotency-Key"],
    [{ "Idempotency-Key": "k".repeat(101) }, "Idempotency-Key"],
  ] as const) {
    const { status, body } = await post("build", headers);
    assert.deepEqual([status, body.error, body.details[0].path], [400, "invalid_request", where], JSON.stringify(headers));
  }
  assert.equal((await post("build", { "Ops-Wait": "5" }, {}, { authorization: null })).status, 401);
  assert.deepEqual(await runs(), []);
});

test("CP-446 CP-448 CP-449 starts wait in line, are shown, and begin in the order of their coming as the bucket gets free", async (t) => {
  const { layout, occupy, waiting, inLine, queue, cancel, post, runs } = await setUp(t);
  const run = await occupy();
  const second = waiting("second-key");
  await inLine(1);
  const asPush = { "Idempotency-Key": "third-key", "Ops-Wait": "30", "content-type": "application/x-tar" };
  const third = post("push", asPush, await archiveBytes({ "workspace/pushed": "" }));
  await inLine(2);
  const fourth = waiting("fourth-key", 30, "gc");
  await inLine(3);
  const shown = (await queue()).map(({ since, ...one }: { since: string }) => one);
  const by = { name: "root", address: "127.0.0.1", via: "bearer" };
  assert.deepEqual(shown, [
    { position: 1, key: "second-key", kind: "build", by, connected: true },
    { position: 2, key: "third-key", kind: "push", by, connected: true },
    { position: 3, key: "fourth-key", kind: "gc", by, connected: true },
  ]);
  const plain = await post("build", {});
  assert.deepEqual([plain.status, plain.body.run_id], [409, run]);
  const order: string[] = [];
  let before = run;
  for (const waits of [second, third, fourth]) {
    assert.equal(existsSync(`${layout.workspace}/pushed`), order.length > 1);
    await cancel(before);
    const { status, body } = await waits;
    assert.equal(status, 202);
    order.push((await runs())[0].id);
    assert.equal(order.at(-1), body.run_id);
    before = body.run_id;
  }
  assert.deepEqual(await queue(), []);
});

test("CP-447 CP-448 a start whose time is over keeps its place, before later ones; nobody overtakes it in a free bucket", async (t) => {
  const { server, occupy, waiting, keyed, queue, ended, post, runs } = await setUp(t);
  const run = await occupy();
  const busy = await waiting("first-key", 0);
  assert.deepEqual([busy.status, busy.body.error, busy.body.run_id, busy.body.details.position], [409, "bucket_busy", run, 1]);
  assert.equal((await waiting("second-key", 0)).body.details.position, 2);
  assert.equal((await waiting("first-key", 0)).body.details.position, 1);
  server.release();
  await ended(run);
  server.hold();
  for (const late of [await post("build", {}), await keyed("build", {}, "third-key")]) {
    assert.deepEqual([late.status, late.body.error], [409, "bucket_busy"]);
    assert.match(late.body.details.holder, /^kept for a start that waits: build, in line since /);
  }
  assert.equal((await waiting("second-key", 0)).body.details.position, 2);
  assert.equal((await runs()).length, 1);
  assert.equal((await keyed("build", {}, "first-key")).status, 202, "it is its turn, also without Ops-Wait");
  assert.deepEqual(
    (await queue()).map(({ key }: { key: string }) => key),
    ["second-key"],
  );
});

test("CP-447 a client that is cut off while it waits comes back to its place; its start is made once", async (t) => {
  const { server, bucket, occupy, waiting, inLine, queue, cancel, runs } = await setUp(t);
  const run = await occupy();
  const cut = new AbortController();
  const headers = { authorization: `Bearer ${TOKEN}`, "Idempotency-Key": KEY, "Ops-Wait": "30" };
  const lost = fetch(`${server.url}${bucket.path}/build`, { method: "POST", headers, signal: cut.signal });
  await inLine(1);
  cut.abort();
  await assert.rejects(lost);
  await until("the server to notice", async () => (await queue())[0]?.connected === false);
  const later = waiting("later-key");
  await inLine(2);
  const [one, two] = [waiting(KEY), waiting(KEY)];
  await until("the client to be back", async () => (await queue())[0]?.connected === true);
  assert.deepEqual(
    (await queue()).map(({ key }: { key: string }) => key),
    [KEY, "later-key"],
  );
  await cancel(run);
  const [first, second] = [await one, await two];
  assert.deepEqual([first.status, second.status, second.body], [202, 202, first.body]);
  assert.equal((await runs()).length, 2);
  await server.stop();
  assert.equal((await later).status, 503);
});

test("CP-449 a start that is given up is answered 409 and never starts", async (t) => {
  const { server, bucket, layout, occupy, waiting, inLine, queue, cancel, ended, runs } = await setUp(t);
  const run = await occupy();
  const waits = waiting(KEY);
  await inLine(1);
  const giveUp = () => server.call("DELETE", `${bucket.path}/queue/${KEY}`);
  assert.equal((await giveUp()).status, 204);
  assert.deepEqual(await queue(), []);
  const { status, body } = await waits;
  assert.deepEqual([status, body.error, body.details.position], [409, "bucket_busy", null]);
  assert.deepEqual([(await giveUp()).status, (await giveUp()).body.error], [404, "not_found"]);
  await cancel(run);
  await ended(run);
  assert.equal(await readLock(layout), undefined);
  assert.equal((await runs()).length, 1);
});

test("CP-446 a start of the line that is refused makes way for the next one", async (t) => {
  const { post, occupy, waiting, inLine, cancel } = await setUp(t);
  const run = await occupy();
  const wrong = post("deploy", { "Idempotency-Key": KEY, "Ops-Wait": "30" }, { jobs: ["none"] });
  await inLine(1);
  const next = waiting("next-key");
  await inLine(2);
  await cancel(run);
  const [{ status, body }, { status: then }] = [await wrong, await next];
  assert.deepEqual([status, body.error, then], [400, "unknown_name", 202]);
});

test("CP-521 whoever lacks an approval learns it while the bucket is busy", async (t) => {
  const { server, bucket, post, occupy } = await setUp(t);
  assert.equal((await server.call("PUT", bucket.path, { body: { approvals: 1 } })).status, 200);
  await occupy();
  for (const [target, body, code] of [
    ["run_command", { command: "true" }, "approval_required"],
    ["deploy", {}, "approval_required"],
    ["hooks", { hook: "look" }, "approval_required"],
    ["build", {}, "bucket_busy"],
  ] as const)
    assert.equal((await post(target, {}, body)).body.error, code, target);
});
