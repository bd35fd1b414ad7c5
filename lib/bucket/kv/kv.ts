import { type SealKey, seal, sealPieces, unseal, unsealPieces } from "../../codec/crypto/seal.ts";
import type { Database } from "../base/database.ts";
import { allocationsRange, isOfJob, isSealed, isSecretNamespace, jobOfAllocation, tryUnseal } from "./kv-access.ts";
import { isSameList, KvRows, type KvValue, purgeVersions, type StoredEntry, textOfValue } from "./kv-rows.ts";

const DAY_SECONDS = 86_400;

/** A write that is not stored yet; without a value a delete. */
interface PendingEntry {
  value: KvValue | undefined;
  ttl: number;
  createdMs: number;
}

/**
 * The key-value store of a bucket (hook-runtime.md, KV namespaces). Writes are visible to reads of the same store at
 * once and stored by `flush`, which adds at most one row for a key: a new version when value or ttl differ from the
 * stored ones or a ttl starts anew, a tombstone for a delete. Versions start at 1 and only rise; deleting what is not
 * there changes nothing. Values are kept as given, those under `secrets/` and private keys sealed. A value with a ttl
 * (seconds, 0 = none) is not found once that has passed; a build makes it a tombstone. One process at a time may write.
 */
export class KvStore {
  readonly #db: Database;
  readonly #rows: KvRows;
  readonly #key: SealKey;
  readonly #now: () => number;
  /** What was read and what is not stored yet, by namespace and key. */
  readonly #stored = new Map<string, Map<string, StoredEntry>>();
  readonly #pending = new Map<string, Map<string, PendingEntry>>();
  /** Jobs whose allocations' namespaces were all read; "" stands for all other namespaces. */
  readonly #complete = new Set<string>();

  /** `now` answers milliseconds since 1970. */
  constructor(db: Database, key: SealKey, now: () => number = Date.now) {
    this.#db = db;
    this.#rows = new KvRows(db);
    this.#key = key;
    this.#now = now;
  }

  /** The value of a key, or undefined when it is missing, deleted or expired. Throws when a secret cannot be opened. */
  get(namespace: string, key: string): string | undefined {
    const written = this.#pending.get(namespace)?.get(key);
    if (written) return written.value === undefined || this.#expired(written) ? undefined : textOfValue(written.value);
    const entry = this.#load(namespace).get(key);
    return entry && this.#alive(entry) ? this.#open(namespace, key, entry.value) : undefined;
  }

  /** True for a key that `get` would find, and whose value can be opened. */
  has(namespace: string, key: string): boolean {
    try {
      return this.get(namespace, key) !== undefined;
    } catch {
      return false;
    }
  }

  /** The stored version, ttl (seconds) and time of a key that `get` would find. */
  entry(namespace: string, key: string): { version: number; ttl: number; createdMs: number } | undefined {
    const entry = this.#load(namespace).get(key);
    return entry && this.#alive(entry) ? entry : undefined;
  }

