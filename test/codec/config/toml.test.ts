import assert from "node:assert/strict";
import test from "node:test";
import { parseToml, placesInToml, type TomlValue } from "../../../lib/codec/config/toml.ts";
import { TomlDate, TomlFloat } from "../../../lib/codec/config/toml-lex.ts";
import { Failure } from "../../../lib/core/errors.ts";

/** Tables with a prototype, floats and dates as `kind text`, to compare with literals. */
function plain(value: TomlValue): unknown {
  if (value instanceof TomlFloat) return `float ${value.text}`;
  if (value instanceof TomlDate) return `${kindOf(value.text)} ${value.text}`;
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object") return value;
  assert.equal(Object.getPrototypeOf(value), null);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
}

/** What TOML calls a date or time that is written so. */
function kindOf(text: string): string {
  if (/^\d\d:/.test(text)) return "local time";
  if (/^\S{10}$/.test(text)) return "local date";
  return /(?:[Zz]|[+-]\d\d:\d\d)$/.test(text) ? "offset date-time" : "local date-time";
}

function failureOf(text: string): string {
  try {
    parseToml(text);
  } catch (error) {
    assert.ok(error instanceof Failure && error.code === "failed", `${JSON.stringify(text)}: ${error}`);
    return error.message;
  }
  return assert.fail(`${JSON.stringify(text)} was accepted`);
}

const VALUES: [source: string, value: unknown][] = [
  [`"a\\b\\t\\n\\f\\r\\"\\\\\\u00e9\\U0001F600"`, 'a\b\t\n\f\r"\\é😀'],
  [`'C:\\x "y" #'`, 'C:\\x "y" #'],
  [`""`, ""],
  [`''`, ""],
  [`"""a\n"b""c"""`, 'a\n"b""c'],
  [`"""\nfirst newline goes"""`, "first newline goes"],
  [`"""\r\na\r\nb"""`, "a\r\nb"],
  [`"""a \\\n   \t\n  b\\  \r\n c"""`, "a bc"],
  [`"""""""`, '"'],
  [`""""""""`, '""'],
  [`""""a"""""`, '"a""'],
  [`"""\\""""""`, '"""'],
  [`'''\n'a' \\n''b'''''`, "'a' \\n''b''"],
  ["0", 0],
  ["-0", 0],
  ["+1_000", 1000],
  ["0xDEAD_beef", 0xdeadbeef],
  ["0o0755", 493],
  ["0b1101", 13],
  ["9007199254740991", 9007199254740991],
  ["9007199254740993", 9007199254740993n],
  ["9223372036854775807", 9223372036854775807n],
  ["-9223372036854775808", -9223372036854775808n],
  ["0x7fffffffffffffff", 9223372036854775807n],
  ["1.5", "float 1.5"],
  ["1.10", "float 1.10"],
  ["-0.0", "float -0.0"],
  ["+3_1.4_1", "float +31.41"],
  ["5e+22", "float 5e+22"],
  ["1E06", "float 1E06"],
  ["6.626e-34", "float 6.626e-34"],
  ["0e0", "float 0e0"],
  ["1_0e1_0", "float 10e10"],
  ["3.0e-01", "float 3.0e-01"],
  ["inf", "float inf"],
  ["-inf", "float -inf"],
  ["+nan", "float +nan"],
  ["true", true],
  ["false", false],
  ["1979-05-27T07:32:00Z", "offset date-time 1979-05-27T07:32:00Z"],
  ["1979-05-27t00:32:00.999999-07:00", "offset date-time 1979-05-27t00:32:00.999999-07:00"],
  ["1979-05-27 07:32:00z", "offset date-time 1979-05-27 07:32:00z"],
  ["2000-02-29T23:59:60", "local date-time 2000-02-29T23:59:60"],
  ["2016-12-31T23:59:60Z", "offset date-time 2016-12-31T23:59:60Z"],
  ["0001-01-01 00:00:00z", "offset date-time 0001-01-01 00:00:00z"],
  ["9999-12-31T23:59:59.999999999-23:59", "offset date-time 9999-12-31T23:59:59.999999999-23:59"],
  ["1979-05-27T07:32:00-00:00", "offset date-time 1979-05-27T07:32:00-00:00"],
  ["1979-05-27 07:32:00.123456789012 # c", "local date-time 1979-05-27 07:32:00.123456789012"],
  ["00:00:00", "local time 00:00:00"],
  ["23:59:60.0", "local time 23:59:60.0"],
  ["1979-05-27", "local date 1979-05-27"],
  ["1979-05-27 # a comment", "local date 1979-05-27"],
  ["07:32:00.5", "local time 07:32:00.5"],
  ["[]", []],
  ["[1, [2, 'a'], {b = 3},]", [1, [2, "a"], { b: 3 }]],
  ["[ # one\n 1, # two\r\n\n # three\n 2\n]", [1, 2]],
  ["{}", {}],
  ["{ }", {}],
  [`"\\U0010FFFF"`, "\u{10ffff}"],
  ["{ a.b = 1, a.c = [\n2\n], 'd e' = {f = 3} }", { a: { b: 1, c: [2] }, "d e": { f: 3 } }],
];

