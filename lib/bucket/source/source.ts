import { createHash, hash, randomUUID } from "node:crypto";
import { chmod, open, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { readTar, type TarEntry } from "../../codec/archive/tar-read.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { unlessAborted } from "../../core/async.ts";
import { Failure, isFull, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { exists, flushFolder, makePrivateFolder, PRIVATE_FILE, remove } from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import type { Layout } from "../base/layout.ts";
import {
  currentFiles,
  findRevision,
  LIST_FILE,
  listRevisions,
  type Revision,
  type StoredRevision,
  withoutMarks,
} from "./revisions.ts";
import { SOURCE_LIMITS, SourceRules } from "./source-rules.ts";
import { discardLeftovers, finishInterrupted, flushFileSystem, flushTree, install, type Prepared } from "./swap.ts";
import { Trees } from "./trees.ts";

type Summary = Pick<StoredRevision, "size_bytes" | "file_count" | "sha256">;

/**
 * A verified upload: `<folder>/tree/` holds it and nothing else, its files read-only, shared with the revision before
 * where they stay as they are; `<folder>/live/` holds what has to be put into the source, at these paths.
 */
interface ReceivedSource extends Summary {
  folder: string;
  paths: readonly string[];
}

const READ_ONLY = { file: 0o444, program: 0o555, folder: 0o555 } as const;
const LIVE = { file: 0o644, program: 0o755, folder: 0o755 } as const;
/** Larger files of an archive are not held in memory. */
const HELD_BYTES = 1024 * 1024;
/** After so many new files a flush begins beside the work, so that the one at the end has less to wait for. */
const EARLY_FILES = 8_000;

/**
 * Streams the archive of a push to `.ops/uploads/<uuid>/` and checks every rule for it (decisions: Push), each name
 * before anything is written for it. To be called under the bucket's lock. On every failure the body is closed and
 * nothing is left behind: `invalid_source` with the entry in the details, `cancelled`, or the error of the body.
 */
export async function receiveSource(
  layout: Layout,
  body: AsyncIterable<Uint8Array>,
  gzip: boolean,
  signal: AbortSignal,
): Promise<ReceivedSource> {
  const folder = path.join(layout.uploads, randomUUID());
  try {
    const [tree, live] = [path.join(folder, "tree"), path.join(folder, "live")];
    for (const one of [tree, live]) await makePrivateFolder(one);
    const before = await currentFiles(layout);
    await using trees = new Trees([
      { folder: tree, modes: READ_ONLY, like: before && { folder: before.folder, until: before.until } },
      { folder: live, modes: LIVE, replaces: layout.root },
    ]);
    const { list, ...summary } = await unpack(archiveOf(body, gzip, signal), trees, path.join(folder, "large"), before?.lines);
    await writeFile(path.join(tree, LIST_FILE), list, { flag: "wx", mode: READ_ONLY.file });
    const [, paths = []] = await trees.finish();
    await flushTree(folder, summary.file_count);
    faultPoint("push: received");
    throwIfCancelled(signal);
    return { folder, paths, ...summary };
  } catch (error) {
    await remove(folder);
    if (isFull(error)) throw new Failure("failed", `Cannot keep the upload in ${layout.uploads}: the disk is full`);
    throw error;
  }
}

/**
 * Keeps a received source as a new revision of the run and makes it the bucket's source, as described at
 * {@link install}; tmp/ is emptied. To be called under the bucket's lock; may be killed at any moment.
 */
export async function acceptSource(
  layout: Layout,
  received: ReceivedSource,
  runId: string,
  said: Pick<StoredRevision, "note" | "commit" | "by"> = { note: null, commit: null, by: null },
): Promise<Revision> {
  const { folder, paths, ...summary } = received;
  const created = { created_at: new Date().toISOString(), run_id: runId };
  const revision: StoredRevision = { id: uuidV7(), ...created, ...summary, build_status: "pending", ...said };
  const accepted = await becomeSource(layout, revision, async () => {
    await makePrivateFolder(layout.revisions);
    const kept = path.join(layout.revisions, revision.id);
    await rename(path.join(folder, "tree"), kept);
    // Only now: a folder that cannot be written cannot be moved.
    await chmod(kept, READ_ONLY.folder);
    faultPoint("push: kept");
    await flushFolder(layout.revisions);
    return { copied: path.join(folder, "live"), paths };
  });
  await remove(folder);
  return accepted;
}

/**
 * Makes an older revision, by default the last successful one, the bucket's source again, in the same way; no new
 * revision arises. To be called under the bucket's lock. Throws `revision_not_found`.
 */
export async function restoreRevision(layout: Layout, revisionId?: string): Promise<Revision> {
  const stored = withoutMarks(await wantedRevision(layout, revisionId));
  return becomeSource(layout, { ...stored, build_status: "pending" });
}

/** Makes a revision the source, once `prepare` has put it in its place. A failure before the swap leaves nothing. */
async function becomeSource(layout: Layout, revision: StoredRevision, prepare?: () => Promise<Prepared>): Promise<Revision> {
  try {
    await install(layout, revision, await prepare?.());
  } catch (error) {
    if (!(await exists(layout.journal))) await discardLeftovers(layout);
    throw error;
  }
  return findRevision(layout, revision.id);
}

/** The revision with this id, by default the last successful one. Throws `revision_not_found`. */
export async function wantedRevision(layout: Layout, id: string | undefined): Promise<Revision> {
  if (id !== undefined) return findRevision(layout, id);
  const last = (await listRevisions(layout)).find((one) => one.last_successful);
  if (!last) throw new Failure("revision_not_found", "no revision of this bucket was ever built successfully");
  return last;
}

/**
 * Settles what a killed process left: a begun change of the source is finished, all else of it removed. To be called
 * under the bucket's lock, at any time; does nothing where there is nothing to do.
 */
export async function recoverSource(layout: Layout): Promise<void> {
  await finishInterrupted(layout);
  await discardLeftovers(layout);
}

/**
 * Puts the files of an archive into trees, those on the list `before` as kept ones; a file that is not held in memory is
 * first written to `<large><number>`. Answers the list of the files, too.
 */
async function unpack(archive: AsyncIterable<Uint8Array>, trees: Trees, large: string, before?: ReadonlySet<string>) {
  const rules = new SourceRules();
  const lines = new Map<string, string>();
  const countNew = flushedEarly(path.dirname(large));
  let size_bytes = 0;
  for await (const entry of readTar(archive)) {
    const name = rules.admit(entry).join("/");
    if (entry.type === "directory") {
      if (name !== "") await trees.put({ name, kind: "folder" });
      continue;
    }
    const kind = (entry.mode & 0o100) === 0 ? "file" : "program";
    const content =
      entry.size > HELD_BYTES ? `${large}${lines.size}` : (entry.whole ?? Buffer.concat(await Array.fromAsync(entry.content)));
    const sum = typeof content === "string" ? await writeEntry(entry, content, READ_ONLY[kind]) : hash("sha256", content);
    const line = `${sum} ${kind === "program" ? "0755" : "0644"} ${name}`;
    const isKept = before?.has(line) ?? false;
    await trees.put({ name, kind, content, isKept });
    if (!isKept) countNew();
    lines.set(name, line);
    size_bytes += entry.size;
  }
  const details = [{ path: "workspace", message: "is missing" }];
  if (!rules.hasWorkspace) throw new Failure("invalid_source", "the archive has no workspace/", { details });
  const list = [...lines.keys()]
    .sort()
    .map((name) => `${lines.get(name)}\n`)
    .join("");
  return { list, size_bytes, file_count: lines.size, sha256: hash("sha256", list) };
}

/** To be called for each new file; a flush is begun where the one before has ended. */
function flushedEarly(folder: string): () => void {
  let isFlushing = false;
  let count = 0;
  return () => {
    if (++count % EARLY_FILES !== 0 || isFlushing) return;
    isFlushing = true;
    void flushFileSystem(folder).finally(() => {
      isFlushing = false;
    });
  };
}

/** Writes a file of an archive, which must not exist yet; answers its SHA-256 in hexadecimal. */
export async function writeEntry(entry: TarEntry, target: string, mode: number): Promise<string> {
  const hash = createHash("sha256");
  await using handle = await open(target, "wx", PRIVATE_FILE);
  for await (const chunk of entry.content) {
    hash.update(chunk);
    await handle.appendFile(chunk);
  }
  await handle.chmod(mode);
  return hash.digest("hex");
}

/** Headers, padding and extended headers need at most about this much per entry. */
const OVERHEAD_BYTES = 4 * 1024;
const ARCHIVE_BYTES = SOURCE_LIMITS.bytes + SOURCE_LIMITS.entries * OVERHEAD_BYTES;

/**
 * The archive in the body of a push, unpacked if it is gzipped. Ends with `invalid_source` when the gzip is damaged or
 * holds more than any allowed source, with `cancelled` when the signal is aborted, even while the sender is silent.
 * Then the body's iterator is closed, which is not waited for; its owner may still have to answer on the connection.
 */
export async function* archiveOf(
  body: AsyncIterable<Uint8Array>,
  gzip: boolean,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const sent = untilAborted(body, signal);
  let total = 0;
  for await (const chunk of gzip ? unzipped(sent) : sent) {
    total += chunk.length;
    if (total > ARCHIVE_BYTES) throw new Failure("invalid_source", `the archive unpacks to more than ${ARCHIVE_BYTES} bytes`);
    yield chunk;
  }
}

async function* untilAborted(body: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const iterator = body[Symbol.asyncIterator]();
  try {
    // A race against one promise for all chunks would keep every chunk in memory until that promise is settled.
    let next = await unlessAborted(iterator.next(), signal);
    for (; !next.done; next = await unlessAborted(iterator.next(), signal)) yield next.value;
  } finally {
    // This resolves for a silent sender only when the sender speaks again or has gone.
    iterator.return?.().catch(() => {});
  }
}

/** What a gzip stream holds. Throws `invalid_source` for one that is damaged or cut off. */
export async function* unzipped(packed: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip();
  // An error of either stream reaches the reader of the last one.
  pipeline(Readable.from(packed), gunzip).catch(() => {});
  try {
    yield* gunzip;
  } catch (error) {
    if (!(error as { code?: string }).code?.startsWith("Z_")) throw error;
    throw new Failure("invalid_source", `the archive is not readable as gzip: ${messageOf(error)}`);
  }
}
