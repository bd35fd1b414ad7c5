import assert from "node:assert/strict";
import { chmodSync, linkSync, mkdirSync, symlinkSync } from "node:fs";
import fsp from "node:fs/promises";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import {
  diffRevisions,
  listSourceFiles,
  listTemplates,
  modeText,
  openIfThere,
  openSourceFile,
} from "../../../lib/bucket/source/source-view.ts";
import { failing } from "../../helpers/faults.ts";
import { seeded } from "../../helpers/random.ts";
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
    { "workspace/binary": "a\0b", "workspace/from": "a\0", "workspace/large": large, "workspace/to": "a" },
    { "workspace/binary": "a\0c", "workspace/from": "a", "workspace/large": `${large}x`, "workspace/to": "a\0" },
  );
  assert.deepEqual(
    changed.map(({ path, diff, omitted }) => [path, diff, omitted]),
    [
      ["workspace/binary", null, "binary"],
      ["workspace/from", null, "binary"],
      ["workspace/large", null, "too_large"],
      ["workspace/to", null, "binary"],
    ],
  );
});

test("a file of 256 KiB has a diff, one of a byte more is too large, before or after", async (t) => {
  const most = "x".repeat(256 * 1024);
  const { changed } = await diffOf(
    t,
    { "workspace/grown": "a", "workspace/most": most, "workspace/shrunk": `${most}y` },
    { "workspace/grown": `${most}y`, "workspace/most": "a", "workspace/shrunk": "a" },
  );
  assert.deepEqual(
    changed.map(({ omitted }) => omitted),
    ["too_large", null, "too_large"],
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

test("a file that two revisions share is not read to be compared", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  writeTree(path.join(layout.revisions, "before"), { "workspace/x": "x" });
  mkdirSync(path.join(layout.revisions, "after/workspace"), { recursive: true });
  linkSync(path.join(layout.revisions, "before/workspace/x"), path.join(layout.revisions, "after/workspace/x"));
  failing(t, fsp, "open", "EIO", path.join(layout.revisions, "after/workspace/x"));
  assert.deepEqual(await diffRevisions(layout, "before", "after"), { added: [], removed: [], changed: [] });
});

test("the pages of the files of a source are all of them in the order of their paths, whatever their names are", async (t) => {
  const random = seeded();
  const parts = ["a", "a-", "a.b", "a0", "A", "ü", "\u{1f600}", "\uffee", "b c"];
  const part = () => parts[Math.floor(random() * parts.length)] as string;
  const layout = layoutOf(temporaryFolder(t));
  const names = new Set(["ops.conf"]);
  for (let index = 0; index < 200; index++) {
    const folders = Array.from({ length: Math.floor(random() * 4) }, () => `${part()}.d`);
    names.add([random() < 0.3 ? "templates" : "workspace", ...folders, part()].join("/"));
  }
  writeTree(layout.root, Object.fromEntries([...names].map((name) => [name, "x"])));
  for (const limit of [1, 7, 1000]) {
    const found: string[] = [];
    for (let more = true; more; ) {
      const page = await listSourceFiles(layout, { after: found.at(-1) ?? "", limit });
      found.push(...page.items.map((item) => item.path));
      ({ more } = page);
    }
    assert.deepEqual(found, [...names].sort());
  }
});

test("a page of the files reads no folder that lies wholly before or behind it", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  writeTree(layout.root, Object.fromEntries(["a", "b", "c", "d"].map((name) => [`workspace/${name}/file`, "x"])));
  for (const name of ["a", "d"]) failing(t, fsp, "readdir", "EIO", path.join(layout.workspace, name));
  const { items, more } = await listSourceFiles(layout, { after: "workspace/b", limit: 1 });
  assert.deepEqual([items.map((item) => item.path), more], [["workspace/b/file"], true]);
  await assert.rejects(listSourceFiles(layout, { after: "workspace/b", limit: 3 }), { code: "EIO" });
});

test("only regular files of the source are opened, and what is none is told by its path", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const text = { "ops.conf": "a", "workspace/x/y": "b", "templates/t/z": "c", "data/ops.db": "", other: "" };
  writeTree(layout.root, text);
  symlinkSync("x", path.join(layout.workspace, "link"));
  for (const below of ["ops.conf", "workspace/x/y", "templates/t/z"]) {
    await using handle = await openSourceFile(layout, below);
    assert.equal(await handle.readFile("utf8"), text[below as keyof typeof text]);
  }
  for (const below of [
    ...[
      "",
      "data/ops.db",
      "other",
      "workspace",
      "templates",
      "workspace/",
      "workspace/x",
      "workspace/none",
      "ops.conf/x",
      "/ops.conf",
    ],
    ...["workspace/../data/ops.db", "workspace/link/y", "workspace/link"],
  ]) {
    const wrong = { code: "file_not_found", message: `${JSON.stringify(below)} is no file of the source` };
    await assert.rejects(openSourceFile(layout, below), wrong);
    assert.equal(await openIfThere(layout, below), undefined);
  }
  const mend = failing(t, fsp, "open", "EIO");
  for (const open of [openSourceFile, openIfThere]) await assert.rejects(open(layout, "ops.conf"), { code: "EIO" });
  mend();
  assert.deepEqual([0o100, 0o700, 0o755, 0o644, 0o655, 0o011].map(modeText), ["0755", "0755", "0755", "0644", "0644", "0644"]);
});

