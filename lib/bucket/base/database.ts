import { existsSync } from "node:fs";
import path from "node:path";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { isUuid, timeOfUuid } from "../../codec/uuid.ts";
import { sleep } from "../../core/async.ts";
import { Failure, isLocked, messageOf, placed, sqliteCode } from "../../core/errors.ts";
import { refuseLink } from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import { setAside } from "./contents.ts";
import { MIGRATIONS, SCHEMA_VERSION } from "./schema.ts";

/** A value that SQLite stores. */
export type SqlValue = string | number | null | Uint8Array;
/** One row, keyed by column name. */
export type Row = Record<string, SqlValue>;

const BUSY_TIMEOUT_MS = 5_000;
/** How much of a database a writer keeps in memory at most: enough for the rows of 50,000 allocations. */
const CACHE_KIB = 32_768;
/** Result codes of SQLite. */
const [READ_ONLY, IO_ERROR, DAMAGED, FULL, CANNOT_OPEN, NO_DATABASE] = [8, 10, 11, 13, 14, 26] as const;

/** One open bucket database. Calls are synchronous: a server only reads, and only through `openForReading`. */
export class Database {
  readonly #sqlite: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  constructor(sqlite: DatabaseSync) {
    this.#sqlite = sqlite;
  }

  /** The folder of the contents that are too large for the database. */
  get contents(): string {
    return path.join(path.dirname(this.#sqlite.location() as string), "contents");
  }

  /** All rows of a query. */
  all<T = Row>(sql: string, ...values: SqlValue[]): T[] {
    return this.#prepare(sql).all(...values) as T[];
  }

  /** All rows of a query as lists of their columns: half the work of {@link all}, for tens of thousands of rows. */
  tuples<T extends SqlValue[]>(sql: string, ...values: SqlValue[]): T[] {
    const statement = this.#prepare(sql);
    statement.setReturnArrays(true);
    try {
      return statement.all(...values) as unknown as T[];
    } finally {
      statement.setReturnArrays(false);
    }
  }

  /** The first row of a query. */
  get<T = Row>(sql: string, ...values: SqlValue[]): T | undefined {
    return this.#prepare(sql).get(...values) as T | undefined;
  }

  /** The names of the columns of a query. */
  columns(sql: string): string[] {
    const columns = this.#prepare(sql).columns();
    return columns.map(({ name }) => name);
  }

  /** Runs a statement and answers how many rows it changed. */
  run(sql: string, ...values: SqlValue[]): number {
    try {
      return Number(this.#prepare(sql).run(...values).changes);
    } catch (error) {
      throw placed(error, this.#sqlite.location() as string);
    }
  }

  /** Runs several statements without values. */
  script(sql: string): void {
    this.#sqlite.exec(sql);
  }

  /** Stores all writes of `work` as one, or none of them when `work` throws. Not to be nested. */
  transaction<T>(work: () => T): T {
    this.run("BEGIN IMMEDIATE");
    try {
      const result = work();
      this.run("COMMIT");
      return result;
    } catch (error) {
      // SQLite has already undone it after some errors, such as a full disk.
      if (this.#sqlite.isTransaction) this.#sqlite.exec("ROLLBACK");
      throw error;
    }
  }

  /** May be called again. */
  close(): void {
    if (this.#sqlite.isOpen) this.#sqlite.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #prepare(sql: string): StatementSync {
    const statement = this.#statements.get(sql) ?? this.#sqlite.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }
}

/** Opens the database of a bucket for reading and writing; refuses one that is not at this program's schema. */
export function openDatabase(file: string): Database {
  refuseLink(file);
  // mode=rw: a database that is not there must not spring into being.
  const location = pathToFileURL(file);
  location.search = "mode=rw";
  try {
    const database = new Database(new DatabaseSync(location, { timeout: BUSY_TIMEOUT_MS }));
    // FULL: what a deploy noted about a worker must outlast a power cut, as what it did on the worker does.
    return checked(database, `PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -${CACHE_KIB}`);
  } catch (error) {
    throw databaseFailure(error, file);
  }
}

/** Opens the database for reading only and never waits: a locked database is the failure `database_busy`. */
export function openForReading(file: string): Database {
  try {
    refuseLink(file);
    return checked(new Database(new DatabaseSync(file, { readOnly: true })));
  } catch (error) {
    throw databaseFailure(error, file);
  }
}

/** The failure that people are told for an error of SQLite about a bucket's database; any other error as it is. */
export function databaseFailure(error: unknown, file: string): unknown {
  if (isLocked(error)) return new Failure("database_busy", messageOf(error));
  const code = sqliteCode(error);
  if (code === CANNOT_OPEN) return new Failure("bucket_not_initialized", `Cannot open ${file}: the bucket is not initialised`);
  if (code === READ_ONLY || code === IO_ERROR || code === FULL) {
    const doubt = code === IO_ERROR ? "; is the disk full?" : "";
    return new Failure("failed", `Cannot use ${file}: ${messageOf(error)}${doubt}`, { cause: error });
  }
  if (code === DAMAGED || code === NO_DATABASE) return damaged(`Cannot read ${file}: it is damaged`, error);
  return error;
}

function damaged(what: string, cause?: unknown): Failure {
  const restore = "restore a snapshot (`ops snapshot restore`, or POST …/snapshots/{name}/restore)";
  return new Failure("database_damaged", `${what}; ${restore}, or bring it back from a backup`, { cause });
}

/** True where the database of a bucket exists and cannot be read as a whole. A busy database is not damaged. */
export function isDamaged(file: string): boolean {
  try {
    using db = openForReading(file);
    return db.get<{ quick_check: string }>("PRAGMA quick_check(1)")?.quick_check !== "ok" || lostContents(db).length > 0;
  } catch (error) {
    const failure = databaseFailure(error, file);
    return failure instanceof Failure && failure.code === "database_damaged";
  }
}

function checked(database: Database, settings = ""): Database {
  try {
    database.script(settings);
    requireSchema(database);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/**
 * Throws `bucket_not_initialized`, `schema_upgrade_required` or `schema_too_new` for any other schema than this
 * program's.
 */
export function requireSchema(database: Database): void {
  const version = schemaVersion(database);
  if (version === 0) throw new Failure("bucket_not_initialized", "the bucket is not initialised; run `ops init`, or POST …/init");
  const old = `the database has schema ${version}; run \`ops init\`, or POST …/init, to upgrade it`;
  if (version < SCHEMA_VERSION) throw new Failure("schema_upgrade_required", old, { details: { schema_version: version } });
  if (version > SCHEMA_VERSION) throw tooNew(version);
}

/** Why this program cannot work with the database of a bucket; undefined where it can, and where something else is wrong. */
export function schemaFailure(file: string): Failure | undefined {
  try {
    openForReading(file).close();
  } catch (error) {
    if (error instanceof Failure) return error;
  }
  return undefined;
}

function tooNew(version: number): Failure {
  const message = `the database has schema ${version}, this program knows ${SCHEMA_VERSION}; use a newer ops`;
  return new Failure("schema_too_new", message, { details: { schema_version: version } });
}

/** The schema version of a database; 0 before init. Throws `database_damaged` for a version that no ops writes. */
export function schemaVersion(database: Database): number {
  const table = database.get("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'");
  if (!table) return 0;
  const version = database.get<{ version: number }>("SELECT version FROM schema_version WHERE id = 1")?.version;
  if (version === undefined || version < 1)
    throw damaged(`The bucket's database is damaged: its schema version is ${version ?? "missing"}`);
  return version;
}

/**
 * Creates the database or brings it to this program's schema, in one exclusive transaction (two at once are fine).
 * Answers the bucket id it has, which is `bucketId` when it was new. Throws `schema_too_new`, `database_damaged` or
 * `database_busy`.
 */
export function migrate(file: string, bucketId: string): { bucketId: string; upgraded: boolean } {
  refuseLink(file);
  const sqlite = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS });
  const database = new Database(sqlite);
  try {
    sqlite.exec("PRAGMA journal_mode = WAL; BEGIN EXCLUSIVE");
    const from = schemaVersion(database);
    if (from > SCHEMA_VERSION) throw tooNew(from);
    if (from === 0)
      sqlite.exec(
        "CREATE TABLE schema_version (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL) STRICT;" +
          "INSERT INTO schema_version VALUES (1, 0)",
      );
    sqlite.function("set_aside", (sha256, content) => {
      setAside(database.contents, String(sha256), () => [content as Uint8Array]);
      return null;
    });
    sqlite.function("began", (run) => (isUuid(String(run)) ? new Date(timeOfUuid(String(run))).toISOString() : null));
    for (const step of MIGRATIONS.slice(from)) sqlite.exec(step);
    database.run("UPDATE schema_version SET version = ?", SCHEMA_VERSION);
    database.run("INSERT OR IGNORE INTO bucket (bucket_id) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM bucket)", bucketId);
    faultPoint("upgrade: done");
    sqlite.exec("COMMIT");
    faultPoint("upgrade: kept");
    // Else what went out of the database would stay there as empty pages.
    if (from > 0 && from < SCHEMA_VERSION) sqlite.exec("VACUUM");
    return { bucketId: bucketIdOf(database), upgraded: from < SCHEMA_VERSION };
  } catch (error) {
    throw databaseFailure(error, file);
  } finally {
    database.close();
  }
}

/** The id of the bucket that a database belongs to. */
export function bucketIdOf(database: Database): string {
  return database.get<{ bucket_id: string }>("SELECT bucket_id FROM bucket")?.bucket_id ?? "";
}

/** The names of the contents that lie beside the database, as its rows name them. */
export function largeContents(db: Database): Set<string> {
  const rows = db.tuples<[name: string]>(
    `SELECT sha256 FROM job_files WHERE content IS NULL
     UNION SELECT iif(sealed, sha256 || '.sealed', sha256) FROM contents WHERE content IS NULL`,
  );
  return new Set(rows.flat());
}

/** Those of them that are not there. */
export function lostContents(db: Database): string[] {
  return [...largeContents(db)].filter((name) => !existsSync(path.join(db.contents, name)));
}

const RETRY_MS = 20;

/**
 * Runs `work` while nobody else does so on the same file, in this process or another one: a SQLite transaction whose
 * lock the kernel drops with the process. Answers false, without having run it, when others kept it for `limitMs`.
 */
export async function exclusively(file: string, limitMs: number, work: () => Promise<void>): Promise<boolean> {
  refuseLink(file);
  const sqlite = new DatabaseSync(file, { timeout: 0 });
  try {
    // SQLite's own waiting would stop this whole process, and with it whoever is at work in it.
    for (const until = performance.now() + limitMs; !hasBegun(sqlite); await sleep(RETRY_MS))
      if (performance.now() >= until) return false;
    await work();
    return true;
  } finally {
    sqlite.close();
  }
}

function hasBegun(sqlite: DatabaseSync): boolean {
  try {
    sqlite.exec("BEGIN EXCLUSIVE");
    return true;
  } catch (error) {
    if (isLocked(error)) return false;
    throw placed(error, sqlite.location() as string);
  }
}
