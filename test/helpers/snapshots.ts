import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../lib/bucket/kv/kv-access.ts";
import type { Opening } from "../../lib/bucket/snapshots/envelope.ts";
import { createSnapshot } from "../../lib/bucket/snapshots/snapshots.ts";
import { initBucket } from "../../lib/bucket/workspace/init.ts";
import { readTar } from "../../lib/codec/archive/tar-read.ts";
import { type TarInput, writeTar } from "../../lib/codec/archive/tar-write.ts";
import { signatureOf, signingKey } from "../../lib/core/signing-key.ts";
import { temporaryFolder } from "./temporary.ts";

const never = new AbortController().signal;

/** The id of a bucket that a test makes. */
export const BUCKET = "0190a5e8-0000-7000-8000-00000000000a";

/** A bucket with a source, every part of which is marked `one`. */
export async function markedBucket(t: Pick<TestContext, "after">, bucketId = BUCKET): Promise<Layout> {
  const layout = layoutOf(temporaryFolder(t));
  await initBucket(layout.root, { bucketId, source: true });
  await mark(layout, "one");
  return layout;
}

/** Marks every part of a bucket that a snapshot saves, so that a mix of two states is seen. */
export async function mark(layout: Layout, mark: string): Promise<void> {
  for (const file of ["secrets/worker.key", ".ssh/known_hosts", "workspace/mark", "templates/a/mark", "ops.conf"]) {
    mkdirSync(path.dirname(path.join(layout.root, file)), { recursive: true });
    writeFileSync(path.join(layout.root, file), `# ${mark}\n`);
  }
  writeFileSync(layout.bucketJson, JSON.stringify({ project: mark, name: mark }));
  const key = await loadKvKey(layout);
  using db = openDatabase(layout.database);
  const kv = new KvStore(db, key);
  kv.put("vars/job/web", "mark", mark);
  kv.put("secrets/job/web", "password", `secret of ${mark}`);
  kv.flush();
}

/** The marks of a bucket, by part. */
export async function marksOf(layout: Layout): Promise<Record<string, string>> {
  const text = (file: string) => readFileSync(path.join(layout.root, file), "utf8").replace(/^# |\n$/g, "");
  const key = await loadKvKey(layout);
  using db = openDatabase(layout.database);
  const kv = new KvStore(db, key);
  return {
    database: kv.get("vars/job/web", "mark") ?? "",
    sealed: (kv.get("secrets/job/web", "password") ?? "").replace("secret of ", ""),
    secrets: text("secrets/worker.key"),
    ssh: text(".ssh/known_hosts"),
    labels: JSON.parse(text("bucket.json")).name,
    workspace: text("workspace/mark"),
    templates: text("templates/a/mark"),
    conf: text("ops.conf"),
  };
}

/** The marks that a bucket has whose state and source were marked like this. */
export function marks(state: string, source: string): Record<string, string> {
  return {
    database: state,
    sealed: state,
    secrets: state,
    ssh: state,
    labels: state,
    workspace: source,
    templates: source,
    conf: source,
  };
}

/** Makes a snapshot and answers its file. */
export async function snapshotFile(layout: Layout, note = ""): Promise<string> {
  using db = openDatabase(layout.database);
  const { name } = await createSnapshot(layout, db, { note }, never);
  return path.join(layout.snapshots, `${name}.tar.gz`);
}

/** Opens what anybody has signed, or nobody: for tests that are about something else. */
export const BELIEVING: Opening = {
  trust: { signers: Object.assign([], { includes: () => true }), unsigned: true },
  signal: never,
};

/** An entry of a snapshot as a test changes it; without content it is a directory. */
export interface Entry {
  path: string;
  content?: Buffer;
}

/** The entries of a snapshot in clear, the manifest first, without its signature. */
export async function entriesOf(file: string): Promise<Entry[]> {
  const entries: Entry[] = [];
  for await (const entry of readTar(chunksOf(gunzipSync(readFileSync(file))))) {
    const chunks: Uint8Array[] = [];
    for await (const chunk of entry.content) chunks.push(chunk);
    if (entry.path !== "manifest.sig") entries.push({ path: entry.path, content: Buffer.concat(chunks) });
  }
  return entries;
}

/**
 * Writes a snapshot of these entries; a `manifest` that is given replaces the first one's fields. Signed with a new key, or
 * with this one.
 */
export async function writeEntries(
  file: string,
  entries: readonly Entry[],
  manifest: Record<string, unknown> = {},
  keyFile = path.join(path.dirname(path.dirname(file)), "signer-of-this-test.key"),
): Promise<void> {
  const [first, ...rest] = entries;
  assert.ok(first?.content);
  const fields = { ...JSON.parse(first.content.toString()), ...manifest };
  const content = Buffer.from(JSON.stringify(fields));
  const key = await signingKey(keyFile);
  const signature = { signer: key.publicKey, signature: signatureOf(key, "ops snapshot", content) };
  const signed = { path: "manifest.sig", content: Buffer.from(JSON.stringify(signature)) };
  const all = [{ path: first.path, content }, ...(fields.format === 1 ? [] : [signed]), ...rest];
  const chunks: Uint8Array[] = [];
  for await (const chunk of writeTar(all.map(toInput))) chunks.push(chunk);
  writeFileSync(file, gzipSync(Buffer.concat(chunks)));
}

/** What a manifest says of a file. */
export function listed(name: string, content: Buffer | string, mode = "0600"): Record<string, unknown> {
  const sha256 = createHash("sha256").update(content).digest("hex");
  return { path: name, mode, size_bytes: Buffer.byteLength(content), sha256 };
}

function toInput({ path: name, content }: Entry): TarInput {
  if (!content) return { path: name, mode: 0o755, size: 0 };
  return { path: name, mode: 0o600, size: content.length, content: [content] };
}

async function* chunksOf(bytes: Buffer): AsyncGenerator<Uint8Array> {
  yield bytes;
}
