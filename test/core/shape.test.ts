import assert from "node:assert/strict";
import { test } from "node:test";
import {
  anything,
  boolean,
  check,
  described,
  integer,
  isNote,
  isObject,
  join,
  list,
  nullable,
  object,
  oneOf,
  optional,
  otherwise,
  parsedJson,
  quote,
  record,
  type Shape,
  secret,
  string,
  typeName,
  valueIn,
  withDefault,
  withExample,
} from "../../lib/core/shape.ts";

/** Every problem of a value as `path: message`, warnings marked, or the value itself. */
function outcome(shape: Shape<unknown>, value: unknown): unknown {
  const checked = check(shape, value);
  const warnings = checked.warnings.map(({ path, message }) => `warning ${path}: ${message}`);
  if (checked.ok) return warnings.length === 0 ? checked.value : [checked.value, ...warnings];
  return [...checked.problems.map(({ path, message }) => `${path}: ${message}`), ...warnings];
}

const name = string({ pattern: /^[a-z]+$/, means: "a lower-case word", min: 1, max: 8 });
const port = object({ port: integer({ min: 1, max: 65535 }), on: optional(boolean()) });
const service = object({ name, ports: list(port, { max: 2, min: 1 }), mode: withDefault(oneOf("tcp", "http"), "tcp") });

const valid: [string, Shape<unknown>, unknown, unknown][] = [
  ["text", string(), "", ""],
  ["a name", name, "abc", "abc"],
  ["one of several", oneOf("a", "b"), "b", "b"],
  ["an integer", integer(), -5, -5],
  ["a bound", integer({ min: 1, max: 5 }), 5, 5],
  ["false", boolean(), false, false],
  ["an empty list", list(integer()), [], []],
  ["a text of the least and of the most length", list(string({ min: 2, max: 3 })), ["ab", "abc"], ["ab", "abc"]],
  ["a list of the least length", list(integer(), { min: 2 }), [1, 2], [1, 2]],
  [
    "nested objects",
    service,
    { name: "web", ports: [{ port: 1, on: true }, { port: 2 }], mode: "http" },
    {
      name: "web",
      ports: [
        { port: 1, on: true },
        { port: 2, on: undefined },
      ],
      mode: "http",
    },
  ],
  ["a default", object({ mode: withDefault(list(string()), ["x"]) }), {}, { mode: ["x"] }],
  ["a field given as undefined", object({ a: optional(string()) }), { a: undefined }, { a: undefined }],
  ["anything", anything(), { a: [1] }, { a: [1] }],
];

for (const [what, shape, value, expected] of valid)
  test(`shape accepts ${what}`, () => assert.deepEqual(outcome(shape, value), expected));

