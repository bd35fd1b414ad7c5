import { randomBytes } from "node:crypto";
import { seal, unseal } from "../codec/seal.ts";
import { Failure } from "../core/errors.ts";
import { createExclusive, readBounded } from "../core/files.ts";
import type { Database } from "./database.ts";
import { isSecretNamespace } from "./kv-access.ts";
import type { Layout } from "./layout.ts";

const KEY_BYTES = 32;
const DAY_SECONDS = 86_400;
/** How many older versions of a key a purge leaves, however old they are. */
const VERSIONS_KEPT = 7;

/** The newest stored version of a key; the value of a secret is sealed. */
interface StoredEntry {
  version: number;
  value: string;
  ttl: number;
  /** Milliseconds since 1970; exact for what this store wrote itself, whole seconds for what it read. */
  createdMs: number;
  deleted: boolean;
}

/** A write that is not stored yet; without a value it is a delete. */
interface PendingEntry {
  value: string | undefined;
  ttl: number;
  createdMs: number;
}

interface Namespace {
  stored: Map<string, StoredEntry>;
  pending: Map<string, PendingEntry>;
}

/**
 * The key-value store of a bucket (hook-runtime.md, KV namespaces). Writes are visible to reads of the same store at
 * once and stored by `flush`, which adds at most one row for a key: a new version when value or ttl differ from the
 * stored ones or a ttl starts anew, a tombstone for a delete. Versions start at 1 and only rise; deleting what is not
 * there changes nothing. Values are kept as given, those under `secrets/` sealed. A value with a ttl (seconds, 0 =
 * none) is not found once that has passed; a build makes it a tombstone. One process at a time may write.
 */
