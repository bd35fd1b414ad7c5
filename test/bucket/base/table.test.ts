import assert from "node:assert/strict";
import { test } from "node:test";
import { ALLOCATION, BUILT_WORKER, HOOK, JOB, JOB_FILE, WORKER } from "../../../lib/bucket/base/model.ts";
import { column, readRecords, replaceRows, rowOf, writeRows } from "../../../lib/bucket/base/table.ts";
import { makeBucket } from "../../helpers/workspace.ts";

test("every described column is one of the schema", async (t) => {
  const { db } = await makeBucket(t);
  for (const { name, columns } of [ALLOCATION, BUILT_WORKER, HOOK, JOB, JOB_FILE, WORKER]) {
    const known = db.columns(`SELECT * FROM ${name}`);
    const described = Object.values(columns).map((one) => one.name);
    assert.deepEqual(
      described.filter((one) => !known.includes(one)),
      [],
      name,
    );
  }
});

test("a record is read as it was stored, and a field that is absent stays absent", async (t) => {
  const { db } = await makeBucket(t);
  db.script("CREATE TABLE things (id TEXT PRIMARY KEY, isNew INTEGER, list TEXT, note TEXT, bytes BLOB)");
  const THING = {
    name: "things",
    columns: {
      id: column.plain<string>("id"),
      fresh: column.flag("isNew"),
      list: column.json<string[] | null>("list"),
      note: column.optional<string>("note"),
      bytes: column.blob("bytes"),
    },
  };
  const one = { id: "1", fresh: true, list: ["a"], bytes: Buffer.from([0, 255]) };
  const two = { id: "2", fresh: false, list: null, note: "n", bytes: Buffer.alloc(0) };
  replaceRows(
    db,
    "things",
    [one, two].map((record) => rowOf(THING, record)),
  );
  assert.deepEqual(readRecords(db, THING, "ORDER BY id"), [one, two]);
  assert.deepEqual(readRecords(db, THING, "WHERE id = ?", "2"), [two]);
  replaceRows(db, "things", [rowOf(THING, { ...one, list: [] })], new Set(["2"]));
  assert.deepEqual(readRecords(db, THING, "ORDER BY id"), [{ ...one, list: [] }, two]);
});

test("rows take the place of those with their key, and only those that differ are written", async (t) => {
  const { db } = await makeBucket(t);
  db.script("CREATE TABLE pairs (a TEXT, b INTEGER, c TEXT, d BLOB, PRIMARY KEY (a, b)); CREATE TABLE keys (k TEXT PRIMARY KEY)");
  db.script("CREATE TABLE writes (what TEXT)");
  for (const event of ["INSERT", "UPDATE", "DELETE"])
    db.script(`CREATE TRIGGER on_${event} AFTER ${event} ON pairs BEGIN INSERT INTO writes VALUES ('${event}'); END`);
  const writes = () => {
    const found = db.all("SELECT what FROM writes ORDER BY what").map(({ what }) => what);
    db.run("DELETE FROM writes");
    return found;
  };
  const rows = () => db.tuples("SELECT a, b, c, CAST(d AS TEXT) FROM pairs ORDER BY a, b").map((row) => row.join(" "));
  const row = (a: string, b: number, c: string, d = "-") => ({ a, b, c, d: Buffer.from(d) });
  writeRows(db, "pairs", []);
  writeRows(db, "pairs", [row("x", 1, "1"), row("x", 2, "2"), row("y", 1, "3")]);
  writeRows(db, "pairs", [row("x", 2, "two")]);
  assert.deepEqual(
    [rows(), writes()],
    [
      ["x 1 1 -", "x 2 two -", "y 1 3 -"],
      ["INSERT", "INSERT", "INSERT", "UPDATE"],
    ],
  );
  for (const _ of [1, 2]) writeRows(db, "keys", [{ k: "a" }, { k: "a" }]);
  assert.deepEqual(db.tuples("SELECT k FROM keys"), [["a"]]);
  replaceRows(db, "pairs", [row("x", 1, "1", "other bytes"), row("x", 3, "new"), row("y", 1, "changed", "bytes")]);
  assert.deepEqual(rows(), ["x 1 1 -", "x 3 new -", "y 1 changed bytes"], "bytes alone are no difference");
  assert.deepEqual(writes(), ["DELETE", "INSERT", "UPDATE"]);
  replaceRows(db, "pairs", [row("z", 1, "1")], new Set(["x", null]));
  assert.deepEqual(
    [rows(), writes()],
    [
      ["x 1 1 -", "x 3 new -", "z 1 1 -"],
      ["DELETE", "INSERT"],
    ],
  );
  replaceRows(db, "pairs", []);
  assert.deepEqual(rows(), []);
});