test("templates are the folders below templates/, page by page, each with its files", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const list = (after: string, limit: number) => listTemplates(layout, { after, limit });
  assert.deepEqual(await list("", 1), { items: [], more: false });
  writeTree(layout.root, { "templates/b/run": "12", "templates/b/c/d": "", "templates/a/x": "1", "templates/file": "" });
  chmodSync(path.join(layout.templates, "b/run"), 0o755);
  symlinkSync("run", path.join(layout.templates, "b/link"));
  symlinkSync("a", path.join(layout.templates, "link"));
  const [a, b] = [
    { name: "a", files: [{ path: "x", size_bytes: 1, mode: "0644" }] },
    {
      name: "b",
      files: [
        { path: "c/d", size_bytes: 0, mode: "0644" },
        { path: "run", size_bytes: 2, mode: "0755" },
      ],
    },
  ];
  assert.deepEqual(await list("", 2), { items: [a, b], more: false });
  assert.deepEqual(
    [await list("", 1), await list("a", 1), await list("b", 1)],
    [
      { items: [a], more: true },
      { items: [b], more: false },
      { items: [], more: false },
    ],
  );
});

test("a page of the files is full only where another file follows, and tells size, mode and digest of each", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  writeTree(layout.root, { "workspace/a": "1", "workspace/b": "" });
  symlinkSync("a", path.join(layout.workspace, "c"));
  chmodSync(path.join(layout.workspace, "a"), 0o700);
  const [a, b] = [
    {
      path: "workspace/a",
      size_bytes: 1,
      mode: "0755",
      sha256: "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
    },
    {
      path: "workspace/b",
      size_bytes: 0,
      mode: "0644",
      sha256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    },
  ];
  assert.deepEqual(await listSourceFiles(layout, { after: "", limit: 2 }), { items: [a, b], more: false });
  assert.deepEqual(await listSourceFiles(layout, { after: "ops.conf", limit: 1 }), { items: [a], more: true });
  assert.deepEqual(await listSourceFiles(layout, { after: "workspace/a", limit: 9 }), { items: [b], more: false });
});

test("a file with as many bytes differs where a byte does, and a file whose mode alone differs has an empty diff", async (t) => {
  const most = "x".repeat(256 * 1024);
  const { changed } = await diffOf(
    t,
    { "workspace/late": `${most}${most}a`, "workspace/same": `${most}a`, "workspace/short": "a\n" },
    { "workspace/late": `${most}${most}b`, "workspace/same": `${most}a`, "workspace/short": "b\n" },
  );
  assert.deepEqual(changed, [
    { path: "workspace/late", mode: null, diff: null, omitted: "too_large" },
    { path: "workspace/short", mode: null, diff: "@@ -1 +1 @@\n-a\n+b\n", omitted: null },
  ]);
});
