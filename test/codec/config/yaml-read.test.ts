import assert from "node:assert/strict";
import { test } from "node:test";
import { parseYaml, toYaml, type YamlPlaces, type YamlValue } from "../../../lib/codec/config/yaml.ts";

/** Without the missing prototypes. */
const plain = (text: string) => JSON.parse(JSON.stringify(parseYaml(text)));

// Each was compared with what PyYAML reads.
for (const [what, text, value] of [
  ["nothing", "# only a comment\n", null],
  ["a list below its key, as deep as that", "a:\n- b\n- c\nd: e\n", { a: ["b", "c"], d: "e" }],
  ["lists in lists", "- - 1\n  - 2\n-\n  - 3\n", [[1, 2], [3]]],
  [
    "mappings in lists",
    "- name: x\n  rules:\n  - alert: A\n    expr: up == 0\n    labels: {severity: page, to: [a, 'b'], none: }\n",
    [{ name: "x", rules: [{ alert: "A", expr: "up == 0", labels: { severity: "page", to: ["a", "b"], none: null } }] }],
  ],
  ["comments", "a: # c\n  b: 1 # d\n\n# x\n  c: x#y\n", { a: { b: 1, c: "x#y" } }],
  ["text that goes on", "a: b c\n  d e\n\n  f\ng: 1\n", { a: "b c d e\nf", g: 1 }],
  [
    "literal text",
    "a: |\n  x\n   y\n\n  {{ $z }} # no comment\nb: |-\n  t\nc: |+\n  u\n\n",
    { a: "x\n y\n\n{{ $z }} # no comment\n", b: "t", c: "u\n\n" },
  ],
  ["folded text", "a: >\n  x\n  y\n\n  z\nb: >-\n  s\n", { a: "x y\nz\n", b: "s" }],
  ["quotes", `a: "\\u00fc\\x41\\n\\"" # c\nb: 'it''s: #1'\n"q k": 1\n's': ''\n`, { a: 'üA\n"', b: "it's: #1", "q k": 1, s: "" }],
  ["quotes over lines", "a: \"x\n  y\n\n  z\\\n   w  \n   v\"\nb: 'p\n  q\n\n\n  r'\n", { a: "x y\nzw v", b: "p q\n\nr" }],
  ["blanks in quotes, as many as fit", `"${" ".repeat(1_000_000)}x"`, `${" ".repeat(1_000_000)}x`],
  [
    "what plain words mean",
    "[~, null, true, False, 0, -12, 1.5, 1e3, 30s, 1.2.3, 0x1f, yes, 12345678901234567890]",
    [null, null, true, false, 0, -12, 1.5, 1000, "30s", "1.2.3", "0x1f", "yes", "12345678901234567890"],
  ],
  [
    "signs within words",
    `a: http://x:90/\${1}?q={b}\nb: -x\nc: ?y\nd: a,b [c]\n`,
    { a: `http://x:90/\${1}?q={b}`, b: "-x", c: "?y", d: "a,b [c]" },
  ],
  ["brackets over lines", "a: [1, # one\n  2,\n]\nb: {}\n", { a: [1, 2], b: {} }],
  ["the mark of a document, other line ends", "---\r\na: 1\r\n", { a: 1 }],
  ["lines of blanks and tabs", "a: 1\n\t\nb: 2\n \t \nc: 3\n\t", { a: 1, b: 2, c: 3 }],
  ["a document with 99 brackets in each other", "[".repeat(99) + "]".repeat(99), JSON.parse("[".repeat(99) + "]".repeat(99))],
  ["as many characters as a document may have", `#${"x".repeat(1_048_575)}`, null],
  ["a byte order mark, which is text where nothing begins with it", 'a: "b\ufeff"\n', { a: "b\ufeff" }],
  ["a document that begins with a byte order mark", "\ufeffa: 1\n", { a: 1 }],
  ["a value with comments behind it", "'a' # b\n\n# c\n", "a"],
  ["a number with a comment deeper than it", "1\n  # c\n", 1],
  ["a number over two lines, which is text", "a: 1\n 2\n", { a: "1 2" }],
  ["keys without a value", "a:\n  b:\nc:\nd: 1\n", { a: { b: null }, c: null, d: 1 }],
  ["entries of a list without a value", "-\n- 1\n-\n", [null, 1, null]],
  ["text that goes on one blank deeper", "a:\n  b: c\n   d\n  e: |\n   f\n", { a: { b: "c d", e: "f\n" } }],
  ["literal text without a line", "a: |\nb: 1\n", { a: "", b: 1 }],
  ["empty lines behind literal text", "a: |\n  x\n\n\nb: |-\n  y\n\n", { a: "x\n", b: "y" }],
  ["blanks around a colon in brackets", '{"a" : 1, b : 2}', { a: 1, b: 2 }],
  ["every escape", '"\\b\\f\\n\\r\\t\\/\\\\\\ \\0\\U0010ffff"', "\b\f\n\r\t/\\ \0\u{10ffff}"],
  [
    "words that only begin or end like others",
    "[untrue, trueish, falsehood, 0x10, 1.5x]",
    ["untrue", "trueish", "falsehood", "0x10", "1.5x"],
  ],
  ["keys of objects", "__proto__: 1\n", JSON.parse('{"__proto__": 1}')],
] as const)
  test(`YAML is read: ${what}`, () => assert.deepEqual(plain(text), value));