const invalid: [string, Shape<unknown>, unknown, string[]][] = [
  ["a number as text", string(), 5, [": expected a string, found an integer"]],
  ["a short text", string({ min: 3 }), "ab", [": must have at least 3 characters"]],
  ["an empty text", string({ min: 1 }), "", [": must not be empty"]],
  ["a long text", string({ max: 2 }), "abc", [": must have at most 2 characters"]],
  ["a wrong text", name, "aB", [': expected a lower-case word, found "aB"']],
  ["a newline behind a text that fits", name, "ab\n", [': expected a lower-case word, found "ab\\n"']],
  ["a text that fits only in part", string({ pattern: /b+/ }), "abb", [': expected text that matches /b+/, found "abb"']],
  ["another word", oneOf("a", "b"), "c", [': expected one of a, b, found "c"']],
  ["another type for a word", oneOf("a", "b"), ["a"], [": expected one of a, b, found a list"]],
  ["a fraction", integer(), 1.5, [": expected an integer, found 1.5"]],
  ["an unsafe integer", integer(), 2 ** 53, [": expected an integer, found 9007199254740992"]],
  ["text as a number", integer(), "5", [': expected an integer, found "5"']],
  ["not a number", integer(), Number.NaN, [": expected an integer, found NaN"]],
  ["too small", integer({ min: 1 }), 0, [": expected a number of at least 1, found 0"]],
  ["too big", integer({ max: 1 }), 2, [": expected a number of at most 1, found 2"]],
  ["out of bounds", integer({ min: 1, max: 3 }), 4, [": expected a number from 1 to 3, found 4"]],
  ["null as a truth value", boolean(), null, [": expected true or false, found null"]],
  ["an object as a list", list(string()), {}, [": expected a list, found an object"]],
  ["a list as an object", object({}), [], [": expected an object, found a list"]],
  ["a number as an object, as that alone", object({ a: string() }), 5, [": expected an object, found an integer"]],
  ["null as an object", object({}), null, [": expected an object, found null"]],
  ["a list as a record", record(string()), [], [": expected an object, found a list"]],
  ["null for an optional field", object({ a: optional(string()) }), { a: null }, ["a: expected a string, found null"]],
  ["a bad key of a record", record(integer(), { key: /^[a-z]+$/, means: "a word" }), { A: 1 }, ["A: expected a word as name"]],
  [
    "all that is wrong at once, with its path",
    service,
    { name: 1, ports: [{ port: 0 }, { on: 1 }, {}], mod: "tcp" },
    [
      'mod: is not a known field; did you mean "mode"?',
      "name: expected a string, found an integer",
      "ports: expected at most 2 items, found 3",
      "ports/0/port: expected a number from 1 to 65535, found 0",
      "ports/1/port: is missing",
      "ports/1/on: expected true or false, found 1",
      "ports/2/port: is missing",
    ],
  ],
  ["too few items", list(string(), { min: 1 }), [], [": expected at least 1 item, found 0"]],
  ["a field far from all others", object({ a: optional(string()) }), { zzz: 1 }, ["zzz: is not a known field"]],
];

for (const [what, shape, value, problems] of invalid)
  test(`shape refuses ${what}`, () => assert.deepEqual(outcome(shape, value), problems));

test("names that every object inherits are unknown fields, never functions", () => {
  const shape = object({ a: optional(string()) }, { aliases: { b: "a" } });
  for (const key of ["constructor", "toString", "__proto__", "hasOwnProperty"])
    assert.deepEqual(outcome(shape, JSON.parse(`{"${key}": "x"}`)), [`${key}: is not a known field`]);
});

test("a record takes any key as its own", () => {
  const checked = check(record(integer()), JSON.parse('{"__proto__": 1, "constructor": 2}'));
  assert.ok(checked.ok);
  assert.deepEqual(Object.entries(checked.value), [
    ["__proto__", 1],
    ["constructor", 2],
  ]);
});

const manifest = object(
  { version: string(), max_width: optional(integer()) },
  { unknown: "warn", lenient: true, aliases: { old_width: "max_width" } },
);

const lenient: [string, string, unknown][] = [
  ["keys without case", '{"Version": "1", "MAX_WIDTH": 2}', { version: "1", max_width: 2 }],
  ["null as absent", '{"version": "1", "max_width": null}', { version: "1", max_width: undefined }],
  ["the last of equal keys", '{"version": "1", "VERSION": "2"}', { version: "2", max_width: undefined }],
  [
    "an older name, with a warning",
    '{"version": "1", "Old_Width": 3}',
    [{ version: "1", max_width: 3 }, "warning Old_Width: is an older name of max_width"],
  ],
  [
    "an unknown key, with a warning",
    '{"version": "1", "max_widht": 3}',
    [{ version: "1", max_width: undefined }, 'warning max_widht: is not a known field; did you mean "max_width"?'],
  ],
  ["a missing field that is null as missing", '{"version": null}', ["version: is missing"]],
];

for (const [what, text, expected] of lenient)
  test(`a lenient object takes ${what}`, () => assert.deepEqual(outcome(manifest, JSON.parse(text)), expected));

test("a default is a new value each time", () => {
  const shape = object({ items: withDefault(list(string()), []) });
  const [one, two] = [check(shape, {}), check(shape, {})];
  assert.ok(one.ok && two.ok);
  one.value.items.push("x");
  assert.deepEqual(two.value.items, []);
});

test("at most 100 problems are told, however many there are", () => {
  const checked = check(list(string()), Array(5_000).fill(1));
  assert.equal(!checked.ok && checked.problems.length, 100);
});

