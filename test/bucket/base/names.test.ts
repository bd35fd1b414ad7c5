import assert from "node:assert/strict";
import { test } from "node:test";
import {
  altName,
  blank,
  cpu,
  fileName,
  folder,
  host,
  jump,
  line,
  memory,
  name,
  reportTwice,
  user,
} from "../../../lib/bucket/base/names.ts";
import { check, type Shape } from "../../../lib/core/shape.ts";

/** The values that a shape refuses. */
function refused(shape: Shape<unknown>, values: readonly unknown[]): unknown[] {
  return values.filter((value) => !check(shape, value).ok);
}

const LONG = "a".repeat(100);
const HOST = `a${"-".repeat(251)}z`;

for (const [what, shape, right, wrong] of [
  ["a name", name, ["a", "Web-1_x", LONG, " web "], ["", "1a", "-a", `${LONG}a`, "a b", "a.b", 1, null]],
  [
    "a host",
    host,
    ["10.0.0.1", "fd00::1", "db-1.example", "a", HOST],
    ["", "fe80::1%eth0", "-a", "a-", "a_b", `${HOST}z`, "a b"],
  ],
  [
    "a name of a certificate",
    altName,
    ["10.0.0.1", "fd00::1", "*.example", "a.b"],
    ["*.10.0.0.1", "*", "*.*.a", "a.*", "*.fd00::1"],
  ],
  ["a user", user, ["root", "_a-1", "x"], ["", "Root", "1a", "-a", "a.b", "a b"]],
  ["a folder", folder, ["/a", "/opt/a.b/_c-d", "/..a"], ["/", "a", "/a/", "/a/..", "/./a", "/a b", "/a//b"]],
  ["a file", fileName, ["a", "A.b_c-d", "..a"], ["", ".", "..", "...", "a/b", "a b"]],
  [
    "a jump host",
    jump,
    ["a", "me@a", "me@a:22", "fd00::1", "me@[fd00::1]:1", "a:65535"],
    ["", "@a", "Me@a", "a:0", "a:65536", "a:", "a:123456", "[a", "me@", "a:1:2", "a b"],
  ],
  ["a line", line(3), ["", "abc", " abc "], ["abcd", "a\nb", "a\tb", "a\x7f", 1]],
  ["memory", memory, ["", " ", "0", "1.5 GB", "999999999999"], ["-1", "x", "1 XB", "1e12", 1]],
  ["a cpu", cpu, ["", "0", "2 GHz", "100MHz"], ["-1", "2 GB", "x"]],
  ["a user, or nothing", blank(user), ["", "  ", "root"], ["Root", 1]],
] as const)
  test(`${what} is what its rule says and nothing else`, () => {
    assert.deepEqual(refused(shape, [...right, ...wrong]), wrong);
  });

test("a name is in small letters, and white space around a text is dropped", () => {
  const value = (shape: Shape<unknown>, given: string) => {
    const checked = check(shape, given);
    return checked.ok && checked.value;
  };
  assert.deepEqual([value(name, " Web "), value(line(), " a b "), value(host, " A ")], ["web", "a b", "A"]);
  assert.deepEqual([value(memory, "1 GB"), value(cpu, "2 GHz"), value(memory, " ")], [1024, 2000, 0]);
});

test("texts that are there twice are reported, but for empty ones", () => {
  const told: [number, string][] = [];
  reportTwice(["a", "", "b", "a", "", "a"], (index, value) => told.push([index, value]));
  assert.deepEqual(told, [
    [3, "a"],
    [5, "a"],
  ]);
});
