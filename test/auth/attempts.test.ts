import assert from "node:assert/strict";
import { test } from "node:test";
import { Attempts, BEARER_ATTEMPTS, TOTP_ATTEMPTS, TOTP_ATTEMPTS_OF_ALL } from "../../lib/auth/attempts.ts";
import type { Failure } from "../../lib/core/errors.ts";

function attemptsAt(clock: { now: number }, peers = BEARER_ATTEMPTS.peers): Attempts {
  return new Attempts({ ...BEARER_ATTEMPTS, peers }, () => clock.now);
}

function fail(attempts: Attempts, peer: string, times: number): void {
  for (let count = 0; count < times; count++) attempts.fail(peer);
}

/** The seconds that an address is told to wait; 0 where it may try. */
function blockedS(attempts: Attempts, peer: string): number {
  try {
    attempts.admit(peer);
    return 0;
  } catch (error) {
    return ((error as Failure).details as { retry_after_s: number }).retry_after_s;
  }
}

test("CP-316 an address may try until its 20th failure", () => {
  const attempts = attemptsAt({ now: 0 });
  fail(attempts, "a", 19);
  assert.equal(blockedS(attempts, "a"), 0);
  attempts.fail("a");
  assert.equal(blockedS(attempts, "a"), 60);
});

test("CP-316 the limits are those of the specification, and a refusal says what was too much", () => {
  for (const [rule, most, what] of [
    [BEARER_ATTEMPTS, 20, "wrong API tokens from this address"],
    [TOTP_ATTEMPTS, 20, "wrong TOTP codes from this address"],
    [TOTP_ATTEMPTS_OF_ALL, 100, "wrong TOTP codes"],
  ] as const) {
    assert.equal(rule.peers, 10_000);
    const clock = { now: 0 };
    const attempts = new Attempts(rule, () => clock.now);
    fail(attempts, "a", most - 1);
    assert.equal(blockedS(attempts, "a"), 0);
    attempts.fail("a");
    clock.now = 999;
    assert.throws(() => attempts.admit("a"), { message: `too many ${what}; try again in 60 s` });
    clock.now = 60_000;
    assert.equal(blockedS(attempts, "a"), 0);
  }
});

test("the failures of an address are forgotten for it alone, and for its whole network", () => {
  const attempts = attemptsAt({ now: 0 });
  for (const peer of ["a", "2001:db8::1"]) fail(attempts, peer, 20);
  attempts.clear("2001:db8::2");
  assert.deepEqual([blockedS(attempts, "2001:db8::1"), blockedS(attempts, "a")], [0, 60]);
});

test("CP-333 a window begins with the first failure, lasts a minute and is not prolonged", () => {
  const clock = { now: 1000 };
  const attempts = attemptsAt(clock);
  attempts.fail("a");
  clock.now += 59_000;
  fail(attempts, "a", 30);
  assert.equal(blockedS(attempts, "a"), 1);
  clock.now += 1000;
  assert.equal(blockedS(attempts, "a"), 0);
  fail(attempts, "a", 19);
  assert.equal(blockedS(attempts, "a"), 0);
});

test("CP-333 a clock that is set back by an hour does not block for an hour", () => {
  const clock = { now: 3_600_000 };
  const attempts = attemptsAt(clock);
  fail(attempts, "a", 20);
  clock.now = 0;
  assert.equal(blockedS(attempts, "a"), 0);
  fail(attempts, "a", 20);
  assert.equal(blockedS(attempts, "a"), 60);
});

test("CP-334 each address has a budget of its own", () => {
  const attempts = attemptsAt({ now: 0 });
  fail(attempts, "a", 20);
  assert.equal(blockedS(attempts, "b"), 0);
});

test("T-71 the table is bounded: the address whose window began first is forgotten", () => {
  const clock = { now: 0 };
  const attempts = attemptsAt(clock, 2);
  for (const peer of ["a", "b"]) fail(attempts, peer, 20);
  clock.now += 60_000;
  fail(attempts, "a", 20);
  attempts.fail("c");
  assert.ok(blockedS(attempts, "a") > 0, "its new window began after the one of b");
  attempts.fail("d");
  assert.equal(blockedS(attempts, "a"), 0);
});

test("T-71 an address that begins a new window is not the next to be forgotten, in a full table too", () => {
  const clock = { now: 0 };
  const attempts = attemptsAt(clock, 3);
  attempts.fail("a");
  clock.now += 59_000;
  fail(attempts, "b", 20);
  clock.now += 1_000;
  fail(attempts, "a", 20);
  for (const peer of ["c", "d"]) attempts.fail(peer);
  assert.ok(blockedS(attempts, "a") > 0);
  assert.equal(blockedS(attempts, "b"), 0);
});
