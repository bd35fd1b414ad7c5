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
 * The Activity of a run from the byte offset `after` on; waits up to `timeoutMs` while there is nothing new and the
 * run goes on. Woken by the file system, not by polling; thousands may wait. Throws `run_not_found`, and
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
  // The status first: once a run has ended its log grows no more, so what is read afterwards is all of it.
  const record = readRecord(layout, runId);
  if (!record) throw runNotFound(runId);
  const { activity } = runLayout(layout, runId);
  const found = lstatSync(activity, { throwIfNoEntry: false });
  // A file that is not regular counts as empty.
  const size = found?.isFile() ? found.size : 0;
  if (after > size)
    throw new Failure(
      "invalid_request",
      `after: expected an offset of at most ${size}, the end of the log, found ${after}`,
    );
  const bytes = readBytes(activity, after, Math.min(CHUNK_BYTES, size - after));
  const ended = record.status !== "running";
  const whole = ended && after + bytes.length === size ? bytes : bytes.subarray(0, characterEnd(bytes));
  const next = after + whole.length;
  return { run_id: runId, status: record.status, after, next, data: whole.toString(), done: ended && next === size };
}

const NOTHING = Buffer.alloc(0);

/** Synchronous, as the record is read: it is quicker than to wait for each call, and who waits shares it. */
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
    // The run was removed right now; the next look says so.
    if (hasErrno(error, "ENOENT")) return NOTHING;
    throw error;
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

/** The folder of a run that is being followed. All its readers share one watcher and what was read last. */
class WatchedFolder {
  static readonly #all = new Map<string, WatchedFolder>();
  readonly #key: string;
  readonly #layout: Layout;
  readonly #runId: string;
  readonly #watcher: FSWatcher | undefined;
  readonly #waiting = new Set<() => void>();
  /** What was read since the last change. */
  #latest: LogChunk | undefined;
  #users = 0;
  /** How often something in it has changed. */
  changes = 0;

  /** To be closed. Throws `run_not_found` where there is none. */
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
      this.#watcher = watch(runLayout(layout, runId).folder, { persistent: false }, notice).on("error", notice);
    } catch (error) {
      if (hasErrno(error, "ENOENT")) throw runNotFound(runId);
    }
    WatchedFolder.#all.set(key, this);
  }

  /** What there is from this offset on. Thousands may follow one log, and ask the same after each change. */
  read(after: number): LogChunk {
    if (this.#latest?.after === after) return this.#latest;
    const chunk = readChunk(this.#layout, this.#runId, after);
    if (this.#watcher) this.#latest = chunk;
    return chunk;
  }

  /** Waits until there were more changes than so many; where the system cannot watch, half a second. */
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

/** How long after an entry the next output gets one of its own. */
const STEP_MS = 250;

/**
 * What appends text to a run's activity.log, whose descriptor is `output`. Before output that comes 250 ms or more after
 * the last entry, the file `times` gets one: `<byte offset> <unix ms>\n`. What begins at that offset or behind it was
 * written at that time or later. Throws what keeps the text from being written. Where an entry cannot be written the
 * times just end: only the log itself decides whether a run may go on. `now` is the clock, in milliseconds.
 */
export function activityWriter(output: number, times: string, now: () => number = Date.now): (text: string) => void {
  let notedAt = Number.NEGATIVE_INFINITY;
  let isNoting = true;
  return (text) => {
    const at = now();
    // A clock that was set back goes on from there.
    if (isNoting && Math.abs(at - notedAt) >= STEP_MS) {
      notedAt = at;
      isNoting = note(output, times, at);
    }
    // Not through a stream: where the disk is full, the run is to learn it.
    appendFileSync(output, text);
  };
}

/** Answers false where no entry may follow, since this one might be there in part. */
function note(output: number, times: string, at: number): boolean {
  try {
    // The size, not a count of what was written: a warning of Node may stand between.
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
