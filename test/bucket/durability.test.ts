import assert from "node:assert/strict";
import { mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { link, open, rename, rm } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { replaceAuthority } from "../../lib/bucket/base/authority-change.ts";
import { ensureAuthority, makePair } from "../../lib/bucket/base/certificates.ts";
import { setAside } from "../../lib/bucket/base/contents.ts";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { carryOutMigration } from "../../lib/bucket/earlier/migration.ts";
import { dropOldKvKey, switchKvKey } from "../../lib/bucket/kv/kv-rekey.ts";
import { snapshotSigner } from "../../lib/bucket/snapshots/envelope.ts";
import { commitRestore, prepareRestore, restoreBucket } from "../../lib/bucket/snapshots/restore.ts";
import { createSnapshot, deleteSnapshot } from "../../lib/bucket/snapshots/snapshots.ts";
import { markBuilt } from "../../lib/bucket/source/revisions.ts";
import { createBucket, deleteBucket, migrateEnvironments } from "../../lib/bucket/source/root.ts";
import { recoverSource, restoreRevision } from "../../lib/bucket/source/source.ts";
import { createJob, type NewJob, writeOwnMetrics } from "../../lib/bucket/workspace/job-template.ts";
import { storeSshKey } from "../../lib/bucket/workspace/ssh-key.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { createExclusive, writeAtomic } from "../../lib/core/files.ts";
import { onFaultPoint } from "../../lib/core/self.ts";
import { Launcher } from "../../lib/core/spawn.ts";
import { type Actor, createRecord, saveRecord } from "../../lib/run/record.ts";
import { makeKey } from "../../scripts/private-sshd.ts";
import { type DiskStep, diskSteps, linesOf } from "../helpers/disk-record.ts";
import { BELIEVING, BUCKET, markedBucket, snapshotFile } from "../helpers/snapshots.ts";
import { EXAMPLE, push } from "../helpers/sources.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const never = new AbortController().signal;
const JOURNAL = ".ops/journal.json";
const STAGED = ".ops/staging/new";

/** Names that a power loss may take: what is being removed, and what nothing live refers to. */
const PASSING = /^(tmp|\.ops\/(staging|restores|uploads))(\/|$)|\.tmp$|^\.ops\/snapshots\/\.|^\.(creating|deleting)-/;

/**
 * Whatever gets a name is on the disk by then, and its folder afterwards: before the journal is removed where there is
 * one, else before the end. A journal comes after all that it announces, and is on the disk before anything live is
 * touched; its removal is flushed before what could repeat the change is removed.
 */
function assertDurable(steps: readonly DiskStep[]): void {
  const text = linesOf(steps).join("\n");
  const first = (from: number, found: (step: DiskStep) => boolean) => steps.findIndex((step, at) => at > from && found(step));
  const flushOf = (folder: string, from: number) =>
    first(from, ({ op, path, all }) => op === "flush" && (path === folder || all === true));
  const inOrder = (what: string, ...positions: number[]) =>
    assert.ok(
      positions.every((at, index) => at >= 0 && at > (positions[index - 1] ?? -1)),
      `${what}: ${positions}\n${text}`,
    );
  const named = steps.flatMap((step, at) =>
    step.to !== undefined && !PASSING.test(step.to) ? [{ ...step, to: step.to, at }] : [],
  );
  const removal = first(-1, ({ op, path }) => op === "remove" && path === JOURNAL);
  assert.ok(named.length > 0 || removal >= 0, `nothing has got its name\n${text}`);
  for (const { to, at, unflushed = [] } of named) {
    assert.deepEqual(unflushed, [], `${to} was not flushed\n${text}`);
    const before = removal > at ? [removal] : [];
    inOrder(`the folder of ${to} is flushed in time`, at, flushOf(path.dirname(to), at), ...before);
  }
  const journal = first(-1, ({ to }) => to === JOURNAL);
  if (journal >= 0) {
    const staged = steps.findLastIndex(({ op, path }) => op === "flush" && path.startsWith(STAGED));
    inOrder("what the journal announces is flushed before", staged, journal);
    const touched = first(journal, ({ op }) => op !== "flush");
    inOrder("the journal is on the disk in time", journal, flushOf(".ops", journal), touched);
  }
  if (removal >= 0) {
    const gone = first(removal, ({ op }) => op === "remove");
    inOrder("the removal of the journal is flushed in time", removal, flushOf(".ops", removal), gone);
  }
}

/** What happened to the names of live parts and of the journal, in order. */
function story(steps: readonly DiskStep[]): string[] {
  return linesOf(steps.filter(({ op, path, to = "" }) => op !== "flush" && !PASSING.test(to || path)));
}

test("the record tells what gets its name without a flush, or was changed since", async (t) => {
  const root = temporaryFolder(t);
  const at = (name: string) => path.join(root, name);
  const steps = await diskSteps(root, async () => {
    mkdirSync(at("new"));
    writeFileSync(at("new/a"), "text");
    await rename(at("new"), at("folder"));
    await using file = await open(at("b"), "w");
    await file.sync();
    utimesSync(at("b"), 0, 0);
    await link(at("b"), at("c"));
    await rm(at("c"));
    await rm(at("none"), { force: true });
  });
  assert.deepEqual(linesOf(steps), [
    "rename new -> folder unflushed new unflushed new/a",
    "flush b",
    "link b -> c unflushed b",
    "remove c",
  ]);
});

test("an atomic write flushes the file, renames it and flushes the folder", async (t) => {
  const root = temporaryFolder(t);
  const steps = await diskSteps(root, () => writeAtomic(path.join(root, "a"), "text"));
  assert.deepEqual(linesOf(steps), ["flush .a.tmp", "rename .a.tmp -> a", "flush ."]);
});

test("a file that must be new is flushed before it gets its name", async (t) => {
  const root = temporaryFolder(t);
  const steps = await diskSteps(root, () => createExclusive(path.join(root, "a"), "text"));
  assert.deepEqual(linesOf(steps), ["flush .a.tmp", "link .a.tmp -> a", "remove .a.tmp"]);
});

test("a push keeps the revision on the disk, then announces the swap, then does it, then forgets the announcement", async (t) => {
  const layout = await markedBucket(t);
  const { steps, result } = await recorded(layout.root, () => push(layout, EXAMPLE));
  assertDurable(steps);
  assert.deepEqual(story(steps), [
    `rename .ops/uploads/${steps.find(({ to }) => to?.startsWith(".ops/revisions/"))?.path.split("/")[2]}/tree -> .ops/revisions/${result.id}`,
    "rename .ops/.journal.json.tmp -> .ops/journal.json",
    "rename .ops/staging/new/ops.conf -> ops.conf",
    "rename .ops/staging/new/workspace/workers.json -> workspace/workers.json",
    "rename .ops/staging/new/workspace/jobs/web -> workspace/jobs/web",
    "rename .ops/staging/new/workspace/empty -> workspace/empty",
    "rename .ops/staging/new/templates/job.tpl -> templates/job.tpl",
    "rename .ops/.revisions.json.tmp -> .ops/revisions.json",
    "remove .ops/journal.json",
  ]);
});

const LARGE = Object.fromEntries(
  Array.from({ length: 200 }, (_, index) => [`workspace/jobs/job_${index % 9}/f${index}`, `${index}`]),
);

test("CP-375 a push of many files flushes the file system once instead of each of them, and is as durable", async (t) => {
  const layout = await markedBucket(t);
  for (const text of ["first", "second"]) {
    const steps = await diskSteps(layout.root, () => push(layout, { ...LARGE, "workspace/text": text }));
    assertDurable(steps);
    assert.equal(steps.filter(({ all }) => all).length, 1);
    assert.ok(steps.length < 100, `${steps.length} steps`);
  }
  const few = await diskSteps(layout.root, () => push(layout, EXAMPLE));
  assert.ok(few.every(({ all }) => !all));
});

test("CP-375 a push that changes files in many folders is as durable", async (t) => {
  const layout = await markedBucket(t);
  const files = (text: string) =>
    Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`workspace/jobs/job_${index}/file`, text]));
  await push(layout, files("first"));
  const steps = await diskSteps(layout.root, () => push(layout, files("second")));
  assertDurable(steps);
  assert.equal(steps.filter(({ all }) => all).length, 1);
});

