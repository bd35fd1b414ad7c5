import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { Present } from "../../../lib/bucket/source/present.ts";
import { Trees } from "../../../lib/bucket/source/trees.ts";
import { readTree, writeTree } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const MODES = { file: 0o444, program: 0o555, folder: 0o555 };
const LIVE = { file: 0o644, program: 0o755, folder: 0o755 };
/** Few files are put into their trees at once, many by threads. */
const COUNTS = [3, 1_500] as const;

const nameOf = (index: number) => `workspace/folder_${index % 7}/file_${index}`;

/** Files by name, all different. */
function files(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [nameOf(index), `${"text".repeat(100)} ${index}`]));
}

/** Makes a tree of files, those that `like` has kept, and what has to be put into a source; answers the folders and the paths. */
async function made(t: TestContext, wanted: Record<string, string>, more: { like?: string; replaces: string }) {
  const [tree, live] = [temporaryFolder(t), temporaryFolder(t)];
  await using trees = new Trees([
    { folder: tree, modes: MODES, like: more.like === undefined ? undefined : { folder: more.like, until: Date.now() } },
    { folder: live, modes: LIVE, replaces: more.replaces },
  ]);
  for (const [name, text] of Object.entries(wanted)) {
    if (name.endsWith("/")) await trees.put({ name: name.slice(0, -1), kind: "folder" });
    else await trees.put({ name, kind: "file", content: Buffer.from(text), isKept: text !== "other" });
  }
  const [, paths = []] = await trees.finish();
  return { tree, live, paths: paths.sort() };
}

function sourceWith(t: TestContext, content: Record<string, string>): string {
  const source = temporaryFolder(t);
  const old = process.umask(0o022);
  writeTree(source, content);
  process.umask(old);
  return source;
}

const inodeOf = (...parts: string[]) => statSync(path.join(...parts)).ino;

for (const count of COUNTS)
  test(`CP-374 of ${count} files those that are there already are shared, and the source gets only the others`, async (t) => {
    const all = files(count);
    const first = await made(t, all, { replaces: sourceWith(t, {}) });
    assert.deepEqual(first.paths, ["workspace"]);
    assert.deepEqual(readTree(first.live), readTree(sourceWith(t, all)));
    assert.equal(statSync(path.join(first.tree, nameOf(1))).mode & 0o777, 0o444);
    assert.equal(statSync(path.join(first.tree, "workspace/folder_1")).mode & 0o777, 0o555);
    const source = sourceWith(t, { ...all, "workspace/gone/below": "x", "templates/gone": "x" });
    const second = await made(t, { ...all, [nameOf(1)]: "other", "workspace/new/": "" }, { like: first.tree, replaces: source });
    assert.deepEqual(second.paths, ["templates", nameOf(1), "workspace/gone", "workspace/new"].sort());
    assert.deepEqual(readTree(second.live), {
      "workspace/": "",
      ...readTree(sourceWith(t, { [nameOf(1)]: "other", "workspace/new/": "" })),
    });
    assert.equal(inodeOf(second.tree, nameOf(2)), inodeOf(first.tree, nameOf(2)));
    assert.notEqual(inodeOf(second.tree, nameOf(1)), inodeOf(first.tree, nameOf(1)));
    assert.equal(readFileSync(path.join(second.tree, nameOf(1)), "utf8"), "other");
  });

for (const count of COUNTS)
  test(`an error while ${count} files are written has the code of the file system, and ends the work`, async (t) => {
    const folder = path.join(temporaryFolder(t), "missing");
    await using trees = new Trees([{ folder, modes: MODES }]);
    const work = async () => {
      for (const [name, text] of Object.entries(files(count)))
        await trees.put({ name, kind: "file", content: Buffer.from(text) });
      await trees.finish();
    };
    await assert.rejects(work(), { code: "ENOENT" });
  });

test("the threads of one push work for the next one, and those of a push that failed do not", async (t) => {
  const all = files(1_500);
  const wanted = readTree(sourceWith(t, all));
  for (let round = 0; round < 3; round++) {
    const { live } = await made(t, { ...all, [nameOf(0)]: `${round}` }, { replaces: sourceWith(t, {}) });
    assert.deepEqual(readTree(live), { ...wanted, [nameOf(0)]: `${round}` });
    const folder = path.join(temporaryFolder(t), "missing");
    await using trees = new Trees([{ folder, modes: MODES }]);
    const failing = async () => {
      for (const name of Object.keys(all)) await trees.put({ name, kind: "folder" });
      await trees.finish();
    };
    await assert.rejects(failing(), { code: "ENOENT" });
  }
});

