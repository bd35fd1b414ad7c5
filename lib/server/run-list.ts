import { type Stats, statSync } from "node:fs";
import { lstat } from "node:fs/promises";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { wrongCursor } from "../bucket/catalog/pages.ts";
import { isUuid } from "../codec/uuid.ts";
import { isUnchanged, unlessMissing } from "../core/files.ts";
import type { RunKind, RunStatus } from "../run/protocol.ts";
import { durationOf, type RunRecord, readRecord, readRecordHead, runIds } from "../run/record.ts";

/** Which runs of a bucket are wanted; the cursor is the id of the last run of the page before. */
export interface RunQuery {
  status?: RunStatus | undefined;
  kind?: RunKind | undefined;
  /** The beginning or the end of an id. */
  id?: string | undefined;
  limit: number;
  cursor?: string | undefined;
}

/** A run as the API shows it. */
export interface ShownRun extends RunRecord {
  duration_ms: number;
  log_size_bytes: number;
}

/** What is known of a run without its result. */
export interface RunInShort extends Pick<ShownRun, "id" | "kind" | "status" | "created_at" | "finished_at" | "duration_ms"> {
  dry_run: boolean;
  /** A deploy or a drift run of all jobs and workers. */
  whole: boolean;
  /** The dry run whose plan a deploy carries out. */
  plan: string | null;
}

type Sort = Pick<RunInShort, "status" | "kind">;

interface Wanted {
  before?: string | undefined;
  /** Of the id: its beginning or its end. */
  part?: string;
  isWanted?: (run: Sort) => boolean;
}

/** How many characters of JSON are kept in memory, of all buckets together. */
const MOST_KEPT = 16 * 1024 * 1024;
/** Among how many runs a summary looks for those that it tells of. */
const MOST_LOOKED_AT = 1_000;
/** Of how many buckets the names of the runs are kept. */
const MOST_BUCKETS = 100;
/** Two changes of a folder within one tick of the file system's clock look the same. */
const SETTLED_MS = 1_000;

/**
 * The runs of the buckets as the API shows them. A run that has ended changes no more: its files are read once. The folder
 * of a bucket's runs is read again when it has changed.
 */
export class RunList {
  readonly #folders = new Map<string, { folder: Stats; ids: string[] }>();
  readonly #ended = new Map<string, ShownRun>();
  /** Of more ended runs than can be kept, so that a filter reads what it shows. */
  readonly #shorts = new Map<string, RunInShort>();
  readonly #mostShorts: number;
  #kept = 0;

  /** Of `mostShorts` runs what is known in short is kept. */
  constructor(mostShorts = 20_000) {
    this.#mostShorts = mostShorts;
  }

  /** One page, newest first. Throws `invalid_request` for a cursor that is no id of a run. */
  async page(layout: Layout, query: RunQuery): Promise<{ items: ShownRun[]; next_cursor: string | null }> {
    const { cursor, status, kind, limit } = query;
    const part = query.id?.toLowerCase() ?? "";
    if (cursor !== undefined && !isUuid(cursor)) throw wrongCursor();
    const items: ShownRun[] = [];
    const isWanted = (run: Sort) => (!status || run.status === status) && (!kind || run.kind === kind);
    for await (const run of this.#newestFirst(layout, { before: cursor, part, isWanted })) {
      if (items.length === limit) return { items, next_cursor: items.at(-1)?.id ?? null };
      items.push(run);
    }
    return { items, next_cursor: null };
  }

  /** The newest run, or undefined where there is none. */
  async newest(layout: Layout): Promise<ShownRun | undefined> {
    return (await this.#newestFirst(layout).next()).value;
  }

  /** The newest 1,000 runs in short, newest first. */
  async *inShort(layout: Layout): AsyncGenerator<RunInShort, undefined> {
    for (const id of (await this.#ids(layout)).slice(0, MOST_LOOKED_AT)) {
      const known = this.#shorts.get(runLayout(layout, id).folder);
      const record = known ? undefined : readRecordHead(layout, id);
      const run = known ?? (record && this.#keepShort(layout, record));
      if (run) yield run;
    }
  }

  /** The number of runs. */
  async count(layout: Layout): Promise<number> {
    return (await this.#ids(layout)).length;
  }

  async *#newestFirst(
    layout: Layout,
    { before, part = "", isWanted = () => true }: Wanted = {},
  ): AsyncGenerator<ShownRun, undefined> {
    for (const id of await this.#ids(layout)) {
      if ((before !== undefined && id >= before) || !(id.startsWith(part) || id.endsWith(part))) continue;
      const { folder } = runLayout(layout, id);
      const sort = this.#shorts.get(folder);
      if (sort && !isWanted(sort)) continue;
      const run = this.#ended.get(folder) ?? (await this.#read(layout, id, folder));
      if (run && isWanted(run)) yield run;
    }
  }

  async #ids(layout: Layout): Promise<string[]> {
    const folder = statSync(layout.runs, { throwIfNoEntry: false });
    const known = this.#folders.get(layout.runs);
    if (known && folder && isUnchanged(known.folder, folder)) return known.ids;
    // Judged before the names are read: a change during the read may come within the tick of the change before.
    const isSettled = folder !== undefined && Date.now() - folder.mtimeMs > SETTLED_MS;
    const ids = (await runIds(layout)).reverse();
    if (this.#folders.size >= MOST_BUCKETS) this.#folders.clear();
    if (isSettled) this.#folders.set(layout.runs, { folder, ids });
    return ids;
  }

  async #read(layout: Layout, id: string, folder: string): Promise<ShownRun | undefined> {
    const record = readRecord(layout, id);
    if (!record) return undefined;
    const run = await shownRun(layout, record);
    if (run.status === "running") return run;
    this.#keepShort(layout, record);
    const { length } = JSON.stringify(run);
    if (this.#kept + length > MOST_KEPT) {
      this.#ended.clear();
      this.#kept = 0;
    }
    this.#ended.set(folder, run);
    this.#kept += length;
    return run;
  }

  #keepShort(layout: Layout, record: RunRecord): RunInShort {
    const run = shortOf(record);
    if (this.#shorts.size >= this.#mostShorts) this.#shorts.clear();
    if (run.status !== "running") this.#shorts.set(runLayout(layout, run.id).folder, run);
    return run;
  }
}

function shortOf(record: RunRecord): RunInShort {
  const { id, kind, status, created_at, finished_at } = record;
  // Nobody has checked the file.
  const { dry_run, jobs, workers, plan, sync_only } = record.params ?? {};
  const isOfAll = jobs === undefined && workers === undefined && sync_only !== true;
  return {
    id,
    kind,
    status,
    created_at,
    finished_at,
    duration_ms: durationOf(record),
    dry_run: dry_run === true,
    whole: (kind === "deploy" || kind === "drift") && isOfAll,
    plan: typeof plan === "string" ? plan : null,
  };
}

/** A run with what the API adds to its record. */
export async function shownRun(layout: Layout, { start_key: _, ...record }: RunRecord): Promise<ShownRun> {
  const duration_ms = durationOf(record);
  const log = await unlessMissing(lstat(runLayout(layout, record.id).activity));
  // Records of earlier versions lack them.
  const { break_glass = null, schedule = null, approval = null } = record;
  return { ...record, break_glass, schedule, approval, duration_ms, log_size_bytes: log?.size ?? 0 };
}
