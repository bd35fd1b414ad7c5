import assert from "node:assert/strict";
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { TotpCodes } from "../../lib/auth/totp.ts";
import { totpCode } from "../../lib/codec/crypto/totp.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const SECRET = Buffer.from("12345678901234567890");
const BEGIN = 59_000;

function setUp(now = BEGIN) {
  const clock = { now };
  const codes = new TotpCodes(SECRET, () => clock.now);
  /** The code of the step that is so many after the current one. */
  const code = (steps = 0) => totpCode(SECRET, Math.floor(clock.now / 30_000) + steps);
  const fail = (peer: string, times: number) => {
    for (let count = 0; count < times; count++) assert.equal(codes.accept(peer, "no"), false);
  };
  const limited = (peer: string, retry_after_s: number) =>
    assert.throws(() => codes.accept(peer, code()), { code: "rate_limited", details: { retry_after_s } });
  return { clock, codes, code, fail, limited };
}

for (const [steps, accepted] of [
  [-2, false],
  [-1, true],
  [0, true],
  [1, true],
  [2, false],
] as const)
  test(`T-72 a clock that is ${steps} steps off is ${accepted ? "tolerated" : "refused"}`, () => {
    const { codes, code } = setUp(1_000_000_000);
    assert.equal(codes.accept("a", code(steps)), accepted);
  });

test("T-67 a code that was accepted, and every earlier one, is refused from then on; later ones are not", () => {
  const { codes, code, clock } = setUp(1_000_000_000);
  assert.equal(codes.accept("a", code()), true);
  for (const [peer, steps] of [
    ["a", 0],
    ["b", 0],
    ["b", -1],
  ] as const)
    assert.equal(codes.accept(peer, code(steps)), false);
  assert.equal(codes.accept("b", code(1)), true);
  clock.now += 30_000;
  for (const steps of [-1, 0]) assert.equal(codes.accept("a", code(steps)), false);
  assert.equal(codes.accept("a", code(1)), true);
});

test("T-67 a code that two steps in a row have in common counts once", () => {
  const first = 910_737;
  assert.deepEqual([totpCode(SECRET, first), totpCode(SECRET, first + 1)], ["911617", "911617"]);
  for (const step of [first, first + 1]) {
    const { codes, code } = setUp(step * 30_000);
    assert.deepEqual([codes.accept("a", "911617"), codes.accept("a", "911617")], [true, false]);
    assert.equal(codes.accept("a", code(1)), step > first);
  }
});

test("at the very first step of time there is no earlier one", () => {
  const { codes, code } = setUp(0);
  assert.equal(codes.accept("a", "000000"), false);
  assert.equal(codes.accept("a", code()), true);
});

test("anything but the six digits is refused", () => {
  const { codes, code } = setUp();
  for (const wrong of ["", " ", `${code()} `, ` ${code()}`, code().slice(1), `${code()}0`, "２８７０８２"])
    assert.equal(codes.accept("a", wrong), false);
  assert.equal(codes.accept("a", code()), true);
});

test("CP-335 CP-321 the 21st attempt of an address after 20 failures is limited, and its right code is not used up", () => {
  const { codes, code, clock, fail, limited } = setUp();
  fail("a", 20);
  clock.now += 30_000;
  limited("a", 30);
  const right = code();
  limited("a", 30);
  assert.equal(codes.accept("b", right), true);
  clock.now += 30_000;
  assert.equal(codes.accept("a", code(1)), true);
});

test("CP-342 CP-343 success clears the failures of its own address only", () => {
  const { codes, code, fail, limited } = setUp(1_000_000_000);
  fail("a", 15);
  fail("b", 20);
  assert.equal(codes.accept("a", code()), true);
  fail("a", 19);
  limited("b", 60);
  assert.equal(codes.accept("a", code(1)), true);
});

test("a replay counts as a failure", () => {
  const { codes, code, limited } = setUp();
  assert.equal(codes.accept("a", code()), true);
  for (let count = 0; count < 20; count++) assert.equal(codes.accept("a", code()), false);
  limited("a", 60);
});

test("CP-336 CP-345 100 failures of all addresses limit every one, whoever succeeds in between", () => {
  const { codes, code, fail, limited } = setUp(1_000_000_000);
  for (const peer of ["a", "b", "c", "d", "e"]) fail(peer, 19);
  assert.equal(codes.accept("a", code()), true);
  fail("f", 4);
  assert.equal(codes.accept("a", code(1)), true);
  fail("f", 1);
  limited("fresh", 60);
  limited("a", 60);
});

