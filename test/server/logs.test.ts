import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { appendFileSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { TestServer } from "../helpers/server.ts";
import { until } from "../helpers/temporary.ts";

async function setUp(t: TestContext) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const start = async () => (await server.call("POST", `${bucket.path}/build`)).body.run_id as string;
  const file = (id: string) => path.join(bucket.folder, "logs", "runs", id, "activity.log");
  const places = (id: string) => path.join(path.dirname(file(id)), "activity.places");
  const get = (rest: string, headers: Record<string, string> = {}) =>
    server.call("GET", `${bucket.path}/runs/${rest}`, { headers });
  return { server, bucket, start, file, places, get };
}

test("CP-145 the raw log is activity.log byte for byte, in parts too", async (t) => {
  const { server, bucket, start, file, get } = await setUp(t);
  const id = await start();
  await server.ended(bucket.path, id);
  const bytes = readFileSync(file(id));
  const { status, text, headers } = await get(`${id}/activity.log`);
  assert.deepEqual([status, text, headers.get("content-length")], [200, bytes.toString(), String(bytes.length)]);
  assert.equal(headers.get("content-type"), "text/plain; charset=utf-8");
  const half = Math.floor(bytes.length / 2);
  const etag = headers.get("etag") ?? "";
  const rest = await get(`${id}/activity.log`, { range: `bytes=${half}-`, "if-range": etag });
  assert.deepEqual([rest.status, rest.text], [206, bytes.subarray(half).toString()]);
  assert.equal((await get(`${id}/activity.log`, { "if-none-match": etag })).status, 304);
  appendFileSync(file(id), "more\n");
  const grown = await get(`${id}/activity.log`, { range: `bytes=${half}-`, "if-range": etag });
  assert.deepEqual([grown.status, grown.text], [200, `${bytes}more\n`]);
  assert.equal((await get(`${id}/activity.log`, { range: "bytes=999999999-" })).status, 416);
});

test("a log that is not there, or was replaced by a link, is empty", async (t) => {
  const { server, bucket, start, file, get } = await setUp(t);
  const id = await start();
  await server.ended(bucket.path, id);
  rmSync(file(id));
  assert.deepEqual([(await get(`${id}/activity.log`)).status, (await get(`${id}/activity.log`)).text], [200, ""]);
  symlinkSync("/etc/passwd", file(id));
  assert.equal((await get(`${id}/activity.log`)).text, "");
});

test("when the Activity was written is told in the same way, and nothing where nobody knows", async (t) => {
  const { server, bucket, start, file, get } = await setUp(t);
  const before = Date.now();
  const id = await start();
  await server.ended(bucket.path, id);
  const { status, text, headers } = await get(`${id}/activity.times`);
  assert.deepEqual([status, headers.get("content-type")], [200, "text/plain; charset=utf-8"]);
  const entries = text.trimEnd().split("\n");
  assert.match(text, /^0 \d{13}\n(\d+ \d{13}\n)*$/);
  for (const [offset = -1, at = 0] of entries.map((line) => line.split(" ").map(Number)))
    assert.ok(offset <= readFileSync(file(id)).length && at >= before && at <= Date.now(), text);
  const part = await get(`${id}/activity.times`, { range: "bytes=2-", "if-range": headers.get("etag") ?? "" });
  assert.deepEqual([part.status, part.text], [206, text.slice(2)]);
  rmSync(path.join(path.dirname(file(id)), "activity.times"));
  const without = await get(`${id}/activity.times`);
  assert.deepEqual([without.status, without.text], [200, ""]);
  assert.equal((await get(`${randomUUID()}/activity.times`)).body.error, "run_not_found");
});

test("the Activity of a run is searched over HTTP", async (t) => {
  const { server, bucket, start, file, places, get } = await setUp(t);
  const id = await start();
  await server.ended(bucket.path, id);
  appendFileSync(file(id), "A Needle in it\nneedle & more\n");
  const lines = readFileSync(file(id), "utf8").split("\n");
  const { body } = await get(`${id}/logs/search?q=needle`);
  assert.deepEqual(
    body.matches.map(({ line, text }: { line: number; text: string }) => [lines[line - 1], text]),
    [
      ["A Needle in it", "A Needle in it"],
      ["needle & more", "needle & more"],
    ],
  );
  assert.equal(body.done, true);
  assert.equal((await get(`${id}/logs/search?q=needle&case=true`)).body.matches.length, 1);
  const first = (await get(`${id}/logs/search?q=needle&limit=1`)).body;
  const second = (await get(`${id}/logs/search?q=needle&after=${first.next}`)).body;
  assert.deepEqual([...first.matches, ...second.matches], body.matches);
  // A run of an older version has no record of places: the beginning of a line tells its place.
  rmSync(places(id));
  appendFileSync(file(id), "web@10.0.0.7 | a needle\nweb: a needle\n10.0.0.7 ! none\n");
  for (const [query, found] of [
    ["q=needle&job=web", ["web@10.0.0.7 | a needle", "web: a needle"]],
    ["job=web&worker=10.0.0.7", ["web@10.0.0.7 | a needle"]],
    ["worker=10.0.0.7", ["web@10.0.0.7 | a needle", "10.0.0.7 ! none"]],
  ] as const)
    assert.deepEqual(
      (await get(`${id}/logs/search?${query}`)).body.matches.map(({ text }: { text: string }) => text),
      found,
    );
  const [match] = body.matches;
  assert.ok((await get(`${id}/logs?after=${match.offset}`)).body.data.startsWith("A Needle"));
  for (const query of [
    "",
    "?q=",
    "?job=",
    "?worker=a%20b",
    "?q=x&limit=0",
    "?q=x&limit=501",
    "?q=x&after=5",
    "?q=x&case=1",
    `?q=${"x".repeat(201)}`,
    "?q=a%0ab",
  ])
    assert.equal((await get(`${id}/logs/search${query}`)).status, 400, query);
  for (const below of ["logs/search?q=x", "activity.log"])
    assert.equal((await get(`${randomUUID()}/${below}`)).body.error, "run_not_found");
});

