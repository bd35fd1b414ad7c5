import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { cancelledFailure, Failure, hasErrno, messageOf, throwIfCancelled } from "../../lib/core/errors.ts";

test("a failure carries its code, one sentence, facts and its cause", () => {
  const cause = new Error("below");
  const failure = new Failure("failed", "above", { details: [1], cause });
  assert.ok(failure instanceof Error);
  assert.deepEqual(
    [failure.name, failure.code, failure.message, failure.details, failure.cause],
    ["Failure", "failed", "above", [1], cause],
  );
  assert.equal("cause" in new Failure("failed", "alone"), false);
});

test("the sentence of anything thrown has no stack trace", () => {
  assert.equal(messageOf(new TypeError("wrong")), "wrong");
  assert.equal(messageOf("text"), "text");
  assert.equal(messageOf(undefined), "undefined");
});

test("the errors of Node are told by their code", () => {
  let error: unknown;
  try {
    readFileSync("/does/not/exist");
  } catch (thrown) {
    error = thrown;
  }
  assert.equal(hasErrno(error, "EEXIST", "ENOENT"), true);
  assert.equal(hasErrno(error, "EEXIST"), false);
  assert.equal(hasErrno({ code: "ENOENT" }, "ENOENT"), false);
  assert.equal(hasErrno(undefined, "ENOENT"), false);
});

test("an aborted signal is the failure `cancelled`, another one or none is nothing", () => {
  assert.throws(() => throwIfCancelled(AbortSignal.abort()), { code: "cancelled" });
  throwIfCancelled(new AbortController().signal);
  throwIfCancelled(undefined);
  assert.notEqual(cancelledFailure(), cancelledFailure());
});
