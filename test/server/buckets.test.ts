import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../lib/bucket/base/lock.ts";
import { SCHEMA_VERSION } from "../../lib/bucket/base/schema.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { toSchema1 } from "../helpers/schemas.ts";
import { TestServer } from "../helpers/server.ts";

test("CP-002 CP-074 CP-075 CP-078 CP-235 a bucket is created with its database, which carries its id", async (t) => {
  const server = await TestServer.start(t);
  const { status, body } = await server.call("POST", "/api/buckets", { body: { project: "shop", name: "live" } });
  assert.equal(status, 201);
  assert.match(body.id, /^[0-9a-f]{8}-/);
  const { id, created_at, ...rest } = body;
  assert.deepEqual(rest, {
    project: "shop",
    name: "live",
    initialized: true,
    schema_version: SCHEMA_VERSION,
    approvals: 0,
    failed_allocations: 0,
    active_run: null,
    last_run: null,
  });
  assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 60_000);
  const database = new DatabaseSync(path.join(server.root, id, "data", "ops.db"), { readOnly: true });
  assert.equal(database.prepare("SELECT bucket_id FROM bucket").get()?.bucket_id, id);
  database.close();
  assert.deepEqual(
    readdirSync(path.join(server.root, id)).filter((name) => ["ops.conf", "workspace", "templates"].includes(name)),
    [],
  );
});

test("CP-079 CP-080 a name that is not a UUID is refused with its code and leaves nothing", async (t) => {
  const server = await TestServer.start(t);
  for (const id of ["foo", "../x"]) {
    const reply = await server.call("POST", "/api/buckets", { body: { id, project: "p", name: "n" } });
    assert.deepEqual([reply.status, reply.body.error], [400, "invalid_bucket_id"]);
  }
  assert.deepEqual(server.inRoot(), []);
});

test("an id is taken in upper case and given once", async (t) => {
  const server = await TestServer.start(t);
  const id = randomUUID();
  const create = (wanted: string) => server.call("POST", "/api/buckets", { body: { id: wanted, project: "p", name: "n" } });
  const first = await create(id.toUpperCase());
  assert.deepEqual([first.status, first.body.id], [201, id]);
  const again = await create(id);
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
  assert.equal((await server.call("GET", "/api/buckets?cursor=zzz")).status, 400, "no cursor is no empty list");
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
  assert.deepEqual(server.inRoot(), []);
});

test("a bucket without a database is shown as not initialised, and no run can be started in it", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket();
  rmSync(path.join(folder, "data"), { recursive: true });
  const { body } = await server.call("GET", bucket);
  assert.deepEqual([body.initialized, body.schema_version, body.failed_allocations], [false, null, null]);
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

test("a start says which buckets need an upgrade, and which a newer program", async (t) => {
  const server = await TestServer.start(t);
  const [old, tooNew] = [await server.createBucket(), await server.createBucket()];
  await server.createBucket();
  assert.deepEqual(
    server.lines.filter((line) => line.includes("schema")),
    [],
  );
  await server.stop();
  toSchema1(path.join(old.folder, "data", "ops.db"));
  const database = new DatabaseSync(path.join(tooNew.folder, "data", "ops.db"));
  database.exec("UPDATE schema_version SET version = 99");
  database.close();
  await server.open();
  const told = server.lines.filter((line) => line.includes("schema")).sort();
  const expected = [
    `bucket ${path.basename(old.folder)}: the database has schema 1; run \`ops init\`, or POST …/init, to upgrade it`,
    `bucket ${path.basename(tooNew.folder)}: the database has schema 99, this program knows ${SCHEMA_VERSION}; use a newer ops`,
  ];
  assert.deepEqual(told, expected.sort());
});

test("a bucket with an older schema is listed with it, says what to do, and init upgrades it", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket();
  toSchema1(path.join(folder, "data", "ops.db"));
  const shown = async () => (await server.call("GET", "/api/buckets")).body.items[0];
  const stateOf = ({ initialized, schema_version, failed_allocations }: Record<string, unknown>) =>
    [initialized, schema_version, failed_allocations] as const;
  assert.deepEqual(stateOf(await shown()), [true, 1, null]);
  const refused = await server.call("GET", `${bucket}/cat/deployments`);
  assert.deepEqual([refused.status, refused.body.error], [409, "schema_upgrade_required"]);
  const { body } = await server.call("POST", `${bucket}/init`);
  assert.deepEqual(body, { schema_version: SCHEMA_VERSION, upgraded: true });
  assert.deepEqual(stateOf(await shown()), [true, SCHEMA_VERSION, 0]);
  assert.equal((await server.call("GET", `${bucket}/cat/deployments`)).status, 200);
});

