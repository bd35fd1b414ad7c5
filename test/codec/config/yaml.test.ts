import assert from "node:assert/strict";
import { test } from "node:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { toYaml } from "../../../lib/codec/config/yaml.ts";

for (const [what, value, text] of [
  ["a number", 1.5, "1.5\n"],
  ["null", null, "null\n"],
  ["plain text", "two words, one comma", "two words, one comma\n"],
  ["words that only begin or end like a truth value", ["nothing", "piano", "yes"], '- nothing\n- piano\n- "yes"\n'],
  ["objects without a told field", { a: { b: undefined }, c: [{}, []] }, "a: {}\nc:\n  - {}\n  - []\n"],
  ["empty lists and objects", { a: [], b: {} }, "a: []\nb: {}\n"],
  ["nothing for undefined", { a: undefined, b: 1 }, "b: 1\n"],
  ["null for what JSON has no value for", [undefined, Number.POSITIVE_INFINITY], "- null\n- null\n"],
  ["objects in objects", { a: { b: true }, c: null }, "a:\n  b: true\nc: null\n"],
  ["lists of objects", { a: [{ b: 1, c: [2, [3]] }] }, "a:\n  - b: 1\n    c:\n      - 2\n      - - 3\n"],
  ["keys like text", { "200": 1, "/a/{b}": 2, true: 3 }, '"200": 1\n/a/{b}: 2\n"true": 3\n'],
] as const)
  test(`${what} is written as block YAML`, () => {
    assert.equal(toYaml(value), text);
  });

const TRICKY = [
  ...["", " ", "a ", " a", "a: b", "a #b", "#a", "- a", "-", "a\nb", "a\\b", '"', "'", "`a`", "{a}", "[a]", "*a", "&a"],
  ...["!a", "|", ">", "%a", "@a", "?", "? a", ":", "a:", "yes", "No", "ON", "off", "y", "null", "~", "true", "False"],
  ...["1", "1.5", "0x1", "1e3", ".inf", "2026-01-01", "12:30", "é", "\u2028", "\u0007", "a\tb", "<<", "=", "a,b", "a, b"],
  ...["$reference", "/p/{q}", "^[0-9a-f]{8}$", "x".repeat(300)],
];

test("every text is read back as it was by a YAML reader, as a value and as a key", async () => {
  const paths = {};
  const document = { openapi: "3.1.0", info: { title: "t", version: "1" }, paths, "x-values": TRICKY };
  const keys = { "x-keys": Object.fromEntries(TRICKY.map((text) => [text, { nested: [text] }])) };
  const validator = new Validator();
  const { valid, errors } = await validator.validate(toYaml({ ...document, ...keys }));
  assert.equal(valid, true, JSON.stringify(errors));
  assert.deepEqual(validator.specification, { ...document, ...keys });
});