export class KvStore {
  readonly #db: Database;
  readonly #key: Buffer;
  readonly #now: () => number;
  readonly #namespaces = new Map<string, Namespace>();

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
    if (written) return this.#expired(written) ? undefined : written.value;
    const entry = stored.get(key);
    return entry && this.#alive(entry) ? this.#open(namespace, key, entry.value) : undefined;
  }

  put(namespace: string, key: string, value: string, ttlSeconds = 0): void {
    this.#load(namespace).pending.set(key, { value, ttl: ttlSeconds, createdMs: this.#now() });
  }

  delete(namespace: string, key: string): void {
    this.#load(namespace).pending.set(key, { value: undefined, ttl: 0, createdMs: this.#now() });
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
  sync(namespace: string, entries: ReadonlyMap<string, string>): void {
    const { stored, pending } = this.#load(namespace);
    for (const key of [...stored.keys(), ...pending.keys()])
      if (!entries.has(key)) this.delete(namespace, key);
    for (const [key, value] of entries) this.put(namespace, key, value);
  }

  /** The namespaces that hold a key, stored or pending, sorted. */
  namespaces(): string[] {
    const rows = this.#db.all<{ namespace: string }>(
      "SELECT DISTINCT namespace FROM (SELECT namespace, deleted, MAX(version) FROM key_value GROUP BY namespace, key) WHERE deleted = 0",
    );
    const names = new Set([...rows.map((row) => row.namespace), ...this.#namespaces.keys()]);
    return [...names].filter((name) => !this.#namespaces.has(name) || this.keys(name).length > 0).sort();
  }

  /**
   * Stores all pending writes as one, in the transaction that is open or in one of its own. When the open one is rolled
   * back, `discard` has to follow.
   */
  flush(): void {
    const stored: (() => void)[] = [];
    this.#db.script("SAVEPOINT kv");
    try {
      for (const [name, namespace] of this.#namespaces)
        for (const [key, written] of namespace.pending) {
          const before = namespace.stored.get(key);
          if (this.#isStored(name, key, written, before)) continue;
          const entry = this.#insert(name, key, written, (before?.version ?? 0) + 1);
          stored.push(() => namespace.stored.set(key, entry));
        }
      this.#db.script("RELEASE kv");
    } catch (error) {
      this.#db.script("ROLLBACK TO kv; RELEASE kv");
      throw error;
    }
    for (const apply of stored) apply();
    for (const { pending } of this.#namespaces.values()) pending.clear();
  }

  /** Forgets all pending writes, and what was read: a transaction that was rolled back took its rows with it. */
  discard(): void {
    this.#namespaces.clear();
  }

  /**
   * All stored and pending secret values in clear, expired ones included, for the redactor. What cannot be opened (a
   * wrong kv.key) is left out: nothing can print it either.
   */
  secrets(): string[] {
    const names = this.#db
      .all<{ namespace: string }>("SELECT DISTINCT namespace FROM key_value WHERE namespace LIKE 'secrets/%'")
      .map((row) => row.namespace);
    const all = new Set([...names, ...[...this.#namespaces.keys()].filter(isSecretNamespace)]);
    return [...all].flatMap((namespace) => {
      const { stored, pending } = this.#load(namespace);
      const kept = [...stored].filter(([, entry]) => !entry.deleted);
      const values = [
        ...kept.map(([key, entry]) => this.#tryOpen(namespace, key, entry.value)),
        ...[...pending.values()].map((entry) => entry.value),
      ];
      return values.filter((value) => value !== undefined);
    });
  }

  /** Marks every key whose ttl has passed for deletion. */
  deleteExpired(): void {
    const candidates = this.#db.all<{ namespace: string }>(
      "SELECT DISTINCT namespace FROM key_value WHERE ttl > 0",
    );
    for (const { namespace } of candidates)
      for (const [key, entry] of this.#load(namespace).stored)
        if (!entry.deleted && this.#expired(entry) && !this.#load(namespace).pending.has(key))
          this.delete(namespace, key);
  }

  /**
   * Removes rows that nothing needs any more from the database: a key that is deleted, with all its versions, once its
   * tombstone is `days` old; and superseded versions that are `days` old, except the last seven before the newest. The
   * age of each row counts, so a key that changes often is purged too. A key that was purged starts at version 1 again.
   */
  purge(days: number): void {
    const limit = Math.floor(this.#now() / 1000) - days * DAY_SECONDS;
    this.#db.run(
      `WITH newest AS (SELECT namespace, key, MAX(version) AS version, deleted, created_date FROM key_value GROUP BY namespace, key)
       DELETE FROM key_value WHERE (namespace, key, version) IN (
         SELECT old.namespace, old.key, old.version FROM key_value old JOIN newest USING (namespace, key)
         WHERE (newest.deleted = 1 AND newest.created_date <= ?1)
            OR (old.version < newest.version - ?2 AND old.created_date <= ?1))`,
      limit,
      VERSIONS_KEPT,
    );
    for (const [name, { pending }] of this.#namespaces) if (pending.size === 0) this.#namespaces.delete(name);
  }

  #load(name: string): Namespace {
    const known = this.#namespaces.get(name);
    if (known) return known;
    // SQLite takes the other columns from the row with the greatest version.
    const rows = this.#db.all<{
      key: string;
      version: number;
      value: string;
      ttl: number;
      created_date: number;
      deleted: number;
    }>(
      "SELECT key, MAX(version) AS version, value, ttl, created_date, deleted FROM key_value WHERE namespace = ? GROUP BY key",
      name,
    );
    const stored = rows.map(({ key, version, value, ttl, created_date, deleted }): [string, StoredEntry] => [
      key,
      { version, value, ttl, createdMs: created_date * 1000, deleted: deleted === 1 },
    ]);
    const namespace = { stored: new Map(stored), pending: new Map<string, PendingEntry>() };
    this.#namespaces.set(name, namespace);
    return namespace;
  }

  #insert(namespace: string, key: string, written: PendingEntry, version: number): StoredEntry {
    const deleted = written.value === undefined;
    const value = written.value === undefined ? "" : this.#close(namespace, key, written.value);
    this.#db.run(
      "INSERT INTO key_value (namespace, key, version, value, ttl, created_date, deleted) VALUES (?, ?, ?, ?, ?, ?, ?)",
      namespace,
      key,
      version,
      value,
      written.ttl,
      Math.floor(written.createdMs / 1000),
      deleted ? 1 : 0,
    );
    return { version, value, ttl: written.ttl, createdMs: written.createdMs, deleted };
  }

  /** True when storing the entry would change nothing. A secret that cannot be opened is replaced. */
  #isStored(namespace: string, key: string, written: PendingEntry, before: StoredEntry | undefined): boolean {
    if (written.value === undefined) return before === undefined || before.deleted;
    if (!before || before.deleted || before.ttl !== written.ttl || written.ttl > 0) return false;
    return this.#tryOpen(namespace, key, before.value) === written.value;
  }

  #alive(entry: StoredEntry): boolean {
    return !entry.deleted && !this.#expired(entry);
  }

  #expired(entry: { ttl: number; createdMs: number }): boolean {
    return entry.ttl > 0 && this.#now() >= entry.createdMs + entry.ttl * 1000;
  }

  #open(namespace: string, key: string, value: string): string {
    return isSecretNamespace(namespace) ? unseal(this.#key, namespace, key, value) : value;
  }

  #tryOpen(namespace: string, key: string, value: string): string | undefined {
    try {
      return this.#open(namespace, key, value);
    } catch {
      return undefined;
    }
  }

  #close(namespace: string, key: string, value: string): string {
    return isSecretNamespace(namespace) ? seal(this.#key, namespace, key, value) : value;
  }
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
