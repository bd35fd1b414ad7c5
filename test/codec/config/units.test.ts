import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import test from "node:test";
import { parseByteSize, parseCpuMhz, parseMemoryMb, plainDecimal } from "../../../lib/codec/config/number.ts";
import { Failure } from "../../../lib/core/errors.ts";

const FIXTURE = path.join(import.meta.dirname, "../../fixtures/go-semantics.json");
const vectors: { Kind: string; Raw: string; Value: string; Error: string }[] = JSON.parse(readFileSync(FIXTURE, "utf8")).units;

test("every amount of the vectors is read or refused", () => {
  for (const { Kind, Raw, Value, Error: wanted } of vectors) {
    const parse = Kind === "cpu" ? parseCpuMhz : parseMemoryMb;
    if (wanted === "") assert.equal(parse(Raw), Number(Value.replace("+Inf", "Infinity")), Raw);
    else assert.throws(() => parse(Raw), Failure, Raw);
  }
});

test("units of memory and cpu, in any case and with or without a blank", () => {
  const amounts: [parse: (text: string) => number, text: string, amount: number][] = [
    [parseMemoryMb, "1Tb", 1_048_576],
    [parseMemoryMb, "\t.5\tGB\n", 512],
    [parseMemoryMb, "1.mb", 1],
    [parseMemoryMb, "-1.5e1", -15],
    [parseCpuMhz, "0.25ghz", 250],
    [parseCpuMhz, " ", 0],
  ];
  for (const [parse, text, amount] of amounts) assert.equal(parse(text), amount, text);
});

test("a refusal names the text and the units", () => {
  const message = 'Cannot read the memory size "4 gib": expected a number and one of mb, gb, tb';
  assert.throws(() => parseMemoryMb("4 gib"), { code: "failed", message });
  for (const text of ["nan", "1e999", "1 2", "1..2 mb", "mb 1", "__1", "1_ mb", "constructor", "1 constructor", "٣"])
    assert.throws(() => parseCpuMhz(text), /^Failure: Cannot read the cpu frequency/, text);
});

test("plain decimals never have an exponent and read back to the same number", () => {
  const numbers: [number: number, text: string][] = [
    [0, "0"],
    [-0, "0"],
    [2_097_152, "2097152"],
    [1e21, "1000000000000000000000"],
    [1.5e-7, "0.00000015"],
    [-1536.25, "-1536.25"],
    [0.1 + 0.2, "0.30000000000000004"],
    [1e12, "1000000000000"],
  ];
  for (const [number, text] of numbers) assert.equal(plainDecimal(number), text);
  for (const number of [Number.MAX_VALUE, Number.MIN_VALUE, 123456.789e300]) {
    assert.match(plainDecimal(number), /^[0-9]+(\.[0-9]+)?$/);
    assert.equal(Number(plainDecimal(number)), number);
  }
});

test("a size is a whole number with its unit", () => {
  assert.deepEqual(["1KiB", "64MiB", "2 GiB"].map(parseByteSize), [2 ** 10, 2 ** 26, 2 ** 31]);
  for (const text of ["", "64", "0MiB", "01KiB", "1.5MiB", "64mib", "64MB", " 64MiB", "1  KiB", "1000000GiB", "64MiBs"])
    assert.equal(parseByteSize(text), undefined, text);
});
