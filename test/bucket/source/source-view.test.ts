import assert from "node:assert/strict";
import { chmodSync, mkdirSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { diffRevisions } from "../../../lib/bucket/source/source-view.ts";
import { writeTree } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

async function diffOf(t: TestContext, before: Record<string, string>, after: Record<string, string>) {
  const layout = layoutOf(temporaryFolder(t));
  for (const [name, source] of Object.entries({ before, after })) {
    mkdirSync(path.join(layout.revisions, name), { recursive: true });
    writeTree(path.join(layout.revisions, name), source);
  }
  return diffRevisions(layout, "before", "after");
}

test("files that were added, removed and changed are told, with the lines that differ", async (t) => {
  const found = await diffOf(
    t,
    { "ops.conf": "a\nb\n", "workspace/same": "x", "workspace/old": "1", "templates/t/x": "1\n" },
    { "workspace/same": "x", "workspace/new/er": "1", "templates/t/x": "2\n", "templates/a": "" },
  );
  assert.deepEqual(found, {
    added: ["templates/a", "workspace/new/er"],
    removed: ["ops.conf", "workspace/old"],
    changed: [{ path: "templates/t/x", mode: null, diff: "@@ -1 +1 @@\n-1\n+2\n", omitted: null }],
  });
});

test("equal revisions differ in nothing", async (t) => {
  const source = { "ops.conf": "a\n", "workspace/x": "y".repeat(1_000_000) };
  assert.deepEqual(await diffOf(t, source, source), { added: [], removed: [], changed: [] });
});

test("a file that has become a program differs in its mode alone", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  writeTree(path.join(layout.revisions, "before"), { "workspace/bin/x": "a" });
  writeTree(path.join(layout.revisions, "after"), { "workspace/bin/x": "a" });
  chmodSync(path.join(layout.revisions, "before", "workspace/bin/x"), 0o444);
  chmodSync(path.join(layout.revisions, "after", "workspace/bin/x"), 0o555);
  const mode = { before: "0644", after: "0755" };
  const { changed } = await diffRevisions(layout, "before", "after");
  assert.deepEqual(changed, [{ path: "workspace/bin/x", mode, diff: "", omitted: null }]);
});

test("what is no text or too large has no diff, and says so", async (t) => {
  const large = "line\n".repeat(100_000);
  const { changed } = await diffOf(
    t,
    { "workspace/binary": "a\0b", "workspace/large": large },
    { "workspace/binary": "a\0c", "workspace/large": `${large}x` },
  );
  assert.deepEqual(
    changed.map(({ path, diff, omitted }) => [path, diff, omitted]),
    [
      ["workspace/binary", null, "binary"],
      ["workspace/large", null, "too_large"],
    ],
  );
});

test("all diffs together stay within their bound", async (t) => {
  const source = (mark: string) =>
    Object.fromEntries(
      Array.from({ length: 12 }, (_, index) => [
        `workspace/${String(index).padStart(2, "0")}`,
        Array.from({ length: 10_000 }, (_, line) => `${mark} ${line}\n`).join(""),
      ]),
    );
  const { changed } = await diffOf(t, source("a"), source("b"));
  const size = changed.reduce((sum, { diff }) => sum + Buffer.byteLength(diff ?? ""), 0);
  assert.ok(size > 0 && size <= 1024 * 1024, String(size));
  assert.equal(changed.length, 12);
  assert.ok(changed.every(({ diff, omitted }) => (diff === null) === (omitted === "too_large")));
});
