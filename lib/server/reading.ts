import { type Stats, statSync } from "node:fs";
import type { Database } from "../bucket/base/database.ts";
import type { Layout } from "../bucket/base/layout.ts";
import { sleep, turn } from "../core/async.ts";
import { Failure } from "../core/errors.ts";

const TRIES = 3;
const PAUSE_MS = 50;
const MOST_KEPT = 32;
const IDLE_MS = 5_000;

/**
 * Opens a bucket's database for reading. The server never waits inside SQLite, whose calls are synchronous, but tries
 * up to three times; then, or for a bucket that is not initialised or has another schema, the failure of
 * `openForReading`. The caller closes it.
 */
export async function openBucket(layout: Layout): Promise<Database> {
  const { openForReading } = await import("../bucket/base/database.ts");
  return untilFree(() => openForReading(layout.database));
}

/** A promise only where it has to wait. */
function untilFree<T>(work: () => T, tries = TRIES): T | Promise<T> {
  try {
    return work();
  } catch (error) {
    const isBusy = error instanceof Failure && error.code === "database_busy";
    if (!isBusy || tries === 1) throw error;
    return sleep(PAUSE_MS).then(() => untilFree(work, tries - 1));
  }
}

interface Kept {
  db: Database;
  /** Which file it is: another one may take its place. */
  file: Stats | undefined;
  /** Another one after each commit of somebody else. */
  version: number;
  /** What was read since. */
  known: Map<string, unknown>;
  /** When file and version were looked at, as `turn` counts. */
  turn: number;
  usedAt: number;
}

/**
 * The databases of the buckets that requests are about, kept open while there are requests, because to open one costs
 * more than what is read from it: at most 32 of them, each for five seconds after its last use.
 */
export class Readers {
  readonly #kept = new Map<string, Kept>();
  #cleaning: NodeJS.Timeout | undefined;
  #sqlite: typeof import("../bucket/base/database.ts") | undefined;

  /** What `work` reads, synchronously and in one go; a promise only where it has to wait. Fails like {@link openBucket}. */
  read<T>(layout: Layout, work: (db: Database) => T): T | Promise<T> {
    return this.#using(layout.database, ({ db }) => work(db));
  }

  /** The same for what is asked for often: `work` is done again only after a commit. The answer is shared. */
  readOnce<T>(layout: Layout, name: string, work: (db: Database) => T): T | Promise<T> {
    return this.#using(layout.database, ({ db, known }) => {
      if (!known.has(name)) known.set(name, work(db));
      return known.get(name) as T;
    });
  }

  /** Closes all of them. */
  close(): void {
    clearTimeout(this.#cleaning);
    this.#cleaning = undefined;
    for (const file of [...this.#kept.keys()]) this.#drop(file);
  }

  #using<T>(file: string, work: (kept: Kept) => T): T | Promise<T> {
    const sqlite = this.#sqlite;
    if (!sqlite) return this.#load().then(() => this.#using(file, work));
    return untilFree(() => {
      try {
        return work(this.#open(file, sqlite));
      } catch (error) {
        if (!(error instanceof Failure)) this.#drop(file);
        throw sqlite.databaseFailure(error, file);
      }
    });
  }

  async #load(): Promise<void> {
    this.#sqlite = await import("../bucket/base/database.ts");
  }

  #open(file: string, { openForReading, requireSchema }: typeof import("../bucket/base/database.ts")): Kept {
    const kept = this.#kept.get(file);
    if (kept?.turn === turn()) return kept;
    const found = statSync(file, { throwIfNoEntry: false });
    if (!kept || !found || kept.file?.ino !== found.ino || kept.file.dev !== found.dev) {
      this.#drop(file);
      const db = openForReading(file);
      const version = versionOf(db);
      const opened = { db, file: found, version, known: new Map(), turn: turn(), usedAt: Date.now() };
      this.#kept.set(file, opened);
      this.#clean();
      return opened;
    }
    const version = versionOf(kept.db);
    if (version !== kept.version) {
      requireSchema(kept.db);
      kept.version = version;
      kept.known.clear();
    }
    kept.turn = turn();
    kept.usedAt = Date.now();
    return kept;
  }

  #drop(file: string): void {
    this.#kept.get(file)?.db.close();
    this.#kept.delete(file);
  }

  #clean(): void {
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MOST_KEPT) this.#drop(oldest as string);
    this.#cleaning ??= setTimeout(() => {
      this.#cleaning = undefined;
      const limit = Date.now() - IDLE_MS;
      for (const [file, { usedAt }] of [...this.#kept]) if (usedAt < limit) this.#drop(file);
      if (this.#kept.size > 0) this.#clean();
    }, IDLE_MS).unref();
  }
}

function versionOf(db: Database): number {
  return db.get<{ data_version: number }>("PRAGMA data_version")?.data_version ?? 0;
}
