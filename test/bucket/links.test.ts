import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { migrate, openDatabase, openForReading } from "../../lib/bucket/base/database.ts";
import { type Layout, layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../lib/bucket/base/lock.ts";
import { RunLog, readLogs } from "../../lib/bucket/base/logs.ts";
import { loadKvKey } from "../../lib/bucket/kv/kv-access.ts";
import { commitRestore, prepareRestore } from "../../lib/bucket/snapshots/restore.ts";
import { recoverSource, restoreRevision } from "../../lib/bucket/source/source.ts";
import { diffRevisions, listSourceFiles, listTemplates } from "../../lib/bucket/source/source-view.ts";
import { flushTree } from "../../lib/bucket/source/swap.ts";
import { initBucket } from "../../lib/bucket/workspace/init.ts";
import { createJob } from "../../lib/bucket/workspace/job-template.ts";
import { removeSshKey } from "../../lib/bucket/workspace/ssh-key.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { Redactor } from "../../lib/core/redact.ts";
import { readActivity } from "../../lib/run/activity.ts";
import { createRecord, readRecord, runIds } from "../../lib/run/record.ts";
import { pruneRuns } from "../../lib/run/recovery.ts";
import { BELIEVING, BUCKET, entriesOf, listed, snapshotFile, writeEntries } from "../helpers/snapshots.ts";
import { EXAMPLE, push } from "../helpers/sources.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { contentOf } from "../helpers/worker.ts";

const never = new AbortController().signal;

async function bucket(t: TestContext): Promise<Layout> {
  const layout = layoutOf(temporaryFolder(t));
  await initBucket(layout.root, { bucketId: BUCKET, source: true });
  return layout;
}

/** Moves a file or folder of the bucket elsewhere and leaves a link; answers where it is now. */
function moved(t: TestContext, place: string): string {
  const elsewhere = path.join(temporaryFolder(t), "moved");
  renameSync(place, elsewhere);
  symlinkSync(elsewhere, place);
  return elsewhere;
}

function run(layout: Layout) {
  const actor = { address: "test", via: "cli" } as const;
  const start = { id: uuidV7(), bucket_id: BUCKET, origin: "cli", kind: "gc", params: {} } as const;
  return createRecord(layout, { ...start, actor, requestId: null });
}

function logOf(layout: Layout, runId: string): RunLog {
  const options = { layout, runId, command: "gc", redactor: new Redactor(), activity: () => {} };
  return new RunLog({ ...options, format: "kv" });
}

const sourceWith = (text: string) => ({ ...EXAMPLE, "workspace/text": text });
const refused = /(a symbolic link is on the way to it|it is not a regular file)/;

test("a database that is a link, or lies behind one, is not opened, and no lock is taken there", async (t) => {
  for (const name of ["data", "data/ops.db"]) {
    const layout = await bucket(t);
    const elsewhere = moved(t, path.join(layout.root, name));
    const before = name === "data" ? await contentOf(elsewhere) : readFileSync(elsewhere, "latin1");
    assert.throws(() => openDatabase(layout.database), refused);
    assert.throws(() => openForReading(layout.database), refused);
    assert.throws(() => migrate(layout.database, BUCKET), refused);
    if (name === "data") await assert.rejects(acquireLock(layout, uuidV7(), "build"), refused);
    await assert.rejects(initBucket(layout.root, { source: false }), refused);
    assert.deepEqual(name === "data" ? await contentOf(elsewhere) : readFileSync(elsewhere, "latin1"), before);
  }
});

test("keys behind a link are not read, replaced or removed", async (t) => {
  const layout = await bucket(t);
  const elsewhere = moved(t, layout.secrets);
  writeFileSync(path.join(elsewhere, "ssh_key"), "key");
  await assert.rejects(loadKvKey(layout), refused);
  await assert.rejects(removeSshKey(path.join(layout.secrets, "ssh_key")), refused);
  await assert.rejects(initBucket(layout.root, { source: false }), refused);
  assert.equal(readFileSync(path.join(elsewhere, "ssh_key"), "utf8"), "key");
});

test("a log that is a link is neither read nor written, nor is a record", async (t) => {
  const layout = await bucket(t);
  const { id } = await run(layout);
  const { activity, record, opsLog } = runLayout(layout, id);
  const secret = path.join(temporaryFolder(t), "secret");
  writeFileSync(secret, "of somebody else");
  for (const file of [activity, opsLog]) symlinkSync(secret, file);
  assert.equal((await readActivity(layout, id, { after: 0, timeoutMs: 0, signal: never })).data, "");
  assert.throws(() => logOf(layout, id).info("x"), /Cannot write .*ops\.log: .*not a regular file/);
  const lines = readLogs(path.dirname(activity), {});
  await assert.rejects(lines.next(), refused);
  assert.equal(readFileSync(secret, "utf8"), "of somebody else");
  moved(t, record);
  assert.equal(readRecord(layout, id), undefined);
});

test("runs behind a link are not listed, made or pruned, and no log is written there", async (t) => {
  for (const name of ["logs", "logs/runs"]) {
    const layout = await bucket(t);
    const ids = [await run(layout), await run(layout)].map(({ id }) => id);
    const elsewhere = moved(t, path.join(layout.root, name));
    const before = await contentOf(elsewhere);
    await assert.rejects(runIds(layout), refused);
    await assert.rejects(pruneRuns(layout, 1, 0), refused);
    await assert.rejects(run(layout), refused);
    assert.throws(() => logOf(layout, ids[0] as string).info("x"), /not a regular file/);
    assert.equal(readRecord(layout, ids[0] as string), undefined);
    assert.deepEqual(await contentOf(elsewhere), before);
  }
});

test("source and templates behind a link are not listed, and no job is made through one", async (t) => {
  const layout = await bucket(t);
  mkdirSync(path.join(layout.templates, "web"), { recursive: true });
  writeFileSync(path.join(layout.templates, "web/manifest.json"), "{}");
  const page = { after: "", limit: 100 };
  assert.equal((await listTemplates(layout, page)).items.length, 1);
  moved(t, layout.templates);
  moved(t, layout.workspace);
  assert.deepEqual((await listTemplates(layout, page)).items, []);
  const listing = await listSourceFiles(layout, page);
  assert.deepEqual(
    listing.items.map((item) => item.path),
    ["ops.conf"],
  );
  await assert.rejects(createJob(layout, { name: "web" }), /it is not a folder/);
  rmSync(layout.workspace);
  const elsewhere = moved(t, layout.tmp);
  await assert.rejects(createJob(layout, { name: "web" }), refused);
  assert.deepEqual(readdirSync(elsewhere), []);
});

test("a push, a rollback and a recovery change nothing behind a link", async (t) => {
  for (const name of [".ops", ".ops/revisions", ".ops/uploads"]) {
    const layout = await bucket(t);
    const first = await push(layout, sourceWith("one"));
    await push(layout, sourceWith("two"));
    const elsewhere = moved(t, path.join(layout.root, name));
    const before = await contentOf(elsewhere);
    await assert.rejects(push(layout, sourceWith("three")), refused, name);
    if (name === ".ops") await assert.rejects(restoreRevision(layout, first.id), refused);
    await assert.rejects(recoverSource(layout), refused);
    assert.deepEqual(await contentOf(elsewhere), before);
  }
});

test("a link in a revision is not taken into the source, nor shown in a diff", async (t) => {
  const layout = await bucket(t);
  const first = await push(layout, sourceWith("one"));
  const second = await push(layout, sourceWith("two"));
  const file = path.join(layout.revisions, first.id, "ops.conf");
  rmSync(file);
  symlinkSync("/etc/hostname", file);
  const { added } = await diffRevisions(layout, first.id, second.id);
  assert.deepEqual(added, ["ops.conf"]);
  await assert.rejects(restoreRevision(layout, first.id), /it is no regular file/);
});

test("the folders of a revision are read-only, and a rollback makes the source writable", async (t) => {
  const layout = await bucket(t);
  const { id } = await push(layout, sourceWith("one"));
  for (const name of ["", "workspace", "workspace/jobs/web"])
    assert.equal(statSync(path.join(layout.revisions, id, name)).mode & 0o777, 0o555, name);
  await restoreRevision(layout, id);
  for (const name of ["workspace", "workspace/jobs/web", "workspace/text"])
    assert.ok(statSync(path.join(layout.root, name)).mode & 0o200, name);
});

test("what is to be flushed must not lie behind a link", async (t) => {
  const { revisions } = await bucket(t);
  mkdirSync(path.join(revisions, "one"), { recursive: true });
  await flushTree(revisions);
  moved(t, revisions);
  for (const folder of [revisions, path.join(revisions, "one")])
    await assert.rejects(flushTree(folder), { code: "failed", message: /a symbolic link is on the way to it/ });
});

test("restored keys are for their owner alone, whatever modes the snapshot says", async (t) => {
  const layout = await bucket(t);
  const file = await snapshotFile(layout);
  const entries = await entriesOf(file);
  const files = entries.slice(1).map(({ path, content }) => listed(path, content as Buffer, "0755"));
  await writeEntries(file, entries, { files });
  await commitRestore(layout, await prepareRestore(layout, BUCKET, file, BELIEVING), false);
  for (const name of ["secrets/kv.key", "secrets/ca.key", "data/ops.db"])
    assert.equal(statSync(path.join(layout.root, name)).mode & 0o777, 0o600, name);
});
