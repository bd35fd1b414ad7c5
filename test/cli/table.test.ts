import assert from "node:assert/strict";
import { test } from "node:test";
import { textTable, visible } from "../../lib/cli/table.ts";

test("columns are aligned, numbers to the right, and nothing is cut in a pipe", () => {
  const table = textTable(
    ["name", "size"],
    [
      ["a", 5],
      ["a-long-name", 12345],
    ],
  );
  assert.equal(table, "name          size\na                5\na-long-name  12345\n");
});

test("null is a dash, and lines do not end with blanks", () => {
  assert.equal(
    textTable(
      ["a", "b"],
      [
        [null, ""],
        [true, "x"],
      ],
    ),
    "a     b\n-\ntrue  x\n",
  );
});

test("on a terminal the widest columns are cut until a line fits", () => {
  const table = textTable(
    ["id", "text"],
    [
      ["1234", "x".repeat(100)],
      ["5", "short"],
    ],
    30,
  );
  for (const line of table.split("\n")) assert.ok(line.length <= 30, line);
  assert.match(table, /x…\n/);
  assert.match(table, /5 +short\n/);
});

test("a terminal that is far too narrow still gets a few characters of each column", () => {
  const table = textTable(["a", "b", "c"], [["x".repeat(40), "y".repeat(40), "z".repeat(40)]], 10);
  assert.match(table, /^x{7}… {2}y{7}… {2}z{7}…$/m);
});

for (const [what, text, shown] of [
  ["an escape sequence", "\u001b[31mred", "\\x1b[31mred"],
  ["a NUL and a newline", "a\0b\n", "a\\x00b\\x0a"],
  ["a mark that turns the writing around", "a\u202eb", "a\\u{202e}b"],
  ["letters of any script", "żółć 日本", "żółć 日本"],
] as const)
  test(`${what} is shown as text`, () => assert.equal(visible(text), shown));