test("lines of the Activity are downloaded with their times, and the access log tells how many bytes", async (t) => {
  const { server, bucket, start, file, places, get } = await setUp(t);
  const id = await start();
  await server.ended(bucket.path, id);
  const whole = await get(`${id}/logs/text`);
  assert.deepEqual([whole.status, whole.text], [200, readFileSync(file(id), "utf8")]);
  assert.deepEqual(
    ["content-type", "content-disposition"].map((name) => whole.headers.get(name)),
    ["text/plain; charset=utf-8", `attachment; filename="build-${id}.log"`],
  );
  const bytes = () => server.accesses.find(({ route }) => String(route).endsWith("/logs/text"))?.size_bytes;
  await until("the access log", () => bytes() === Buffer.byteLength(whole.text));
  const timed = (await get(`${id}/logs/text?times=true`)).text.split("\n");
  assert.match(timed[0] ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z build of bucket /);
  assert.deepEqual(
    timed.map((line) => line.slice(25)),
    whole.text.split("\n"),
  );
  rmSync(places(id));
  appendFileSync(file(id), "web@10.0.0.7 | a Needle\nweb: a needle\n10.0.0.7 ! a needle\n");
  const found = async (query: string) => (await get(`${id}/logs/text?${query}`)).text;
  assert.equal(await found("q=needle&job=web"), "web@10.0.0.7 | a Needle\nweb: a needle\n");
  assert.equal(await found("q=needle&case=true&worker=10.0.0.7"), "10.0.0.7 ! a needle\n");
  for (const query of ["q=", "q=a%0ab", "times=1", "worker=a%20b", "limit=5"])
    assert.equal((await get(`${id}/logs/text?${query}`)).status, 400, query);
  const head = await server.call("HEAD", `${bucket.path}/runs/${id}/logs/text`);
  assert.deepEqual([head.status, head.text], [200, ""]);
  assert.equal((await get(`${randomUUID()}/logs/text`)).body.error, "run_not_found");
});

test("state changes of runs are followed over all buckets, woken by the change", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const other = await server.createBucket();
  const events = async (query = "") => (await server.call("GET", `/api/events${query}`)).body;
  const { next, items, reset } = await events();
  assert.deepEqual([items, reset], [[], false]);
  const waiting = events(`?after=${next}&timeout=60`);
  server.hold();
  const first = await start();
  assert.deepEqual(
    (await waiting).items.map((one: { run_id: string; change: string; status: string }) => [one.run_id, one.change, one.status]),
    [[first, "started", "running"]],
  );
  const second = (await server.call("POST", `${other.path}/build`)).body.run_id;
  await server.call("POST", `${bucket.path}/runs/${first}/cancel`);
  await server.ended(bucket.path, first);
  server.release();
  await server.ended(other.path, second);
  const seen: string[] = [];
  let place = next;
  while (seen.length < 5) {
    const found = await events(`?after=${place}`);
    for (const { bucket_id, change, status } of found.items)
      seen.push(`${bucket_id === bucket.id ? "first" : "second"} ${change} ${status}`);
    place = found.next;
  }
  assert.deepEqual(seen, [
    "first started running",
    "second started running",
    "first cancelling running",
    "first ended cancelled",
    "second ended succeeded",
  ]);
  await server.stop();
  await server.open();
  assert.deepEqual((await events(`?after=${place}&timeout=60`)).reset, true);
});

test("an end that was told can be seen by then", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const { next } = (await server.call("GET", "/api/events")).body;
  const id = await start();
  let place = next;
  for (let ended = false; !ended; ) {
    const { body } = await server.call("GET", `/api/events?after=${place}`);
    ended = body.items.some((one: { run_id: string; change: string }) => one.run_id === id && one.change === "ended");
    place = body.next;
  }
  assert.equal((await server.call("GET", `${bucket.path}/runs/${id}`)).body.status, "succeeded");
  await start();
});

test("CP-015 T-58 events, logs and files need credentials like everything else", async (t) => {
  const { server, bucket } = await setUp(t);
  for (const target of ["/api/events", `${bucket.path}/runs/${randomUUID()}/activity.log`, `${bucket.path}/files/ops.conf`])
    assert.equal((await server.call("GET", target, { authorization: null })).status, 401);
});
