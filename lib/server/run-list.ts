import { type Stats, statSync } from "node:fs";
import { lstat } from "node:fs/promises";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { isUuid } from "../codec/uuid.ts";
import { turn } from "../core/async.ts";
import { Failure } from "../core/errors.ts";
import { isUnchanged, unlessMissing } from "../core/files.ts";
import type { RunKind, RunStatus } from "../run/protocol.ts";
import { type RunRecord, readRecord, runIds } from "../run/record.ts";

/** Which runs of a bucket are wanted; the cursor is the id of the last run of the page before. */
export interface RunQuery {
  status?: RunStatus | undefined;
  kind?: RunKind | undefined;
  limit: number;
  cursor?: string | undefined;
}

/** A run as the API shows it, also as JSON text. */
interface Shown {
  run: RunRecord & { duration_ms: number; log_size_bytes: number };
  text: string;
}

interface Bucket {
  /** The folder of the runs, when its names were read; undefined when it might change without a trace. */
  folder: Stats | undefined;
  /** Newest first. */
  ids: string[];
  ended: Map<string, Shown>;
  textBytes: number;
  /** Pages without a run that goes on, by what was asked for: until the folder changes they stay as they are. */
  pages: Map<string, string | Buffer>;
  /** When the folder was looked at, as `turn` counts. */
  turn: number;
}

const MOST_BUCKETS = 100;
const MOST_PAGES = 4;
const LONG_TEXT = 8 * 1024;
const MOST_TEXT_BYTES = 4 * 1024 * 1024;
/** Two changes within one tick of the file system's clock look the same. */
const SETTLED_MS = 1_000;

/** The runs of the buckets as the API shows them. Of a run that has ended nothing changes: it is read once. */
export class RunList {
  readonly #buckets = new Map<string, Bucket>();

  /**
   * One page as JSON text or its bytes, newest first; a promise only where files are to be read. Fails with
   * `invalid_request` for a cursor that is none.
   */
  page(layout: Layout, query: RunQuery): string | Buffer | Promise<string | Buffer> {
    const { cursor, status, kind, limit } = query;
    if (cursor !== undefined && !isUuid(cursor))
      throw new Failure("invalid_request", "cursor: expected the next_cursor of an earlier answer");
    const asked = `${cursor} ${status} ${kind} ${limit}`;
    return this.#known(layout)?.pages.get(asked) ?? this.#page(layout, query, asked);
  }

  async #page(layout: Layout, query: RunQuery, asked: string): Promise<string | Buffer> {
    const { cursor, status, kind, limit } = query;
    const bucket = await this.#bucket(layout);
    const items: string[] = [];
    let [last, next, isFinal]: [string | null, string | null, boolean] = [null, null, true];
    for (const id of bucket.ids) {
      if (cursor !== undefined && id >= cursor) continue;
      const shown = bucket.ended.get(id) ?? (await this.#read(layout, bucket, id));
      isFinal &&= shown !== undefined && shown.run.status !== "running";
      if (!shown || (status && shown.run.status !== status) || (kind && shown.run.kind !== kind)) continue;
      if (items.length === limit) {
        next = last;
        break;
      }
      items.push(shown.text);
      last = id;
    }
    const text = `{"items":[${items.join(",")}],"next_cursor":${JSON.stringify(next)}}`;
    if (!isFinal) return text;
    if (bucket.pages.size >= MOST_PAGES) bucket.pages.clear();
    // A long text is quicker sent as bytes, a short one together with its headers.
    const page = text.length > LONG_TEXT ? Buffer.from(text) : text;
    bucket.pages.set(asked, page);
    return page;
  }

  /** The newest run, or undefined where there is none. */
  async newest(layout: Layout): Promise<RunRecord | undefined> {
    const bucket = await this.#bucket(layout);
    for (const id of bucket.ids) {
      const shown = bucket.ended.get(id) ?? (await this.#read(layout, bucket, id));
      if (shown) return shown.run;
    }
    return undefined;
  }

  /** What was read of a bucket, if its folder is as it was then. */
  #known(layout: Layout): Bucket | undefined {
    const known = this.#buckets.get(layout.runs);
    if (known?.turn === turn()) return known;
    const found = known?.folder && statSync(layout.runs, { throwIfNoEntry: false });
    if (!known?.folder || !found || !isUnchanged(known.folder, found)) return undefined;
    known.turn = turn();
    return known;
  }

  async #bucket(layout: Layout): Promise<Bucket> {
    const fresh = this.#known(layout);
    if (fresh) return fresh;
    const known = this.#buckets.get(layout.runs);
    const found = statSync(layout.runs, { throwIfNoEntry: false });
    const isSettled = found !== undefined && Date.now() - found.mtimeMs > SETTLED_MS;
    const ids = (await runIds(layout)).reverse();
    const kept = new Set(ids);
    const ended = new Map([...(known?.ended ?? [])].filter(([id]) => kept.has(id)));
    const textBytes = [...ended.values()].reduce((sum, { text }) => sum + text.length, 0);
    const bucket = { folder: isSettled ? found : undefined, ids, ended, textBytes, pages: new Map(), turn: turn() };
    if (this.#buckets.size >= MOST_BUCKETS) this.#buckets.clear();
    this.#buckets.set(layout.runs, bucket);
    return bucket;
  }

  async #read(layout: Layout, bucket: Bucket, id: string): Promise<Shown | undefined> {
    const record = readRecord(layout, id);
    if (!record) return undefined;
    const run = await shownRun(layout, record);
    const shown = { run, text: JSON.stringify(run) };
    if (record.status === "running") return shown;
    if (bucket.textBytes + shown.text.length > MOST_TEXT_BYTES) bucket.ended.clear();
    if (bucket.ended.size === 0) bucket.textBytes = 0;
    bucket.ended.set(id, shown);
    bucket.textBytes += shown.text.length;
    return shown;
  }
}

/** A run with what the API adds to its record. */
export async function shownRun(layout: Layout, record: RunRecord): Promise<Shown["run"]> {
  const until = record.finished_at === null ? Date.now() : Date.parse(record.finished_at);
  const duration_ms = Math.max(0, until - Date.parse(record.created_at));
  return { ...record, duration_ms, log_size_bytes: await sizeOf(runLayout(layout, record.id).activity) };
}

async function sizeOf(file: string): Promise<number> {
  return (await unlessMissing(lstat(file)))?.size ?? 0;
}