test("CP-375 a push of very many new files begins a flush before all of them are there, and one of the same files does not", async (t) => {
  const layout = await markedBucket(t);
  const files = Object.fromEntries(
    Array.from({ length: 8_000 }, (_, index) => [`workspace/jobs/job_${index % 99}/f${index}`, "x"]),
  );
  for (const flushes of [2, 1]) {
    const steps = await diskSteps(layout.root, () => push(layout, { ...files, "workspace/text": `${flushes}` }));
    assertDurable(steps);
    assert.equal(steps.filter(({ all }) => all).length, flushes);
  }
});

test("CP-375 where the file system cannot be flushed as a whole, each file is", async (t) => {
  const layout = await markedBucket(t);
  t.mock.method(Launcher.prototype, "run", () => Promise.reject(new Error("there is no sync")));
  const steps = await diskSteps(layout.root, () => push(layout, LARGE));
  assertDurable(steps);
  assert.ok(steps.length > 400, `${steps.length} steps`);
});

test("a rollback and the recovery of an interrupted one are as durable as the push", async (t) => {
  const layout = await markedBucket(t);
  const first = await push(layout, EXAMPLE);
  await push(layout, { "workspace/workers.json": "[]\n" });
  assertDurable(await diskSteps(layout.root, () => restoreRevision(layout, first.id)));
  for (const [turn, point] of ["swap: journal", "swap: workspace/workers.json out", "swap: recorded"].entries()) {
    onFaultPoint((reached) => {
      if (reached === point) throw new Error("stopped");
    });
    await assert.rejects(push(layout, { "workspace/workers.json": `[${" ".repeat(turn)}]\n` }));
    onFaultPoint(() => {});
    const steps = await diskSteps(layout.root, () => recoverSource(layout));
    assert.equal(story(steps).at(-1), "remove .ops/journal.json", point);
    assertDurable(steps);
  }
});

