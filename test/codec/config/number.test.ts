import assert from "node:assert/strict";
import test from "node:test";
import { formatFloat, parseFloatText, parseInteger, plainDecimal } from "../../../lib/codec/config/number.ts";

test("integer literals in four bases, with underscores between digits", () => {
  const literals: [text: string, value: bigint | undefined][] = [
    ["0", 0n],
    ["-12", -12n],
    ["+1_000", 1000n],
    ["0x_fF", 255n],
    ["0B101", 5n],
    ["0o17", 15n],
    ["0_17", 15n],
    ["123456789012345678901234567890", 123456789012345678901234567890n],
  ];
  for (const [text, value] of literals) assert.equal(parseInteger(text), value, text);
  for (const text of ["", "-", "1_", "_1", "1__0", "08", "0x", "0xg", "0b2", "1.0", "1e3", " 1"])
    assert.equal(parseInteger(text), undefined, text);
});

test("decimal floating point texts", () => {
  const texts: [text: string, value: number][] = [
    ["1", 1],
    ["-.5", -0.5],
    ["1.", 1],
    ["1_0.2_5e+1_0", 1025e8],
    ["Infinity", Infinity],
    ["-INF", -Infinity],
    ["NaN", Number.NaN],
  ];
  for (const [text, value] of texts) assert.equal(parseFloatText(text), value, text);
  for (const text of [
    "",
    ".",
    "1e",
    "e1",
    "1_",
    "1._5",
    "0x1",
    "0x1p4",
    "1e999",
    "in",
    "nano",
    "-nan",
    "1 ",
    "٣",
    "xinf",
    "infx",
  ])
    assert.equal(parseFloatText(text), undefined, text);
});

/** Each line was checked against Go's strconv.FormatFloat. */
const FORMATS: [value: number, form: "e" | "f" | "g", precision: number | undefined, text: string][] = [
  [0, "g", undefined, "0"],
  [-0, "g", undefined, "-0"],
  [-0, "f", 1, "-0.0"],
  [123456789, "g", undefined, "1.23456789e+08"],
  [100000, "g", undefined, "100000"],
  [0.0001, "g", undefined, "0.0001"],
  [0.00001, "g", undefined, "1e-05"],
  [-1e100, "g", undefined, "-1e+100"],
  [2.5, "f", 0, "2"],
  [3.5, "f", 0, "4"],
  [0.5, "f", 0, "0"],
  [9.995, "f", 2, "9.99"],
  [99.99, "f", 1, "100.0"],
  [0.06, "f", 1, "0.1"],
  [0.04, "f", 1, "0.0"],
  [1e21, "f", 1, "1000000000000000000000.0"],
  [999999, "g", 3, "1e+06"],
  [123456, "g", 6, "123456"],
  [15, "e", 0, "2e+01"],
  [1 / 3, "e", 20, "3.33333333333333314830e-01"],
  [5e-324, "e", 3, "4.941e-324"],
  [1.25, "f", undefined, "1.250000"],
  [1.25, "e", undefined, "1.250000e+00"],
  [1e6, "g", undefined, "1e+06"],
  [1234567, "g", undefined, "1.234567e+06"],
  [15, "g", 0, "2e+01"],
  [12.5, "f", 0, "12"],
  [1.25, "f", 0, "1"],
  [1.5, "f", 1, "1.5"],
  [1e21, "f", 0, "1000000000000000000000"],
];

test("floats look as in Go, those in plain decimals rounded half to even on their exact value", () => {
  for (const [value, form, precision, text] of FORMATS)
    assert.equal(formatFloat(value, form, precision), text, `${value} ${form} ${precision}`);
});

test("a float has at most 100 digits; what is no number is named", () => {
  assert.equal(formatFloat(0.5, "f", 100), `0.5${"0".repeat(99)}`);
  for (const form of ["e", "f", "g"] as const) {
    assert.throws(() => formatFloat(0.5, form, 101), { message: "a float has at most 100 digits" });
    for (const value of [Infinity, -Infinity, Number.NaN]) assert.equal(formatFloat(value, form, 3), String(value));
  }
});

test("a plain decimal has the fewest digits that read back, and never an exponent", () => {
  const decimals: [value: number, text: string][] = [
    [0, "0"],
    [-0, "0"],
    [2097152, "2097152"],
    [0.5, "0.5"],
    [0.30000000000000004, "0.30000000000000004"],
    [1e21, "1000000000000000000000"],
    [-2.5e-9, "-0.0000000025"],
  ];
  for (const [value, text] of decimals) assert.equal(plainDecimal(value), text);
});
