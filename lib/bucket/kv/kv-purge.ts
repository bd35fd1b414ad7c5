import type { Database } from "../base/database.ts";

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