test("CP-346 the limit of all expires a minute after the first failure and is not prolonged", () => {
  const { codes, code, fail, limited, clock } = setUp();
  fail("a", 1);
  clock.now += 50_000;
  for (const peer of ["b", "c", "d", "e", "f"]) fail(peer, 19);
  fail("g", 4);
  for (let count = 0; count < 5; count++) limited("fresh", 10);
  clock.now += 10_000;
  assert.equal(codes.accept("fresh", code()), true);
});

test("CP-307 what was used outlives its judge, by the name of the secret", (t) => {
  const file = path.join(temporaryFolder(t), "steps.json");
  const troubles: unknown[] = [];
  const step = 40_000;
  const judge = (name = "common", now = step * 30_000) =>
    new TotpCodes(SECRET, () => now, { file, name, onTrouble: (error) => troubles.push(error) });
  const codeOf = (one: number) => totpCode(SECRET, one);
  assert.equal(judge().accept("a", "no"), false);
  assert.throws(() => readFileSync(file), { code: "ENOENT" }, "a failure writes nothing");
  assert.equal(judge().accept("a", codeOf(step)), true);
  for (const used of [step, step - 1]) assert.equal(judge().accept("a", codeOf(used)), false);
  assert.equal(judge("other").accept("a", codeOf(step)), true);
  assert.equal(judge().accept("a", codeOf(step + 1)), true);
  assert.equal(judge("other").accept("a", codeOf(step)), false);
  assert.deepEqual(JSON.parse(readFileSync(file, "utf8")), { common: step + 1, other: step });
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.equal(judge("other", (step + 3) * 30_000).accept("a", codeOf(step + 3)), true);
  const left = { common: step + 1, other: step + 3 };
  assert.deepEqual(JSON.parse(readFileSync(file, "utf8")), left, "a clock may be two steps behind the last code");
  assert.equal(judge("other", (step + 4) * 30_000).accept("a", codeOf(step + 4)), true);
  assert.deepEqual(JSON.parse(readFileSync(file, "utf8")), { other: step + 4 }, "what is of no use any more is forgotten");
  for (const damaged of ["", "{", "[1]", '{"common":"x"}']) {
    writeFileSync(file, damaged);
    assert.equal(judge().accept("a", codeOf(step)), true, damaged);
    assert.equal(judge().accept("a", codeOf(step)), false, damaged);
  }
  assert.deepEqual(troubles, []);
});

test("CP-307 a used step that is more than one ahead of the clock is forgotten: the clock was wrong before", (t) => {
  const file = path.join(temporaryFolder(t), "steps.json");
  const accepts = (used: number, now: number, step: number) => {
    writeFileSync(file, JSON.stringify({ common: used }));
    const kept = { file, name: "common", onTrouble: (error: unknown) => assert.fail(String(error)) };
    const codes = new TotpCodes(SECRET, () => now * 30_000, kept);
    assert.equal(codes.accept("a", "no"), false);
    return codes.accept("a", totpCode(SECRET, step));
  };
  const cases: [used: number, now: number, step: number, accepted: boolean][] = [
    [40_001, 40_000, 40_000, false],
    [40_001, 40_000, 40_001, false],
    [40_002, 40_000, 40_000, true],
    [40_002, 40_000, 40_001, true],
    [9, 0, 0, true],
  ];
  for (const [used, now, step, accepted] of cases) assert.equal(accepts(used, now, step), accepted, `${used} at ${now}: ${step}`);
});

test("CP-307 nobody is kept out where it cannot be written what was used; it is told", (t) => {
  const folder = temporaryFolder(t);
  rmSync(folder, { recursive: true });
  const troubles: unknown[] = [];
  const kept = { file: path.join(folder, "steps.json"), name: "common", onTrouble: (error: unknown) => troubles.push(error) };
  const codes = new TotpCodes(SECRET, () => BEGIN, kept);
  assert.equal(codes.accept("a", totpCode(SECRET, 1)), true);
  assert.equal(troubles.length, 1);
  assert.equal(codes.accept("a", totpCode(SECRET, 1)), false);
});
