import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import test from "node:test";
import { matchGlob, validateGlob } from "../../lib/codec/glob.ts";

const FIXTURE = path.join(import.meta.dirname, "../fixtures/go-semantics.json");
const vectors: { glob_paths: string[]; glob_patterns: string[]; globs_matching: { Pattern: string; Path: string }[] } =
  JSON.parse(readFileSync(FIXTURE, "utf8"));

test("every pair of the vectors matches or does not", () => {
  const matching = new Set(vectors.globs_matching.map(({ Pattern, Path }) => `${Pattern} ${Path}`));
  for (const pattern of vectors.glob_patterns)
    for (const file of vectors.glob_paths)
      assert.equal(matchGlob(pattern, file), matching.has(`${pattern} ${file}`), `${pattern} ${file}`);
});

const CASES: [pattern: string, matching: string[], others: string[]][] = [
  ["a?c", ["abc", "x/aéc", "a😀c"], ["ac", "abbc", "a/c"]],
  ["a*b*c", ["abc", "a1b2c", "abbcc", "x/abcbc"], ["acb", "abcd", "a/b/c"]],
  ["[a-cx]", ["a", "b", "x", "d/c"], ["d", "-", "ab"]],
  ["[^a-c]1", ["d1", "x/é1"], ["a1", "1", "/1"]],
  ["[\\]\\-\\\\]", ["]", "-", "\\"], ["a"]],
  ["\\*\\?", ["*?", "x/*?"], ["ab"]],
  ["*.{js,ts}", ["a.{js,ts}"], ["a.js"]],
  ["conf/*/x.yml", ["conf/a/x.yml"], ["conf/x.yml", "conf/a/b/x.yml", "z/conf/a/x.yml"]],
  ["conf*/", ["conf", "conf.d/a", "conf/a/b"], ["x/conf", "con"]],
  ["conf*/**", ["conf.d/a/b", "conf"], ["x/conf/a"]],
  ["**/conf/", ["conf/a", "x/conf/a/b", "conf"], ["conf2/a"]],
  ["*/**/b.txt", ["a/b.txt", "a/c/d/b.txt"], ["b.txt", "a/b.txt2"]],
  ["a/**/c/b.txt", ["a/c/b.txt"], ["a/x/c/b.txt", "a/b.txt"]],
  ["lib**.ts", [], ["lib", "src/lib.js"]],
  ["conf**", ["conf", "conf.d", "conf/a"], ["x/conf"]],
  ["a**b", ["ab", "a/b", "ax/c/b"], ["a", "axc", "x/ab"]],
  ["a**b/c", ["ab/c"], ["abc", "b/c"]],
  ["!a", ["!a"], ["b"]],
];

test("wildcards, classes, escapes, folders and **", () => {
  for (const [pattern, matching, others] of CASES) {
    assert.equal(validateGlob(pattern), undefined, pattern);
    for (const file of matching) assert.ok(matchGlob(pattern, file), `${pattern} should fit ${file}`);
    for (const file of others) assert.ok(!matchGlob(pattern, file), `${pattern} should not fit ${file}`);
  }
});

test("an invalid glob is named, and fits nothing", () => {
  for (const pattern of ["", "[", "[a", "[]", "[^]", "[a-]", "[-a]", "[]a]", "a\\", "x/[/]y"]) {
    assert.notEqual(validateGlob(pattern), undefined, pattern);
    assert.ok(!matchGlob(pattern, pattern), pattern);
  }
  for (const pattern of ["**/a/**", "***", "a**b**"]) assert.match(validateGlob(pattern) ?? "", /has \*\* more than once$/);
});

test("many wildcards against a long name take no exponential time", () => {
  assert.ok(!matchGlob("*a".repeat(60).concat("b"), "a".repeat(1000)));
  assert.ok(!matchGlob(`x**${"*a".repeat(30)}b`, `x${"a".repeat(200)}`));
});
