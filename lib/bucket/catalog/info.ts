import { type Database, SCHEMA_VERSION } from "../base/database.ts";

/** What a bucket is and how much is in it. */
interface BucketInfo {
  bucket_id: string;
  schema_version: number;
  /** Rises with each wave of a deploy that had work. */
  update_seq: number;
  /** When the last build stored the catalog; null before the first. */
  built_at: string | null;
  workers: number;
  jobs: number;
  /** Without removed allocations. */
  allocations: number;
}

/** Reads the numbers of a bucket. */
export function bucketInfo(db: Database): BucketInfo {
  const info = db.get<BucketInfo>(
    `SELECT bucket_id, update_seq, built_at,
      (SELECT COUNT(*) FROM worker WHERE removed = 0) AS workers, (SELECT COUNT(*) FROM job) AS jobs,
      (SELECT COUNT(*) FROM allocations WHERE removed = 0) AS allocations, ${SCHEMA_VERSION} AS schema_version
      FROM bucket`,
  );
  return { ...(info as BucketInfo) };
}

const ALL_NAMES = `
  SELECT bucket_id AS name FROM bucket
  UNION SELECT worker_ip FROM worker UNION SELECT worker_id FROM worker UNION SELECT hostname FROM worker
  UNION SELECT root FROM worker UNION SELECT ssh_user FROM worker UNION SELECT ssh_jump FROM worker
  UNION SELECT label FROM worker_labels UNION SELECT key FROM worker_tags
  UNION SELECT name FROM job UNION SELECT job_id FROM job UNION SELECT version FROM job
  UNION SELECT name FROM job_ports UNION SELECT name FROM job_certs UNION SELECT common_name FROM job_certs
  UNION SELECT path FROM job_files UNION SELECT name FROM hooks
  UNION SELECT alloc_id FROM allocations UNION SELECT new_version FROM allocations
  UNION SELECT current_version FROM hash
  UNION SELECT namespace FROM kv_version UNION SELECT key FROM kv_version`;

/** All names in a bucket: those of workers, labels, jobs, versions, ports, files, hooks, allocations and keys. */
export function bucketNames(db: Database): string[] {
  return db.all<{ name: string | null }>(ALL_NAMES).flatMap(({ name }) => name || []);
}

/** The facts of a worker. */
interface KnownFacts {
  worker: string;
  /** RFC 3339. */
  taken_at: string;
  facts: unknown;
}

/** Stores the facts of a worker, in the place of older ones. */
export function storeFacts(db: Database, worker: string, facts: unknown): void {
  db.run(
    "INSERT OR REPLACE INTO worker_facts (worker_ip, taken_at, facts) VALUES (?, ?, ?)",
    ...[worker, new Date().toISOString(), JSON.stringify(facts)],
  );
}

/** The facts of the workers, in the order of the catalog. Workers without facts are left out. */
export function knownFacts(db: Database): KnownFacts[] {
  const rows = db.all<{ worker: string; taken_at: string; facts: string }>(
    `SELECT worker_ip AS worker, taken_at, facts FROM worker_facts JOIN worker USING (worker_ip)
     ORDER BY position, worker_ip`,
  );
  return rows.map((row) => ({ ...row, facts: JSON.parse(row.facts) as unknown }));
}

/**
 * The outcome of the last action on an allocation. `unknown`: the action began and no end is recorded, because it goes
 * on or its run was killed. `changed`: a deploy did it. `ok`: job control did it, or the gate found the allocation
 * healthy.
 */
export const LAST_OUTCOMES = ["unknown", "changed", "ok", "failed", "unreachable", "cancelled"] as const;

/** The last action on an allocation, and its outcome. */
export interface LastOutcome {
  /** `sync`, a target, `promote`, `gate`, `restore`, `remove` or `gc`. */
  action: string;
  outcome: (typeof LAST_OUTCOMES)[number];
  /** Why the outcome is what it is; may be empty. */
  reason: string;
}

/** Records the action of a run on an allocation, and replaces the previous record. */
export function setLastOutcome(
  db: Database,
  allocationId: string,
  runId: string,
  { action, outcome, reason }: LastOutcome,
): void {
  db.run(
    "INSERT OR REPLACE INTO last_outcome (alloc_id, action, outcome, run_id, reason) VALUES (?, ?, ?, ?, ?)",
    ...[allocationId, action, outcome, runId, reason],
  );
}

/** Removes the record of an allocation. */
export function forgetLastOutcome(db: Database, allocationId: string): void {
  db.run("DELETE FROM last_outcome WHERE alloc_id = ?", allocationId);
}

/** Counts the allocations, without removed ones, whose last action failed or found the worker unreachable. */
export function countFailed(db: Database): number {
  const row = db.get<{ count: number }>(
    `SELECT COUNT(*) AS count FROM allocations JOIN last_outcome USING (alloc_id)
     WHERE removed = 0 AND outcome IN ('failed', 'unreachable')`,
  );
  return row?.count ?? 0;
}
