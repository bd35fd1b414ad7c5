import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import test from "node:test";
import { compareVersions, parseVersion } from "../../lib/codec/version.ts";
import { Failure } from "../../lib/core/errors.ts";

const FIXTURE = path.join(import.meta.dirname, "../fixtures/go-semantics.json");
const vectors: {
  versions: { Raw: string; Parsed: string; Error: string }[];
  version_compare: { A: string; B: string; Cmp: number }[];
} = JSON.parse(readFileSync(FIXTURE, "utf8"));

function show(text: string): string {
  const { numbers, prerelease } = parseVersion(text);
  return numbers.join(".") + (prerelease && `-${prerelease}`);
}

const isRefusal = (error: unknown) => error instanceof Failure && error.code === "ErrInvalidJobVersion";

test("every version of the vectors is read or refused", () => {
  for (const { Raw, Parsed, Error: wanted } of vectors.versions)
    if (wanted === "") assert.equal(show(Raw), Parsed, Raw);
    else assert.throws(() => parseVersion(Raw), isRefusal, Raw);
});

test("a refusal quotes the version and says why", () => {
  const refusals: [text: string, message: string][] = [
    ["", 'Invalid job version "": it is empty'],
    [" v ", 'Invalid job version " v ": expected a whole number, found ""'],
    ["1.2.3.4", 'Invalid job version "1.2.3.4": it has more than three parts'],
    ["1.2-", 'Invalid job version "1.2-": the prerelease suffix after the dash is empty'],
    ["1.x", 'Invalid job version "1.x": expected a whole number, found "x"'],
    ["1.9007199254740993", 'Invalid job version "1.9007199254740993": expected a whole number, found "9007199254740993"'],
  ];
  for (const [text, message] of refusals) assert.throws(() => parseVersion(text), { message });
  for (const text of ["1. 2", "1.0x10", "1e3", "١", "1,2"]) assert.throws(() => parseVersion(text), isRefusal, text);
});

test("T-105 versions compare by number, a prerelease before its release, prereleases as text", () => {
  const rising = ["0.9", "1.0.0-a-b", "1.0.0-rc10", "1.0.0-rc9", "1.0.0-é", "v1", "1.0.1", "1.9.0", "1.10.0", "2-x", "2", "10"];
  for (const [at, a] of rising.entries())
    for (const [other, b] of rising.entries())
      assert.equal(Math.sign(compareVersions(parseVersion(a), parseVersion(b))), Math.sign(at - other), `${a} ${b}`);
  for (const { A, B, Cmp } of vectors.version_compare)
    assert.equal(Math.sign(compareVersions(parseVersion(A), parseVersion(B))), Cmp, `${A} ${B}`);
  assert.equal(compareVersions(parseVersion("V01.2"), parseVersion("1.2.0")), 0);
});
