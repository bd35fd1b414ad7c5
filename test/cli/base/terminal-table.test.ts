import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonText, printAnswer, textTable, visible, visibleLines } from "../../../lib/cli/base/terminal.ts";

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
  assert.match(table, /^x{3}… {2}y{3}… {2}z{3}…$/m);
  const wider = textTable(["a", "b", "c"], [["x".repeat(40), "y".repeat(40), "z".repeat(40)]], 28);
  assert.match(wider, /^x{7}… {2}y{7}… {2}z{7}…$/m);
});

test("hashes are cut before names, and UUIDs are their last letters, on a terminal alone", () => {
  const [name, hash, id] = [
    "a-name-of-forty-characters-or-a-little-more",
    "0f".repeat(32),
    "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70",
  ];
  const table = textTable(
    ["name", "hash", "id"],
    [
      [name, hash, id],
      ["b", "", null],
    ],
    80,
  );
  for (const line of table.split("\n")) assert.ok(line.length <= 80, line);
  assert.match(table, new RegExp(`^${name}  0f0f[0f]+…  8a3c5e70$`, "m"));
  assert.equal(textTable(["id"], [[id]]), `id\n${id}\n`);
  assert.match(textTable(["name", "hash"], [["x".repeat(60), hash]], 30), /^x{19}… {2}0f0f0f0…$/m);
});

test("a table of 200,000 rows is made", () => {
  const rows = Array.from({ length: 200_000 }, (_, index) => [index, "x"]);
  assert.ok(textTable(["number", "text"], rows, 80).endsWith("\n199999  x\n"));
});

for (const [what, text, shown] of [
  ["an escape sequence", "\u001b[31mred", "\\x1b[31mred"],
  ["a NUL and a newline", "a\0b\n", "a\\x00b\\x0a"],
  ["a mark that turns the writing around", "a\u202eb", "a\\u{202e}b"],
  ["letters of any script", "żółć 日本", "żółć 日本"],
] as const)
  test(`${what} is shown as text`, () => assert.equal(visible(text), shown));

test("of several lines only line ends and tabs stay; everything a terminal would obey is written out", () => {
  assert.equal(
    visibleLines("a\tb\n\x1b]0;title\x07\x1b[31mred\r\0\u009b2J\u202eabc\n"),
    "a\tb\n\\x1b]0;title\\x07\\x1b[31mred\\x0d\\x00\\x9b2J\\u{202e}abc\n",
  );
});

test("JSON holds nothing that a terminal would obey, and reads back as it was", () => {
  const value = { text: "\x1b[31m\x7f\u009b\u202e\ud800 \u{e0001} ü\n", list: [1, null] };
  const text = jsonText(value);
  assert.deepEqual(JSON.parse(text), value);
  assert.match(text, /^[^\p{C}]*$/mu);
  assert.equal(jsonText(undefined), "null\n");
});

test("the text of an answer is made only where it is printed", (t) => {
  const write = t.mock.method(process.stdout, "write", () => true);
  const text = () => assert.fail("nobody asked for the text");
  assert.equal(printAnswer({ switches: new Set(["json"]) }, { a: 1 }, text), 0);
  const printed = write.mock.calls.map(({ arguments: [first] }) => String(first)).join("");
  write.mock.restore();
  assert.deepEqual(JSON.parse(printed), { a: 1 });
});
