import { randomBytes } from "node:crypto";
import { seal, unseal } from "../codec/seal.ts";
import { Failure } from "../core/errors.ts";
import { createExclusive, readBounded } from "../core/files.ts";
import type { Database } from "./database.ts";
import { isOfJob, isSealed, isSecretNamespace } from "./kv-access.ts";
import type { Layout } from "./layout.ts";

const KEY_BYTES = 32;
const DAY_SECONDS = 86_400;
/** How many older versions of a key a purge leaves, however old they are. */
const VERSIONS_KEPT = 7;

/**
 * The other hosts of a list, as a value of the store: read as the list without that host. A list is stored once for all
 * the hosts in it, since the peers of each of n workers, written out, would be n² hosts.
 */
export interface Peers {
  /** Separated by commas. */
  hosts: string;
  without: string;
}

/** What is written to the store. */
export type KvValue = string | Peers;

/** The newest stored version of a key; the value of a secret is sealed. */
interface StoredEntry {
  version: number;
  value: KvValue;
  ttl: number;
  /** Milliseconds since 1970; exact for what this store wrote itself, whole seconds for what it read. */
  createdMs: number;
  deleted: boolean;
}

/** A write that is not stored yet; without a value it is a delete. */
interface PendingEntry {
  value: KvValue | undefined;
  ttl: number;
  createdMs: number;
}

interface Namespace {
  stored: Map<string, StoredEntry>;
  pending: Map<string, PendingEntry>;
}

type NewestRow = [
  namespace: string,
  key: string,
  version: number,
  value: string,
  list: number | null,
  ttl: number,
  createdDate: number,
  deleted: number,
];

// SQLite takes the other columns from the row with the greatest version.
const NEWEST = "SELECT namespace, key, MAX(version), value, list, ttl, created_date, deleted FROM kv_version";

/**
 * The key-value store of a bucket (hook-runtime.md, KV namespaces). Writes are visible to reads of the same store at
 * once and stored by `flush`, which adds at most one row for a key: a new version when value or ttl differ from the
 * stored ones or a ttl starts anew, a tombstone for a delete. Versions start at 1 and only rise; deleting what is not
 * there changes nothing. Values are kept as given, those under `secrets/` and private keys sealed. A value with a ttl (seconds, 0 =
 * none) is not found once that has passed; a build makes it a tombstone. One process at a time may write.
 */
export class KvStore {
  readonly #db: Database;
  readonly #key: Buffer;
  readonly #now: () => number;
  readonly #namespaces = new Map<string, Namespace>();
  /** The lists of hosts that were read, by id. */
  readonly #lists = new Map<number, string>();
  #isComplete = false;

  /** `now` answers milliseconds since 1970. */
  constructor(db: Database, key: Buffer, now: () => number = Date.now) {
    this.#db = db;
    this.#key = key;
    this.#now = now;
  }

  /** The value of a key, or undefined when it is missing, deleted or expired. Throws when a secret cannot be opened. */
  get(namespace: string, key: string): string | undefined {
    const { stored, pending } = this.#load(namespace);
    const written = pending.get(key);
    if (written)
      return written.value === undefined || this.#expired(written) ? undefined : textOf(written.value);
    const entry = stored.get(key);
    return entry && this.#alive(entry) ? this.#open(namespace, key, entry.value) : undefined;
  }

  /** The stored version, ttl (seconds) and time of a key that `get` would find. */
  entry(namespace: string, key: string): { version: number; ttl: number; createdMs: number } | undefined {
    const entry = this.#load(namespace).stored.get(key);
    return entry && this.#alive(entry) ? entry : undefined;
  }

