import assert from "node:assert/strict";
import { test } from "node:test";
import { foldersAbove, isExecutable, isForSync } from "../../../lib/transport/files/look.ts";

test("what a job keeps in its own folders is never synced", () => {
  const paths = ["data", "data/x", "logs/a", "bin/run", "conf/data", "database", "binary", "Makefile"];
  assert.deepEqual(paths.filter(isForSync), ["conf/data", "database", "binary", "Makefile"]);
});

test("a file is executable by its owner's bit alone", () => {
  assert.deepEqual([0o755, 0o100, 0o655, 0o011].map(isExecutable), [true, true, false, false]);
});

test("the folders above paths come each before those in it, each once", () => {
  assert.deepEqual([...foldersAbove(["a/b/c", "a/d", "e", "f/g"])], ["a", "a/b", "f"]);
});
