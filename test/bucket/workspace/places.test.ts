import assert from "node:assert/strict";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { Problems } from "../../../lib/bucket/base/problems.ts";
import { placedProblems } from "../../../lib/bucket/workspace/places.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

const MANIFEST = "workspace/jobs/web/manifest.json";

test("a problem is placed where its path leads, as far as that goes, and the last of equal keys counts", (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const text = '{\n "a": {"b": [1, 22]},\n "A": {"B": [1, 22]},\n "x/y": {"z": 1}\n}';
  makeWorkspace(layout.root, {
    jobs: { web: {} },
    files: { [MANIFEST]: text, "workspace/bucket.conf": "a = 1\n\n[b]\nc = [1, 2]\n" },
  });
  const at = (file: string, path: string) => {
    const problems = new Problems();
    problems.error("ErrInvalidManifest", file, path, "why");
    const [found] = placedProblems(layout, problems);
    return [found?.line, found?.column, found?.path];
  };
  assert.deepEqual(at(MANIFEST, ""), [1, 1, ""]);
  assert.deepEqual(at(MANIFEST, "a"), [3, 2, "a"]);
  assert.deepEqual(at(MANIFEST, "a/b/1"), [3, 17, "a/b/1"]);
  assert.deepEqual(at(MANIFEST, "A/b/9/x"), [3, 8, "A/b/9/x"]);
  assert.deepEqual(at(MANIFEST, "none/b"), [1, 1, "none/b"]);
  assert.deepEqual(at(MANIFEST, '"x/y"/z'), [4, 10, '"x/y"/z']);
  assert.deepEqual(at("workspace/bucket.conf", "b/c"), [4, 1, "b/c"]);
  assert.deepEqual(at("workspace/none.json", "a"), [1, 1, "a"]);
  assert.deepEqual(at(MANIFEST, "line 7, column 9"), [7, 9, ""], "a reader may know the place itself");
  for (const text of ["xline 7, column 9", "line 7, column 9x", "line 7"]) assert.deepEqual(at(MANIFEST, text), [1, 1, text]);
});

test("problems are sorted by file and place, errors have their code, and a problem of a folder names the file in it", (t) => {
  const layout = layoutOf(temporaryFolder(t));
  makeWorkspace(layout.root, { jobs: { web: {} }, files: { [MANIFEST]: '{"a": 1,\n"b": 2}', "workspace/jobs/web/x": "" } });
  const problems = new Problems();
  problems.warn(MANIFEST, "b", "odd");
  problems.error("ErrInvalidManifest", MANIFEST, "a", "bad");
  problems.error("ErrInvalidJob", "workspace/jobs/web", "x", "no");
  problems.error("ErrInvalidJob", "workspace/jobs/web", "gone", "no");
  problems.error("ErrInvalidJob", "workspace/jobs", "web", "no");
  const found = placedProblems(layout, problems);
  assert.deepEqual(
    found.map(({ severity, code, file, line, column, path, message }) => [severity, code, file, line, column, path, message]),
    [
      ["error", "ErrInvalidJob", "workspace/jobs", 1, 1, "web", "no"],
      ["error", "ErrInvalidJob", "workspace/jobs/web", 1, 1, "gone", "no"],
      ["error", "ErrInvalidManifest", MANIFEST, 1, 2, "a", "bad"],
      ["warning", null, MANIFEST, 2, 1, "b", "odd"],
      ["error", "ErrInvalidJob", "workspace/jobs/web/x", 1, 1, "", "no"],
    ],
  );
  assert.deepEqual(placedProblems(layout, new Problems()), []);
});
