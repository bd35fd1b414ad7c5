import { type FSWatcher, watch } from "node:fs";
import { open } from "node:fs/promises";
import { type Layout, runLayout } from "../bucket/layout.ts";
import { woken } from "../core/async.ts";
import { Failure, hasErrno } from "../core/errors.ts";
import type { RunStatus } from "./protocol.ts";
import { readRecord } from "./record.ts";

/** A piece of a run's Activity: the text between two byte offsets of activity.log. */
export interface LogChunk {
  run_id: string;
  status: RunStatus;
  after: number;
  next: number;
  data: string;
  /** The run has ended and `next` is the end. */
  done: boolean;
}

const CHUNK_BYTES = 256 * 1024;
const FALLBACK_POLL_MS = 500;

/**
 * The Activity of a run from the byte offset `after` on; waits up to `timeoutMs` while there is nothing new and the
 * run goes on. Woken by the file system, not by polling. Nothing is kept in memory. Throws `run_not_found`, and
 * `invalid_request` for an offset past the end.
 */
export async function readActivity(
  layout: Layout,
  runId: string,
  after: number,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<LogChunk> {
  const until = performance.now() + timeoutMs;
  using changes = new FolderChanges(runLayout(layout, runId).folder);
  for (;;) {
    const chunk = await readChunk(layout, runId, after);
    const left = until - performance.now();
    if (chunk.data !== "" || chunk.done || left <= 0 || signal.aborted) return chunk;
    await changes.next(left, signal);
  }
}

async function readChunk(layout: Layout, runId: string, after: number): Promise<LogChunk> {
  // The status first: once a run has ended its log grows no more, so what is read afterwards is all of it.
  const record = await readRecord(layout, runId);
  if (!record) throw new Failure("run_not_found", `run ${runId} does not exist`);
  const { bytes, size } = await readBytes(runLayout(layout, runId).activity, after);
  if (after > size)
    throw new Failure(
      "invalid_request",
      `after: expected an offset of at most ${size}, the end of the log, found ${after}`,
    );
  const ended = record.status !== "running";
  const whole = ended && after + bytes.length === size ? bytes : bytes.subarray(0, characterEnd(bytes));
  const next = after + whole.length;
  return {
    run_id: runId,
    status: record.status,
    after,
    next,
    data: whole.toString(),
    done: ended && next === size,
  };
}

async function readBytes(file: string, after: number): Promise<{ bytes: Buffer; size: number }> {
  let handle: Awaited<ReturnType<typeof open>>;
  try {
    handle = await open(file, "r");
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return { bytes: Buffer.alloc(0), size: 0 };
    throw error;
  }
  try {
    const { size } = await handle.stat();
    const length = Math.max(0, Math.min(CHUNK_BYTES, size - after));
    if (length === 0) return { bytes: Buffer.alloc(0), size };
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(length), 0, length, after);
    return { bytes: buffer.subarray(0, bytesRead), size };
  } finally {
    await handle.close();
  }
}

/** How many bytes of a UTF-8 text end with a whole character; bytes that are not UTF-8 count as characters. */
function characterEnd(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] as number;
    if (byte < 0x80) return bytes.length;
    if (byte < 0xc0) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}

/** A folder that somebody waits for; all who do share what watches it. */
interface Watched {
  watcher: FSWatcher | undefined;
  readers: Set<() => void>;
}

const WATCHED = new Map<string, Watched>();

function watchFolder(folder: string): Watched {
  const known = WATCHED.get(folder);
  if (known) return known;
  const readers = new Set<() => void>();
  const notice = () => {
    for (const reader of [...readers]) reader();
  };
  let watcher: FSWatcher | undefined;
  try {
    watcher = watch(folder, { persistent: false }, notice).on("error", notice);
  } catch (error) {
    if (hasErrno(error, "ENOENT"))
      throw new Failure("run_not_found", "the run does not exist", { cause: error });
  }
  const watched = { watcher, readers };
  WATCHED.set(folder, watched);
  return watched;
}

/** Tells when anything in a folder changed since it was last asked; where the system cannot watch, twice a second. */
class FolderChanges {
  readonly #folder: string;
  readonly #watched: Watched;
  readonly #waiting = new Set<() => void>();
  #changed = false;

  constructor(folder: string) {
    this.#folder = folder;
    this.#watched = watchFolder(folder);
    this.#watched.readers.add(this.#notice);
  }

  async next(limitMs: number, signal: AbortSignal): Promise<void> {
    const limit = this.#watched.watcher ? limitMs : Math.min(limitMs, FALLBACK_POLL_MS);
    if (!this.#changed) await woken(this.#waiting, limit, signal);
    this.#changed = false;
  }

  readonly #notice = (): void => {
    this.#changed = true;
    for (const wake of [...this.#waiting]) wake();
  };

  [Symbol.dispose](): void {
    const { readers, watcher } = this.#watched;
    readers.delete(this.#notice);
    if (readers.size > 0) return;
    watcher?.close();
    if (WATCHED.get(this.#folder) === this.#watched) WATCHED.delete(this.#folder);
  }
}
