import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { appendFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { recordRun } from "../helpers/log-runs.ts";
import { TestServer } from "../helpers/server.ts";

async function setUp(t: TestContext) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const file = (id: string, name: string) => path.join(bucket.folder, "logs", "runs", id, name);
  const get = (rest: string) => server.call("GET", `${bucket.path}/runs/${rest}`);
  return { server, bucket, file, get };
}

test("lines of a real run are answered with what was recorded of them, and followed to the end", async (t) => {
  const { server, bucket, get } = await setUp(t);
  server.hold();
  const id = (await server.call("POST", `${bucket.path}/build`)).body.run_id as string;
  const follow = async () => {
    const lines: { line: number; stream: string; text: string }[] = [];
    for (let after = "0", done = false; !done; ) {
      const { status, body } = await get(`${id}/logs/lines?after=${after}&timeout=60`);
      assert.equal(status, 200, JSON.stringify(body));
      lines.push(...body.lines);
      ({ next: after, done } = body);
    }
    return lines;
  };
  const [first, second, never] = [follow(), follow(), get(`${id}/logs/lines?after=0&q=nowhere&timeout=60`)];
  server.release();
  await server.ended(bucket.path, id);
  const lines = await first;
  assert.deepEqual(await second, lines);
  assert.equal((await never).body.done, true);
  const { text } = await get(`${id}/activity.log`);
  assert.equal(lines.map((line) => `${line.text}\n`).join(""), text);
  assert.deepEqual([...new Set(lines.map(({ stream }) => stream))], ["ops"]);
  assert.deepEqual(
    lines.map(({ line }) => line),
    lines.map((_, index) => index + 1),
  );
  const { body } = await get(`${id}/logs/lines?tail=true&limit=1`);
  assert.deepEqual([body.lines, body.total, body.status], [lines.slice(-1), lines.length, "succeeded"]);
});

test("lines are asked for in one way, within bounds, and of runs that there are", async (t) => {
  const { server, bucket, file, get } = await setUp(t);
  const id = recordRun(server.root, bucket.id, "web@10.0.0.7 | a\nweb: b\n");
  writeFileSync(file(id, "activity.places"), "0 0 stdout web 10.0.0.7\n17 1 ops web -\n");
  const found = async (query: string) =>
    (await get(`${id}/logs/lines?${query}`)).body.lines.map(({ text }: { text: string }) => text);
  assert.deepEqual(await found("job=web"), ["a", "web: b"]);
  assert.deepEqual(await found("worker=10.0.0.7"), ["a"]);
  assert.deepEqual(await found("before=2"), ["a"]);
  appendFileSync(file(id, "activity.log"), "error: c\n");
  assert.deepEqual(await found("errors=true"), []);
  const map = (await get(`${id}/logs/map?q=:+B&job=web`)).body;
  assert.deepEqual([map.buckets.length, map.lines, map.matches, map.errors, map.done], [160, 3, 1, 0, true]);
  assert.equal((await get(`${id}/logs/map?q=`)).status, 400);
  for (const query of ["from=0", "from=1&before=2", "limit=1001", "after=7", "after=999.9", "q=a%0ab", "tail=1", "stream=error"])
    assert.equal((await get(`${id}/logs/lines?${query}`)).status, 400, query);
  for (const below of ["lines", "map", "search?q=x"])
    assert.equal((await get(`${randomUUID()}/logs/${below}`)).body.error, "run_not_found");
  assert.equal((await get(`${randomUUID()}/logs/lines?after=0`)).body.error, "run_not_found");
});