  /** Writes a value. A ttl (seconds) starts anew, even with the same value. */
  put(namespace: string, key: string, value: KvValue, ttlSeconds = 0): void {
    if (ttlSeconds === 0 && this.#holds(namespace, key, value)) this.#pending.get(namespace)?.delete(key);
    else this.#write(namespace, key, { value, ttl: ttlSeconds, createdMs: this.#now() });
  }

  /** Deletes a key; deleting what is not there changes nothing. */
  delete(namespace: string, key: string): void {
    if (this.#load(namespace).get(key)?.deleted ?? true) this.#pending.get(namespace)?.delete(key);
    else this.#write(namespace, key, { value: undefined, ttl: 0, createdMs: this.#now() });
  }

  /** The keys that `get` would find, sorted. */
  keys(namespace: string): string[] {
    return [...this.#livingKeys(namespace)].sort();
  }

  /** All keys with their values, sorted by key. */
  entries(namespace: string): Map<string, string> {
    return new Map(this.keys(namespace).map((key) => [key, this.get(namespace, key) as string]));
  }

  /** Makes the namespace hold exactly these entries, without ttl; keys that are not among them are deleted. */
  sync(namespace: string, entries: ReadonlyMap<string, KvValue>): void {
    const written = this.#pending.get(namespace)?.keys() ?? [];
    for (const key of [...this.#load(namespace).keys(), ...written]) if (!entries.has(key)) this.delete(namespace, key);
    for (const [key, value] of entries) this.put(namespace, key, value);
  }

  /** The namespaces with a key, stored or pending, sorted. Those of allocations, which are many, are left out. */
  namespaces(): string[] {
    this.loadAll();
    const names = new Set([...this.#stored.keys(), ...this.#pending.keys()]);
    const isShown = (name: string) => jobOfAllocation(name) === undefined;
    return [...names].filter((name) => isShown(name) && !this.#livingKeys(name).next().done).sort();
  }

  /** Reads all namespaces but those of allocations in one query, for a caller that needs most of them. */
  loadAll(): void {
    if (!this.#complete.has("")) this.#read("", "namespace NOT GLOB 'ops/job/*/worker/*'");
  }

  /** Reads the namespaces of a job's allocations in one query and answers which are stored. */
  loadAllocations(job: string): Set<string> {
    return this.#read(job, "namespace >= ? AND namespace < ?", ...allocationsRange(job));
  }

  /** Reads namespaces, which are then `complete`; those that were read before stay as they are. */
  #read(complete: string, where: string, ...values: string[]): Set<string> {
    this.#complete.add(complete);
    const names = new Set<string>();
    let stored: Map<string, StoredEntry> | undefined;
    for (const [name, key, entry] of this.#rows.newest(where, ...values)) {
      if (!names.has(name)) stored = this.#stored.has(name) ? undefined : this.#load(name);
      names.add(name);
      stored?.set(key, entry);
    }
    return names;
  }

  /**
   * Stores pending writes as one, in the transaction that is open or in one of its own: all, or those in the namespaces
   * of one job. When the open one is rolled back, `discard` has to follow.
   */
  flush(job?: string): void {
    const stored: (() => void)[] = [];
    const lists = new Map<string, number>();
    const namespaces = [...this.#pending].filter(([name]) => job === undefined || isOfJob(name, job));
    this.#db.script("SAVEPOINT kv");
    try {
      for (const [name, entries] of namespaces) {
        const before = this.#load(name);
        for (const [key, written] of entries) {
          const entry = this.#entryOf(name, key, written, (before.get(key)?.version ?? 0) + 1);
          this.#rows.insert(name, key, entry, lists);
          stored.push(() => before.set(key, entry));
        }
      }
      this.#db.script("RELEASE kv");
    } catch (error) {
      this.#db.script("ROLLBACK TO kv; RELEASE kv");
      throw error;
    }
    for (const apply of stored) apply();
    for (const [name] of namespaces) this.#pending.delete(name);
  }

  /**
   * Forgets pending writes, all of them or those in the namespaces of one job, and the values that were read there: a
   * transaction that was rolled back took its rows with it.
   */
  discard(job?: string): void {
    for (const map of [this.#pending, this.#stored])
      for (const name of map.keys()) if (job === undefined || isOfJob(name, job)) map.delete(name);
    this.#rows.forget();
    this.#complete.clear();
  }

  /**
   * All stored and pending secrets with their values in clear, expired secrets included, for the redactor. A secret that
   * cannot be opened (a wrong kv.key) is left out: nothing can print its value either.
   */
  secrets(): { namespace: string; key: string; value: string }[] {
    const names = this.#rows.namespaces("namespace >= 'secrets/' AND namespace < 'secrets0'");
    const all = new Set([...names, ...[...this.#pending.keys()].filter(isSecretNamespace)]);
    return [...all].flatMap((namespace) => {
      const found = [...this.#load(namespace)]
        .filter(([, entry]) => !entry.deleted)
        .map(([key, entry]) => ({ namespace, key, value: this.#tryOpen(namespace, key, entry.value) }));
      for (const [key, { value }] of this.#pending.get(namespace) ?? [])
        found.push({ namespace, key, value: value && textOfValue(value) });
      return found.flatMap(({ value, ...place }) => (value === undefined ? [] : { ...place, value }));
    });
  }

  /** Seals a text that is kept elsewhere with the key of the secrets. The text opens only under the same place and name. */
  seal(place: string, name: string, text: string): string {
    return seal(this.#key, place, name, text);
  }

  /** The text that {@link seal} sealed. Throws `failed` where it cannot be opened. */
  unseal(place: string, name: string, sealed: string): string {
    return unseal(this.#key, place, name, sealed);
  }

  /** Seals bytes that are kept elsewhere as {@link sealPieces} does. */
  sealPieces(place: string, name: string, bytes: Buffer): Iterable<Buffer> {
    return sealPieces(this.#key, place, name, bytes);
  }

  /** The `length` bytes that were sealed in these pieces. Throws `failed` where one of them cannot be opened. */
  unsealPieces(place: string, name: string, sealed: Iterable<Uint8Array>, length: number): Iterable<Buffer> {
    return unsealPieces(this.#key, [place, name], sealed, length);
  }

  /** Marks every key whose ttl has passed for deletion. */
  deleteExpired(): void {
    for (const namespace of this.#rows.namespaces("ttl > 0"))
      for (const [key, entry] of this.#load(namespace))
        if (!entry.deleted && this.#expired(entry) && !this.#pending.get(namespace)?.has(key)) this.delete(namespace, key);
  }

  /** Removes what {@link purgeVersions} finds older than so many days and answers how many rows went. */
  purge(days: number): number {
    const purged = purgeVersions(this.#db, Math.floor(this.#now() / 1000) - days * DAY_SECONDS);
    if (purged === 0) return 0;
    this.#stored.clear();
    this.#rows.forget();
    this.#complete.clear();
    return purged;
  }

  #load(name: string): Map<string, StoredEntry> {
    const known = this.#stored.get(name);
    if (known) return known;
    const stored = new Map<string, StoredEntry>();
    this.#stored.set(name, stored);
    if (this.#complete.has(jobOfAllocation(name) ?? "")) return stored;
    for (const [, key, entry] of this.#rows.newest("namespace = ?", name)) stored.set(key, entry);
    return stored;
  }

  #write(namespace: string, key: string, entry: PendingEntry): void {
    const pending = this.#pending.get(namespace);
    if (pending) pending.set(key, entry);
    else this.#pending.set(namespace, new Map([[key, entry]]));
  }

  /** True when a key is stored with this value and without ttl. A secret that cannot be opened is none. */
  #holds(namespace: string, key: string, value: KvValue): boolean {
    const entry = this.#load(namespace).get(key);
    if (!entry || entry.deleted || entry.ttl !== 0) return false;
    return isSameList(entry.value, value) || this.#tryOpen(namespace, key, entry.value) === textOfValue(value);
  }

  *#livingKeys(namespace: string): Generator<string> {
    const pending = this.#pending.get(namespace);
    for (const [key, entry] of this.#load(namespace)) if (!pending?.has(key) && this.#alive(entry)) yield key;
    for (const [key, entry] of pending ?? []) if (entry.value !== undefined && !this.#expired(entry)) yield key;
  }

  #alive(entry: StoredEntry): boolean {
    return !entry.deleted && !this.#expired(entry);
  }

  #expired(entry: { ttl: number; createdMs: number }): boolean {
    return entry.ttl > 0 && this.#now() >= entry.createdMs + entry.ttl * 1000;
  }

  #entryOf(namespace: string, key: string, { value, ttl, createdMs }: PendingEntry, version: number): StoredEntry {
    // The tombstone of a secret is sealed too: views tell secrets by their seal.
    const given = value ?? "";
    const kept = typeof given === "string" && isSealed(namespace, key) ? this.seal(namespace, key, given) : given;
    return { version, value: kept, ttl, createdMs, deleted: value === undefined };
  }

  #open(namespace: string, key: string, value: KvValue): string {
    if (typeof value === "string" && isSealed(namespace, key)) return unseal(this.#key, namespace, key, value);
    return textOfValue(value);
  }

  /** The text of a stored value; undefined for a secret that cannot be opened. */
  #tryOpen(namespace: string, key: string, value: KvValue): string | undefined {
    const isSecret = typeof value === "string" && isSealed(namespace, key);
    return isSecret ? tryUnseal(this.#key, namespace, key, value) : textOfValue(value);
  }
}
