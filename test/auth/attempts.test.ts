import assert from "node:assert/strict";
import { test } from "node:test";
import { Attempts, BEARER_ATTEMPTS } from "../../lib/auth/attempts.ts";
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