test("what is noted about revisions and runs is written atomically", async (t) => {
  const layout = await markedBucket(t);
  await push(layout, EXAMPLE);
  const marked = await diskSteps(layout.root, () => markBuilt(layout, "succeeded"));
  assert.deepEqual(linesOf(marked), [
    "flush .ops/.revisions.json.tmp",
    "rename .ops/.revisions.json.tmp -> .ops/revisions.json",
    "flush .ops",
  ]);
  const id = uuidV7();
  const folder = `logs/runs/${id}`;
  const saved = [
    `flush ${folder}/.server-run.json.tmp`,
    `rename ${folder}/.server-run.json.tmp -> ${folder}/server-run.json`,
    `flush ${folder}`,
  ];
  const start = { id, bucket_id: BUCKET, origin: "server", kind: "build", params: {} } as const;
  const actor = { name: "test" } as unknown as Actor;
  const created = await recorded(layout.root, () => createRecord(layout, { ...start, actor, requestId: null }));
  assert.deepEqual(linesOf(created.steps), [...saved, "flush logs/runs"]);
  const record = created.result;
  assert.deepEqual(linesOf(await diskSteps(layout.root, () => saveRecord(layout, record))), saved);
});

test("a snapshot is flushed before it gets its name, and its folder after it came or went", async (t) => {
  const layout = await markedBucket(t);
  using db = openDatabase(layout.database);
  // The first snapshot makes the key that signs them.
  await snapshotSigner(layout);
  const { steps, result } = await recorded(layout.root, () => createSnapshot(layout, db, {}, never));
  const { name } = result;
  const [file, unfinished] = [`.ops/snapshots/${name}.tar.gz`, `.ops/snapshots/.${name}.tar.gz`];
  assert.deepEqual(linesOf(steps), [
    `flush ${unfinished}`,
    `rename ${unfinished} -> ${file}`,
    "flush .ops/snapshots",
    `remove .ops/snapshots/.${name}.db`,
  ]);
  const gone = await diskSteps(layout.root, () => deleteSnapshot(layout, name));
  assert.deepEqual(linesOf(gone), [`remove ${file}`, "flush .ops/snapshots"]);
});

test("CP-107 a restore unpacks to the disk, announces the swap, does it and forgets the announcement", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  const prepared = await recorded(layout.root, () => prepareRestore(layout, BUCKET, file, BELIEVING));
  const flushed = prepared.steps.map((step) => path.relative(`.ops/restores/${prepared.result.id}`, step.path));
  const files = ["data/ops.db", "secrets/kv.key", ".ssh/known_hosts", "bucket.json", "ops.conf"];
  for (const name of ["", "data", "secrets", ...files])
    assert.ok(flushed.includes(name), `${name || "the folder"} is not flushed`);
  const steps = await diskSteps(layout.root, () => commitRestore(layout, prepared.result, true));
  assertDurable(steps);
  const names = ["data/ops.db", "secrets", ".ssh", "bucket.json", "ops.conf", "workspace", "templates"];
  assert.deepEqual(story(steps), [
    "rename .ops/.journal.json.tmp -> .ops/journal.json",
    ...names.map((name) => `rename .ops/staging/new/${name} -> ${name}`),
    "rename .ops/.revisions.json.tmp -> .ops/revisions.json",
    "remove .ops/journal.json",
  ]);
});

test("a bucket that is made of a snapshot is on the disk before it gets its name", async (t) => {
  const file = await snapshotFile(await markedBucket(t));
  const root = temporaryFolder(t);
  const steps = await diskSteps(root, () => restoreBucket(path.join(root, BUCKET), file, BELIEVING));
  assertDurable(steps);
  assert.ok(steps.some(({ to }) => to === BUCKET));
});