for (const [what, text, message] of [
  ["an anchor", "a: &x 1\n", /^line 1, column \d+: expected a value: text that begins with one of/],
  ["an alias", "a: 1\nb: *x\n", /^line 2, column \d+: expected a value/],
  ["a tag", "- !!str 1\n", /^line 1, column \d+: expected a value/],
  ["a directive", "%YAML 1.2\n---\na: 1\n", /^line 1, column \d+: expected a value/],
  ["a second document", "a: 1\n---\nb: 1\n", /^line 2, column \d+: expected a key with a colon/],
  ["the end mark of a document", "a: 1\n...\n", /^line 2, column \d+: expected a key with a colon/],
  ["a depth of text", "a: |2\n    v\n", /^line 1, column \d+: expected the end of the line after \| or >/],
  [
    "deeper lines in folded text",
    "a: >\n  x\n   y\n",
    /^line 3, column \d+: a line of text behind > stands deeper than the first/,
  ],
  ["a tab as indentation", "a:\n\tb: 1\n", /^line 2, column \d+: a tab is no indentation/],
  ["a key twice", "a: 1\nb: 2\na: 3\n", /^line 3, column \d+: the key "a" is there twice/],
  ["a colon in text", "a: b: c\n", /^line 1, column \d+: ": " in text needs quotes/],
  ["a tab behind the mark of a document", "---\ta: 1\n", /^line 1, column 4: a tab is no indentation/],
  ["a deeper entry behind a value", "a: 'x'\n  b: 1\n", /^line 2, column 3: this belongs to nothing/],
  ["a line of literal text that is less deep than the first", "a: |\n    x\n  y\n", /^line 3, column 3: this belongs to nothing/],
  ["a character beyond the last", 'a: "\\U00110000"\n', /^line 1, column \d+: \\U00110000 is no escape that YAML has/],
  ["open quotes", 'a: "b\n', /^line 1, column \d+: the quotes are not closed/],
  ["an unknown escape", 'a: "\\q"\n', /^line 1, column \d+: \\q is no escape that YAML has/],
  ["an open bracket", "a: [1, 2\nb: 1\n", /^line 2, column \d+: expected , or \]/],
  ["something behind quotes", 'a: "b" c\n', /^line 1, column \d+: nothing may follow the value/],
  [
    "a line that is deeper than those before",
    "a: 1\n  b: 2\n",
    /^line 2, column \d+: ": " in text|^line 1, column \d+: ": " in text/,
  ],
  ["a line that is less deep", "  a: 1\n b: 2\n", /^line 2, column \d+: this belongs to nothing/],
  ["more than anybody writes", "x".repeat(1_048_577), /^it has 1048577 characters, at most 1048576 are read/],
  ["too many levels", "[".repeat(101), /^line 1, column \d+: nested over 100 levels/],
] as const)
  test(`YAML is refused: ${what}`, () => assert.throws(() => parseYaml(text), { code: "failed", message }));

test("a number or truth value stays as it is written: 1.10 is no 1.1", () => {
  const text = "a: 1.10\nb: True\nc:\n  - 1e3\n  - 007\n  - -0\n  - 2.5\n";
  assert.equal(toYaml(parseYaml(text)), text);
  assert.deepEqual(plain(text), { a: 1.1, b: true, c: [1000, 7, 0, 2.5] });
});

test("the place of each entry goes from its key to the end of its value", () => {
  const places: YamlPlaces = new Map();
  const value = parseYaml("a: 1\nb: {c: [2]}\n", places) as Record<string, YamlValue>;
  assert.deepEqual(Object.fromEntries(places.get(value) ?? []), { a: [0, 4], b: [5, 16] });
  assert.deepEqual(Object.fromEntries(places.get(value.b ?? null) ?? []), { c: [9, 15] });
});

test("what toYaml writes is read as it was", () => {
  const value = [{ a: "x: y", b: ["", " ", "- a", "l1\nl2", null, true, 1.5], c: { "200": {}, d: [] } }];
  assert.deepEqual(plain(toYaml(value)), value);
});