test("values of every kind", () => {
  for (const [source, value] of VALUES) assert.deepEqual(plain(parseToml(`v = ${source}`)), { v: value }, source);
});

const DOCUMENTS: [text: string, value: unknown][] = [
  ["", {}],
  ["\ufeff# only a comment", {}],
  ["a=1\r\n\r\n\tb = 2 # two\n", { a: 1, b: 2 }],
  [`bare-key_1 = 1\n1234 = 2\n"" = 3\n"a.b" = 4\n'c"d' = 5`, { "bare-key_1": 1, 1234: 2, "": 3, "a.b": 4, 'c"d': 5 }],
  [`3.14 = 1\na . "b".c = 2`, { 3: { 14: 1 }, a: { b: { c: 2 } } }],
  ["a.b = 1\na.c = 2\n[d]\na.b = 3", { a: { b: 1, c: 2 }, d: { a: { b: 3 } } }],
  ["[ a . 'b' ] # x\nc=1\n[a]\nd=2", { a: { b: { c: 1 }, d: 2 } }],
  ["[a.b.c]\n[a]\nb.x = 1", { a: { b: { c: {}, x: 1 } } }],
  [
    "[fruit]\napple.color = 1\n[fruit.apple.texture]\nsmooth = true",
    { fruit: { apple: { color: 1, texture: { smooth: true } } } },
  ],
  ["[[a]]\nx=1\n[[a]]\n[a.b]\ny=2\n[[a.c]]\n[[a.c]]\nz=3", { a: [{ x: 1 }, { b: { y: 2 }, c: [{}, { z: 3 }] }] }],
  ["[[a.b]]\nx=1\n[a]\ny=2", { a: { b: [{ x: 1 }], y: 2 } }],
  ["[a.b]\n[a.c]\n[a]\nd = 1\n[a.b.e]", { a: { b: { e: {} }, c: {}, d: 1 } }],
  ["a.b.c = 1\na.d = 2\n[e]\nb.c = 3\n[e.d]", { a: { b: { c: 1 }, d: 2 }, e: { b: { c: 3 }, d: {} } }],
  ["[[a]]\nb.c = 1\n[[a]]\nb.c = 2", { a: [{ b: { c: 1 } }, { b: { c: 2 } }] }],
  ["a = {}\n'' = {'' = []}\n\"\\u0061b\" = 1", { a: {}, "": { "": [] }, ab: 1 }],
  ["true = 1\ninf = 2\n1979-05-27 = 3\n-1 = 4\n_ = 5", { true: 1, inf: 2, "1979-05-27": 3, "-1": 4, _: 5 }],
  ['a = 1 # \té😀\n# "\n#', { a: 1 }],
  ["a = [\r\n  1, # one\r\n]\r\n", { a: [1] }],
  ["[a]\n[[a.b]]\n[a.b.c]\n[[a.b]]\n[a.b.c]", { a: { b: [{ c: {} }, { c: {} }] } }],
];