test("a bucket that is created or removed is flushed with the root", async (t) => {
  const root = temporaryFolder(t);
  const make = () => createBucket(root, { id: BUCKET, project: "p", name: "n" }, async () => {});
  const created = await recorded(root, make);
  assertDurable(created.steps);
  assert.equal(linesOf(created.steps).at(-1), "flush .");
  const removed = await diskSteps(root, () => deleteBucket(root, created.result));
  const [renamed, flush] = linesOf(removed);
  assert.match(renamed as string, /^rename 0190\S+ -> \.deleting-/);
  assert.equal(flush, "flush .");
});

test("an environment that becomes a bucket has its new name on the disk", async (t) => {
  const root = temporaryFolder(t);
  await createBucket(root, { id: BUCKET, project: "p", name: "n" }, async () => {}, "env.json");
  const steps = await diskSteps(root, () => Array.fromAsync(migrateEnvironments(root, false)));
  // The file itself is as flushed as it was before.
  const names = steps.map(({ unflushed: _, ...step }) => step);
  assert.deepEqual(linesOf(names), [`rename ${BUCKET}/env.json -> ${BUCKET}/bucket.json`, `flush ${BUCKET}`]);
});

test("the authority, the ssh key and a new job are flushed with their folders", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(layout.secrets);
  const steps = await diskSteps(layout.root, () => ensureAuthority(layout, BUCKET, false));
  assertDurable(steps.filter(({ to }) => to !== "secrets/ca.new"));
  const lines = linesOf(steps);
  assert.ok(lines.indexOf("remove secrets/ca.new") > lines.indexOf("flush secrets"));
  const next = await makePair("next");
  const replaced = linesOf(await diskSteps(layout.root, () => replaceAuthority(layout, next)));
  assert.deepEqual(replaced.slice(-2), ["remove secrets/ca.change", "flush secrets"]);
  const key = readFileSync(makeKey(temporaryFolder(t), "id", "-t", "ed25519"), "utf8");
  const store = () => storeSshKey(path.join(layout.secrets, "worker.key"), key, new Launcher(process.env));
  assertDurable((await diskSteps(layout.root, store)).filter(({ op }) => op !== "link"));
  mkdirSync(layout.workspace);
  assertDurable(await diskSteps(layout.root, () => createJob(layout, { name: "web" } as NewJob)));
  assertDurable(await diskSteps(layout.root, () => writeOwnMetrics(layout, "web", "127.0.0.1:9090")));
});

test("each step of a change of kv.key, and each new name of a migration, is flushed before the next one", async (t) => {
  const layout = await markedBucket(t);
  const made = (name: string) => [`flush secrets/.${name}.tmp`, `link secrets/.${name}.tmp -> secrets/${name}`];
  const kept = (name: string) => [...made(name), `remove secrets/.${name}.tmp`, "flush secrets"];
  assert.deepEqual(linesOf(await diskSteps(layout.root, () => switchKvKey(layout))), [
    ...[...kept("kv.key.new"), ...kept("kv.key.old")],
    ...["rename secrets/kv.key.new -> secrets/kv.key", "flush secrets"],
  ]);
  const dropped = await diskSteps(layout.root, () => dropOldKvKey(layout));
  assert.deepEqual(linesOf(dropped), ["remove secrets/kv.key.old", "flush secrets"]);
  const renames = [{ from: "ops.conf", to: "workspace/ops.conf" }];
  const steps = await diskSteps(layout.root, () => carryOutMigration(layout, { edits: [], renames, looks: [] }));
  assert.equal(linesOf(steps).at(-1), "flush workspace");
});

/** The steps of some work, and its result. */
async function recorded<T>(root: string, work: () => Promise<T>): Promise<{ steps: DiskStep[]; result: T }> {
  const results: T[] = [];
  const steps = await diskSteps(root, async () => {
    results.push(await work());
  });
  return { steps, result: results[0] as T };
}

test("CP-352 a large content is on the disk before it has its name, and its folder before a row can name it", async (t) => {
  const folder = path.join(temporaryFolder(t), "data", "contents");
  mkdirSync(path.dirname(folder));
  const steps = await diskSteps(path.dirname(path.dirname(folder)), async () => {
    for (const name of ["one", "two"]) setAside(folder, name, () => [Buffer.from(name)]);
  });
  assertDurable(steps);
  assert.deepEqual(linesOf(steps), [
    "flush data",
    ...["one", "two"].flatMap((name) => [
      `flush data/contents/.${name}.tmp`,
      `rename data/contents/.${name}.tmp -> data/contents/${name}`,
      "flush data/contents",
    ]),
  ]);
});
