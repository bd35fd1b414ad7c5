import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { TestServer } from "../helpers/server.ts";

test("CP-002 CP-074 CP-075 CP-078 CP-235 a bucket is created with its database, which carries its id", async (t) => {
  const server = await TestServer.start(t);
  const { status, body } = await server.call("POST", "/api/buckets", {
    body: { project: "shop", name: "live" },
  });
  assert.equal(status, 201);
  assert.match(body.id, /^[0-9a-f]{8}-/);
  const { id, created_at, ...rest } = body;
  assert.deepEqual(rest, {
    ...{ project: "shop", name: "live", initialized: true, schema_version: 1 },
    ...{ active_run: null, last_run: null },
  });
  assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 60_000);
  const database = new DatabaseSync(path.join(server.root, id, "data", "ops.db"), { readOnly: true });
  assert.equal(database.prepare("SELECT bucket_id FROM bucket").get()?.bucket_id, id);
  database.close();
  assert.deepEqual(
    readdirSync(path.join(server.root, id)).filter((name) =>
      ["ops.conf", "workspace", "templates"].includes(name),
    ),
    [],
  );
});

test("CP-079 CP-080 a name that is not a UUID is refused with its code and leaves nothing", async (t) => {
  const server = await TestServer.start(t);
  for (const id of ["foo", "../x"]) {
    const reply = await server.call("POST", "/api/buckets", { body: { id, project: "p", name: "n" } });
    assert.deepEqual([reply.status, reply.body.error], [400, "invalid_bucket_id"]);
  }
  assert.deepEqual(readdirSync(server.root), []);
});

test("an id is taken in upper case and given once", async (t) => {
  const server = await TestServer.start(t);
  const id = randomUUID();
  const first = await server.createBucket({ id: id.toUpperCase() });
  assert.equal(first.id, id);
  const again = await server.call("POST", "/api/buckets", { body: { id, project: "p", name: "n" } });
  assert.deepEqual([again.status, again.body.error], [409, "bucket_exists"]);
  assert.equal((await server.call("GET", `/api/buckets/${id.toUpperCase()}`)).body.id, id);
});

for (const [what, body, message] of [
  ["no project", { name: "n" }, /^project: is missing/],
  ["an empty name", { project: "p", name: "" }, /^name: must not be empty/],
  ["a name of two lines", { project: "p", name: "a\nb" }, /^name: expected one line of text/],
  ["an unknown field", { project: "p", name: "n", owner: "x" }, /^owner: is not a known field/],
] as const)
  test(`a bucket with ${what} is refused`, async (t) => {
    const server = await TestServer.start(t);
    const reply = await server.call("POST", "/api/buckets", { body });
    assert.equal(reply.status, 400);
    assert.match(reply.body.message, message);
  });

test("CP-004 CP-077 CP-234 all buckets are listed in pages, other entries of the root are not", async (t) => {
  const server = await TestServer.start(t);
  const ids = ["0", "1", "2"].map((digit) => digit + randomUUID().slice(1));
  for (const id of ids) await server.createBucket({ id, name: id });
  mkdirSync(path.join(server.root, randomUUID()));
  writeFileSync(path.join(server.root, "notes.txt"), "");
  const first = (await server.call("GET", "/api/buckets?limit=2")).body;
  const second = (await server.call("GET", `/api/buckets?limit=2&cursor=${first.next_cursor}`)).body;
  const names = [...first.items, ...second.items].map(({ id }: { id: string }) => id);
  assert.deepEqual([names, second.next_cursor], [ids, null]);
});

test("CP-325 an unknown bucket is 404 on every path below it, and nothing is made", async (t) => {
  const server = await TestServer.start(t);
  for (const id of [randomUUID(), "foo", "%2e%2e%00"])
    for (const [method, below] of [
      ...([
        ["GET", ""],
        ["GET", "/runs"],
        ["GET", `/runs/${randomUUID()}`],
        ["GET", "/source/revisions"],
      ] as const),
      ...([
        ["POST", "/build"],
        ["POST", "/deploy"],
        ["POST", "/push"],
      ] as const),
    ]) {
      const { status, body } = await server.call(method, `/api/buckets/${id}${below}`);
      assert.equal(status, 404);
      assert.match(body.error, /^(bucket_)?not_found$/);
    }
  assert.deepEqual(readdirSync(server.root), []);
});

test("a bucket without a database is shown as not initialised, and no run can be started in it", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket();
  rmSync(path.join(folder, "data"), { recursive: true });
  const { body } = await server.call("GET", bucket);
  assert.deepEqual([body.initialized, body.schema_version], [false, null]);
  for (const start of ["build", "deploy", "push"]) {
    const reply = await server.call("POST", `${bucket}/${start}`);
    assert.deepEqual([reply.status, reply.body.error], [409, "bucket_not_initialized"]);
  }
});

test("a bucket with a newer schema is shown, and its runs are refused with that reason", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket();
  const database = new DatabaseSync(path.join(folder, "data", "ops.db"));
  database.exec("UPDATE schema_version SET version = 99");
  database.close();
  assert.equal((await server.call("GET", bucket)).body.initialized, true);
  const reply = await server.call("POST", `${bucket}/build`);
  assert.deepEqual([reply.status, reply.body.error], [409, "schema_too_new"]);
});

test("a database that stays busy is 503 after the tries", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket();
  const database = new DatabaseSync(path.join(folder, "data", "ops.db"));
  database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE bucket SET update_seq = 1; COMMIT");
  const busy = await server.call("GET", bucket);
  assert.deepEqual([busy.status, busy.body.error], [503, "database_busy"]);
  database.close();
  assert.equal((await server.call("GET", bucket)).status, 200);
});