test("a database that stays busy is 503 after the tries", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket();
  // While the server reads, nobody else can have the database to himself.
  await server.stop();
  const database = new DatabaseSync(path.join(folder, "data", "ops.db"));
  await server.open();
  database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE bucket SET update_seq = 1; COMMIT");
  const busy = await server.call("GET", bucket);
  assert.deepEqual([busy.status, busy.body.error], [503, "database_busy"]);
  database.close();
  assert.equal((await server.call("GET", bucket)).status, 200);
});

test("CP-072 CP-073 CP-236 T-14 a bucket gets another project or name, and nothing else of it changes", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket({ project: "shop", name: "live" });
  const file = () => JSON.parse(readFileSync(path.join(folder, "bucket.json"), "utf8"));
  const { created_at } = file();
  const others = () =>
    readdirSync(folder, { recursive: true })
      // The messenger writes its state whenever it comes to the bucket.
      .filter((name) => name !== "bucket.json" && !`${name}`.startsWith(".ops/messages"))
      .sort();
  const before = others();
  server.hold();
  await server.call("POST", `${bucket}/build`);
  const running = others();
  const renamed = await server.call("PUT", bucket, { body: { name: "test" } });
  assert.deepEqual([renamed.body.project, renamed.body.name, renamed.body.created_at], ["shop", "test", created_at]);
  assert.deepEqual(file(), { project: "shop", name: "test", created_at });
  await server.call("PUT", bucket, { body: { project: "other" } });
  assert.deepEqual(file(), { project: "other", name: "test", created_at });
  assert.deepEqual((await server.call("PUT", bucket)).body.name, "test");
  assert.deepEqual(others(), running);
  assert.ok(running.length > before.length);
  for (const body of [{ id: randomUUID() }, { name: "" }, { project: "a\nb" }, { name: 1 }])
    assert.equal((await server.call("PUT", bucket, { body })).status, 400);
  assert.equal((await server.call("PUT", `/api/buckets/${randomUUID()}`, { body: {} })).status, 404);
  assert.deepEqual(server.inRoot(), [path.basename(folder)]);
});

test("CP-237 a deleted bucket is gone from the list, from the disk and for every request", async (t) => {
  const server = await TestServer.start(t);
  const kept = await server.createBucket();
  const gone = await server.createBucket();
  const { body } = await server.call("POST", `${gone.path}/build`);
  await server.ended(gone.path, body.run_id);
  const reply = await server.call("DELETE", gone.path);
  assert.deepEqual([reply.status, reply.text], [204, ""]);
  assert.deepEqual(server.inRoot(), [kept.id]);
  assert.deepEqual(
    (await server.call("GET", "/api/buckets")).body.items.map(({ id }: { id: string }) => id),
    [kept.id],
  );
  for (const [method, below] of [
    ["GET", ""],
    ["DELETE", ""],
    ["PUT", ""],
    ["POST", "/build"],
    ["POST", "/init"],
    ["GET", `/runs/${body.run_id}/logs`],
  ] as const)
    assert.equal((await server.call(method, `${gone.path}${below}`)).body.error, "bucket_not_found", below);
  const again = await server.createBucket({ id: gone.id });
  assert.deepEqual((await server.call("GET", `${again.path}/runs`)).body.items, []);
});

