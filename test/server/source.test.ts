import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { readLock } from "../../lib/bucket/base/lock.ts";
import { exchangeText } from "../helpers/http.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { archiveBytes } from "../helpers/sources.ts";
import { until } from "../helpers/temporary.ts";

const SOURCE = { "ops.conf": "", "workspace/": "", "workspace/workers.json": "[]\n" };
const TAR = { "content-type": "application/x-tar" };

async function setUp(t: Parameters<typeof TestServer.start>[0]) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const push = (body: Buffer, headers: Record<string, string> = TAR) =>
    server.call("POST", `${bucket.path}/push`, { body, headers });
  const revisions = async () => (await server.call("GET", `${bucket.path}/source/revisions`)).body.items;
  return { server, bucket, push, revisions };
}

/** Nothing of a push is left: no lock, no upload, no run. */
async function assertUntouched({ server, bucket, revisions }: Awaited<ReturnType<typeof setUp>>): Promise<void> {
  const layout = layoutOf(bucket.folder);
  assert.equal(await readLock(layout), undefined);
  assert.deepEqual(readdirSync(layout.uploads), []);
  assert.deepEqual(await revisions(), []);
  assert.deepEqual((await server.call("GET", `${bucket.path}/runs`)).body.items, []);
}

test("CP-163 CP-165 CP-218 CP-246 CP-247 a push keeps a revision, replaces the source and builds it as one run", async (t) => {
  const { server, bucket, push, revisions } = await setUp(t);
  const { status, body } = await push(await archiveBytes(SOURCE));
  assert.deepEqual([status, Object.keys(body)], [202, ["run_id"]]);
  const run = await server.ended(bucket.path, body.run_id);
  const [revision] = await revisions();
  assert.deepEqual([run.kind, run.status, run.params], ["push", "succeeded", { revision: revision.id }], run.error);
  assert.deepEqual(
    [revision.run_id, revision.current, revision.last_successful, revision.build_status, revision.file_count],
    [run.id, true, true, "succeeded", 2],
  );
  assert.equal(readFileSync(path.join(bucket.folder, "workspace", "workers.json"), "utf8"), "[]\n");
});

test("CP-162 a gzipped push is the same, and revisions are listed newest first in pages", async (t) => {
  const { server, bucket, push, revisions } = await setUp(t);
  for (const name of ["one", "two", "three"]) {
    const archive = await archiveBytes({ ...SOURCE, "templates/x": name });
    const { body } = await push(gzipSync(archive), { "content-type": "application/gzip" });
    await server.ended(bucket.path, body.run_id);
  }
  const all = (await revisions()).map(({ id }: { id: string }) => id);
  assert.equal(all.length, 3);
  assert.deepEqual(all, all.toSorted().reverse());
  const at = `${bucket.path}/source/revisions`;
  const first = (await server.call("GET", `${at}?limit=2`)).body;
  const second = (await server.call("GET", `${at}?limit=2&cursor=${first.next_cursor}`)).body;
  assert.deepEqual(
    [...first.items, ...second.items].map(({ id }: { id: string }) => id),
    all,
  );
  assert.equal(second.next_cursor, null);
  assert.equal((await server.call("GET", `${at}?cursor=x`)).status, 400);
});

const MANY = Array.from({ length: 1_000 }, (_, index) => `workspace/jobs/job_${index % 50}/file_${index}`);

test("CP-219 CP-220 a broken archive is 400 with its reason and leaves nothing behind", async (t) => {
  const context = await setUp(t);
  const whole = await archiveBytes(SOURCE);
  for (const [archive, headers] of [
    [whole.subarray(0, 700), TAR],
    [await archiveBytes({ ...SOURCE, "data/ops.db": "x" }), TAR],
    [await archiveBytes({ ...SOURCE, ...Object.fromEntries(MANY.map((name) => [name, name])), "data/ops.db": "x" }), TAR],
    [whole, { "content-type": "application/gzip" }],
    [Buffer.alloc(0), TAR],
  ] as const) {
    const reply = await context.push(archive, headers);
    assert.deepEqual([reply.status, reply.body.error], [400, "invalid_source"], reply.text);
    await assertUntouched(context);
  }
});

