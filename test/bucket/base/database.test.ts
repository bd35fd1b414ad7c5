import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import {
  bucketIdOf,
  type Database,
  databaseFailure,
  exclusively,
  isDamaged,
  lostContents,
  migrate,
  openDatabase,
  openForReading,
  requireSchema,
  schemaFailure,
  schemaVersion,
} from "../../../lib/bucket/base/database.ts";
import { SCHEMA_VERSION } from "../../../lib/bucket/base/schema.ts";
import { setLastOutcome } from "../../../lib/bucket/catalog/info.ts";
import { beginChange, promote, promotionsOf, recordSynced } from "../../../lib/bucket/catalog/promotions.ts";
import { sleep } from "../../../lib/core/async.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { HTTP_STATUS } from "../../../lib/http/message.ts";
import { toSchema1, toSchema2 } from "../../helpers/schemas.ts";
import { openFiles, temporaryFolder } from "../../helpers/temporary.ts";

const ID = "0190a5e8-0000-7000-8000-000000000001";

function file(t: Parameters<typeof temporaryFolder>[0]): string {
  return path.join(temporaryFolder(t), "ops.db");
}

function migrated(t: Parameters<typeof temporaryFolder>[0]): string {
  const name = file(t);
  migrate(name, ID);
  return name;
}

const SEQUENCE = "SELECT update_seq FROM bucket";

function sequence(db: Database): number | undefined {
  return db.get<{ update_seq: number }>(SEQUENCE)?.update_seq;
}

test("a new database gets schema and id, which later migrations keep", (t) => {
  const name = file(t);
  assert.deepEqual(migrate(name, ID), { bucketId: ID, upgraded: true });
  assert.deepEqual(migrate(name, "0190a5e8-0000-7000-8000-000000000002"), { bucketId: ID, upgraded: false });
  using db = openDatabase(name);
  assert.deepEqual([schemaVersion(db), bucketIdOf(db), sequence(db)], [SCHEMA_VERSION, ID, 0]);
});

test("what cannot be opened is refused with what to do, and nothing springs into being", (t) => {
  const missing = file(t);
  const empty = file(t);
  writeFileSync(empty, "");
  const damaged = file(t);
  writeFileSync(damaged, "this is no database ".repeat(100));
  for (const open of [openDatabase, openForReading]) {
    assert.throws(() => open(missing), { code: "bucket_not_initialized" });
    assert.throws(() => open(empty), { code: "bucket_not_initialized", message: /run `ops init`/ });
    assert.throws(() => open(damaged), {
      code: "database_damaged",
      message: `Cannot read ${damaged}: it is damaged; restore a snapshot (\`ops snapshot restore\`, or POST …/snapshots/{name}/restore), or bring it back from a backup`,
    });
  }
  assert.throws(() => statSync(missing), { code: "ENOENT" });
  assert.deepEqual(
    openFiles().filter((name) => [missing, empty, damaged].includes(name)),
    [],
  );
});

test("rows come as lists where a query asks for lists, as objects afterwards; a second close does nothing", (t) => {
  const db = openDatabase(migrated(t));
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(db.tuples(SEQUENCE), [[0]]);
    assert.equal(sequence(db), 0);
  }
  db.close();
  db.close();
  assert.throws(() => db.all(SEQUENCE));
});

test("another schema is refused: an older one names the upgrade, a newer one both versions", (t) => {
  const name = migrated(t);
  const setVersion = (version: number) => {
    using db = openDatabase(name);
    db.run("UPDATE schema_version SET version = ?", version);
  };
  setVersion(SCHEMA_VERSION + 1);
  assert.throws(() => openDatabase(name), { code: "schema_too_new", details: { schema_version: SCHEMA_VERSION + 1 } });
  assert.throws(() => migrate(name, ID), { code: "schema_too_new" });
});

