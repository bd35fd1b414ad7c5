import { appendFileSync, closeSync, type FSWatcher, fstatSync, lstatSync, readSync, watch } from "node:fs";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { woken } from "../core/async.ts";
import { Failure, hasErrno } from "../core/errors.ts";
import { APPEND, openRegularSync } from "../core/files.ts";
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

/**
 * The Activity of a run from the byte offset `after` on. Waits up to `timeoutMs` while nothing is new and the run goes on;
 * the file system wakes the readers, and thousands may wait. Throws `run_not_found`, and `invalid_request` for an offset
 * past the end.
 */
export async function readActivity(
  layout: Layout,
  runId: string,
  { after, timeoutMs, signal }: { after: number; timeoutMs: number; signal: AbortSignal },
): Promise<LogChunk> {
  const until = performance.now() + timeoutMs;
  const folder = WatchedFolder.open(layout, runId);
  try {
    for (;;) {
      const seen = folder.changes;
      const chunk = folder.read(after);
      if (chunk.data !== "" || chunk.done || signal.aborted) return chunk;
      const left = until - performance.now();
      if (left <= 0) return chunk;
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
  readonly #layout: Layout;
  readonly #runId: string;
  #watcher: FSWatcher | undefined;
  readonly #waiting = new Set<() => void>();
  /** What was read since the last change. */
  #latest: LogChunk | undefined;
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
    this.#layout = layout;
    this.#runId = runId;
    const notice = () => {
      this.changes++;
      this.#latest = undefined;
      for (const wake of [...this.#waiting]) wake();
    };
    try {
      this.#watcher = watch(runLayout(layout, runId).folder, { persistent: false }, notice).on("error", () => {
        // Without a watcher nothing tells of changes any more: readers poll.
        this.#watcher = undefined;
        notice();
      });
    } catch (error) {
      if (hasErrno(error, "ENOENT")) throw runNotFound(runId);
    }
    WatchedFolder.#all.set(key, this);
  }

  /** The piece from this offset on. Thousands may follow one log and ask for the same piece after each change. */
  read(after: number): LogChunk {
    if (this.#latest?.after === after) return this.#latest;
    const chunk = readChunk(this.#layout, this.#runId, after);
    if (this.#watcher) this.#latest = chunk;
    return chunk;
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

/** Output this long after the last entry of `activity.times` gets an entry of its own. */
const STEP_MS = 250;

/**
 * The function that appends text to a run's activity.log, whose descriptor is `output`. Before output that comes 250 ms or
 * more after the last entry, the file `times` gets an entry `<byte offset> <unix ms>\n`: output from that offset on was
 * written at that time or later. Throws where the text cannot be written. Where an entry cannot be written, no entry
 * follows and the run goes on. `now` is the clock, in milliseconds.
 */
export function activityWriter(output: number, times: string, now: () => number = Date.now): (text: string) => void {
  let notedAt = Number.NEGATIVE_INFINITY;
  let isNoting = true;
  return (text) => {
    const at = now();
    // abs(): a clock that was set back goes on from there.
    if (isNoting && Math.abs(at - notedAt) >= STEP_MS) {
      notedAt = at;
      isNoting = addTime(output, times, at);
    }
    // Not through a stream: a full disk shall fail the run.
    appendFileSync(output, text);
  };
}

/** Answers false where no entry may follow, since a part of this one may have been written. */
function addTime(output: number, times: string, at: number): boolean {
  try {
    // The size of the file, not a count of our bytes: Node may have written a warning in between.
    const file = openRegularSync(times, APPEND);
    try {
      appendFileSync(file, `${fstatSync(output).size} ${at}\n`);
    } finally {
      closeSync(file);
    }
    return true;
  } catch {
    return false;
  }
}
