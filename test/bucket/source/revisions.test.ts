import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type Layout, layoutOf } from "../../../lib/bucket/base/layout.ts";
import {
  currentFiles,
  currentRevision,
  findRevision,
  listRevisions,
  markBuilt,
  parseRecord,
  type Revision,
  recordCurrent,
  removeUnlisted,
  STORED_REVISION,
  type StoredRevision,
  withoutMarks,
} from "../../../lib/bucket/source/revisions.ts";
import {
  acceptSource,
  receiveSource,
  recoverSource,
  restoreRevision,
  wantedRevision,
} from "../../../lib/bucket/source/source.ts";
import { writeTar } from "../../../lib/codec/archive/tar-write.ts";
import { isUuid, uuidV7 } from "../../../lib/codec/uuid.ts";
import { EXAMPLE, entriesOf, push as pushSource, readTree } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

function bucket(t: TestContext): Layout {
  return layoutOf(temporaryFolder(t));
}

async function push(layout: Layout, text: string, runId = uuidV7()): Promise<Revision> {
  const archive = writeTar(entriesOf({ ...EXAMPLE, "workspace/text": text }));
  const received = await receiveSource(layout, archive, false, new AbortController().signal);
  return acceptSource(layout, received, runId);
}

function treeOf(layout: Layout, id: string): Record<string, string> {
  return readTree(path.join(layout.revisions, id));
}

test("a bucket that was never pushed to has no revisions, and marking a build does nothing", async (t) => {
  const layout = bucket(t);
  await markBuilt(layout, "succeeded");
  assert.deepEqual(await listRevisions(layout), []);
  assert.deepEqual(readdirSync(layout.root), []);
});

test("CP-165 CP-204 each accepted push keeps one revision that the next one does not change", async (t) => {
  const layout = bucket(t);
  const first = await push(layout, "one");
  const before = treeOf(layout, first.id);
  assert.equal(before["workspace/text"], "one");
  const second = await push(layout, "two");
  assert.deepEqual(treeOf(layout, first.id), before);
  assert.deepEqual(treeOf(layout, second.id), readTree(layout.root));
  assert.deepEqual(readdirSync(layout.revisions).sort(), [first.id, second.id].sort());
});

test("CP-165 the files of a revision are read-only, and nobody shares them with the live source", async (t) => {
  const layout = bucket(t);
  const { id } = await push(layout, "one");
  const modes = ["workspace/text", "workspace/jobs/web/bin/start"].map((name) => {
    const status = statSync(path.join(layout.revisions, id, name));
    assert.equal(status.nlink, 1);
    return status.mode & 0o777;
  });
  assert.deepEqual(modes, [0o444, 0o555]);
  writeFileSync(path.join(layout.workspace, "text"), "changed by a build");
  assert.equal(treeOf(layout, id)["workspace/text"], "one");
});

test("CP-165 CP-374 a file that a push leaves as it was is one file in both revisions, and one in the source before and after", async (t) => {
  const layout = bucket(t);
  const first = await push(layout, "one");
  const same = "workspace/jobs/web/bin/start";
  const inode = (name: string) => statSync(path.join(layout.root, name)).ino;
  const before = [inode(same), inode("workspace/text")];
  const second = await push(layout, "two");
  const of = ({ id }: { id: string }, name: string) => inode(path.join(".ops/revisions", id, name));
  assert.equal(of(second, same), of(first, same));
  assert.notEqual(of(second, "workspace/text"), of(first, "workspace/text"));
  assert.equal(inode(same), before[0]);
  assert.notEqual(inode("workspace/text"), before[1]);
  assert.equal(statSync(path.join(layout.root, same)).nlink, 1, "the old source is gone, and no revision shares the new one");
  assert.notEqual(inode(same), of(second, same));
  writeFileSync(path.join(layout.root, same), "edited here\n");
  const third = await push(layout, "two");
  assert.deepEqual(treeOf(layout, third.id), treeOf(layout, second.id));
  assert.deepEqual(readTree(layout.root), treeOf(layout, second.id));
});

