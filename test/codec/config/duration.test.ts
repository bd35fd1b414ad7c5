import assert from "node:assert/strict";
import { test } from "node:test";
import { parseDurationMs } from "../../../lib/codec/config/number.ts";

for (const [text, ms] of [
  ...([
    ["30m", 1_800_000],
    ["1h30m", 5_400_000],
    ["90s", 90_000],
    ["1.5h", 5_400_000],
  ] as const),
  ...([
    ["250ms", 250],
    ["1h1m1s1ms", 3_661_001],
    ["5s", 5000],
    ["0s", 0],
    ["1m30s", 90_000],
  ] as const),
])
  test(`the duration ${text} is ${ms} ms`, () => assert.equal(parseDurationMs(text), ms));

for (const text of [
  "",
  "30",
  "m",
  "-5m",
  "+5m",
  "5 m",
  "5M",
  "1d",
  "5m ",
  "1.m",
  ".5m",
  "1e3s",
  "30m0",
  "5ns",
  "٣s",
  "1234567890s",
])
  test(`${JSON.stringify(text)} is no duration`, () => assert.equal(parseDurationMs(text), undefined));