test("a key that would not read as one part of a path is quoted", () => {
  const paths = Object.keys(outcomePaths({ "a/b": 1, "a\nb": 1, "": 1, "10.0.0.1": 1, größe: 1 }));
  assert.deepEqual(paths, ['"a/b"', '"a\\nb"', '""', "10.0.0.1", "größe"]);
});

function outcomePaths(value: Record<string, unknown>): Record<string, true> {
  const checked = check(record(string()), value);
  return Object.fromEntries(checked.ok ? [] : checked.problems.map(({ path }) => [path, true]));
}

test("text in messages is short and has no character that moves or hides others", () => {
  assert.equal(quote('a"b\\'), '"a\\"b\\\\"');
  assert.equal(quote("a\u0000\u007f\u009b\u2028\u202e\ufeffb"), '"a\\u0000\\u007f\\u009b\\u2028\\u202e\\ufeffb"');
  assert.equal(quote("\u{e0041}"), '"\\udb40\\udc41"');
  assert.equal(quote("x".repeat(101)), `"${"x".repeat(100)}…"`);
  assert.equal(quote("ä€😀"), '"ä€😀"');
});

test("shapes describe themselves as JSON Schema", () => {
  assert.deepEqual(service.schema, {
    type: "object",
    properties: {
      name: { type: "string", pattern: "^[a-z]+$", maxLength: 8, minLength: 1 },
      ports: {
        type: "array",
        items: {
          type: "object",
          properties: { port: { type: "integer", minimum: 1, maximum: 65535 }, on: { type: "boolean" } },
          required: ["port"],
          additionalProperties: false,
        },
        maxItems: 2,
        minItems: 1,
      },
      mode: { type: "string", enum: ["tcp", "http"], default: "tcp" },
    },
    required: ["name", "ports"],
    additionalProperties: false,
  });
  assert.deepEqual(described(optional(record(boolean())), "Flags").schema, {
    type: "object",
    additionalProperties: { type: "boolean" },
    description: "Flags",
  });
  assert.deepEqual(anything({ type: "null" }).schema, { type: "null" });
});

test("types are named as a person does", () => {
  const values = [null, [], {}, 1, 1.5, "x", true];
  assert.deepEqual(values.map(typeName), ["null", "a list", "an object", "an integer", "a number", "a string", "a boolean"]);
  assert.deepEqual([{}, [], null, "x"].map(isObject), [true, false, false, false]);
  assert.deepEqual([Object.create(null), new Date(0), new Map()].map(isObject), [true, false, false]);
});

test("a truth value may only be true where the one that it needs is", () => {
  const shape = object(
    { hooks: withDefault(boolean(), false), dry: withDefault(boolean(), false) },
    { needs: [["hooks", "dry"]] },
  );
  for (const [value, isRight] of [
    [{}, true],
    [{ hooks: false }, true],
    [{ hooks: true, dry: true }, true],
    [{ hooks: true }, false],
    [{ hooks: true, dry: false }, false],
  ] as const)
    assert.equal(check(shape, value).ok, isRight, JSON.stringify(value));
});

test("of fields that exclude each other one may be given; what says the default says nothing", () => {
  const flag = withDefault(boolean(), false);
  const shape = object(
    { a: flag, b: optional(integer()), c: flag, d: optional(integer()) },
    { exclusive: [["a", "b"]], alone: "d" },
  );
  for (const [value, problems] of [
    [{ a: false, b: 1 }, []],
    [{ a: true, b: 1 }, ["b: excludes a: give one of the two"]],
    [{ d: 1 }, []],
    [{ d: 1, a: false, c: false }, []],
    [{ c: true, d: 1 }, ["c: excludes d: give one of the two"]],
    [{ a: true, c: true }, []],
  ] as const) {
    const checked = check(shape, value);
    const found = checked.ok ? [] : checked.problems.map(({ path, message }) => `${path}: ${message}`);
    assert.deepEqual(found, problems, JSON.stringify(value));
  }
  assert.deepEqual(shape.schema.allOf, [
    { not: { required: ["a", "b"] } },
    { not: { required: ["a", "d"] } },
    { not: { required: ["b", "d"] } },
    { not: { required: ["c", "d"] } },
  ]);
});

