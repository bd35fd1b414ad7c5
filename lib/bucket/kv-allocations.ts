import type { Database } from "./database.ts";
import { allocationsRange } from "./kv-access.ts";
import type { KvValue } from "./kv-value.ts";

/** A key of an allocation's namespace with its value. */
export type AllocationEntry = readonly [namespace: string, key: string, value: KvValue];

// SQLite takes the other columns from the row with the greatest version.
const LIVING = `SELECT namespace, key, value, list, ttl FROM (
  SELECT namespace, key, MAX(version), value, list, ttl, deleted FROM kv_version
  WHERE namespace >= ?1 AND namespace < ?2 GROUP BY namespace, key) WHERE deleted = 0`;

const AS_TEXT = `SELECT count(DISTINCT namespace) AS namespaces,
  json_group_array(json_array(namespace, key, value, list))
    FILTER (WHERE ttl = 0 AND key IN (SELECT value FROM json_each(?3))) AS entries FROM (${LIVING})`;

/**
 * Whether the database has exactly these entries in the namespaces of a job's allocations, no such key besides them, and
 * nothing at all for other allocations of the job; keys of other names may be there. A build asks so about tens of
 * thousands of rows, which do not become objects here: the database answers with one text, as {@link textOf} has it.
 * That is exact where the answer is yes; in doubt it is no.
 */
export function holdsAllocations(db: Database, job: string, entries: readonly AllocationEntry[]): boolean {
  const keys = JSON.stringify([...new Set(entries.map(([, key]) => key))]);
  const stored = db.get<{ namespaces: number; entries: string }>(AS_TEXT, ...allocationsRange(job), keys);
  const namespaces = new Set(entries.map(([namespace]) => namespace));
  return stored?.namespaces === namespaces.size && stored.entries === textOf(db, entries);
}

/** What {@link AS_TEXT} answers where these are stored. A list that is not stored stands in it as 0, which is no id. */
function textOf(db: Database, entries: readonly AllocationEntry[]): string {
  const ids = new Map<string, number>();
  const idOf = (hosts: string) => {
    const found = () => db.get<{ id: number }>("SELECT id FROM host_list WHERE hosts = ?", hosts)?.id ?? 0;
    const id = ids.get(hosts) ?? found();
    ids.set(hosts, id);
    return id;
  };
  const sorted = entries.toSorted(([a, x], [b, y]) => (a < b || (a === b && x < y) ? -1 : 1));
  return JSON.stringify(
    sorted.map(([namespace, key, value]) => {
      const kept = typeof value === "string" ? [value, null] : [value.without, idOf(value.hosts)];
      return [namespace, key, ...kept];
    }),
  );
}