test("a push of another media type is 415, after the bucket was found free", async (t) => {
  const context = await setUp(t);
  for (const type of ["application/json", "application/zip", ""]) {
    const reply = await context.push(Buffer.from("{}"), { "content-type": type });
    assert.deepEqual([reply.status, reply.body.error], [415, "unsupported_media_type"]);
  }
  await assertUntouched(context);
});

test("CP-114 whether the bucket is free is decided before the body arrives", async (t) => {
  const { server, bucket } = await setUp(t);
  server.hold();
  await server.call("POST", `${bucket.path}/build`);
  const { hostname, port } = new URL(server.url);
  const head = `POST ${bucket.path}/push HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${TOKEN}\r\n`;
  const asks = `${head}Expect: 100-continue\r\nContent-Type: application/x-tar\r\nContent-Length: 9\r\nConnection: close\r\n\r\n`;
  assert.match(await exchangeText(t, Number(port), asks), /^HTTP\/1.1 409 /);
});

test("a client that leaves in the middle of its push leaves the bucket free and as it was", async (t) => {
  const context = await setUp(t);
  const { server, bucket } = context;
  const layout = layoutOf(bucket.folder);
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  const head = `POST ${bucket.path}/push HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${TOKEN}\r\n`;
  socket.write(`${head}Content-Type: application/x-tar\r\nContent-Length: 9999999\r\n\r\n`);
  socket.write((await archiveBytes(SOURCE)).subarray(0, 600));
  await until("the upload", () => readdirSync(layout.uploads).length === 1);
  const second = await server.call("POST", `${bucket.path}/build`);
  assert.equal(second.status, 409);
  socket.destroy();
  await until("the lock to be free", async () => (await readLock(layout)) === undefined);
  await assertUntouched(context);
});

test("CP-168 CP-170 what an interrupted push left is gone before the server listens again", async (t) => {
  const { server, bucket } = await setUp(t);
  const layout = layoutOf(bucket.folder);
  await server.stop();
  mkdirSync(path.join(layout.uploads, "orphan", "tree"), { recursive: true });
  writeFileSync(path.join(layout.uploads, "orphan", "tree", "x"), "");
  await server.open();
  assert.deepEqual(readdirSync(layout.uploads), []);
});

/** Pushes sources in turn and waits for each build; answers the ids of the revisions, oldest first. */
async function pushed(
  { server, bucket, push, revisions }: Awaited<ReturnType<typeof setUp>>,
  ...files: Record<string, string>[]
) {
  for (const file of files) {
    const { body } = await push(await archiveBytes({ ...SOURCE, ...file }));
    await server.ended(bucket.path, body.run_id);
  }
  return (await revisions()).map(({ id }: { id: string }) => id).reverse() as string[];
}

const BROKEN = { "workspace/workers.json": "nonsense" };

test("CP-223 CP-224 CP-205 CP-206 a rollback restores the last successful revision and builds it as one run", async (t) => {
  const context = await setUp(t);
  const { server, bucket, revisions } = context;
  const [good, bad] = await pushed(context, { "templates/x": "good" }, BROKEN);
  const { status, body } = await server.call("POST", `${bucket.path}/source/rollback`);
  assert.deepEqual([status, Object.keys(body)], [202, ["run_id"]]);
  const run = await server.ended(bucket.path, body.run_id);
  assert.deepEqual([run.kind, run.status, run.params], ["rollback", "succeeded", { revision: good }], run.error);
  assert.equal(readFileSync(path.join(bucket.folder, "templates", "x"), "utf8"), "good");
  const marks = (await revisions()).map((one: { id: string; current: boolean; last_successful: boolean }) => [
    one.id,
    one.current,
    one.last_successful,
  ]);
  assert.deepEqual(marks, [
    [bad, false, false],
    [good, true, true],
  ]);
  const log = readFileSync(path.join(bucket.folder, "logs", "runs", run.id, "ops.log"), "utf8");
  assert.match(log, new RegExp(`event=rollback .*${good}`));
  assert.match(log, /event=run_end .*succeeded/);
});