  put(namespace: string, key: string, value: KvValue, ttlSeconds = 0): void {
    const { stored, pending } = this.#load(namespace);
    // A ttl starts anew, even with the same value.
    if (ttlSeconds === 0 && this.#holds(namespace, key, stored.get(key), value)) pending.delete(key);
    else pending.set(key, { value, ttl: ttlSeconds, createdMs: this.#now() });
  }

  delete(namespace: string, key: string): void {
    const { stored, pending } = this.#load(namespace);
    if (stored.get(key)?.deleted ?? true) pending.delete(key);
    else pending.set(key, { value: undefined, ttl: 0, createdMs: this.#now() });
  }

  /** The keys that `get` would find, sorted. */
  keys(namespace: string): string[] {
    const { stored, pending } = this.#load(namespace);
    const keys = [...stored]
      .filter(([key, entry]) => !pending.has(key) && this.#alive(entry))
      .map(([key]) => key);
    for (const [key, entry] of pending)
      if (entry.value !== undefined && !this.#expired(entry)) keys.push(key);
    return keys.sort();
  }

  /** All keys with their values, sorted by key. */
  entries(namespace: string): Map<string, string> {
    return new Map(this.keys(namespace).map((key) => [key, this.get(namespace, key) as string]));
  }

  /** Makes the namespace hold exactly these entries, without ttl; keys that are not among them are deleted. */
  sync(namespace: string, entries: ReadonlyMap<string, KvValue>): void {
    const { stored, pending } = this.#load(namespace);
    for (const key of [...stored.keys(), ...pending.keys()])
      if (!entries.has(key)) this.delete(namespace, key);
    for (const [key, value] of entries) this.put(namespace, key, value);
  }

  /** The namespaces that hold a key, stored or pending, sorted. */
  namespaces(): string[] {
    this.loadAll();
    return [...this.#namespaces]
      .filter(([, one]) => this.#holdsKeys(one))
      .map(([name]) => name)
      .sort();
  }

  /** Reads the whole store in one query, for who is about to look at most of it. */
  loadAll(): void {
    if (this.#isComplete) return;
    const known = new Set(this.#namespaces.keys());
    this.#isComplete = true;
    for (const row of this.#db.tuples<NewestRow>(`${NEWEST} GROUP BY namespace, key`)) {
      const [name, key] = row;
      if (!known.has(name)) this.#load(name).stored.set(key, this.#fromRow(row));
    }
  }

  /**
   * Stores pending writes as one, in the transaction that is open or in one of its own: all, or those in the namespaces
   * of one job. When the open one is rolled back, `discard` has to follow.
   */
  flush(job?: string): void {
    const stored: (() => void)[] = [];
    const namespaces = this.#namespacesOf(job);
    this.#db.script("SAVEPOINT kv");
    try {
      for (const [name, namespace] of namespaces)
        for (const [key, written] of namespace.pending) {
          const version = (namespace.stored.get(key)?.version ?? 0) + 1;
          const entry = this.#insert(name, key, written, version);
          stored.push(() => namespace.stored.set(key, entry));
        }
      this.#db.script("RELEASE kv");
    } catch (error) {
      this.#db.script("ROLLBACK TO kv; RELEASE kv");
      throw error;
    }
    for (const apply of stored) apply();
    for (const [, { pending }] of namespaces) pending.clear();
  }

  /**
   * Forgets pending writes, all or those in the namespaces of one job, and what was read there: a transaction that was
   * rolled back took its rows with it.
   */
  discard(job?: string): void {
    this.#forget(this.#namespacesOf(job));
  }

  #forget(namespaces: readonly [string, Namespace][]): void {
    for (const [name] of namespaces) this.#namespaces.delete(name);
    this.#lists.clear();
    this.#isComplete = false;
  }

  /** What is loaded, of all or of one job. */
  #namespacesOf(job: string | undefined): [string, Namespace][] {
    return [...this.#namespaces].filter(([name]) => job === undefined || isOfJob(name, job));
  }

  /**
   * All stored and pending secret values in clear, expired ones included, for the redactor. What cannot be opened (a
   * wrong kv.key) is left out: nothing can print it either.
   */
  secrets(): string[] {
    const names = this.#db
      .all<{ namespace: string }>(
        "SELECT DISTINCT namespace FROM kv_version WHERE namespace LIKE 'secrets/%'",
      )
      .map((row) => row.namespace);
    const all = new Set([...names, ...[...this.#namespaces.keys()].filter(isSecretNamespace)]);
    return [...all].flatMap((namespace) => {
      const { stored, pending } = this.#load(namespace);
      const kept = [...stored].filter(([, entry]) => !entry.deleted);
      const values = [
        ...kept.map(([key, entry]) => this.#tryOpen(namespace, key, entry.value)),
        ...[...pending.values()].map((entry) => entry.value && textOf(entry.value)),
      ];
      return values.filter((value) => value !== undefined);
    });
  }

  /** Marks every key whose ttl has passed for deletion. */
  deleteExpired(): void {
    for (const { namespace } of this.#db.all<{ namespace: string }>(
      "SELECT DISTINCT namespace FROM kv_version WHERE ttl > 0",
    )) {
      const { stored, pending } = this.#load(namespace);
      for (const [key, entry] of stored)
        if (!entry.deleted && this.#expired(entry) && !pending.has(key)) this.delete(namespace, key);
    }
  }

  /**
   * Removes rows that nothing needs any more from the database: a key that is deleted, with all its versions, once its
   * tombstone is `days` old; and superseded versions that are `days` old, except the last seven before the newest. The
   * age of each row counts, so a key that changes often is purged too. A key that was purged starts at version 1 again.
   */
  purge(days: number): void {
    const limit = Math.floor(this.#now() / 1000) - days * DAY_SECONDS;
    const purged = this.#db.run(
      `WITH candidate AS (SELECT DISTINCT namespace, key FROM kv_version WHERE deleted = 1 OR version > ?2),
       newest AS (SELECT namespace, key, MAX(version) AS version, deleted, created_date
         FROM candidate JOIN kv_version USING (namespace, key) GROUP BY namespace, key)
       DELETE FROM kv_version WHERE (namespace, key, version) IN (
         SELECT old.namespace, old.key, old.version FROM kv_version old JOIN newest USING (namespace, key)
         WHERE (newest.deleted = 1 AND newest.created_date <= ?1)
            OR (old.version < newest.version - ?2 AND old.created_date <= ?1))`,
      limit,
      VERSIONS_KEPT,
    );
    if (purged > 0)
      this.#db.run(
        "DELETE FROM host_list WHERE id NOT IN (SELECT list FROM kv_version WHERE list IS NOT NULL)",
      );
    this.#forget([...this.#namespaces].filter(([, { pending }]) => pending.size === 0));
  }

  #load(name: string): Namespace {
    const known = this.#namespaces.get(name);
    if (known) return known;
    const namespace: Namespace = { stored: new Map(), pending: new Map() };
    this.#namespaces.set(name, namespace);
    if (!this.#isComplete)
      for (const row of this.#db.tuples<NewestRow>(`${NEWEST} WHERE namespace = ? GROUP BY key`, name))
        namespace.stored.set(row[1], this.#fromRow(row));
    return namespace;
  }

  #fromRow([, , version, value, list, ttl, createdDate, deleted]: NewestRow): StoredEntry {
    const read = list === null ? value : { hosts: this.#hostsOf(list), without: value };
    return { version, value: read, ttl, createdMs: createdDate * 1000, deleted: deleted === 1 };
  }

  /** All values with the same list share one text of it. */
  #hostsOf(list: number): string {
    const known = this.#lists.get(list);
    if (known !== undefined) return known;
    const hosts =
      this.#db.get<{ hosts: string }>("SELECT hosts FROM host_list WHERE id = ?", list)?.hosts ?? "";
    this.#lists.set(list, hosts);
    return hosts;
  }

  #idOf(hosts: string): number {
    this.#db.run("INSERT OR IGNORE INTO host_list (hosts) VALUES (?)", hosts);
    return this.#db.get<{ id: number }>("SELECT id FROM host_list WHERE hosts = ?", hosts)?.id ?? 0;
  }

  #insert(namespace: string, key: string, written: PendingEntry, version: number): StoredEntry {
    const { value = "", ttl, createdMs } = written;
    const kept = typeof value === "string" ? this.#close(namespace, key, value) : value;
    const deleted = written.value === undefined;
    this.#db.run(
      "INSERT INTO kv_version (namespace, key, version, value, list, ttl, created_date, deleted) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      namespace,
      key,
      version,
      typeof kept === "string" ? kept : kept.without,
      typeof kept === "string" ? null : this.#idOf(kept.hosts),
      ttl,
      Math.floor(createdMs / 1000),
      deleted ? 1 : 0,
    );
    return { version, value: kept, ttl, createdMs, deleted };
  }

  /** True when a key is stored with this value and without ttl. A secret that cannot be opened is none. */
  #holds(namespace: string, key: string, entry: StoredEntry | undefined, value: KvValue): boolean {
    if (!entry || entry.deleted || entry.ttl !== 0) return false;
    return isSame(entry.value, value) || this.#tryOpen(namespace, key, entry.value) === textOf(value);
  }

  #holdsKeys({ stored, pending }: Namespace): boolean {
    for (const [key, entry] of stored) if (!pending.has(key) && this.#alive(entry)) return true;
    for (const entry of pending.values()) if (entry.value !== undefined && !this.#expired(entry)) return true;
    return false;
  }

  #alive(entry: StoredEntry): boolean {
    return !entry.deleted && !this.#expired(entry);
  }

  #expired(entry: { ttl: number; createdMs: number }): boolean {
    return entry.ttl > 0 && this.#now() >= entry.createdMs + entry.ttl * 1000;
  }

  #open(namespace: string, key: string, value: KvValue): string {
    if (typeof value === "string" && isSealed(namespace, key))
      return unseal(this.#key, namespace, key, value);
    return textOf(value);
  }

  #tryOpen(namespace: string, key: string, value: KvValue): string | undefined {
    try {
      return this.#open(namespace, key, value);
    } catch {
      return undefined;
    }
  }

  #close(namespace: string, key: string, value: string): string {
    return isSealed(namespace, key) ? seal(this.#key, namespace, key, value) : value;
  }
}

function textOf(value: KvValue): string {
  if (typeof value === "string") return value;
  return `,${value.hosts},`.replace(`,${value.without},`, ",").slice(1, -1);
}

/** True for values that are the same without a look at their text. */
function isSame(a: KvValue, b: KvValue): boolean {
  if (typeof a === "string" || typeof b === "string") return false;
  return a.hosts === b.hosts && a.without === b.without;
}

/** Reads the key that secrets are sealed with: `secrets/kv.key`, 32 raw bytes. */
export async function loadKvKey(layout: Layout): Promise<Buffer> {
  const key = await readBounded(layout.kvKey, 1024);
  if (!key)
    throw new Failure("bucket_not_initialized", "Cannot read secrets/kv.key: there is none; run `ops init`");
  if (key.length !== KEY_BYTES)
    throw new Failure(
      "failed",
      `Cannot read secrets/kv.key: it has ${key.length} bytes instead of ${KEY_BYTES}`,
    );
  return key;
}

/** Makes the key where there is none, readable by its owner only; never replaces one. */
export async function createKvKey(layout: Layout): Promise<void> {
  await createExclusive(layout.kvKey, randomBytes(KEY_BYTES));
}
