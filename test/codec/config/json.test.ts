import assert from "node:assert/strict";
import { test } from "node:test";
import { formatJson, placesInJson } from "../../../lib/codec/config/json.ts";

test("what fits on a line stands on one, but for the outermost value; keys, numbers and strings stay as they are written", () => {
  const text = '\ufeff{"b":{"1":[1.10, 1e3,{}],"a":"\\u00e4"},"2":[], "1" : 12345678901234567890}';
  assert.equal(
    formatJson(text),
    '{\n  "b": { "1": [1.10, 1e3, {}], "a": "\\u00e4" },\n  "2": [],\n  "1": 12345678901234567890\n}\n',
  );
});

test("what does not fit into 100 characters is broken, and formatting it again changes nothing", () => {
  const long = { key: "x".repeat(40), list: ["y".repeat(30), "z".repeat(30)] };
  const once = formatJson(JSON.stringify([long, { short: true }]));
  assert.equal(
    once,
    `[\n  {\n    "key": "${long.key}",\n    "list": ["${long.list[0]}", "${long.list[1]}"]\n  },\n  { "short": true }\n]\n`,
  );
  assert.equal(formatJson(once), once);
  const inner = { a: { b: ["x".repeat(60), "y".repeat(60)] } };
  assert.equal(formatJson(JSON.stringify(inner)), `${JSON.stringify(inner, null, 2)}\n`);
  for (let width = 70; width < 110; width++) {
    const text = formatJson(JSON.stringify({ a: ["v".repeat(width), 1], b: 2 }));
    assert.equal(formatJson(text), text);
    const isFlat = text.split("\n").length === 5;
    assert.equal(isFlat, `  "a": ["${"v".repeat(width)}", 1],`.length <= 100, String(width));
  }
});

test("scalars and empty values are formatted too; 1,000 levels are the most", () => {
  for (const text of ["null", "{}", "[]", '"a"', "-1"]) assert.equal(formatJson(` ${text}\r\n`), `${text}\n`);
  const nested = (levels: number) => "[".repeat(levels) + "]".repeat(levels);
  formatJson(nested(1_000));
  assert.throws(() => formatJson(nested(1_001)), /nested more than 1000 levels/);
  const objects = (levels: number) => `${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`;
  formatJson(objects(1_000));
  assert.throws(() => formatJson(objects(1_001)), /nested more than 1000 levels/);
});

test("each value has the place of its key, or its own in a list", () => {
  const { members } = placesInJson('{"a": [1,\n {"b": 2}]}');
  const [a] = members;
  assert.deepEqual([a?.key, a?.value.at], ["a", 1]);
  assert.deepEqual(
    a?.value.members.map(({ key, value }) => [key, value.at]),
    [
      ["0", 7],
      ["1", 11],
    ],
  );
});
