import assert from "node:assert/strict";
import {
  cpSync,
  createReadStream,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { type Layout, layoutOf } from "../../../lib/bucket/base/layout.ts";
import {
  type AskedTrust,
  readFace,
  type SnapshotSecret,
  sealedHeader,
  snapshotSigner,
  trustAt,
} from "../../../lib/bucket/snapshots/envelope.ts";
import { commitRestore, prepareRestore, restoreBucket, verifySnapshot } from "../../../lib/bucket/snapshots/restore.ts";
import {
  createSnapshot,
  findSnapshot,
  keepSnapshots,
  listSnapshots,
  type SnapshotWish,
} from "../../../lib/bucket/snapshots/snapshots.ts";
import { recoverSource } from "../../../lib/bucket/source/source.ts";
import { newIdentity, newSeal, type Seal, sealKey } from "../../../lib/codec/crypto/seal-key.ts";
import { CHUNK_BYTES, sealedStream } from "../../../lib/codec/crypto/sealed-stream.ts";
import { signerFingerprint, signingKey } from "../../../lib/core/signing-key.ts";
import { auditBelow, entryOf } from "../../helpers/audit-log.ts";
import { runUntilKilled } from "../../helpers/killed.ts";
import { randomly, seeded } from "../../helpers/random.ts";
import { BUCKET, entriesOf, mark, markedBucket, marks, marksOf, snapshotFile, writeEntries } from "../../helpers/snapshots.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const signal = new AbortController().signal;
const { identity, recipient } = newIdentity();

async function make(layout: Layout, wish: SnapshotWish): Promise<string> {
  using db = openDatabase(layout.database);
  return await findSnapshot(layout, (await createSnapshot(layout, db, wish, signal)).name);
}

async function openingAt(layout: Layout, secret: SnapshotSecret = {}, asked: AskedTrust = {}) {
  return { trust: await trustAt(layout, asked), secret, signal };
}

/** Restores into the bucket itself, as a run does. */
async function restore(layout: Layout, file: string, secret?: SnapshotSecret, asked?: AskedTrust): Promise<void> {
  const prepared = await prepareRestore(layout, BUCKET, file, await openingAt(layout, secret, asked));
  await commitRestore(layout, prepared, true);
}

test("CP-640 a sealed snapshot shows nothing of the bucket but its head, and opens with the private key or the passphrase", async (t) => {
  const passphrase = "correct horse battery";
  for (const [sealFor, secret, wrong] of [
    [{ recipient }, { identity }, { identity: newIdentity().identity }],
    [{ passphrase }, { passphrase }, { passphrase: `${passphrase}!` }],
  ] as const) {
    const layout = await markedBucket(t);
    const file = await make(layout, { note: "nightly", sealFor });
    assert.match(path.basename(file), /^\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{8}\.tar\.gz\.sealed$/);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const bytes = readFileSync(file);
    for (const hidden of [readFileSync(layout.kvKey), "secret of one", "-----BEGIN", "ops.db", passphrase])
      assert.ok(!bytes.includes(hidden), String(hidden));
    const [listed] = (await listSnapshots(layout, { limit: 9 })).items;
    assert.deepEqual([listed?.note, listed?.own, listed?.error], ["nightly", true, null]);
    await mark(layout, "two");
    for (const bad of [{}, wrong]) {
      await assert.rejects(restore(layout, file, bad), { code: "failed" });
      assert.deepEqual(await marksOf(layout), marks("two", "two"));
      assert.ok(!existsSync(layout.restores));
    }
    await verifySnapshot(file, await openingAt(layout, secret));
    // The key that a client finds is for this one file.
    const key = (await sealKey(listed?.seal as Seal, secret)).toString("base64");
    await restore(layout, file, { key });
    assert.deepEqual(await marksOf(layout), marks("one", "one"));
  }
});

test("CP-640 any byte changed, any chunk removed, swapped or cut off is found before anything is restored", async (t) => {
  const random = seeded();
  const layout = await markedBucket(t);
  writeFileSync(path.join(layout.workspace, "large"), randomly(random, 3 * CHUNK_BYTES));
  const file = await make(layout, { sealFor: { recipient } });
  const bytes = readFileSync(file);
  const head = bytes.indexOf("\n", bytes.indexOf("\n") + 1) + 1;
  const size = CHUNK_BYTES + 16;
  const chunks: Buffer[] = [];
  for (let at = head; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
  const all = (parts: readonly Buffer[]) => Buffer.concat([bytes.subarray(0, head), ...parts]);
  assert.ok(chunks.length > 3);
  const flipped = (at: number) => {
    const changed = Buffer.from(bytes);
    changed[at] = (changed[at] as number) ^ (1 << Math.floor(random() * 8));
    return changed;
  };
  const changes = [
    ...Array.from({ length: 30 }, () => flipped(Math.floor(random() * bytes.length))),
    ...Array.from({ length: 60 }, () => flipped(Math.floor(random() * head))),
    ...chunks.map((_, index) => all(chunks.toSpliced(index, 1))),
    ...chunks.map((_, index) => all(chunks.slice(0, index))),
    all(chunks.toSpliced(0, 2, chunks[1] as Buffer, chunks[0] as Buffer)),
    ...Array.from({ length: 10 }, () => bytes.subarray(0, Math.floor(random() * bytes.length))),
    Buffer.concat([bytes, Buffer.from("x")]),
  ];
  await mark(layout, "two");
  for (const [index, changed] of changes.entries()) {
    writeFileSync(file, changed);
    await assert.rejects(restore(layout, file, { identity }), (error: Error & { code?: string }) => {
      assert.ok(["failed", "schema_too_new"].includes(error.code ?? ""), `change ${index}: ${error.message}`);
      return true;
    });
    assert.ok(!existsSync(layout.restores));
  }
  assert.deepEqual(await marksOf(layout), marks("two", "two"));
  writeFileSync(file, bytes);
  await restore(layout, file, { identity });
  assert.deepEqual(await marksOf(layout), marks("one", "one"));
});

test("CP-641 a forged snapshot with consistent sums is refused, signed by another or by nobody", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  const entries = (await entriesOf(file)).map((entry) =>
    entry.path === "workspace/mark" ? { ...entry, content: Buffer.from("# evil\n") } : entry,
  );
  const { createHash } = await import("node:crypto");
  const listed = JSON.parse(String(entries[0]?.content)).files.map((one: { path: string }) =>
    one.path === "workspace/mark"
      ? { ...one, size_bytes: 7, sha256: createHash("sha256").update("# evil\n").digest("hex") }
      : one,
  );
  const foreign = path.join(temporaryFolder(t), "key");
  await writeEntries(file, entries, { files: listed }, foreign);
  const { fingerprint } = await signingKey(foreign);
  await assert.rejects(verifySnapshot(file, await openingAt(layout)), {
    code: "failed",
    message: `Cannot use the snapshot ${file}: it is signed by ${fingerprint}, not by the key of this place: compare with the server that made it, then give --signer ${fingerprint}`,
  });
  await writeEntries(file, entries, { files: listed, format: 1 });
  const message = `Cannot use the snapshot ${file}: it is not signed: whoever can write files may have made it; if it is of an older ops, give --unsigned`;
  await assert.rejects(verifySnapshot(file, await openingAt(layout)), { code: "failed", message });
  // With the right signer named, no signature is not good enough either.
  const { fingerprint: own } = await snapshotSigner(layout);
  await assert.rejects(restore(layout, file, {}, { signer: own }), { message });
  assert.deepEqual(await marksOf(layout), marks("one", "one"));
});

test("CP-641 a signature that belongs to another manifest is refused, whoever is trusted", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout, "first");
  const key = layout.signingKey;
  const other = path.join(temporaryFolder(t), "other");
  cpSync(key, other);
  const entries = await entriesOf(file);
  // The signature of one, the manifest of the other.
  const { gunzipSync, gzipSync } = await import("node:zlib");
  const archive = gunzipSync(readFileSync(file));
  const at = archive.indexOf('"note":"first"');
  archive.write('"note":"FIRST"', at);
  writeFileSync(file, gzipSync(archive));
  await assert.rejects(readFace(file), { message: /its signature does not belong to its manifest: it was forged or damaged$/ });
  await writeEntries(file, entries, {}, key);
  assert.equal((await readFace(file)).signer, (await snapshotSigner(layout)).fingerprint);
});

