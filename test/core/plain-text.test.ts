import assert from "node:assert/strict";
import { test } from "node:test";
import {
  byteSize,
  counted,
  countOf,
  decodeUtf8,
  firstOf,
  inOneLine,
  LastLines,
  lineAndColumn,
  plainLine,
  plainLines,
  TextFailure,
  textProblem,
  withLines,
} from "../../lib/core/plain-text.ts";

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

test("a line of just the length is not cut", () => {
  assert.equal(plainLine("abc", 3), "abc");
});

test("a place in a text is told by line and column, both from 1, whatever came before the text", () => {
  assert.deepEqual(lineAndColumn("ab\nc", 0), { line: 1, column: 1 });
  assert.deepEqual(lineAndColumn("ab\nc", 2), { line: 1, column: 3 });
  assert.deepEqual(lineAndColumn("ab\nc", 3), { line: 2, column: 1 });
  assert.deepEqual(lineAndColumn("\ufeff🙂x", 3), { line: 1, column: 2 });
  assert.deepEqual(lineAndColumn("a\ufeffb", 2), { line: 1, column: 3 }, "a mark counts where it is none");
});

test("bytes are text only where they are UTF-8, and a byte order mark is a part of it", () => {
  assert.equal(decodeUtf8(Buffer.from("\ufeffgrüße")), "\ufeffgrüße");
  for (const wrong of [[0xff], [0xc3], [0xed, 0xa0, 0x80]]) assert.equal(decodeUtf8(Buffer.from(wrong)), undefined);
});

test("what is wrong with a text is told with its place, where the error says one", () => {
  const failure = new TextFailure("a\nbc", 3, "expected d");
  assert.deepEqual([failure.code, failure.message], ["failed", "line 2, column 2: expected d"]);
  const { place, what } = textProblem(failure);
  assert.deepEqual([place, what], ["line 2, column 2", "expected d"]);
  assert.deepEqual(textProblem(new Error("gone")), { place: "", what: "gone" });
});

test("a number of bytes is told in the largest unit of which there is at least one", () => {
  const sizes = [0, 1, 1023, 1024, 1536, 10 * 1024 - 1, 10 * 1024, 1024 ** 2 - 1024, 64 * 1024 ** 2, 3000 * 1024 ** 5];
  const told = ["0 B", "1 B", "1023 B", "1.0 KiB", "1.5 KiB", "10.0 KiB", "10 KiB", "1023 KiB", "64 MiB", "3000 PiB"];
  assert.deepEqual(sizes.map(byteSize), told);
});

test("of a program's output the last 20 lines that are not empty are shown, and make's closing line where it is alone", () => {
  const shown = (...lines: string[]) => {
    const last = new LastLines();
    for (const line of lines) last.add(line);
    return last.shown((text) => text.replace("secret of\ntwo lines", "***"));
  };
  const numbers = Array.from({ length: 50 }, (_, index) => `${index + 1}`);
  assert.deepEqual(shown(...numbers, " ", "make: *** [x] Error 1"), numbers.slice(30));
  assert.deepEqual(shown("make: *** [x] Error 1", "make: *** [y] Error 2"), ["make: *** [y] Error 2"]);
  assert.deepEqual(shown(), []);
  assert.deepEqual(shown("one", "make: *** [x] Error 1"), ["one"]);
  assert.deepEqual(shown("x".repeat(400), "y".repeat(401)), ["x".repeat(400), `${"y".repeat(400)}…`]);
  assert.deepEqual(shown("secret of", "two lines", ...numbers.slice(0, 19)), ["***", ...numbers.slice(0, 19)]);
  assert.deepEqual(shown("secret of", "two lines", ...numbers.slice(0, 20)), numbers.slice(0, 20));
});

test("of a program's output 40 lines are kept to be masked: a secret of several lines may begin before those shown", () => {
  const last = new LastLines();
  for (let line = 1; line <= 50; line++) last.add(`${line}`);
  const kept: string[] = [];
  last.shown((text) => {
    kept.push(...text.split("\n"));
    return text;
  });
  assert.deepEqual([kept.length, kept[0], kept.at(-1)], [40, "11", "50"]);
});

test("what failed is told with the lines of the program below it, or in one line with the one that tells why", () => {
  assert.equal(withLines("it failed", []), "it failed");
  assert.equal(withLines("it failed", ["a"]), "it failed: a");
  assert.equal(withLines("it failed", ["a", "b"]), "it failed:\na\nb");
  assert.equal(inOneLine("it failed: a"), "it failed: a");
  assert.equal(inOneLine("it failed:\na\n  error: b \nc"), "it failed: error: b");
});

test("numbers and names are told in words", () => {
  assert.deepEqual(
    [0, 1, 2].map((number) => counted(number, "job")),
    ["0 jobs", "1 job", "2 jobs"],
  );
  assert.deepEqual([countOf(0, 1, "worker"), countOf(1, 2, "worker")], ["0 of 1 worker is", "1 of 2 workers are"]);
  assert.equal(firstOf(["a", "b", "c"], 3), "a, b, c");
  assert.equal(firstOf(["a", "b", "c", "d", "e"], 3), "a, b, c and 2 more");
});
