import type { Database } from "../base/database.ts";

/**
 * The other hosts of a list, as a value of the store: read as the list without that host. A list is stored once for all
 * the hosts in it, because the peers of each of n workers, written out, would be n² hosts.
 */
interface Peers {
  /** Separated by commas. */
  hosts: string;
  without: string;
}

/** What is written to the store. */
export type KvValue = string | Peers;

/** What is read of a value. */
export function textOfValue(value: KvValue): string {
  if (typeof value === "string") return value;
  return `,${value.hosts},`.replace(`,${value.without},`, ",").slice(1, -1);
}

/** True for lists that are the same, without a look at their text. */
export function isSameList(a: KvValue, b: KvValue): boolean {
  if (typeof a === "string" || typeof b === "string") return false;
  return a.hosts === b.hosts && a.without === b.without;
}

/** A stored version of a key; the value of a secret is sealed. */
export interface StoredEntry {
  version: number;
  value: KvValue;
  /** Seconds; 0 = none. */
  ttl: number;
  /** Milliseconds since 1970; exact for what this process wrote, whole seconds for what it read. */
  createdMs: number;
  deleted: boolean;
}

type Newest = [
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
const INSERT = `INSERT INTO kv_version (namespace, key, version, value, list, ttl, created_date, deleted)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?)`;

/** The versions in the database. Lists of hosts that were read are remembered, until they are forgotten. */
export class KvRows {
  readonly #db: Database;
  /** By id: all values with the same list share one text of it. */
  readonly #lists = new Map<number, string>();

  constructor(db: Database) {
    this.#db = db;
  }

  /** The newest version of each key for which a condition holds, namespace by namespace; of 100,000 none is kept here. */
  *newest(where: string, ...values: string[]): Generator<[namespace: string, key: string, entry: StoredEntry]> {
    const query = `${NEWEST} WHERE ${where} GROUP BY namespace, key`;
    for (const row of this.#db.tuples<Newest>(query, ...values)) {
      const [namespace, key, version, value, list, ttl, createdDate, deleted] = row;
      const read = list === null ? value : { hosts: this.#hostsOf(list), without: value };
      yield [namespace, key, { version, value: read, ttl, createdMs: createdDate * 1000, deleted: deleted === 1 }];
    }
  }

  /** The namespaces of the rows for which a condition holds. */
  namespaces(where: string): string[] {
    const sql = `SELECT DISTINCT namespace FROM kv_version WHERE ${where}`;
    return this.#db.all<{ namespace: string }>(sql).map(({ namespace }) => namespace);
  }

  /** Adds a version. `ids` remembers the ids of lists, for as long as they are sure to be stored. */
  insert(namespace: string, key: string, entry: StoredEntry, ids: Map<string, number>): void {
    const { version, value, ttl, createdMs, deleted } = entry;
    const [text, list] = typeof value === "string" ? [value, null] : [value.without, this.#idOf(value.hosts, ids)];
    this.#db.run(INSERT, namespace, key, version, text, list, ttl, Math.floor(createdMs / 1000), deleted ? 1 : 0);
  }

  /** Forgets the lists that were read. */
  forget(): void {
    this.#lists.clear();
  }

  #hostsOf(list: number): string {
    const sql = "SELECT hosts FROM host_list WHERE id = ?";
    const hosts = this.#lists.get(list) ?? this.#db.get<{ hosts: string }>(sql, list)?.hosts ?? "";
    this.#lists.set(list, hosts);
    return hosts;
  }

  /** The id of a list, which is stored where it is new. */
  #idOf(hosts: string, ids: Map<string, number>): number {
    const known = ids.get(hosts);
    if (known !== undefined) return known;
    this.#db.run("INSERT OR IGNORE INTO host_list (hosts) VALUES (?)", hosts);
    const id = this.#db.get<{ id: number }>("SELECT id FROM host_list WHERE hosts = ?", hosts)?.id ?? 0;
    ids.set(hosts, id);
    return id;
  }
}

/** How many older versions of a key a purge leaves, however old they are. */
const VERSIONS_KEPT = 7;

/**
 * Removes rows that nothing needs any more and answers how many there were: a key that is deleted, with all its
 * versions, once its tombstone was written at `limit` (seconds since 1970) or before; and superseded versions from then,
 * except the last seven before the newest. The age of each row counts, so a key that changes often is purged too. A key
 * that was purged starts at version 1 again.
 */
export function purgeVersions(db: Database, limit: number): number {
  const purged = db.run(
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
  if (purged > 0) db.run("DELETE FROM host_list WHERE id NOT IN (SELECT list FROM kv_version WHERE list IS NOT NULL)");
  return purged;
}
