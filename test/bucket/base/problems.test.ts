import assert from "node:assert/strict";
import { test } from "node:test";
import { Problems, requireKnown, sentenceOf, unknownName } from "../../../lib/bucket/base/problems.ts";
import type { Failure } from "../../../lib/core/errors.ts";

test("the first problem is the sentence of a build, and the others are counted", () => {
  const problems = new Problems();
  problems.throwIfAny();
  assert.equal(problems.sentence(), null);
  problems.warn("ops.conf", "a", "unknown");
  problems.throwIfAny();
  const wrong = (message: string) => ({ code: "ErrInvalidManifest", message });
  const file = problems.in("workspace/jobs/web/manifest.json", "ErrInvalidManifest");
  file.error("version", "is missing");
  const first = "ErrInvalidManifest: workspace/jobs/web/manifest.json: version: is missing";
  assert.throws(() => problems.throwIfAny(), wrong(first));
  file.error("hooks", "no list", "ErrInvalidHookDemand");
  assert.throws(() => problems.throwIfAny(), wrong(`${first} (and 1 more problem)`));
  file.error("", "no object");
  assert.throws(() => problems.throwIfAny(), wrong(`${first} (and 2 more problems)`));
  assert.equal(problems.sentence(), "workspace/jobs/web/manifest.json: version: is missing");
  assert.deepEqual(
    problems.errors.map((one) => [one.code, one.path]),
    [
      ["ErrInvalidManifest", "version"],
      ["ErrInvalidHookDemand", "hooks"],
      ["ErrInvalidManifest", ""],
    ],
  );
  assert.equal(sentenceOf({ file: "a", path: "", message: "b" }), "a: b");
});

test("what a check has found becomes problems of its file; only a value without any is taken", () => {
  const problems = new Problems();
  const file = problems.in("a.json", "ErrInvalidManifest");
  const warnings = [{ path: "w", message: "odd" }];
  assert.equal(file.take({ ok: true, value: 1, warnings }), 1);
  const checked = { ok: false as const, problems: [{ path: "p", message: "bad" }], warnings };
  assert.equal(file.take(checked), undefined);
  assert.equal(
    file.take(checked, () => "ErrInvalidHookDemand"),
    undefined,
  );
  assert.deepEqual(
    problems.errors.map(({ code, path }) => `${code} ${path}`),
    ["ErrInvalidManifest p", "ErrInvalidHookDemand p"],
  );
  assert.equal(problems.warnings.length, 3);
});

test("names that do not exist are refused, the first ten by their place, with the nearest that does", () => {
  const refusal = (names: string[], known: string[]): Failure => {
    try {
      requireKnown("in the catalog", { kind: "job", path: "jobs", names }, new Set(known));
    } catch (error) {
      return error as Failure;
    }
    throw new Error("it is not refused");
  };
  assert.deepEqual(requireKnown("", { kind: "job", path: "jobs", names: [" WEB "] }, new Set(["web"])), new Set(["web"]));
  const one = refusal(["web", "wep"], ["web", "db"]);
  assert.equal(one.message, 'in the catalog there is no job "wep"; did you mean "web"?');
  assert.deepEqual([one.code, one.details], ["unknown_name", [{ path: "jobs/1", message: one.message }]]);
  assert.match(refusal(["x1", "x2", "x3"], ["web"]).message, /there is no job "x1" \(and 2 more\)$/);
  const none = refusal(["web"], []);
  assert.match(none.message, /there is no job "web", nor any other job: has the bucket been built\?$/);
  const many = Array.from({ length: 11 }, (_, index) => `x${index}`);
  assert.equal((refusal(many, ["web"]).details as unknown[]).length, 10);
  assert.equal(unknownName("label", "qqq", ["web"]), 'there is no label "qqq"');
});