test("schema 1 is upgraded: an allocation that a deploy left half-way does not count as synced", (t) => {
  const name = migrated(t);
  {
    using db = openDatabase(name);
    for (const [id, unfinished] of [
      ["half", 1],
      ["whole", 0],
    ] as const)
      db.run(
        "INSERT INTO hash (namespace, key, current_hash, previous_hash, current_files, previous_files, current_version, unfinished) VALUES ('web_allocation', ?, 'h', 'h', '{}', '{}', '1', ?)",
        ...[id, unfinished],
      );
  }
  toSchema1(name);
  assert.throws(() => openForReading(name), { code: "schema_upgrade_required", details: { schema_version: 1 } });
  assert.deepEqual(migrate(name, ID), { bucketId: ID, upgraded: true });
  using db = openDatabase(name);
  const promotionOf = promotionsOf(db, "web");
  assert.deepEqual([promotionOf("half").synced, promotionOf("whole").synced], ["", "h"]);
  setLastOutcome(db, "half", "run", { action: "sync", outcome: "unknown", reason: "" });
});

test("schema 2 is upgraded: the rows of allocations get the states that are recorded", (t) => {
  const name = migrated(t);
  const rows = "SELECT position, rollout, outcome, unsettled, runs, promoted_version FROM allocations ORDER BY job";
  let recorded: unknown;
  {
    using db = openDatabase(name);
    const worker = "worker_ip, worker_id, position, connection, root, available_memory_mb, available_cpu_mhz";
    db.run(`INSERT INTO worker (${worker}) VALUES ('10.0.0.1', 'w', 7, 'ssh', '/', 0, 0)`);
    for (const job of ["a", "b", "c"])
      db.run(
        "INSERT INTO allocations (alloc_id, worker_ip, job, disabled, removed, deployment_seq, new_version, position) VALUES (?1, '10.0.0.1', ?1, 0, 0, 0, '1', 7)",
        job,
      );
    beginChange(db, "a", ["a"]);
    recordSynced(db, "a", [{ id: "a", hash: "h", files: {}, updateSeq: 1 }]);
    promote(db, { job: "a", id: "a" }, "1");
    beginChange(db, "b", ["b"]);
    setLastOutcome(db, "b", "run", { action: "sync", outcome: "failed", reason: "" });
    recorded = db.tuples(rows);
  }
  assert.deepEqual(recorded, [
    [7, "promoted", "", 0, 1, "1"],
    [7, "new", "failed", 1, 1, null],
    [7, "new", "", 0, 0, null],
  ]);
  const old = new DatabaseSync(name);
  toSchema2(old);
  old.close();
  assert.deepEqual(migrate(name, ID), { bucketId: ID, upgraded: true });
  using db = openDatabase(name);
  assert.deepEqual(db.tuples(rows), recorded);
});

test("a transaction is stored as a whole or not at all", (t) => {
  using db = openDatabase(migrated(t));
  assert.equal(
    db.transaction(() => db.run("UPDATE bucket SET update_seq = 1")),
    1,
  );
  const work = () => {
    db.run("UPDATE bucket SET update_seq = 2");
    throw new Error("no");
  };
  assert.throws(() => db.transaction(work), { message: "no" });
  assert.equal(sequence(db), 1);
  db.transaction(() => db.run("UPDATE bucket SET update_seq = 3"));
});

test("where SQLite itself has undone a transaction, its reason is the error", (t) => {
  using db = openDatabase(migrated(t));
  const work = () => {
    db.run("UPDATE bucket SET update_seq = 2");
    db.run("INSERT OR ROLLBACK INTO bucket (bucket_id) VALUES (?)", ID);
  };
  assert.throws(() => db.transaction(work), { message: /UNIQUE constraint failed/ });
  assert.equal(sequence(db), 0);
  db.transaction(() => db.run("UPDATE bucket SET update_seq = 3"));
});

test("commits are on the disk before anything is done on their strength", (t) => {
  using db = openDatabase(migrated(t));
  assert.deepEqual({ ...(db.get("PRAGMA journal_mode") as object) }, { journal_mode: "wal" });
  assert.deepEqual({ ...(db.get("PRAGMA synchronous") as object) }, { synchronous: 2 });
});

