import assert from "node:assert/strict";
import { test } from "node:test";
import { plainLine, plainLines } from "../../lib/core/plain-text.ts";

for (const [what, text, plain] of [
  ["plain text", "größe 🙂", "größe 🙂"],
  ["a tab", "a\tb", "a  b"],
  ["colours", "\x1b[1;31mred\x1b[0m", "red"],
  ["a title", "a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc"],
  ["a title without end", "a\x1b]0;title", "a"],
  ["a character set", "\x1b(0a\x1bcb", "ab"],
  ["control characters", "\0a\x07\x1b\x9b1mb\x7f", "\ufffda\ufffd\ufffd\ufffd1mb\ufffd"],
  ["what turns the writing around", "a\u202eb\u2028c", "a\ufffdb\ufffdc"],
] as const)
  test(`${what} in a plain line`, () => {
    assert.equal(plainLine(text, 100), plain);
  });

test("a plain line is cut between characters", () => {
  assert.equal(plainLine("abcdef", 3), "abc…");
  assert.ok(plainLine("ab🙂🙂", 3).isWellFormed());
});

test("of many lines the last are shown", () => {
  assert.deepEqual(plainLines("a\r\nb\n\nc\n", { lines: 3, length: 10 }), ["b", "", "c"]);
  assert.deepEqual(plainLines("", { lines: 3, length: 10 }), []);
});
