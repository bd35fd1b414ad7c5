import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { cancelledFailure, explain, Failure, firstError, hasErrno, messageOf, throwIfCancelled } from "../../lib/core/errors.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

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

test("of an error and those of the clean-ups behind the error, the first one counts", async () => {
  const first = new Failure("failed", "the work failed");
  async function work() {
    await using _outer = { [Symbol.asyncDispose]: () => Promise.reject(new Error("outer")) };
    await using _inner = { [Symbol.asyncDispose]: () => Promise.reject(new Error("inner")) };
    throw first;
  }
  await assert.rejects(work(), (error) => error instanceof SuppressedError && firstError(error) === first);
  assert.equal(firstError(first), first);
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

for (const [code, syscall, path, sentence] of [
  ["EROFS", "open", "/srv/a", "the file system is read-only (/srv/a): mount it writable"],
  ["ENOSPC", "write", undefined, "the disk is full (write): make room there"],
  ["EDQUOT", "mkdir", "/srv/a", "the disk quota is used up (/srv/a): make room there"],
  ["EMFILE", "open", "/srv/a", "the process has reached its limit of open files (/srv/a): raise the limit (ulimit -n)"],
  ["EPERM", "link", "/srv/a", "no hard link can be made there (/srv/a): use a file system that has them"],
] as const)
  test(`${code} of ${syscall} is a sentence with what to do`, () => {
    const raw = new Error(`${code}: something, ${syscall} '${path}'`);
    const error = Object.assign(raw, { code, syscall, ...(path && { path }) });
    assert.deepEqual([messageOf(error), explain(error)], [sentence, sentence]);
  });

test("other errors of the system keep their text, and a defect is called one", () => {
  const denied = Object.assign(new Error("EPERM: not permitted, kill"), { code: "EPERM", syscall: "kill" });
  assert.equal(explain(denied), "EPERM: not permitted, kill");
  assert.equal(explain(new TypeError("wrong")), "internal error: wrong");
});

test("a database for which there is no room is a sentence, its extended codes too", () => {
  for (const [errcode, sentence] of [
    [13, "the disk is full: make room there"],
    [13 | (1 << 8), "the disk is full: make room there"],
    [12, "internal error: full"],
  ] as const)
    assert.equal(explain(Object.assign(new Error("full"), { errcode })), sentence);
});

test("a database that another process has locked is a sentence, not a defect", (t) => {
  const file = `${temporaryFolder(t)}/a.db`;
  using holder = new DatabaseSync(file);
  using other = new DatabaseSync(file, { timeout: 0 });
  holder.exec("CREATE TABLE a (b); BEGIN EXCLUSIVE");
  assert.throws(
    () => other.exec("INSERT INTO a VALUES (1)"),
    (error) => explain(error) === "the bucket's database is busy; try again",
  );
});