test("a reader reads beside a writer and can write nothing", (t) => {
  const name = migrated(t);
  using writer = openDatabase(name);
  using reader = openForReading(name);
  writer.transaction(() => {
    writer.run("UPDATE bucket SET update_seq = 7");
    assert.equal(sequence(reader), 0);
  });
  assert.equal(sequence(reader), 7);
  assert.throws(() => reader.run("UPDATE bucket SET update_seq = 8"), { message: /readonly/ });
});

test("CP-118 one at a time works exclusively, in this process too, and the others wait their turn", async (t) => {
  const name = file(t);
  let inside = 0;
  const work = async () => {
    assert.equal(++inside, 1);
    await sleep(20);
    inside--;
  };
  const done = await Promise.all(Array.from({ length: 4 }, () => exclusively(name, 10_000, work)));
  assert.deepEqual(done, [true, true, true, true]);
});

test("who waits in vain is told so; a process that dies lets go", async (t) => {
  const name = file(t);
  const code = `new (require("node:sqlite").DatabaseSync)(process.argv[1]).exec("BEGIN EXCLUSIVE"); console.log("has it"); setInterval(() => {}, 1000)`;
  const other = spawn(process.execPath, ["-e", code, name], { stdio: ["ignore", "pipe", "ignore"] });
  t.after(() => other.kill("SIGKILL"));
  await once(other.stdout, "data");
  let ran = 0;
  const work = async () => {
    ran++;
  };
  assert.equal(await exclusively(name, 60, work), false);
  other.kill("SIGKILL");
  assert.equal(await exclusively(name, 10_000, work), true);
  assert.equal(ran, 1);
});

test("what fails inside lets go as well", async (t) => {
  const name = file(t);
  const fail = async () => {
    throw new Error("no");
  };
  await assert.rejects(exclusively(name, 1_000, fail), { message: "no" });
  assert.equal(await exclusively(name, 1_000, async () => {}), true);
});

/** Codes of SQLite: the primary one in the low byte, the extension above. */
for (const [name, errcode, code] of [
  ["BUSY", 5, "database_busy"],
  ["BUSY_RECOVERY", 261, "database_busy"],
  ["BUSY_SNAPSHOT", 517, "database_busy"],
  ["LOCKED_SHAREDCACHE", 262, "database_busy"],
  ["CANTOPEN_ISDIR", 526, "bucket_not_initialized"],
  ["IOERR_READ", 266, "failed"],
  ["CORRUPT_INDEX", 779, "database_damaged"],
] as const)
  test(`SQLite's ${name} is ${code}`, () => {
    const error = databaseFailure(Object.assign(new Error(name), { errcode }), "ops.db") as Failure;
    assert.ok(error instanceof Failure);
    assert.equal(error.code, code);
    if (code === "database_busy") assert.equal(HTTP_STATUS[error.code], 503);
  });

test("a file that is no database is told at once by whoever wants to work in it alone", async (t) => {
  const file = path.join(temporaryFolder(t), "lock");
  writeFileSync(file, "no database ".repeat(1_000));
  await assert.rejects(
    exclusively(file, 600_000, async () => {}),
    /not a database/,
  );
});

test("each trouble of SQLite is told with what to do, and any other error is passed on as it is", () => {
  const told = (errcode: number) => {
    const { code, message } = databaseFailure(Object.assign(new Error("why"), { errcode }), "f") as Failure;
    return [code, message.replace(/; restore a snapshot.*$/, "; …")];
  };
  for (const [code, failure] of [
    [5, ["database_busy", "the bucket's database is busy; try again"]],
    [6, ["database_busy", "the bucket's database is busy; try again"]],
    [8, ["failed", "Cannot use f: permission denied: run ops as the owner, or change the rights"]],
    [10, ["failed", "Cannot use f: why; is the disk full?"]],
    [11, ["database_damaged", "Cannot read f: it is damaged; …"]],
    [13, ["failed", "Cannot use f: the disk is full: make room there"]],
    [14, ["bucket_not_initialized", "Cannot open f: the bucket is not initialised"]],
    [26, ["database_damaged", "Cannot read f: it is damaged; …"]],
  ] as const)
    assert.deepEqual(told(code), failure, String(code));
  for (const error of [new Failure("not_found", "x"), new Error("plain"), Object.assign(new Error("x"), { errcode: 1 })])
    assert.equal(databaseFailure(error, "f"), error);
});

