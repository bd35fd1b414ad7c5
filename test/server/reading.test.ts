import assert from "node:assert/strict";
import { mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type TestContext, test } from "node:test";
import { type Database, migrate } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { SCHEMA_VERSION } from "../../lib/bucket/base/schema.ts";
import { Failure } from "../../lib/core/errors.ts";
import { Readers } from "../../lib/server/reading.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

function setUp(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(layout.data);
  migrate(layout.database, "one");
  const readers = new Readers();
  t.after(() => readers.close());
  const id = "SELECT bucket_id FROM bucket";
  const read = () => readers.read(layout, (db) => db.get<{ bucket_id: string }>(id)?.bucket_id);
  const write = (sql: string) => {
    using other = new DatabaseSync(layout.database);
    other.exec(sql);
  };
  return { layout, readers, read, write };
}

test("a commit of another process is seen at once", async (t) => {
  const { read, write } = setUp(t);
  assert.equal(await read(), "one");
  write("UPDATE bucket SET bucket_id = 'two'");
  assert.equal(await read(), "two");
});

test("a database that another one took the place of, or that has gone, is not read any more", async (t) => {
  const { layout, read } = setUp(t);
  assert.equal(await read(), "one");
  const other = path.join(layout.data, "other.db");
  migrate(other, "other");
  renameSync(other, layout.database);
  assert.equal(await read(), "other");
  rmSync(layout.data, { recursive: true });
  await assert.rejects(read(), { code: "bucket_not_initialized" });
  mkdirSync(layout.data);
  migrate(layout.database, "again");
  assert.equal(await read(), "again");
});

test("a schema that changes meanwhile is refused, and works again when it is right", async (t) => {
  const { read, write } = setUp(t);
  assert.equal(await read(), "one");
  for (const [version, code] of [
    [99, "schema_too_new"],
    [0, "database_damaged"],
  ] as const) {
    write(`UPDATE schema_version SET version = ${version}`);
    for (let times = 0; times < 2; times++) await assert.rejects(read(), { code });
  }
  write(`UPDATE schema_version SET version = ${SCHEMA_VERSION}`);
  assert.equal(await read(), "one");
});

test("a database that stays locked is busy after three tries, and is read once it is free", async (t) => {
  const { layout, read } = setUp(t);
  assert.equal(await read(), "one");
  const other = new DatabaseSync(layout.database);
  t.after(() => other.isOpen && other.close());
  // Who keeps a database to itself waits for its readers to leave.
  const locked = () => other.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE bucket SET update_seq = 1; COMMIT");
  assert.throws(locked, /locked/);
  other.close();
  assert.equal(await read(), "one");
});

test("what the work throws is thrown, and the database stays in use, unless SQLite has failed", async (t) => {
  const { layout, readers, read } = setUp(t);
  const wrong = () =>
    readers.read(layout, () => {
      throw new Failure("not_found", "no such job");
    });
  const used = () => readers.read(layout, (db) => db);
  const first = await used();
  await assert.rejects(wrong(), { code: "not_found" });
  assert.equal(await used(), first);
  await assert.rejects(async () => readers.read(layout, (db) => db.get("SELECT none")), /no such column/);
  assert.notEqual(await used(), first, "after an error of SQLite it is opened anew");
  assert.equal(await read(), "one");
});

test("a database is closed five seconds after it was opened for a read, not after another one was in its place", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { layout, readers } = setUp(t);
  const opened = () => readers.read(layout, (db) => db);
  const isOpen = (db: Database) => {
    try {
      return db.get("SELECT 1") !== undefined;
    } catch {
      return false;
    }
  };
  const first = await opened();
  t.mock.timers.tick(3_000);
  const other = path.join(layout.data, "other.db");
  migrate(other, "other");
  renameSync(other, layout.database);
  const second = await opened();
  t.mock.timers.tick(3_000);
  assert.deepEqual([isOpen(first), isOpen(second)], [false, true]);
  t.mock.timers.tick(2_000);
  assert.equal(isOpen(second), false);
});

test("no more than 32 databases are open at a time", async (t) => {
  const readers = new Readers();
  t.after(() => readers.close());
  const root = temporaryFolder(t);
  const open = () => readdirSync("/proc/self/fd").length;
  const before = open();
  for (let count = 0; count < 60; count++) {
    const layout = layoutOf(path.join(root, String(count)));
    mkdirSync(layout.data, { recursive: true });
    migrate(layout.database, String(count));
    await readers.read(layout, (db) => db.get("SELECT 1"));
  }
  assert.ok(open() - before <= 3 * 33, String(open() - before));
  readers.close();
  assert.ok(open() - before < 5, String(open() - before));
});
