import assert from "node:assert/strict";
import { test } from "node:test";
import { ALLOCATION, BUILT_WORKER, HOOK, JOB, JOB_FILE, WORKER } from "../../../lib/bucket/base/model.ts";
import { column, readRecords, replaceRows, rowOf } from "../../../lib/bucket/base/table.ts";
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
