import assert from "node:assert/strict";
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { folderOf, Present } from "../../../lib/bucket/source/present.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

test("what a source has is told by its kind; nothing behind a link or in a folder of another mode is part of it", (t) => {
  const root = temporaryFolder(t);
  const at = (name: string) => path.join(root, name);
  for (const name of ["workspace/jobs/web", "workspace/open/in", "other/in"]) mkdirSync(at(name), { recursive: true });
  for (const name of ["workspace", "workspace/jobs", "workspace/jobs/web", "workspace/open/in"]) chmodSync(at(name), 0o750);
  chmodSync(at("workspace/open"), 0o755);
  for (const name of ["ops.conf", "workspace/a", "workspace/jobs/web/b", "workspace/open/in/c", "other/d"])
    writeFileSync(at(name), "");
  symlinkSync("jobs", at("workspace/link"));
  symlinkSync("workspace", at("templates"));
  const present = new Present(root, 0o750);
  const kinds = (...names: string[]) => names.map((name) => present.kindOf(name));
  assert.deepEqual(kinds("ops.conf", "workspace", "templates", "other"), ["file", "folder", "other", undefined]);
  assert.deepEqual(kinds("workspace/a", "workspace/jobs", "workspace/link", "workspace/open"), [
    "file",
    "folder",
    "other",
    "other",
  ]);
  assert.deepEqual(kinds("workspace/jobs/web/b", "workspace/jobs/no/b"), ["file", undefined]);
  assert.deepEqual(kinds("workspace/link/web", "workspace/open/in", "templates/a", "other/d"), Array(4).fill(undefined));
  assert.deepEqual(
    ["workspace", "workspace/jobs/web", "workspace/a", "workspace/open/in", "other", "."].map((name) => present.isFolder(name)),
    [true, true, false, false, false, true],
  );
  assert.deepEqual(
    present.pathsIn("workspace").sort(),
    ["a", "jobs", "link", "open"].map((name) => `workspace/${name}`),
  );
  assert.deepEqual([present.pathsIn("workspace/open"), present.pathsIn("nowhere")], [[], []]);
  assert.deepEqual(
    ["workspace/jobs/web/new", "workspace/jobs/no/x/y", "workspace/open/in/c", "templates/a", "ops.conf"].map((name) =>
      present.highest(name),
    ),
    ["workspace/jobs/web/new", "workspace/jobs/no", "workspace/open", "templates", "ops.conf"],
  );
  assert.equal(present.placeOf("workspace/a"), at("workspace/a"));
});

test("the folder of a path is all before its last slash", () => {
  assert.deepEqual(["a/b/c", "a/b", "a"].map(folderOf), ["a/b", "a", "."]);
});
