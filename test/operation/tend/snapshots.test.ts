import assert from "node:assert/strict";
import { existsSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { readFace } from "../../../lib/bucket/snapshots/envelope.ts";
import { findSnapshot, listSnapshots } from "../../../lib/bucket/snapshots/snapshots.ts";
import { newIdentity, type Seal, sealKey } from "../../../lib/codec/crypto/seal-key.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { restoreSnapshot, takeSnapshot } from "../../../lib/operation/tend/snapshots.ts";
import type { RunSecrets } from "../../../lib/run/protocol.ts";
import { mark, marks, marksOf } from "../../helpers/snapshots.ts";
import { EXAMPLE, push } from "../../helpers/sources.ts";
import { makeBucket } from "../../helpers/workspace.ts";

test("CP-107 a restore saves the present first, and the present can be restored again", async (t) => {
  const bucket = await makeBucket(t, {});
  await mark(bucket.layout, "one");
  const made = (await takeSnapshot(bucket.context("snapshot_create"), { note: "n" })) as { name: string; created_at: string };
  await mark(bucket.layout, "two");
  const restore = (snapshot: string) => restoreSnapshot(bucket.context("snapshot_restore"), { snapshot, with_source: true });
  const { saved_as, ...rest } = (await restore(made.name)) as { saved_as: string };
  const revisions = { source_revision: null, current_revision: null };
  assert.deepEqual(rest, { snapshot: `${made.name}.tar.gz`, created_at: made.created_at, with_source: true, ...revisions });
  assert.deepEqual(await marksOf(bucket.layout), marks("one", "one"));
  const context = bucket.context("snapshot_restore");
  using db = openDatabase(bucket.layout.database);
  await restoreSnapshot({ ...context, db }, { snapshot: saved_as, with_source: true });
  assert.deepEqual(await marksOf(bucket.layout), marks("two", "two"));
});

test("CP-640 what opens the snapshot that is restored opens the saved present, too, and a snapshot in clear saves one in clear", async (t) => {
  const bucket = await makeBucket(t, {});
  const { layout } = bucket;
  const { identity, recipient } = newIdentity();
  const passphrase = "correct horse battery staple";
  const restore = async (snapshot: string, secrets: RunSecrets): Promise<string> => {
    using db = openDatabase(layout.database);
    const context = { ...bucket.context("snapshot_restore"), db, secrets };
    return ((await restoreSnapshot(context, { snapshot, with_source: true })) as { saved_as: string }).saved_as;
  };
  const take = async (params: Record<string, unknown>, secrets: RunSecrets): Promise<string> => {
    using db = openDatabase(layout.database);
    return ((await takeSnapshot({ ...bucket.context("snapshot_create"), db, secrets }, params)) as { name: string }).name;
  };
  for (const [params, sealing, opening] of [
    [{}, { passphrase }, { passphrase }],
    [{ recipient }, {}, { identity }],
  ] as const) {
    await mark(layout, "one");
    const made = await take(params, sealing);
    await mark(layout, "two");
    const { seal } = await readFace(await findSnapshot(layout, made));
    // The command line and the console give the key of this one snapshot alone.
    const key = (await sealKey(seal as Seal, opening)).toString("base64");
    const saved = await findSnapshot(layout, await restore(made, { key }));
    assert.match(saved, /\.tar\.gz\.sealed$/);
    assert.deepEqual(await marksOf(layout), marks("one", "one"));
    await assert.rejects(restore(path.basename(saved), {}), { message: /which was not given|whose private key was not given/ });
    await restore(path.basename(saved), opening);
    assert.deepEqual(await marksOf(layout), marks("two", "two"));
  }
  const clear = await take({}, {});
  assert.match(await findSnapshot(layout, await restore(clear, {})), /\.tar\.gz$/);
});

test("where the present cannot be saved or the run is cancelled, nothing is replaced and nothing left", async (t) => {
  const bucket = await makeBucket(t, {});
  const { layout } = bucket;
  await mark(layout, "one");
  const { name } = (await takeSnapshot(bucket.context("snapshot_create"), {})) as { name: string };
  await mark(layout, "two");
  const link = path.join(layout.workspace, "link");
  symlinkSync("/etc/hostname", link);
  await assert.rejects(restoreSnapshot(bucket.context("snapshot_restore"), { snapshot: name }), {
    code: "invalid_source",
    message: `Cannot take ${link}: a symbolic link is not allowed`,
  });
  const cancelled = bucket.context("snapshot_restore", AbortSignal.abort());
  await assert.rejects(restoreSnapshot(cancelled, { snapshot: name }), { code: "cancelled" });
  assert.deepEqual(await marksOf(layout), marks("two", "two"));
  assert.ok(!existsSync(layout.restores));
  assert.deepEqual(readdirSync(layout.snapshots), [`${name}.tar.gz`]);
});

test("a restore without the source says which revision the snapshot was made with", async (t) => {
  const bucket = await makeBucket(t, {});
  const told = async (snapshot: string) => {
    const said = bucket.activity.length;
    const context = bucket.context("snapshot_restore");
    using db = openDatabase(bucket.layout.database);
    await restoreSnapshot({ ...context, db }, { snapshot });
    return bucket.activity.slice(said).join("");
  };
  const take = async () => ((await takeSnapshot(bucket.context("snapshot_create"), {})) as { name: string }).name;
  const none = await take();
  const source = { ...EXAMPLE, "ops.conf": 'ssh_user = "agent"\n' };
  const first = await push(bucket.layout, source);
  const one = await take();
  assert.match(
    await told(one),
    new RegExp(`the source was not touched; revision ${first.id}, that of the snapshot, is current\n`),
  );
  const second = await push(bucket.layout, { ...source, "templates/job.tpl": "{{ other }}\n" });
  assert.match(
    await told(one),
    new RegExp(`not touched; the snapshot was made with revision ${first.id}, current is ${second.id}: roll`),
  );
  assert.match(await told(none), /the source was not touched; the snapshot names no revision of it\n/);
});

test("what is no snapshot is refused by its name", async (t) => {
  const bucket = await makeBucket(t, {});
  const restore = (snapshot: string) => restoreSnapshot(bucket.context("snapshot_restore"), { snapshot });
  await assert.rejects(restore("nope"), { code: "snapshot_not_found" });
  const file = path.join(bucket.dir, "file");
  writeFileSync(file, "x");
  await assert.rejects(restore(file), (error) => error instanceof Failure && error.message.includes(file));
  assert.deepEqual((await listSnapshots(bucket.layout, { limit: 1 })).items, []);
});