test("CP-374 CP-169 a push that changes very many files beside others replaces the whole source", async (t) => {
  const layout = bucket(t);
  const files = (text: string) =>
    Object.fromEntries(Array.from({ length: 600 }, (_, index) => [`workspace/file_${index}`, text]));
  await pushSource(layout, { ...files("one"), "workspace/same": "same" });
  const same = statSync(path.join(layout.workspace, "same")).ino;
  const { id } = await pushSource(layout, { ...files("two"), "workspace/same": "same" });
  assert.deepEqual(readTree(layout.root), treeOf(layout, id));
  assert.equal(statSync(path.join(layout.workspace, "same")).ino, same);
  assert.deepEqual(readdirSync(layout.uploads), []);
});

test("CP-374 a revision whose files were damaged is not taken over into the next one", async (t) => {
  const layout = bucket(t);
  const first = await push(layout, "one");
  const file = path.join(layout.revisions, first.id, "workspace/text");
  chmodSync(file, 0o644);
  writeFileSync(file, "two");
  chmodSync(file, 0o444);
  // Times of files are a few milliseconds behind the clock.
  utimesSync(file, new Date(), new Date(Date.parse(first.created_at) + 5_000));
  const second = await push(layout, "one");
  assert.equal(treeOf(layout, second.id)["workspace/text"], "one");
  assert.equal(readTree(layout.root)["workspace/text"], "one");
});

test("CP-374 a revision keeps the list of its files, and shares none of them with the next one where the list was changed", async (t) => {
  const layout = bucket(t);
  const first = await push(layout, "one");
  const list = (id: string) => path.join(layout.revisions, id, "files.sha256");
  assert.equal(
    createHash("sha256")
      .update(readFileSync(list(first.id)))
      .digest("hex"),
    first.sha256,
  );
  chmodSync(list(first.id), 0o644);
  appendFileSync(list(first.id), "\n");
  const second = await push(layout, "one");
  const inode = ({ id }: Revision) => statSync(path.join(layout.revisions, id, "workspace/text")).ino;
  assert.notEqual(inode(second), inode(first));
  assert.equal(inode(await push(layout, "one")), inode(second));
});

test("CP-374 a file of more than 1 MiB is shared in the same way, and nothing else of it stays", async (t) => {
  const layout = bucket(t);
  const inodes: number[][] = [];
  for (const last of ["a", "a", "b"]) {
    const { id } = await pushSource(layout, { "workspace/large": "x".repeat(1024 * 1024 + 1) + last });
    const places = [path.join(layout.revisions, id, "workspace/large"), path.join(layout.workspace, "large")];
    inodes.push(places.map((place) => statSync(place).ino));
    assert.ok(readFileSync(places[1] as string, "utf8").endsWith(last));
    assert.deepEqual(readdirSync(layout.uploads), []);
  }
  const [first, second, third] = inodes as [number[], number[], number[]];
  assert.deepEqual(first, second);
  assert.equal(new Set([...second, ...third]).size, 4);
});

test("a revision's record says what was pushed by which run", async (t) => {
  const layout = bucket(t);
  const runId = uuidV7();
  const { id, created_at, ...rest } = await push(layout, "one", runId);
  assert.ok(isUuid(id));
  assert.ok(Math.abs(Date.now() - Date.parse(created_at)) < 60_000);
  const files = { ...EXAMPLE, "workspace/text": "one" };
  const texts = Object.entries(files).filter(([name]) => !name.endsWith("/"));
  const lines = texts.map(([name, text]) => {
    const sha256 = createHash("sha256").update(text).digest("hex");
    return { name, line: `${sha256} ${name.includes("bin/") ? "0755" : "0644"} ${name}\n` };
  });
  const sorted = lines.sort((a, b) => (a.name < b.name ? -1 : 1)).map(({ line }) => line);
  assert.deepEqual(rest, {
    run_id: runId,
    size_bytes: texts.reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0),
    file_count: texts.length,
    sha256: createHash("sha256").update(sorted.join("")).digest("hex"),
    build_status: "pending",
    note: null,
    commit: null,
    by: null,
    current: true,
    last_successful: false,
  });
});

