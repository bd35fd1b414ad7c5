import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import fsp from "node:fs/promises";
import path from "node:path";

import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { discardLeftovers, finishInterrupted, flushTree, swap } from "../../../lib/bucket/source/swap.ts";
import { failing } from "../../helpers/faults.ts";
import { writeTree } from "../../helpers/sources.ts";
import { fifo, temporaryFolder } from "../../helpers/temporary.ts";

const ID = "0190a5e8-0000-7000-8000-000000000001";
const TREE = `restores/${ID}`;

function bucket(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  for (const folder of [layout.internal, layout.tmp]) mkdirSync(folder, { recursive: true });
  const journal = (change: unknown) =>
    writeFileSync(layout.journal, typeof change === "string" ? change : JSON.stringify(change));
  const tree = (files: Record<string, string>) => writeTree(path.join(layout.internal, TREE), files);
  return { layout, journal, tree, at: (name: string) => path.join(layout.root, name) };
}

test("CP-169 a journal speaks of a tree in .ops/ and of paths of the source and the state, and of nothing else", async (t) => {
  const { layout, journal, at } = bucket(t);
  writeTree(layout.root, { "data/other": "x", "logs/x": "x", "secrets/kv.key": "x", "workspace/a": "x" });
  const refused = async (change: unknown, why: RegExp) => {
    journal(change);
    await assert.rejects(finishInterrupted(layout), (error: Error & { code: string }) => {
      assert.equal(error.code, "failed");
      assert.ok(error.message.startsWith(`Cannot read ${layout.journal}: `), error.message);
      assert.match(error.message, why);
      return true;
    });
  };
  for (const name of [
    ...["", ".", "..", "data", "data/other", "logs", "opsxconf", "ops.conf/x", "xops.conf", "ops.confx", "secrets/kv.key"],
    ...["workspace/", "workspace//a", "workspace/..", "workspace/../data", "workspace/a/./b", "workspace/.", "workspacex/a"],
    ...["data/ops.db/x", "/workspace/a", "workspace/a\u0000", ".sshx", "templates/../x"],
  ])
    await refused({ tree: TREE, paths: [name] }, /paths\/0 expected a path of the source or the state/);
  for (const tree of ["", "revisions", `x${TREE}`, `${TREE}x`, `${TREE}/x`, "revisions/..", `uploads/${ID}`])
    await refused({ tree, paths: [] }, /tree expected a tree in \.ops\//);
  await refused("{", /it is not JSON$/);
  await refused({ tree: TREE }, /paths is missing/);
  await refused({ tree: TREE, paths: [], revision: { id: "x" } }, /revision\/id /);
  assert.deepEqual(
    ["data/other", "logs/x", "secrets/kv.key", "workspace/a"].filter((name) => !existsSync(at(name))),
    [],
  );
});

test("CP-169 each path of the source and the state can be replaced, and what the tree does not have is removed", async (t) => {
  const { layout, journal, tree, at } = bucket(t);
  const paths = [
    ...["data/ops.db-wal", "data/ops.db-shm", "data/ops.db", "data/contents", "secrets", ".ssh", "bucket.json"],
    ...["ops.conf", "workspace/a", "workspace/.b/..c", "templates/x"],
  ];
  const state = { "data/ops.db": "1", "data/contents/x": "1", "secrets/k": "1", ".ssh/k": "1", "bucket.json": "1" };
  const source = { "ops.conf": "1", "workspace/a": "1", "workspace/.b/..c": "1", "templates/x": "1" };
  writeTree(layout.root, {
    ...state,
    ...source,
    "data/ops.db-wal": "0",
    "data/ops.db-shm": "0",
    "workspace/kept": "0",
    "tmp/x": "0",
  });
  const next = Object.fromEntries(Object.keys({ ...state, ...source }).map((name) => [name, "2"]));
  tree(next);
  journal({ tree: TREE, paths });
  await finishInterrupted(layout);
  for (const name of Object.keys(next)) assert.equal(readFileSync(at(name), "utf8"), "2", name);
  assert.deepEqual(
    ["data/ops.db-wal", "data/ops.db-shm"].filter((name) => existsSync(at(name))),
    [],
  );
  assert.equal(readFileSync(at("workspace/kept"), "utf8"), "0");
  assert.deepEqual(
    ["secrets", ".ssh", "data/contents"].map((name) => statSync(at(name)).mode & 0o777),
    [0o700, 0o700, 0o700],
  );
  assert.deepEqual([readdirSync(layout.tmp), readdirSync(layout.internal)], [[], []], "tmp, journal, staging and tree are gone");
  tree({});
  await swap(layout, { tree: TREE, paths: ["secrets", "ops.conf"], revision: undefined });
  assert.deepEqual(
    ["secrets", "ops.conf"].filter((name) => existsSync(at(name))),
    [],
  );
  await finishInterrupted(layout);
});

test("a tree with what is no file is not taken, and the bucket stays as it is", async (t) => {
  const { layout, tree, at } = bucket(t);
  writeTree(layout.root, { "secrets/k": "1" });
  tree({ "secrets/k": "2" });
  const pipe = path.join(layout.internal, TREE, "secrets/pipe");
  fifo(pipe);
  await assert.rejects(swap(layout, { tree: TREE, paths: ["secrets"], revision: undefined }), {
    code: "failed",
    message: `Cannot take ${pipe}: it is no regular file`,
  });
  assert.deepEqual([readFileSync(at("secrets/k"), "utf8"), existsSync(layout.journal)], ["1", false]);
});

test("what no journal speaks of is removed, and all else stays", async (t) => {
  const { layout } = bucket(t);
  const left = [
    ...[
      ".ops/.journal.json.0a.tmp",
      ".ops/.revisions.json.ff.tmp",
      ".ops/uploads/x/y",
      ".ops/snapshots/.half",
      ".ops/restores/x",
    ],
    ...[".ops/staging/new/x", ".ops/revisions/old/x"],
  ];
  const kept = [
    ...[".ops/.journal.json.0g.tmp", ".ops/x.journal.json.0a.tmp", ".ops/.journal.json.0a.tmp2", ".ops/schedules.json"],
    ...[".ops/snapshots/whole", "tmp/x", "data/ops.db"],
  ];
  writeTree(layout.root, Object.fromEntries([...left, ...kept].map((name) => [name, ""])));
  await discardLeftovers(layout);
  assert.deepEqual(
    left.filter((name) => existsSync(path.join(layout.root, name))),
    [],
  );
  assert.deepEqual(
    kept.filter((name) => !existsSync(path.join(layout.root, name))),
    [],
  );
});

test("a tree is flushed only where it is a folder of its own", async (t) => {
  const { layout, at } = bucket(t);
  writeTree(layout.root, { "workspace/a/b": "" });
  for (const files of [0, 1, 500]) await flushTree(layout.workspace, files);
  await assert.rejects(flushTree(at("none")));
  const mend = failing(t, fsp, "open", "EIO", at("workspace/a/b"));
  await assert.rejects(flushTree(layout.workspace), { code: "EIO" });
  mend();
  await flushTree(layout.workspace);
});

test("what an earlier change has staged is no part of the next one", async (t) => {
  const { layout, journal, tree, at } = bucket(t);
  writeTree(layout.root, { "ops.conf": "1", ".ops/staging/new/ops.conf": "stale", ".ops/staging/old/0": "stale" });
  tree({ "ops.conf": "2" });
  journal({ tree: TREE, paths: ["ops.conf"] });
  await finishInterrupted(layout);
  assert.deepEqual([readFileSync(at("ops.conf"), "utf8"), readdirSync(layout.internal)], ["2", []]);
});