test("documents: keys, dotted keys, tables, arrays of tables", () => {
  for (const [text, value] of DOCUMENTS) assert.deepEqual(plain(parseToml(text)), value, JSON.stringify(text));
});

test("a float has its value too", () => {
  const value = (source: string) => {
    const { v } = parseToml(`v = ${source}`);
    return v instanceof TomlFloat ? v.value : assert.fail(source);
  };
  assert.deepEqual(["1.10", "+3_1.4_1", "5e+22", "-0.0", "inf", "-inf", "+inf", "-nan", "1e400"].map(value), [
    1.1,
    31.41,
    5e22,
    -0,
    Infinity,
    -Infinity,
    Infinity,
    Number.NaN,
    Infinity,
  ]);
});

test("the place of a key is where it stands first", () => {
  const text = "x = 1\n[a.b]\nc.d = 2\n[a]\ne = 3\n[[l]]\nf = 4\n";
  const member = (key: string, at: number, ...members: unknown[]) => ({ key, value: { at, members } });
  const b = member("b", 6, member("c", 12, member("d", 12)));
  assert.deepEqual(placesInToml(text), { at: 0, members: [member("x", 0), member("a", 6, b, member("e", 24)), member("l", 30)] });
});

test("a key may have any name, __proto__ and constructor included", () => {
  const table = parseToml("__proto__ = 1\nconstructor.prototype = 2\n[__proto__x]");
  assert.deepEqual(Object.keys(table), ["__proto__", "constructor", "__proto__x"]);
  assert.equal(Object.values(table)[0], 1);
  assert.equal(({} as Record<string, unknown>).prototype, undefined);
});

const INVALID_VALUES = [
  ...["", "x", "True", "tru", "1 2", "=", "nil", ",", "]", "{", "[", "[1", "[1 2]", "[,]", "[1,,2]", "[1}"],
  ...["01", "-01", "1_", "_1", "1__2", "0x", "0x_1", "0xg", "-0x1", "+0b1", "0B1", "0o8", "0b2", "0_1", "--1"],
  ...["9223372036854775808", "-9223372036854775809", "0xffffffffffffffff"],
  ...["1.", ".1", "1.e1", "1e", "1e1.5", "1._1", "1_.1", "1e_1", "01.5", "0x1.8", "Inf", "NaN", "+-inf", "infinity"],
  ...["1979-13-01", "1979-00-01", "1979-02-30", "1900-02-29", "1979-04-31", "1979-1-1", "79-01-01", "10000-01-01"],
  ...["24:00:00", "12:60:00", "12:00:61", "12:00", "12:00:00.", "1:00:00", "12:00:00Z", "1979-05-27T", "1979-05-27Z"],
  ...["1979-05-27T07:32:00+24:00", "1979-05-27T07:32:00+00:60", "1979-05-27T07:32:00+0700", "1979-05-27  07:32:00"],
  ...['"', '"a', `'a`, '"a\nb"', "'a\nb'", '"\\q"', '"\\x41"', '"\\e"', '"\\u12"', '"\\ud800"', '"\\U00110000"'],
  ...['"""', '"""a""', "'''a''", '"""a\\ b"""', '"""a"""b', "''''''''a", '"\x00"', "'\x1f'", '"\x7f"', "'''\x0b'''"],
  ...['"a\rb"', '"""a\rb"""', "'''a\rb'''", "1 # a\rb", "1\r", "1 # \x00", '"a" "b"'],
  ...["{a=1,}", "{,}", "{a=1\n}", "{a=1 b=2}", "{a}", "{a=1,a=2}", "{a.b=1,a=2}", "{a={b=1},a.c=2}", "{a=1}x", "{ # }"],
];

test("invalid values are refused", () => {
  for (const source of INVALID_VALUES) failureOf(`v = ${source}`);
});

