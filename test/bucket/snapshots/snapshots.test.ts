import assert from "node:assert/strict";
import fs, { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { SCHEMA_VERSION } from "../../../lib/bucket/base/schema.ts";
import { createSnapshot, deleteSnapshot, findSnapshot, listSnapshots } from "../../../lib/bucket/snapshots/snapshots.ts";
import { recoverSource } from "../../../lib/bucket/source/source.ts";
import { entriesOf, listed, markedBucket, snapshotFile } from "../../helpers/snapshots.ts";
import { EXAMPLE, push } from "../../helpers/sources.ts";

const never = new AbortController().signal;

const all = { limit: 100 };

test("CP-105 T-54 a snapshot is one private file of database, keys, labels and source, each with its sum", async (t) => {
  const layout = await markedBucket(t);
  writeFileSync(path.join(layout.workspace, "tool"), "#!/bin/sh\n");
  chmodSync(path.join(layout.workspace, "tool"), 0o755);
  const file = await snapshotFile(layout, "before the upgrade");
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.equal(statSync(layout.snapshots).mode & 0o777, 0o700);
  const [manifest, ...files] = await entriesOf(file);
  const { files: sums, ...told } = JSON.parse(String(manifest?.content));
  assert.deepEqual(
    sums.map(({ path: name }: { path: string }) => name),
    [
      "data/ops.db",
      ...["bucket.json", "ops.conf", "secrets/ca.crt", "secrets/ca.key", "secrets/kv.key", "secrets/worker.key"],
      ...[".ssh/known_hosts", "workspace/bucket.conf", "workspace/mark", "workspace/tool", "workspace/workers.json"],
      "templates/a/mark",
    ],
  );
  const modes = (name: string) => (name.endsWith("tool") ? "0755" : /^(workspace|templates|ops)/.test(name) ? "0644" : "0600");
  assert.deepEqual(
    sums,
    files.map(({ path: name, content }) => listed(name, content as Buffer, modes(name))),
  );
  using db = openDatabase(layout.database);
  const { bucket_id } = db.get<{ bucket_id: string }>("SELECT bucket_id FROM bucket") ?? { bucket_id: "" };
  assert.deepEqual(
    [told.bucket_id, told.schema_version, told.note, told.source_revision, told.rows.kv_version],
    [bucket_id, SCHEMA_VERSION, "before the upgrade", "", 2],
  );
  assert.match(told.created_at, /^\d{4}-.*Z$/);
});

test("no secret stands in a snapshot in clear besides the keys themselves", async (t) => {
  const layout = await markedBucket(t);
  const entries = await entriesOf(await snapshotFile(layout));
  for (const { content } of entries) assert.ok(!content?.includes("secret of one"));
});

test("CP-106 the list is newest first, in pages, and says what cannot be used", async (t) => {
  const layout = await markedBucket(t);
  assert.deepEqual(await listSnapshots(layout, all), { items: [], next_cursor: null });
  for (const note of ["a", "b", "c"]) await snapshotFile(layout, note);
  writeFileSync(path.join(layout.snapshots, "20200101T000000.000Z-00000000.tar.gz"), "no snapshot");
  writeFileSync(path.join(layout.snapshots, "somebody's file.tar.gz"), "");
  const { items } = await listSnapshots(layout, all);
  assert.deepEqual(
    items.map(({ note, created_at }) => [note, created_at.slice(0, 4) !== "2020"]),
    [
      ["c", true],
      ["b", true],
      ["a", true],
      ["", false],
    ],
  );
  assert.deepEqual(
    items.map(({ error }) => error === null),
    [true, true, true, false],
  );
  assert.match(String(items[3]?.error), /^Cannot use the snapshot .*00000000\.tar\.gz: the archive is not readable as gzip/);
  assert.deepEqual(
    items.map(({ source_revision }) => source_revision),
    [null, null, null, null],
  );
  const revision = await push(layout, EXAMPLE);
  await snapshotFile(layout, "d");
  const [newest] = (await listSnapshots(layout, { limit: 1 })).items;
  assert.equal(newest?.source_revision, revision.id);
  await deleteSnapshot(layout, newest?.name ?? "");
  const first = await listSnapshots(layout, { limit: 3 });
  const second = await listSnapshots(layout, { limit: 3, cursor: first.next_cursor ?? "" });
  assert.deepEqual([...first.items, ...second.items], items);
  assert.equal(second.next_cursor, null);
  await assert.rejects(listSnapshots(layout, { limit: 3, cursor: "x" }), { code: "invalid_request" });
});

test("a snapshot is found by its name, with or without its ending, and by nothing else", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  const name = path.basename(file, ".tar.gz");
  assert.equal(await findSnapshot(layout, name), file);
  assert.equal(await findSnapshot(layout, `${name}.tar.gz`), file);
  for (const wrong of ["", "..", `../snapshots/${name}`, `${name}x`, "20200101T000000.000Z-00000000", file])
    await assert.rejects(findSnapshot(layout, wrong), { code: "snapshot_not_found" }, wrong);
  await deleteSnapshot(layout, name);
  assert.deepEqual(readdirSync(layout.snapshots), []);
  await assert.rejects(deleteSnapshot(layout, name), { code: "snapshot_not_found" });
});