test("CP-641 elsewhere a snapshot is restored once its signer is named, and an older one as unsigned", async (t) => {
  const layout = await markedBucket(t);
  const signed = await snapshotFile(layout);
  const older = path.join(temporaryFolder(t), "older.tar.gz");
  await writeEntries(older, await entriesOf(signed), { format: 1 });
  const { publicKey } = await snapshotSigner(layout);
  const into = async (file: string, asked: AskedTrust) => {
    const dir = path.join(temporaryFolder(t), "bucket");
    await restoreBucket(dir, file, await openingAt(layoutOf(dir), {}, asked));
    return layoutOf(dir);
  };
  for (const asked of [{}, { unsigned: true }, { signer: `SHA256:${"A".repeat(43)}` }])
    await assert.rejects(into(signed, asked), { code: "failed", message: /it is signed by SHA256:/ });
  for (const asked of [{}, { signer: signerFingerprint(publicKey) }])
    await assert.rejects(into(older, asked), { code: "failed", message: /it is not signed/ });
  const [one, two] = [await into(signed, { signer: signerFingerprint(publicKey) }), await into(older, { unsigned: true })];
  for (const { root } of [one, two]) assert.equal(readFileSync(path.join(root, "workspace/mark"), "utf8"), "# one\n");
});

test("CP-641 buckets of a server are signed with its one key; a bucket that stands alone has its own, in no snapshot", async (t) => {
  const root = temporaryFolder(t);
  const alone = await markedBucket(t);
  const below = layoutOf(path.join(root, BUCKET));
  mkdirSync(root, { recursive: true });
  cpSync(alone.root, below.root, { recursive: true });
  assert.equal((await readFace(await snapshotFile(below))).signer, (await signingKey(path.join(root, "audit.key"))).fingerprint);
  assert.ok(!existsSync(below.signingKey));
  const file = await snapshotFile(alone);
  assert.equal((await readFace(file)).signer, (await signingKey(alone.signingKey)).fingerprint);
  assert.ok((await entriesOf(file)).every(({ path: name }) => !name.startsWith(".ops")));
});