test("CP-205 CP-206 CP-221 CP-222 a failed build leaves the new source current and the earlier success marked", async (t) => {
  const layout = bucket(t);
  const good = await push(layout, "good");
  await markBuilt(layout, "succeeded");
  const bad = await push(layout, "bad");
  await markBuilt(layout, "failed");
  const marks = async () =>
    (await listRevisions(layout)).map((one) => [one.id, one.build_status, one.current, one.last_successful]);
  assert.deepEqual(await marks(), [
    [bad.id, "failed", true, false],
    [good.id, "succeeded", false, true],
  ]);
  assert.equal(readTree(layout.root)["workspace/text"], "bad");
  await markBuilt(layout, "succeeded");
  assert.deepEqual((await marks())[0], [bad.id, "succeeded", true, true]);
});

test("the newest 20 revisions are kept, and besides them the last successful and the current one", async (t) => {
  const layout = bucket(t);
  const ids: string[] = [];
  for (let count = 0; count < 23; count++) {
    ids.push((await push(layout, `push ${count}`)).id);
    if (count === 1) await markBuilt(layout, "succeeded");
  }
  const kept = async () => (await listRevisions(layout)).map(({ id }) => id);
  const newest = ids.slice(3).reverse();
  assert.deepEqual(await kept(), [...newest, ids[1]]);
  assert.deepEqual(readdirSync(layout.revisions).sort(), (await kept()).sort());
  await restoreRevision(layout, ids[1] as string);
  await markBuilt(layout, "failed");
  assert.deepEqual(await kept(), [...newest, ids[1]]);
});

test("CP-169 an older revision can be restored: it is current again and no revision is added", async (t) => {
  const layout = bucket(t);
  const first = await push(layout, "one");
  const second = await push(layout, "two");
  await markBuilt(layout, "failed");
  const restored = await restoreRevision(layout, first.id);
  assert.deepEqual(restored, { ...first, build_status: "pending", current: true });
  assert.deepEqual(readTree(layout.root), treeOf(layout, first.id));
  const marks = (await listRevisions(layout)).map(({ id, current }) => [id, current]);
  assert.deepEqual(marks, [
    [second.id, false],
    [first.id, true],
  ]);
  await assert.rejects(restoreRevision(layout, uuidV7()), { code: "revision_not_found" });
});

test("recording the current revision twice is the same as once", async (t) => {
  const layout = bucket(t);
  const { current: _, last_successful: __, ...stored } = await push(layout, "one");
  const before = await listRevisions(layout);
  await recordCurrent(layout, stored);
  assert.deepEqual(await listRevisions(layout), before);
});

test("a damaged revisions.json is an error that names the file, and recovery removes nothing then", async (t) => {
  const layout = bucket(t);
  const { id } = await push(layout, "one");
  for (const text of ["[", "{}", '{"revisions": [{"id": 1}]}']) {
    writeFileSync(layout.revisionsFile, text);
    await assert.rejects(listRevisions(layout), { code: "failed", message: /Cannot read .*revisions\.json: / });
    await assert.rejects(recoverSource(layout), { code: "failed" });
    assert.deepEqual(readdirSync(layout.revisions), [id]);
  }
});

test("a damaged revisions.json stops a clean-up only where there are files of revisions, which it would not remove then", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(path.dirname(layout.revisionsFile), { recursive: true });
  writeFileSync(layout.revisionsFile, "{");
  await removeUnlisted(layout);
  mkdirSync(path.join(layout.revisions, "one"), { recursive: true });
  await assert.rejects(removeUnlisted(layout));
  assert.ok(existsSync(path.join(layout.revisions, "one")));
});

const idOf = (digit: number | string) => `0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e${String(digit).padStart(2, "0")}`;
const stored = (digit: number, more: object = {}): StoredRevision => ({
  ...{ id: idOf(digit), created_at: "2026-01-01T00:00:00.000Z", run_id: "r", size_bytes: 0, file_count: 0, sha256: "s" },
  ...{ build_status: "pending", note: null, commit: null, by: null },
  ...more,
});

