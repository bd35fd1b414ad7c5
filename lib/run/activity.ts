import { closeSync, type FSWatcher, lstatSync, readSync, watch } from "node:fs";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { woken } from "../core/async.ts";
import { Failure, hasErrno } from "../core/errors.ts";
import { openRegularSync } from "../core/files.ts";
import { boolean, described, type Infer, integer, object, string } from "../core/shape.ts";
import { RUN_STATUS } from "./protocol.ts";
import { ID, readRecord, runNotFound } from "./record.ts";

/** A piece of a run's Activity: the text between two byte offsets of activity.log. */
export const LOG_CHUNK = object({
  run_id: ID,
  status: RUN_STATUS,
  after: described(integer({ min: 0 }), "The byte offset that was asked for"),
  next: described(integer({ min: 0 }), "The byte offset to ask for next"),
  data: described(string(), "The text between the two, at most 256 KiB"),
  done: described(boolean(), "The run has ended and `next` is the end"),
});
/** The value of {@link LOG_CHUNK}. */
export type LogChunk = Infer<typeof LOG_CHUNK>;

const CHUNK_BYTES = 256 * 1024;
const FALLBACK_POLL_MS = 500;
/** Files beside activity.log whose changes tell readers of the log nothing. */
const BESIDE = /^(?!activity\.log$).*\.(?:log(?:\.1)?|times|places)$/;
/** Answers that are kept for other readers until the next change. */
const MOST_SHARED = 16;

/** How long a reader of a log waits for something new. */
interface Patience {
  timeoutMs: number;
  signal: AbortSignal;
}

/**
 * The Activity of a run from the byte offset `after` on; waits like {@link follow} while nothing is new and the run goes
 * on. Throws `run_not_found`, and `invalid_request` for an offset past the end.
 */
export async function readActivity(
  layout: Layout,
  runId: string,
  { after, ...patience }: Patience & { after: number },
): Promise<LogChunk> {
  return await follow(layout, runId, patience, {
    read: (share) => share(String(after), () => readChunk(layout, runId, after)),
    isNews: ({ data, done }) => data !== "" || done,
  });
}

/** Answers what was read with this key since the last change of the run, or else reads it. */
type Share = <T>(key: string, read: () => T) => T;

/**
 * Reads until there is news, at most for the time limit; the file system wakes the readers, and thousands may wait for one
 * run. Readers that ask for the same share what is read between two changes. Throws `run_not_found`.
 */
export async function follow<T>(
  layout: Layout,
  runId: string,
  { timeoutMs, signal }: Patience,
  { read, isNews }: { read: (share: Share) => T | Promise<T>; isNews: (found: T) => boolean },
): Promise<T> {
  const until = performance.now() + timeoutMs;
  const folder = WatchedFolder.open(layout, runId);
  try {
    for (;;) {
      const seen = folder.changes;
      const found = await read((key, work) => folder.shared(key, work));
      const left = until - performance.now();
      if (isNews(found) || signal.aborted || left <= 0) return found;
      await folder.changed(seen, left, signal);
    }
  } finally {
    folder.close();
  }
}

function readChunk(layout: Layout, runId: string, after: number): LogChunk {
  // The status is read first: the log of a run that has ended grows no more, so the bytes read after that are all of it.
  const record = readRecord(layout, runId);
  if (!record) throw runNotFound(runId);
  const { activity } = runLayout(layout, runId);
  const found = lstatSync(activity, { throwIfNoEntry: false });
  // A file that is not regular counts as empty.
  const size = found?.isFile() ? found.size : 0;
  if (after > size)
    throw new Failure("invalid_request", `after: expected an offset of at most ${size}, the end of the log, found ${after}`);
  const bytes = readBytes(activity, after, Math.min(CHUNK_BYTES, size - after));
  const ended = record.status !== "running";
  const whole = ended && after + bytes.length === size ? bytes : bytes.subarray(0, characterEnd(bytes));
  const next = after + whole.length;
  return { run_id: runId, status: record.status, after, next, data: whole.toString(), done: ended && next === size };
}

const NOTHING = Buffer.alloc(0);

/** Synchronous, like the read of the record: quicker than a promise for each call. */
function readBytes(file: string, after: number, length: number): Buffer {
  if (length === 0) return NOTHING;
  try {
    const descriptor = openRegularSync(file);
    try {
      const bytes = Buffer.alloc(length);
      return bytes.subarray(0, readSync(descriptor, bytes, 0, length, after));
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    // The run was removed a moment ago; the next read tells so.
    if (hasErrno(error, "ENOENT")) return NOTHING;
    throw error;
  }
}

/** The length of UTF-8 bytes up to the end of the last whole character; a byte that is not UTF-8 counts as a character. */
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

/** The folder of a run that is being followed. All its readers share one watcher and what was read last. */
class WatchedFolder {
  static readonly #all = new Map<string, WatchedFolder>();
  readonly #key: string;
  #watcher: FSWatcher | undefined;
  readonly #waiting = new Set<() => void>();
  /** What was read since the last change. */
  readonly #read = new Map<string, unknown>();
  #users = 0;
  /** How many changes of the folder were noticed. */
  changes = 0;

  /** The folder of a run, to be closed after use. Throws `run_not_found`. */
  static open(layout: Layout, runId: string): WatchedFolder {
    const key = `${layout.runs}/${runId}`;
    const known = WatchedFolder.#all.get(key) ?? new WatchedFolder(layout, runId, key);
    known.#users++;
    return known;
  }

  private constructor(layout: Layout, runId: string, key: string) {
    this.#key = key;
    const notice = () => {
      this.changes++;
      this.#read.clear();
      for (const wake of [...this.#waiting]) wake();
    };
    try {
      const { folder } = runLayout(layout, runId);
      const onChange = (_: string, name: string | null) => (name !== null && BESIDE.test(name)) || notice();
      this.#watcher = watch(folder, { persistent: false }, onChange).on("error", () => {
        // Without a watcher nothing tells of changes any more: readers poll.
        this.#watcher = undefined;
        notice();
      });
    } catch {
      // Without a watcher readers poll. Where there is no such run, the first read tells.
    }
    WatchedFolder.#all.set(key, this);
  }

  /** What was read with this key since the last change. Thousands may follow one log and ask for the same after each. */
  shared<T>(key: string, read: () => T): T {
    if (this.#read.has(key)) return this.#read.get(key) as T;
    const found = read();
    if (this.#watcher && this.#read.size < MOST_SHARED) this.#read.set(key, found);
    // What has failed may be tried again.
    if (found instanceof Promise) found.catch(() => this.#read.delete(key));
    return found;
  }

  /** Waits until there were more than `seen` changes; where the system cannot watch a folder, half a second. */
  changed(seen: number, limitMs: number, signal: AbortSignal): Promise<void> | undefined {
    const limit = this.#watcher ? limitMs : Math.min(limitMs, FALLBACK_POLL_MS);
    return this.changes === seen ? woken(this.#waiting, limit, signal) : undefined;
  }

  close(): void {
    this.#users--;
    if (this.#users > 0) return;
    this.#watcher?.close();
    WatchedFolder.#all.delete(this.#key);
  }
}
