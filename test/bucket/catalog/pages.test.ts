import assert from "node:assert/strict";
import { test } from "node:test";
import { cursorOf, keyOf, readPage } from "../../../lib/bucket/catalog/pages.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const WRONG = { code: "invalid_request", message: "cursor: expected the next_cursor of an earlier answer" };

test("a cursor stands for the key of a row, and no other text is a cursor", () => {
  for (const key of [["web", 3], ["", -1], ["größe"]]) assert.deepEqual(keyOf(cursorOf(key) ?? ""), key);
  assert.deepEqual([keyOf(undefined), cursorOf(null)], [undefined, null]);
  const cursor = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  for (const text of ["", "x", "[1", cursor({}), cursor("a"), cursor([1.5]), cursor([null]), cursor(["a", {}])])
    assert.throws(() => keyOf(text), WRONG, text);
});

test("pages hold all rows in order, also of some leads only, and a key of another listing is refused", async (t) => {
  const { db } = await makeBucket(t);
  db.script("CREATE TABLE pages (a TEXT, b INTEGER, PRIMARY KEY (a, b))");
  const rows = ["x", "y", "z"].flatMap((a) => [1, 2, 3].map((b) => ({ a, b })));
  for (const { a, b } of rows.toReversed()) db.run("INSERT INTO pages VALUES (?, ?)", a, b);
  const read = (limit: number, leads?: string[]) => {
    const listing = { columns: "a, b", from: "pages", key: ["a", "b"] as [string, string], leads };
    const pages: string[][] = [];
    for (let after: ReturnType<typeof keyOf>; ; ) {
      const page = readPage(db, listing, { after, limit });
      pages.push(page.rows.map(({ a, b }) => `${a}${b}`));
      if (page.next === null) return pages;
      after = page.next;
    }
  };
  const all = rows.map(({ a, b }) => `${a}${b}`);
  assert.deepEqual(read(9), [all], "the last page has no next one");
  assert.deepEqual(read(4), [all.slice(0, 4), all.slice(4, 8), all.slice(8)]);
  const some = all.filter((one) => !one.startsWith("y"));
  for (const limit of [1, 2, 3, 4, 6]) assert.deepEqual(read(limit, ["z", "x", "z", "no"]).flat(), some);
  assert.deepEqual(read(6, ["x", "z"]), [some]);
  assert.deepEqual(read(5, []), [[]]);
  const listing = { columns: "a", from: "pages", key: ["a", "b"] as [string, string] };
  assert.throws(() => readPage(db, listing, { after: ["x"], limit: 1 }), WRONG);
});