test("CP-641 where the key of a server is lost beside its audit, no snapshot makes a second one", async (t) => {
  const root = temporaryFolder(t);
  const below = layoutOf(path.join(root, BUCKET));
  cpSync((await markedBucket(t)).root, below.root, { recursive: true });
  await auditBelow(root).log.append(entryOf(0));
  await snapshotFile(below);
  const key = path.join(root, "audit.key");
  renameSync(key, `${key}.away`);
  await assert.rejects(snapshotFile(below), { code: "failed", message: /audit\.key is missing: put it back, or move \S+ away/ });
  assert.ok(!existsSync(key));
  renameSync(`${key}.away`, key);
  await snapshotFile(below);
});

test("the head of a sealed snapshot has to be that of what is sealed in it", async (t) => {
  const layout = await markedBucket(t);
  const file = await make(layout, { note: "aaaa", sealFor: { recipient } });
  const bytes = readFileSync(file);
  bytes.write("bbbb", bytes.indexOf("aaaa"));
  writeFileSync(file, bytes);
  await assert.rejects(restore(layout, file, { identity }), { code: "failed" });
  // Whoever has the archive in clear can seal it behind any head.
  const clear = await make(layout, { note: "aaaa" });
  const { head, signer } = await readFace(clear);
  const sealedBehind = async (note: string) => {
    const { seal, key } = await newSeal({ recipient });
    const stream = sealedStream(key, sealedHeader({ ...head, note }, String(signer), seal), createReadStream(clear));
    writeFileSync(file, Buffer.concat(await Array.fromAsync(stream)));
    await restore(layout, file, { identity });
  };
  await assert.rejects(sealedBehind("bbbb"), { code: "failed", message: /: its head is not that of what is sealed in it$/ });
  await sealedBehind("aaaa");
});

test("CP-642 the newest snapshots are kept, sealed or not, and 0 keeps all", async (t) => {
  const layout = await markedBucket(t);
  const files = [await make(layout, {}), await make(layout, { sealFor: { recipient } }), await make(layout, {})];
  assert.deepEqual(await keepSnapshots(layout, 0), []);
  const names = files.map((file) => path.basename(file).replace(/\.tar\.gz.*/, ""));
  assert.deepEqual(await keepSnapshots(layout, 2), names.slice(0, 1));
  assert.deepEqual(
    readdirSync(layout.snapshots).sort(),
    files.slice(1).map((file) => path.basename(file)),
  );
  assert.deepEqual(await keepSnapshots(layout, 1), names.slice(1, 2));
});

test("a process that is killed while it makes sealed snapshots leaves whole ones and nothing half-made", async (t) => {
  const random = seeded();
  const layout = await markedBucket(t);
  writeFileSync(path.join(layout.workspace, "large"), randomly(random, 4 * CHUNK_BYTES));
  for (let round = 0; round < 3; round++) {
    await runUntilKilled([process.execPath, "test/fixtures/snapshot-sealer.ts", layout.root, recipient], random() * 300);
    await recoverSource(layout);
    const left = readdirSync(layout.snapshots);
    assert.ok(left.every((name) => !name.startsWith(".")));
    for (const name of left.slice(-2))
      await verifySnapshot(path.join(layout.snapshots, name), await openingAt(layout, { identity }));
    renameSync(layout.snapshots, path.join(temporaryFolder(t), "seen"));
  }
  assert.deepEqual(
    readdirSync(layout.internal).filter((name) => name.includes(".tmp")),
    [],
  );
});
