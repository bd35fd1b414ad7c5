import assert from "node:assert/strict";
import { closeSync, openSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { EntryCursor, recordedPlaces } from "../../../lib/run/log/log-entries.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

/** A file of entries, opened. */
function entries(t: TestContext, text: string): number {
  const file = path.join(temporaryFolder(t), "entries");
  writeFileSync(file, text);
  const descriptor = openSync(file, "r");
  t.after(() => closeSync(descriptor));
  return descriptor;
}

test("the entry that holds at a byte of a log is the last one at or before it", (t) => {
  const texts: string[] = [];
  const cursor = new EntryCursor(entries(t, "0 7\n10 8 a text\n20 9\n"), 0, (value, text) => texts.push(`${value} ${text}`));
  assert.deepEqual([cursor.moveTo(9), cursor.moveTo(10), cursor.moveTo(19), cursor.isAtEnd], [7, 8, 8, false]);
  const passed = new Set<number>();
  assert.deepEqual([cursor.moveTo(1_000, passed), [...passed], cursor.isAtEnd, texts], [9, [9], true, ["8 a text"]]);
});

test("a cursor that begins at the position of another one finds the entry that holds there", (t) => {
  const descriptor = entries(t, "5 1\n10 2\n20 3\n");
  const cursor = new EntryCursor(descriptor);
  assert.deepEqual([cursor.moveTo(4), cursor.moveTo(12)], [undefined, 2]);
  assert.equal(new EntryCursor(descriptor, cursor.position).moveTo(12), 2);
});

test("what is no entry does not count: numbers of more than 15 digits, other text, a line that is cut off", (t) => {
  const wrong = ["1234567890123456 5", "1 1234567890123456", "x 5", "1", "1  5", "1 5x", "1x5", ""];
  const most = 999_999_999_999_999;
  for (const line of wrong) assert.equal(new EntryCursor(entries(t, `${line}\n`)).moveTo(most), undefined, line);
  assert.equal(new EntryCursor(entries(t, `${most} ${most}\n`)).moveTo(most), most);
  assert.equal(new EntryCursor(entries(t, "1 5")).moveTo(most), undefined);
  assert.equal(new EntryCursor(undefined).moveTo(most), undefined);
});

test("lines are judged by the record of places where there is one, and where not every place is wanted", (t) => {
  const descriptor = entries(t, "0 0 ops - -\n10 1 stdout web w1\n");
  assert.equal(recordedPlaces(descriptor, {}), undefined);
  assert.equal(recordedPlaces(entries(t, ""), { job: "web" }), undefined);
  const isOfWeb = recordedPlaces(descriptor, { job: "web" });
  assert.deepEqual([isOfWeb?.(0, "web@w1 | a"), isOfWeb?.(10, "(node:7) a"), isOfWeb?.(21, "web@w1 | a")], [false, false, true]);
});
