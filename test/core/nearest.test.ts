import assert from "node:assert/strict";
import { test } from "node:test";
import { misspelt, nearest } from "../../lib/core/nearest.ts";

const near: [string, string | undefined][] = [
  ["versoin", "version"],
  ["VERSION", "version"],
  ["port", "ports"],
  ["hoks", "hooks"],
  ["xyz", undefined],
  ["", undefined],
  ["z".repeat(1_000_000), undefined],
];

for (const [word, expected] of near)
  test(`the name nearest to ${word.slice(0, 10) || "nothing"} is ${expected ?? "none"}`, () => {
    assert.equal(nearest(word, ["version", "ports", "hooks"]), expected);
  });

for (const [key, expected] of [
  ["helth_check", "health_check"],
  ["health_chekc", "health_check"],
  ["heath_chck", "health_check"],
  ["helt_chek", undefined],
  ["prot", "port"],
  ["pots", "ports"],
  ["post", "port"],
  ["host", undefined],
  ["cup", "cpu"],
  ["gpu", "cpu"],
  ["cat", undefined],
  ["io", undefined],
] as const)
  test(`the key ${key} is ${expected ?? "nothing known"} misspelt`, () => {
    assert.equal(misspelt(key, ["health_check", "port", "ports", "cpu"]), expected);
  });

test("a name is near while no more than a third of the word differs, and of two as near ones it is the first", () => {
  assert.deepEqual(
    ["worker", "workxx", "worxxx"].map((word) => nearest(word, ["worker"])),
    ["worker", "worker", undefined],
  );
  assert.deepEqual(
    ["xo", "xx"].map((word) => nearest(word, ["go"])),
    ["go", undefined],
  );
  assert.equal(nearest("cat", ["bat", "hat"]), "bat");
});

for (const [word, name, isNear] of [
  ["cat", "cart", true],
  ["cart", "cat", true],
  ["carts", "cat", false],
  ["act", "cat", true],
  ["acb", "cat", false],
  ["xcat", "cat", true],
  ["xcad", "cat", false],
  ["acts", "cats", true],
  ["cast", "cats", true],
  ["csta", "cats", false],
  ["owkrer", "worker", true],
  ["owkrex", "worker", false],
  ["orkerz", "worker", true],
  ["orkezz", "worker", false],
] as const)
  test(`${word} is ${isNear ? "near" : "far from"} ${name}: a letter more, less, another one or two swapped are one difference`, () => {
    assert.equal(nearest(word, [name]), isNear ? name : undefined);
  });
