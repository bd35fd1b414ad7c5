import assert from "node:assert/strict";
import { test } from "node:test";
import { describeDrift, isForceable } from "../../../lib/operation/reach/tree-drift.ts";
import type { DriftedFile } from "../../../lib/plan/deploy-plan.ts";

const file = (state: DriftedFile["state"], sha256: string | null, path = "a"): DriftedFile => {
  return { path, state, sha256, diff: null };
};

test("force puts back what is changed, missing or a link, and removes no folder, nor a link in the place of the job", () => {
  assert.deepEqual(
    [file("changed", "x"), file("extra", "x"), file("missing", null), file("link", null), file("link", null, "..a")].map(
      isForceable,
    ),
    [true, true, true, true, true],
  );
  assert.deepEqual(
    [file("changed", null), file("extra", null), file("link", null, "."), file("link", null, "..")].map(isForceable),
    [false, false, false, false],
  );
});

test("what was found is told file by file, with the lines of a diff below", () => {
  const files = [file("missing", null), { ...file("changed", "x", "b"), diff: "@@ -1 +1 @@\n-1\n\n+2\n" }];
  assert.deepEqual(describeDrift({ files }), ["  missing a", "  changed b", "    @@ -1 +1 @@", "    -1", "    +2"]);
});