test("CP-374 a file that is elsewhere is put into its trees without being held in memory", async (t) => {
  const [elsewhere, tree] = [path.join(temporaryFolder(t), "large"), temporaryFolder(t)];
  writeFileSync(elsewhere, "large", { mode: 0o444 });
  await using trees = new Trees([{ folder: tree, modes: MODES }]);
  await trees.put({ name: "workspace/file", kind: "file", content: elsewhere });
  await trees.put({ name: "workspace/empty", kind: "file", content: Buffer.alloc(0) });
  await trees.finish();
  assert.equal(inodeOf(tree, "workspace/file"), inodeOf(elsewhere));
  assert.equal(readFileSync(path.join(tree, "workspace/empty"), "utf8"), "");
});

test("CP-374 a folder that is a link, or has another mode, is replaced as a whole, and so is a file in the place of a folder", async (t) => {
  const wanted = { "workspace/a/file": "a", "workspace/b/file": "b", "workspace/c/file": "c", "workspace/d": "d" };
  const source = sourceWith(t, { ...wanted, "workspace/d": "d" });
  const at = (name: string) => path.join(source, "workspace", name);
  renameSync(at("a"), path.join(source, "elsewhere"));
  symlinkSync(path.join(source, "elsewhere"), at("a"));
  chmodSync(at("b"), 0o700);
  renameSync(at("c"), path.join(source, "other"));
  writeFileSync(at("c"), "a file");
  renameSync(at("d"), path.join(source, "file"));
  mkdirSync(at("d"));
  const { paths, live } = await made(t, wanted, { replaces: source });
  assert.deepEqual(paths, ["workspace/a", "workspace/b", "workspace/c", "workspace/d"]);
  assert.deepEqual(readTree(live), readTree(sourceWith(t, wanted)));
});

test("CP-374 what a source has is told without links and without folders of another mode", (t) => {
  const source = sourceWith(t, { "workspace/jobs/web/file": "x", "workspace/closed/file": "x", "data/file": "x" });
  symlinkSync("jobs", path.join(source, "workspace/way"));
  symlinkSync("file", path.join(source, "workspace/jobs/web/link"));
  chmodSync(path.join(source, "workspace/closed"), 0o700);
  const present = new Present(source, 0o755);
  const kinds = ["workspace/jobs/web/file", "workspace/jobs/web", "workspace/jobs/web/link", "workspace/way/web/file"].concat([
    "workspace/way",
    "workspace/closed",
    "workspace/closed/file",
    "data/file",
    "workspace/none/file",
  ]);
  assert.deepEqual(
    kinds.map((name) => present.kindOf(name)),
    ["file", "folder", "other", undefined, "other", "other", undefined, undefined, undefined],
  );
  assert.equal(present.highest("workspace/way/web/file"), "workspace/way");
  assert.equal(present.highest("workspace/jobs/web/new"), "workspace/jobs/web/new");
  assert.equal(present.highest("templates/new/file"), "templates");
  assert.deepEqual(present.pathsIn("workspace/jobs/web").sort(), ["workspace/jobs/web/file", "workspace/jobs/web/link"]);
});

test("T-88 batches of files use the same memory, one after the other, and every file gets its own bytes", async (t) => {
  let taken = 0;
  class Counted extends SharedArrayBuffer {
    constructor(bytes = 0) {
      super(bytes);
      taken += bytes;
    }
  }
  t.mock.property(globalThis, "SharedArrayBuffer", Counted);
  const [tree, live] = [temporaryFolder(t), temporaryFolder(t)];
  const contentOf = (index: number) => Buffer.alloc(700_000, index);
  await using trees = new Trees([
    { folder: tree, modes: MODES },
    { folder: live, modes: LIVE, replaces: temporaryFolder(t) },
  ]);
  for (let index = 0; index < 60; index++) await trees.put({ name: `file_${index}`, kind: "file", content: contentOf(index) });
  await trees.finish();
  assert.ok(taken < 12 * 1024 * 1024, `${taken} bytes of shared memory were taken`);
  for (const folder of [tree, live])
    for (let index = 0; index < 60; index++)
      assert.ok(contentOf(index).equals(readFileSync(path.join(folder, `file_${index}`))), `file_${index}`);
});