test("a bucket is neither deleted nor initialised while a run is active or a command holds its lock", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket();
  const refused = async () => {
    for (const [method, target] of [
      ["DELETE", bucket],
      ["POST", `${bucket}/init`],
    ] as const) {
      const { status, body } = await server.call(method, target);
      assert.deepEqual([status, body.error], [409, "bucket_busy"], target);
      assert.equal(body.message, "bucket busy: another ops operation is in progress");
      assert.deepEqual([typeof body.details.since, body.details.command], ["string", "build"]);
    }
  };
  const lock = await acquireLock(layoutOf(folder), uuidV7(), "build");
  await refused();
  await lock.release();
  server.hold();
  const { run_id } = (await server.call("POST", `${bucket}/build`)).body;
  await refused();
  server.release();
  assert.equal((await server.ended(bucket, run_id)).status, "succeeded");
  assert.equal((await server.call("DELETE", bucket)).status, 204);
});

test("of a delete and starts at the same moment each is answered as if it were alone, and nothing half is left", async (t) => {
  const server = await TestServer.start(t);
  for (let round = 0; round < 10; round++) {
    const { path: bucket, id } = await server.createBucket();
    const replies = await Promise.all([
      server.call("POST", `${bucket}/init`),
      server.call("DELETE", bucket),
      server.call("DELETE", bucket),
      server.call("PUT", bucket, { body: { name: "x" } }),
      server.call("GET", "/api/buckets"),
    ]);
    for (const { status } of replies) assert.ok([200, 204, 404, 409].includes(status), String(status));
    if (server.inRoot().includes(id)) await server.call("DELETE", bucket);
    assert.deepEqual(server.inRoot(), []);
  }
});

test("a bucket with a damaged journal, or without a database, can be deleted", async (t) => {
  const server = await TestServer.start(t);
  for (const damage of [".ops/journal.json", "data"]) {
    const { path: bucket, folder } = await server.createBucket();
    rmSync(path.join(folder, damage), { recursive: true, force: true });
    if (damage !== "data") writeFileSync(path.join(folder, damage), "nonsense");
    assert.equal((await server.call("DELETE", bucket)).status, 204, damage);
  }
  assert.deepEqual(server.inRoot(), []);
});

test("CP-103 CP-104 CP-078 init makes the database of a bucket, or leaves the present one as it is", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder, id } = await server.createBucket();
  const key = readFileSync(path.join(folder, "secrets", "kv.key"));
  const authority = readFileSync(path.join(folder, "secrets", "ca.key"));
  const first = await server.call("POST", `${bucket}/init`);
  assert.deepEqual([first.status, first.body], [200, { schema_version: SCHEMA_VERSION, upgraded: false }]);
  rmSync(path.join(folder, "data"), { recursive: true });
  const second = await server.call("POST", `${bucket}/init`);
  assert.deepEqual([second.status, second.body], [200, { schema_version: SCHEMA_VERSION, upgraded: true }]);
  assert.deepEqual(readFileSync(path.join(folder, "secrets", "kv.key")), key);
  assert.deepEqual(readFileSync(path.join(folder, "secrets", "ca.key")), authority);
  const shown = (await server.call("GET", bucket)).body;
  assert.deepEqual([shown.initialized, shown.schema_version], [true, SCHEMA_VERSION]);
  assert.equal((await server.call("GET", `${bucket}/info`)).body.bucket_id, id);
  const { body } = await server.call("POST", `${bucket}/build`);
  assert.equal((await server.ended(bucket, body.run_id)).status, "succeeded");
});

test("init refuses the folder of another bucket under a new id, and says whose database it has", async (t) => {
  const server = await TestServer.start(t);
  const { id, folder } = await server.createBucket();
  const copied = randomUUID();
  cpSync(folder, path.join(path.dirname(folder), copied), { recursive: true });
  const { status, body } = await server.call("POST", `/api/buckets/${copied}/init`);
  assert.deepEqual([status, body.error], [400, "invalid_bucket_id"]);
  assert.match(body.message, new RegExp(`/${copied} belongs to bucket ${id}, not ${copied}$`));
});

test("init refuses a newer schema and changes nothing", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket();
  const database = new DatabaseSync(path.join(folder, "data", "ops.db"));
  database.exec("UPDATE schema_version SET version = 99");
  const { status, body } = await server.call("POST", `${bucket}/init`);
  assert.deepEqual([status, body.error], [409, "schema_too_new"]);
  assert.equal(database.prepare("SELECT version FROM schema_version").get()?.version, 99);
  database.close();
});