test("a symbolic link or a file that cannot be read fails the snapshot by name and leaves nothing", async (t) => {
  const layout = await markedBucket(t);
  using db = openDatabase(layout.database);
  for (const [name, make] of [
    ["workspace/link", (file: string) => symlinkSync("/etc/hostname", file)],
    ["secrets/link", (file: string) => symlinkSync("kv.key", file)],
  ] as const) {
    const file = path.join(layout.root, name);
    make(file);
    await assert.rejects(createSnapshot(layout, db, {}, never), {
      code: "invalid_source",
      message: `Cannot take ${file}: a symbolic link is not allowed`,
    });
    unlinkSync(file);
  }
  assert.deepEqual(readdirSync(layout.snapshots), []);
});

test("folders that are never part of a source are left out", async (t) => {
  const layout = await markedBucket(t);
  mkdirSync(path.join(layout.workspace, ".venv", "bin"), { recursive: true });
  symlinkSync("/usr/bin/python3", path.join(layout.workspace, ".venv", "bin", "python3"));
  const names = (await entriesOf(await snapshotFile(layout))).map((entry) => entry.path);
  assert.ok(!names.some((name) => name.includes(".venv")));
});

/** Calls `notice` with the path of each file before the file is opened synchronously. */
function onOpen(t: TestContext, notice: (file: string) => void): void {
  const { openSync } = fs;
  t.mock.method(fs, "openSync", (...given: Parameters<typeof openSync>) => {
    notice(String(given[0]));
    return openSync(...given);
  });
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
}

test("a cancel is heard while the source is read: the next file is not opened any more", async (t) => {
  const layout = await markedBucket(t);
  using db = openDatabase(layout.database);
  const stop = new AbortController();
  const opened: string[] = [];
  onOpen(t, (file) => {
    opened.push(path.relative(layout.root, file));
    setImmediate(() => stop.abort());
  });
  await assert.rejects(createSnapshot(layout, db, {}, stop.signal), { code: "cancelled" });
  assert.deepEqual(opened, ["bucket.json"]);
});

test("a snapshot that is cancelled while it is written leaves nothing", async (t) => {
  const layout = await markedBucket(t);
  using db = openDatabase(layout.database);
  const stop = new AbortController();
  const opened = new Set<string>();
  let isWriting = false;
  onOpen(t, (file) => {
    // First each file is read for its sum, then for the archive.
    if (opened.has(file)) {
      isWriting = readdirSync(layout.snapshots).some((name) => name.endsWith(".tar.gz"));
      stop.abort();
    }
    opened.add(file);
  });
  await assert.rejects(createSnapshot(layout, db, {}, stop.signal), { code: "cancelled" });
  assert.deepEqual([isWriting, readdirSync(layout.snapshots)], [true, []]);
});

test("a cancelled snapshot leaves nothing, and a killed one only what the next operation removes", async (t) => {
  const layout = await markedBucket(t);
  using db = openDatabase(layout.database);
  await assert.rejects(createSnapshot(layout, db, {}, AbortSignal.abort()), { code: "cancelled" });
  assert.deepEqual(readdirSync(layout.snapshots), []);
  const file = await snapshotFile(layout);
  for (const end of [".db", ".db-journal", ".tar.gz"])
    writeFileSync(path.join(layout.snapshots, `.20200101T000000.000Z-00000000${end}`), readFileSync(file));
  await recoverSource(layout);
  assert.deepEqual(readdirSync(layout.snapshots), [path.basename(file)]);
});
