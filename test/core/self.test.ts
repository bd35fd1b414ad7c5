import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT, selfArguments } from "../../lib/core/self.ts";

test("the program's folder is where its parts are", () => {
  for (const part of ["lib", "ui", "package.json"]) assert.ok(existsSync(path.join(PROGRAM_ROOT, part)), part);
});

test("the program starts itself on the very Node it runs on, with its arguments as they are", () => {
  assert.deepEqual(selfArguments("worker", "a b"), [process.execPath, path.join(PROGRAM_ROOT, "bin", "ops.js"), "worker", "a b"]);
});