test("a present name goes before an older one, wherever they stand", () => {
  const both = "warning Old_Width: is an older name of max_width, which is there too and counts";
  for (const text of ['{"version": "1", "Old_Width": 3, "max_width": 2}', '{"max_width": 2, "version": "1", "Old_Width": 3}'])
    assert.deepEqual(outcome(manifest, JSON.parse(text)), [{ version: "1", max_width: 2 }, both]);
});

test("where unknown fields are judged, one that misspells a known field or an older name is an error", () => {
  const shape = object({ version: optional(string()) }, { unknown: "judge", aliases: { release: "version" } });
  const version = '; did you mean "version"?';
  assert.deepEqual(outcome(shape, { versoin: "1" }), [`versoin: is not a known field${version}`]);
  assert.deepEqual(outcome(shape, { relaese: "1" }), [`relaese: is not a known field${version}`]);
  const warned = outcome(shape, { colour: "1" });
  assert.deepEqual(warned, [{ version: undefined }, "warning colour: is not a known field"]);
});

test("a note is one line of at most 200 characters that says something", () => {
  const notes = ["x", "x".repeat(200), " a ", "ä😀", "x".repeat(201), "", "  ", "a\nb", "a\u2028b", "a\u202eb"];
  assert.deepEqual(notes.filter(isNote), notes.slice(0, 4));
});

test("a value in JSON has the shape or is none", () => {
  assert.deepEqual([parsedJson("[1]"), parsedJson("{")], [[1], undefined]);
  assert.deepEqual(
    ["5", '"5"', "{"].map((text) => valueIn(integer(), text)),
    [5, undefined, undefined],
  );
  assert.deepEqual([outcome(nullable(integer()), null), outcome(nullable(integer()), 1)], [null, 1]);
});

test("a part of a path has at most 100 characters without quotes, and a text in a message 100", () => {
  const [most, more] = ["x".repeat(100), "x".repeat(101)];
  assert.deepEqual([join("a", most), join("a", more), join("", 0)], [`a/${most}`, `a/"${most}…"`, "0"]);
  assert.equal(quote(most), `"${most}"`);
});

test("what is more than a type is in the JSON Schema, too", () => {
  assert.deepEqual(nullable(integer()).schema, { anyOf: [{ type: "integer" }, { type: "null" }] });
  assert.deepEqual(secret(string({ min: 1 })).schema, { type: "string", minLength: 1, writeOnly: true });
  assert.deepEqual(withExample(string(), "x").schema, { type: "string", examples: ["x"] });
  assert.deepEqual(otherwise(string(), "x").schema, { type: "string" });
  assert.deepEqual(manifest.schema, {
    type: "object",
    properties: { version: { type: "string" }, max_width: { type: "integer" }, old_width: { type: "integer", deprecated: true } },
    required: ["version"],
    additionalProperties: true,
  });
  assert.deepEqual(record(integer(), { key: /^a$/ }).schema.propertyNames, { pattern: "^a$" });
});

test("an answer may have fields that are unknown, but every known one has its shape", () => {
  const shape = object({ a: integer() });
  assert.deepEqual(check(shape, { a: 1, b: 2 }, { isAnswer: true }), { ok: true, value: { a: 1 }, warnings: [] });
  const problems = [{ path: "a", message: "is missing" }];
  assert.deepEqual(check(shape, { b: 2 }, { isAnswer: true }), { ok: false, problems, warnings: [] });
});

test("a schema names no required or excluding fields where there are none", () => {
  const properties = { a: { type: "integer" }, b: { type: "integer" } };
  const base = { type: "object", properties, additionalProperties: false };
  const fields = { a: optional(integer()), b: optional(integer()) };
  assert.deepEqual(object(fields).schema, base);
  const allOf = [{ not: { required: ["a", "b"] } }];
  assert.deepEqual(object(fields, { exclusive: [["a", "b"]] }).schema, { ...base, allOf });
});

test("too few of several items are told in the plural", () => {
  assert.deepEqual(outcome(list(string(), { min: 2 }), ["a"]), [": expected at least 2 items, found 1"]);
});
