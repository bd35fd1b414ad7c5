import assert from "node:assert/strict";
import { test } from "node:test";
import { SourceRules } from "../../../lib/bucket/source/source-rules.ts";
import type { TarEntry } from "../../../lib/codec/archive/tar-read.ts";

// Names that are refused are tested as a whole, with archives, in source.test.ts.

function admit(rules: SourceRules, path: string, size = 0, type = "file"): string[] {
  return rules.admit({ index: 7, path, type, mode: 0o644, size } as TarEntry);
}

test("an admitted name is answered in parts", () => {
  const rules = new SourceRules();
  assert.deepEqual(admit(rules, "workspace/jobs/web/a b"), ["workspace", "jobs", "web", "a b"]);
  assert.deepEqual(admit(rules, "ops.conf"), ["ops.conf"]);
  assert.deepEqual(admit(rules, "templates", 0, "directory"), ["templates"]);
});

test("./ before a name and ./ alone are passed over, and a name that is there twice is refused all the same", () => {
  const rules = new SourceRules();
  assert.deepEqual(admit(rules, ".", 0, "directory"), []);
  assert.deepEqual(admit(rules, "./workspace", 0, "directory"), ["workspace"]);
  assert.deepEqual(admit(rules, "./ops.conf"), ["ops.conf"]);
  assert.throws(() => admit(rules, "ops.conf"), { message: /it is in the archive twice/ });
  assert.throws(() => admit(rules, ".", 0, "directory"), { message: /it is in the archive twice/ });
  assert.throws(() => admit(rules, "."), { message: /"\." in its path is not allowed/ });
  assert.throws(() => admit(rules, "./data/ops.db"), { message: /only ops\.conf/ });
  assert.throws(() => admit(rules, "././ops.conf"), { message: /"\." in its path is not allowed/ });
  assert.throws(() => admit(rules, ".//etc/passwd"), { message: /an absolute path is not allowed/ });
});

test("names of the longest size are admitted", () => {
  const rules = new SourceRules();
  admit(rules, `workspace/${"ä".repeat(127)}n`);
  admit(rules, `workspace${`/${"n".repeat(200)}`.repeat(5)}/${"n".repeat(9)}`);
});

test("T-88 256 MiB are admitted, not one byte more", () => {
  const rules = new SourceRules();
  for (let count = 0; count < 4; count++) admit(rules, `workspace/${count}`, 64 * 1024 * 1024);
  admit(rules, "workspace/empty");
  assert.throws(() => admit(rules, "workspace/x", 1), { message: /at most 256 MiB/ });
});

test("T-88 20,000 files and folders are admitted, not one more", () => {
  const rules = new SourceRules();
  for (let count = 1; count < 20_000; count++) admit(rules, `workspace/${count}`);
  assert.throws(() => admit(rules, "workspace/x"), { message: /more than 20000 files and folders/ });
});

test("T-88 folders that are only part of a path count too", () => {
  const rules = new SourceRules();
  const deep = (count: number) => admit(rules, `workspace/${count}${"/d".repeat(490)}`);
  for (let count = 0; count < 40; count++) deep(count);
  assert.throws(() => deep(40), { code: "invalid_source", message: /more than 20000 files and folders/ });
});

test("whether there is a workspace/ is seen from its folder or anything below", () => {
  const rules = new SourceRules();
  admit(rules, "ops.conf");
  assert.equal(rules.hasWorkspace, false);
  admit(rules, "workspace/x");
  assert.equal(rules.hasWorkspace, true);
});
