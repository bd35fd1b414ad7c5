import assert from "node:assert/strict";
import test from "node:test";
import { formatFloat, parseFloatText, parseInteger } from "../../../lib/codec/config/number.ts";

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

/** Each line was checked against Go's strconv.FormatFloat. */
const FORMATS: [value: number, format: "e" | "f" | "g", precision: number, text: string][] = [
  [0, "e", -1, "0e+00"],
  [-0, "g", -1, "-0"],
  [123456789, "g", -1, "1.23456789e+08"],
  [100000, "g", -1, "100000"],
  [0.0001, "g", -1, "0.0001"],
  [0.00001, "g", -1, "1e-05"],
  [1e21, "f", -1, "1000000000000000000000"],
  [2.5, "f", 0, "2"],
  [3.5, "f", 0, "4"],
  [0.5, "f", 0, "0"],
  [9.995, "f", 2, "9.99"],
  [99.99, "f", 1, "100.0"],
  [0.06, "f", 1, "0.1"],
  [0.04, "f", 1, "0.0"],
  [999999, "g", 3, "1e+06"],
  [123456, "g", 6, "123456"],
  [15, "e", 0, "2e+01"],
  [1 / 3, "e", 20, "3.33333333333333314830e-01"],
  [5e-324, "e", 3, "4.941e-324"],
];

test("floats are rounded half to even on their exact value", () => {
  for (const [value, format, precision, text] of FORMATS)
    assert.equal(formatFloat(value, format, precision), text, `${value} ${format} ${precision}`);
});