test("the current revision is told, found in any case, and the last successful one is wanted where none is named", async (t) => {
  const layout = bucket(t);
  mkdirSync(layout.internal);
  assert.deepEqual([await currentRevision(layout), await currentFiles(layout)], [null, undefined]);
  const none = { code: "revision_not_found", message: "no revision of this bucket was ever built successfully" };
  await assert.rejects(wantedRevision(layout, undefined), none);
  await recordCurrent(layout, stored(1));
  await markBuilt(layout, "succeeded");
  await recordCurrent(layout, stored(2, { note: "n", commit: "c", by: "ada" }));
  assert.equal(await currentRevision(layout), idOf(2));
  assert.equal((await wantedRevision(layout, undefined)).id, idOf(1));
  const found = await findRevision(layout, idOf(2).toUpperCase());
  assert.deepEqual(found, { ...stored(2, { note: "n", commit: "c", by: "ada" }), current: true, last_successful: false });
  assert.deepEqual(withoutMarks(found), stored(2, { note: "n", commit: "c", by: "ada" }));
  const gone = { code: "revision_not_found", message: `revision "${idOf(3)}" does not exist` };
  await assert.rejects(findRevision(layout, idOf(3)), gone);
  await assert.rejects(wantedRevision(layout, idOf(3)), gone);
  await recordCurrent(layout, undefined);
  assert.deepEqual([await currentRevision(layout), (await listRevisions(layout)).length], [null, 2], "no revision is the source");
  await markBuilt(layout, "failed");
  assert.deepEqual(
    (await listRevisions(layout)).map(({ build_status }) => build_status),
    ["pending", "succeeded"],
  );
  writeFileSync(layout.revisionsFile, "{");
  assert.deepEqual([await currentRevision(layout), await currentFiles(layout)], [null, undefined]);
});

test("of 21 revisions the oldest is forgotten, unless it is the current or the last successful one", async (t) => {
  const layout = bucket(t);
  mkdirSync(layout.internal);
  const kept = async () => (await listRevisions(layout)).map(({ id }) => Number(id.slice(-2)));
  const newest = (from: number, count = 20) => Array.from({ length: count }, (_, index) => from - index);
  for (let digit = 1; digit <= 20; digit++) await recordCurrent(layout, stored(digit));
  assert.deepEqual(await kept(), newest(20));
  await recordCurrent(layout, stored(21));
  assert.deepEqual(await kept(), newest(21));
  await recordCurrent(layout, stored(2));
  await recordCurrent(layout, stored(22));
  assert.deepEqual(await kept(), newest(22));
  await recordCurrent(layout, stored(3));
  await markBuilt(layout, "succeeded");
  for (const digit of [23, 24]) await recordCurrent(layout, stored(digit));
  assert.deepEqual(await kept(), [...newest(24), 3]);
});

test("the files of the current revision count only where their list is the one that it was made with", async (t) => {
  const layout = bucket(t);
  const folder = path.join(layout.revisions, idOf(1));
  const list = "a\nb\n";
  const sha256 = createHash("sha256").update(list).digest("hex");
  mkdirSync(folder, { recursive: true });
  await recordCurrent(layout, stored(1, { sha256 }));
  assert.equal(await currentFiles(layout), undefined);
  writeFileSync(path.join(folder, "files.sha256"), list);
  const until = Date.parse("2026-01-01T00:00:00.000Z");
  assert.deepEqual(await currentFiles(layout), { folder, until, lines: new Set(["a", "b", ""]) });
  writeFileSync(path.join(folder, "files.sha256"), `${list}c`);
  assert.equal(await currentFiles(layout), undefined);
});

test("a record that this program has not written is told by its file and place", () => {
  const read = (value: unknown) =>
    parseRecord(STORED_REVISION, Buffer.from(typeof value === "string" ? value : JSON.stringify(value)), "f");
  const { note: _, commit: __, by: ___, ...earlier } = stored(1);
  assert.deepEqual({ ...read(earlier) }, stored(1), "earlier records say less");
  for (const [more, place] of [
    [{ id: "x" }, "id"],
    [{ id: `${idOf(1)}0` }, "id"],
    [{ id: `x${idOf(1)}` }, "id"],
    [{ size_bytes: -1 }, "size_bytes"],
    [{ file_count: -1 }, "file_count"],
    [{ build_status: "odd" }, "build_status"],
    [{ note: 1 }, "note"],
    [{ more: 1 }, "more"],
    [{ run_id: undefined }, "run_id"],
  ] as const)
    assert.throws(() => read({ ...stored(1), ...more }), { code: "failed", message: new RegExp(`^Cannot read f: ${place} `) });
  for (const status of ["pending", "succeeded", "failed"])
    assert.equal(read(stored(1, { build_status: status })).build_status, status);
  assert.throws(() => read("{"), { code: "failed", message: "Cannot read f: it is not JSON" });
});