test("CP-224 CP-222 a rollback to a given revision whose build fails leaves it current and the success marked", async (t) => {
  const context = await setUp(t);
  const { server, bucket, revisions } = context;
  const [bad, good] = await pushed(context, BROKEN, {});
  const { body } = await server.call("POST", `${bucket.path}/source/rollback`, { body: { revision_id: bad?.toUpperCase() } });
  assert.equal((await server.ended(bucket.path, body.run_id)).status, "failed");
  assert.equal(readFileSync(path.join(bucket.folder, "workspace", "workers.json"), "utf8"), "nonsense");
  const found = await revisions();
  assert.equal(found.find((one: { current: boolean }) => one.current).id, bad);
  assert.equal(found.find((one: { last_successful: boolean }) => one.last_successful).id, good);
});

test("a rollback to what is not there is 404, starts nothing and leaves the bucket free", async (t) => {
  const context = await setUp(t);
  const { server, bucket } = context;
  for (const body of [{}, { revision_id: "x" }, { revision_id: bucket.id }, { revision_id: "../x" }]) {
    const reply = await server.call("POST", `${bucket.path}/source/rollback`, { body });
    assert.deepEqual([reply.status, reply.body.error], [404, "revision_not_found"]);
  }
  assert.equal(await readLock(layoutOf(bucket.folder)), undefined);
  assert.deepEqual((await server.call("GET", `${bucket.path}/runs`)).body.items, []);
  server.hold();
  await server.call("POST", `${bucket.path}/build`);
  const busy = await server.call("POST", `${bucket.path}/source/rollback`);
  assert.deepEqual([busy.status, busy.body.error], [409, "bucket_busy"]);
});

test("a revision is compared with the current one or with a given one", async (t) => {
  const context = await setUp(t);
  const { server, bucket } = context;
  const [first, second, third] = await pushed(
    context,
    { "templates/x": "1\n" },
    { "templates/x": "2\n", "templates/y": "" },
    { "templates/x": "3\n" },
  );
  const diff = async (id: string | undefined, query = "") =>
    server.call("GET", `${bucket.path}/source/revisions/${id}/diff${query}`);
  const { body } = await diff(first);
  assert.deepEqual([body.revision_id, body.against, body.added, body.removed], [first, third, [], []]);
  assert.deepEqual(body.changed, [{ path: "templates/x", mode: null, diff: "@@ -1 +1 @@\n-3\n+1\n", omitted: null }]);
  const other = (await diff(second, `?against=${first}`)).body;
  assert.deepEqual([other.against, other.added, other.changed.length], [first, ["templates/y"], 1]);
  assert.deepEqual((await diff(third)).body.changed, []);
  for (const [id, query] of [
    ["x", ""],
    [bucket.id, ""],
    [first, "?against=x"],
    [first, "?against=../x"],
  ])
    assert.equal((await diff(id, query)).body.error, "revision_not_found");
});

test("CP-165 the revision that a build is about cannot be changed through a rollback to it", async (t) => {
  const context = await setUp(t);
  const { server, bucket } = context;
  const [first] = await pushed(context, { "templates/x": "first" }, {});
  const { body } = await server.call("POST", `${bucket.path}/source/rollback`, { body: { revision_id: first } });
  await server.ended(bucket.path, body.run_id);
  writeFileSync(path.join(bucket.folder, "templates", "x"), "changed by hand");
  const kept = path.join(layoutOf(bucket.folder).revisions, String(first), "templates", "x");
  assert.equal(readFileSync(kept, "utf8"), "first");
});
