import assert from "node:assert/strict";
import test from "node:test";
import { fixedDecimals, parseFloatText, parseInteger, shortestFloat } from "../../../lib/codec/config/number.ts";

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
  for (const text of ["", ".", "1e", "e1", "1_", "1._5", "0x1", "0x1p4", "1e999", "in", "nano", "-nan", "1 ", "٣"])
    assert.equal(parseFloatText(text), undefined, text);
});

/** Each line was checked against Go's strconv.FormatFloat with the format f. */
const FIXED: [value: number, decimals: number, text: string][] = [
  [2.5, 0, "2"],
  [3.5, 0, "4"],
  [0.5, 0, "0"],
  [-0, 1, "-0.0"],
  [9.995, 2, "9.99"],
  [99.99, 1, "100.0"],
  [0.06, 1, "0.1"],
  [0.04, 1, "0.0"],
  [1e21, 1, "1000000000000000000000.0"],
];

test("floats are rounded half to even on their exact value", () => {
  for (const [value, decimals, text] of FIXED) assert.equal(fixedDecimals(value, decimals), text, `${value} ${decimals}`);
});

/** Each line was checked against Go's strconv.FormatFloat with the format g. */
const SHORTEST: [value: number, text: string][] = [
  [0, "0"],
  [-0, "-0"],
  [123456789, "1.23456789e+08"],
  [100000, "100000"],
  [0.0001, "0.0001"],
  [0.00001, "1e-05"],
  [-1e100, "-1e+100"],
];

test("floats have the fewest digits that read back", () => {
  for (const [value, text] of SHORTEST) assert.equal(shortestFloat(value), text);
});