const INVALID_DOCUMENTS = [
  ...["a", "a =", "= 1", "a b = 1", "a = 1 b = 2", ".a = 1", "a. = 1", "a..b = 1", "a\n= 1", "é = 1", '"a\nb" = 1'],
  ...['"""a""" = 1', "'''a''' = 1", "a'b' = 1", "a#b = 1", "[a] b = 1", "\ta\x00 = 1", "a=1\x0b", "\u00a0a=1"],
  ...["[]", "[a", "a]", "[a]]", "[[a]", "[[]]", "[a]x", "[a.]", "[.a]", "[a..b]", "[a b]", "[ [a] ]", "[[a] ]", "[a\n]"],
  ...["a=1\na=2", "a=1\n'a'=2", "a=1\na.b=2", "a.b=1\na=2", "a.b=1\na.b.c=2", "a=[1]\na.b=2", "a={}\na.b=1"],
  ...["[a]\n[a]", "a=1\n[a]", "a=1\n[a.b]", "a={}\n[a]", "a={}\n[a.b]", "a={b.c=1}\n[a.b.d]", "a=[]\n[[a]]", "a=[{}]\n[a.b]"],
  ...["[[a]]\n[a]", "[a]\n[[a]]", "[a.b]\n[[a]]", "[[a.b]]\n[a.b]", "[a.b]\n[a]\nb=1", "[a.b]\n[a]\nb.c.d=1\n[a.b.c]"],
  ...["a.b=1\n[a]", "[t]\na.b=1\n[t.a]", "[a.b.c]\n[a]\nb.c.t=1", "[a.b.c.d]\n[a]\nb.c.d.k=1", "[[a.b]]\n[a]\nb.c=1"],
  ...["[a]\nb.c=1\n[a.b.d]\n[x]\n[a.b]", "\ufeff\ufeffa=1"],
  ...["[[[a]]", "[a.b.c]\n[a]\nb.x=1\n[a.b]", 'a = """a""""""', "a = '''a''''''"],
];

test("documents that break a rule, among them every redefinition, are refused", () => {
  for (const text of INVALID_DOCUMENTS) failureOf(text);
});

const MESSAGES: [text: string, message: string][] = [
  ["a = 1\n  b = ]", 'line 2, column 7: expected a value (text in quotes, a number, true, false, a date, [ or {), found "]"'],
  ["a = 'é😀' x", 'line 1, column 10: expected the end of the line, found "x"'],
  ["a = [1, 2", 'line 1, column 10: expected "," or "]", found the end of the text'],
  ["a = {b = 1\n}", 'line 1, column 11: expected "," or "}", found the end of the line'],
  ["a 1", 'line 1, column 3: expected "." or "=", found "1"'],
  ["[a", 'line 1, column 3: expected "." or "]", found the end of the text'],
  ["[[a]\n", 'line 1, column 4: expected "." or "]]", found "]"'],
  ["a = 'x\r'", "line 1, column 7: expected text or the closing ', found U+000D"],
  ['a = "\\q"', 'line 1, column 6: expected one of the escapes \\b \\t \\n \\f \\r \\" \\\\ \\uXXXX \\UXXXXXXXX, found "\\\\q"'],
  ["[a]\nb.c=1\nb.c=2", 'line 3, column 1: expected a new key, found "b.c", which is defined already'],
  ["[a.b]\n[a.b]", 'line 2, column 1: expected a new key, found "a.b", which is defined already'],
  ["a=1\n[a.b.c]", 'line 2, column 1: expected a new key, found "a", which is defined already'],
  ["a=1\na.b.c=2", 'line 2, column 1: expected a new key, found "a.b.c", which is defined already'],
  ["a = 1 2", 'line 1, column 7: expected the end of the line, found "2"'],
  ["a = 1979-05-27T07:32:00 1", 'line 1, column 25: expected the end of the line, found "1"'],
  ['a = """x\x00"""', 'line 1, column 9: expected text or the closing """, found U+0000'],
  ["a = '''x\x1f'''", "line 1, column 9: expected text or the closing ''', found U+001F"],
  ["a = 'x\x7f'", "line 1, column 7: expected text or the closing ', found U+007F"],
  ["a = ]b", 'line 1, column 5: expected a value (text in quotes, a number, true, false, a date, [ or {), found "]"'],
  ["a = 1 ~", 'line 1, column 7: expected the end of the line, found "~"'],
  [`a = 1 ${"x".repeat(41)}`, `line 1, column 7: expected the end of the line, found "${"x".repeat(40)}"`],
  ["a = 99999999999999999999", 'line 1, column 5: expected an integer of 64 bits, found "99999999999999999999"'],
  ["ok = 1\nx = '\ud800'", "line 2, column 6: expected Unicode text, found half of a surrogate pair"],
];

