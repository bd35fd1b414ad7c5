import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure } from "../../../lib/core/errors.ts";
import { countGrades, describeGrades, toldOnce, troubleOf, worstOf } from "../../../lib/operation/base/outcome.ts";

test("an error is unreachable, cancelled or failed", () => {
  const grades = [new Failure("unreachable", "a"), new Failure("cancelled", "b"), new Failure("timeout", "c"), "d"];
  assert.deepEqual(
    grades.map((error) => troubleOf(error)),
    [
      { grade: "unreachable", message: "a" },
      { grade: "cancelled", message: "b" },
      { grade: "failed", message: "c" },
      { grade: "failed", message: "d" },
    ],
  );
});

test("of several grades the worst counts; counts are told without what does not occur", () => {
  assert.equal(worstOf(["changed", "unreachable", "skipped"]), "unreachable");
  assert.equal(worstOf(["skipped", "ok"]), "ok");
  assert.equal(worstOf([]), "skipped");
  assert.equal(
    describeGrades(countGrades(["changed", "failed", "changed", "not_started"])),
    "2 changed, 1 not started, 1 failed",
  );
  assert.equal(describeGrades(countGrades([])), "none");
});

test("what several places have in common is told once; of more than 20 places the first are named", () => {
  const places = Array.from({ length: 22 }, (_, index) => `web@w${index}`);
  const many = places.map((place) => `${place}: no: not yet`);
  assert.deepEqual(toldOnce(["db@a: down", ...many, "db@b: down"]), [
    "db@a, db@b: down",
    `${places.slice(0, 20).join(", ")} and 2 more: no: not yet`,
  ]);
  assert.deepEqual(toldOnce([]), []);
});