test("a database is damaged where it cannot be read as a whole, or lacks a content; one that is missing or locked is not", (t) => {
  const name = migrated(t);
  assert.deepEqual([isDamaged(name), schemaFailure(name)], [false, undefined]);
  {
    using db = openDatabase(name);
    db.run("INSERT INTO contents (sha256, sealed, size_bytes, content) VALUES ('a', 1, 5, NULL), ('b', 0, 5, NULL)");
    assert.deepEqual(lostContents(db).sort(), ["a.sealed", "b"]);
    assert.equal(isDamaged(name), true);
    mkdirSync(db.contents);
    for (const content of ["a.sealed", "b"]) writeFileSync(path.join(db.contents, content), "");
    assert.equal(isDamaged(name), false);
  }
  const [missing, none] = [file(t), file(t)];
  writeFileSync(none, "this is no database ".repeat(100));
  assert.deepEqual([isDamaged(missing), isDamaged(none)], [false, true]);
  assert.deepEqual([schemaFailure(missing)?.code, schemaFailure(none)?.code], ["bucket_not_initialized", "database_damaged"]);
  using db = openDatabase(name);
  const set = (version: number) => db.run("UPDATE schema_version SET version = ?", version);
  set(SCHEMA_VERSION - 1);
  const old = `the database has schema ${SCHEMA_VERSION - 1}; run \`ops init\`, or POST …/init, to upgrade it`;
  assert.throws(() => requireSchema(db), {
    code: "schema_upgrade_required",
    message: old,
    details: { schema_version: SCHEMA_VERSION - 1 },
  });
  set(SCHEMA_VERSION + 1);
  const message = `the database has schema ${SCHEMA_VERSION + 1}, this program knows ${SCHEMA_VERSION}; use a newer ops`;
  assert.throws(() => requireSchema(db), { code: "schema_too_new", message });
  set(0);
  assert.throws(() => requireSchema(db), { code: "database_damaged", message: /its schema version is 0; / });
  db.run("DELETE FROM schema_version");
  assert.throws(() => schemaVersion(db), { code: "database_damaged", message: /its schema version is missing; / });
  db.script("DROP TABLE schema_version");
  assert.equal(schemaVersion(db), 0);
  const unmade = "the bucket is not initialised; run `ops init`, or POST …/init";
  assert.throws(() => requireSchema(db), { code: "bucket_not_initialized", message: unmade });
});

test("a link in the place of the database is followed by nobody", async (t) => {
  const [name, link] = [migrated(t), file(t)];
  symlinkSync(name, link);
  for (const open of [openDatabase, openForReading, () => migrate(link, ID)]) assert.throws(() => open(link));
  await assert.rejects(exclusively(link, 0, async () => {}));
});

test("a transaction is stored as a whole or not at all", (t) => {
  using db = openDatabase(migrated(t));
  assert.equal(
    db.transaction(() => db.run("UPDATE bucket SET update_seq = 3")),
    1,
  );
  const fails = () => {
    db.run("UPDATE bucket SET update_seq = 4");
    throw new Error("no");
  };
  assert.throws(() => db.transaction(fails), /no/);
  assert.equal(sequence(db), 3);
  const rolledBack = () => {
    db.script("ROLLBACK");
    throw new Error("undone already");
  };
  assert.throws(() => db.transaction(rolledBack), /undone already/);
  assert.deepEqual([db.transaction(() => 7), db.columns("SELECT 1 AS a, 2 AS b")], [7, ["a", "b"]]);
});