/** What the lists above do not have, by what it is about. */
const MORE_INVALID: Record<string, string[]> = {
  "control characters": [
    ...[..."\x00\x01\x08\x0b\x0c\x0e\x1f\x7f"].flatMap((one) => [
      `# a${one}`,
      `a = "${one}"`,
      `a = '${one}'`,
      `a = """${one}"""`,
      `a = '''${one}'''`,
      `a = 1${one}`,
      `${one}a = 1`,
      `"${one}" = 1`,
    ]),
  ],
  "bare carriage returns": [
    ...["\r", "a = 1\r", "a = 1\rb = 2", "# a\r", "# a\rb = 1", "[a]\r", "a = [\r1]", "a = [1 # x\r]", "a = {\r}"],
    ...['a = """\r"""', "a = '''x\ry'''", 'a = """\\\r  x"""', '"a\r" = 1'],
  ],
  "byte order marks": ["a\ufeff = 1", "a = \ufeff1", "# x\n\ufeffa = 1", " \ufeffa = 1"],
  strings: [
    ...['a = "\\u00e"', 'a = "\\U0000004"', 'a = "\\UD8000000"', 'a = "\\uDFFF"', 'a = "\\U00D80000"', 'a = "\\/"'],
    ...['a = "\\"', 'a = "\\ "', 'a = "\\u"', 'a = "\\0"', "a = 'a'b'", 'a = "a"b"', "a = ''x", 'a = ""x'],
    ...['a = """"""""""', "a = ''''''''''", 'a = """a"""""""', 'a = """a', "a = '''a''", 'a = """\\', 'a = """x\\ y"""'],
    ...['a = """\\x"""', 'a = "a\r\nb"', "a = 'a\r\nb'", "a = `x`", "a = text", "a = 'x", 'a = x"'],
  ],
  numbers: [
    ...["+0o7", "0o_7", "0b_1", "0b1_", "0x1_", "0o7_", "0XFF", "0O7", "00", "-00", "+00", "0_0", "1 000", "+", "-"],
    ...["1_e1", "1e_1", "1e1_", "1e+_1", "1ee1", "1.2.3", "0.", "00.1", "-01.5", "1e", "1e+", "+.5", "-.5", "1f"],
    ...["in", "infi", "+in", "na", "+na", "nan1", "i_nf", "INF", "--inf", "++1", "0xe+1", "0x1p3", "1e1.0"],
  ].map((value) => `a = ${value}`),
  "dates and times": [
    ...["1979-05-27T07:32", "1979-05-27T7:32:00", "1979-05-27T07:32:00.Z", "1979-05-27TT07:32:00", "1979-05-27_07:32:00"],
    ...["1979-05-27T07:32:00+7:00", "1979-05-27T07:32:00+07", "1979-05-27T07:32:00ZZ", "1979-05-27T07:32:00 Z"],
    ...["1979-05-27T07:32:00+07:00:00", "1979-05-27T24:00:00", "1979-05-27T07:60:00", "1979-05-27T07:32:61"],
    ...["1979-05-32", "1979-05-00", "1979-02-29", "2100-02-29", "1979/05/27", "-1979-05-27", "+1979-05-27"],
    ...["07:32:", "07::00", "7:32:00", "07:32:00,5", "07:32:00.5.5", "+07:32:00", "25:00:00", "1979-05-27\t07:32:00"],
  ].map((value) => `a = ${value}`),
  "keys and headers": [
    ...["a = 1 = 2", "a == 1", "a : 1", "a", "= 1", '"a', "'a = 1", '"""a""" = 1', "a.'b = 1", "a.b.", "a.\nb = 1", "a\n.b = 1"],
    ...["a\u00e9 = 1", "a+b = 1", "a/b = 1", "[a]b = 1", "[a] 1", "[a] [b]", "[a]]", "[[a]", "[ [a]]", "[[a] ]", "[a", "[a\nb]"],
    ...["[[]]", "[[a.]]", "[[a]] b = 1", "[[a\n]]", "[a.'b]", '["""a"""]', "[a=1]", "[a#b]", "{a = 1}", "[1.]", "['a''b']"],
  ],
  "inline tables and arrays": [
    ...["{a=1,,b=2}", "{,a=1}", "{a=1,\nb=2}", "{\na=1}", "{a=1 # c\n}", "{a=1;b=2}", "{a 1}", "{=1}", "{a=}", "{a=1", "{[a]}"],
    ...["{a.b=1,a.b.c=2}", "{a.b.c=1,a.b=2}", "{a={},a.b=1}", "{a=[],a.b=1}", "{a=1,'a'=2}", "{a=1}{b=2}", "{a=1}, {b=2}"],
    ...["[1,2", "[1;2]", "[1 2]", "[1\n2]", "[,1]", "[1],", "[a]", "[1]]", "[1,#]", "['a' 'b']", "[1, {a=1]", "[1 # ]"],
  ].map((value) => `a = ${value}`),
  redefinition: [
    ...[
      "a=1\n[a.b.c]",
      "[a]\nb=1\n[a.b]",
      "[a]\nb=1\n[[a.b]]",
      "[a.b]\n[a.b]",
      "[a]\n[b]\n[a]",
      "a.b=1\na.b=2",
      "a.b.c=1\na.b=2",
    ],
    ...[
      "a={b=1}\na.c=2",
      "a={b={c=1}}\na.b.d=2",
      "[a]\nb={c=1}\n[a.b.d]",
      "[a]\nb={}\n[[a.b]]",
      "a=[{b=1}]\na.c=1",
      "a=[1]\n[[a]]",
    ],
    ...[
      "a=[{b=1}]\n[[a]]",
      "[[a]]\n[[a.b]]\n[a.b]",
      "[[a]]\nb=1\n[a.b]",
      "[a]\nb.c=1\n[a.b]",
      "[a]\nb.c=1\n[[a.b]]",
      "[a]\nb.c=1\n[a.b.c]",
    ],
    ...[
      "a.b.c=1\n[a.b]",
      "a.b.c=1\n[a]",
      "[a.b.c]\n[a]\nb.c.d=1",
      "[[a.b]]\n[a]\nb.c=1",
      "[[a]]\n[a]",
      "[a.b]\nc=1\n[a]\nb=1",
      "[a]\n[a.b]\n[a]",
    ],
  ],
};

for (const [about, texts] of Object.entries(MORE_INVALID))
  test(`what breaks a rule is refused: ${about}`, () => {
    for (const text of texts) failureOf(text);
  });

test("an error names line, column, what was expected and what was found", () => {
  for (const [text, message] of MESSAGES) assert.equal(failureOf(text), message);
});

test("nesting is limited to 100 levels", () => {
  const nested = (depth: number) => `a = ${"[".repeat(depth)}1${"]".repeat(depth)}`;
  const tables = (depth: number) => `a = ${"{b=".repeat(depth)}1${"}".repeat(depth)}`;
  const dotted = (depth: number) => `${"a.".repeat(depth - 1)}a = 1`;
  for (const text of [nested(99), tables(99), dotted(100)]) parseToml(text);
  for (const text of [nested(100), tables(100), dotted(101), nested(100_000), `[${"a.".repeat(100)}a]`])
    assert.match(failureOf(text), /expected at most 100 levels of nesting/);
});
