import { type Stats, statSync } from "node:fs";
import type { Database } from "../bucket/base/database.ts";
import type { Layout } from "../bucket/base/layout.ts";
import { sleep } from "../core/async.ts";
import { Failure } from "../core/errors.ts";

const TRIES = 3;
const PAUSE_MS = 50;
const MOST_OPEN = 32;
const IDLE_MS = 5_000;

/**
 * Opens a bucket's database for reading. SQLite's calls are synchronous, so the server never waits inside them: a locked
 * database is tried up to three times. Throws what `openForReading` throws: the database is busy, or the bucket is not
 * initialised or has another schema. The caller closes the database.
 */
export async function openBucket(layout: Layout): Promise<Database> {
  const { openForReading } = await import("../bucket/base/database.ts");
  return untilFree(() => openForReading(layout.database));
}

async function untilFree<T>(work: () => T): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return work();
    } catch (error) {
      const isBusy = error instanceof Failure && error.code === "database_busy";
      if (!isBusy || tries === TRIES) throw error;
    }
    await sleep(PAUSE_MS);
  }
}

/** What is another one after each transaction: SQLite writes it to one of the two files. */
export function databaseVersion({ database }: Layout): string {
  const states = [database, `${database}-wal`].map((file) => statSync(file, { bigint: true, throwIfNoEntry: false }));
  return states.map((state) => `${state?.ino} ${state?.size} ${state?.mtimeNs}`).join(" ");
}

interface OpenDatabase {
  db: Database;
  /** The file that was opened: another file may take its place. */
  file: Stats | undefined;
  /** Closes the database. */
  idle: NodeJS.Timeout;
}

/**
 * The databases that requests have read last, kept open because to open one costs more than most reads: at most 32, each
 * for five seconds after its last use.
 */
export class Readers {
  readonly #open = new Map<string, OpenDatabase>();

  /** Answers what `work` reads, synchronously and in one go. Fails like {@link openBucket}. */
  async read<T>(layout: Layout, work: (db: Database) => T): Promise<T> {
    const sqlite = await import("../bucket/base/database.ts");
    return untilFree(() => {
      try {
        return work(this.#database(layout.database, sqlite));
      } catch (error) {
        if (!(error instanceof Failure)) this.#close(layout.database);
        throw sqlite.databaseFailure(error, layout.database);
      }
    });
  }

  /** Closes all databases. */
  close(): void {
    for (const file of [...this.#open.keys()]) this.#close(file);
  }

  #database(file: string, sqlite: typeof import("../bucket/base/database.ts")): Database {
    const known = this.#open.get(file);
    const found = statSync(file, { throwIfNoEntry: false });
    if (known && found && known.file?.ino === found.ino && known.file.dev === found.dev) {
      known.idle.refresh();
      sqlite.requireSchema(known.db);
      return known.db;
    }
    this.#close(file);
    const db = sqlite.openForReading(file);
    const [oldest] = this.#open.keys();
    if (oldest !== undefined && this.#open.size === MOST_OPEN) this.#close(oldest);
    this.#open.set(file, { db, file: found, idle: setTimeout(() => this.#close(file), IDLE_MS).unref() });
    return db;
  }

  #close(file: string): void {
    const known = this.#open.get(file);
    clearTimeout(known?.idle);
    known?.db.close();
    this.#open.delete(file);
  }
}
