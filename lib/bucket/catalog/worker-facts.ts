import type { Database } from "../base/database.ts";

/** What a worker told of itself when it was last asked. */
interface KnownFacts {
  worker: string;
  /** RFC 3339. */
  taken_at: string;
  facts: unknown;
}

/** Stores what a worker told, in place of what it told before. */
export function storeFacts(db: Database, worker: string, facts: unknown): void {
  db.run(
    "INSERT OR REPLACE INTO worker_facts (worker_ip, taken_at, facts) VALUES (?, ?, ?)",
    ...[worker, new Date().toISOString(), JSON.stringify(facts)],
  );
}

/** What the workers of the catalog told, in its order; those that were never asked are left out. */
export function knownFacts(db: Database): KnownFacts[] {
  const rows = db.all<{ worker: string; taken_at: string; facts: string }>(
    `SELECT worker_ip AS worker, taken_at, facts FROM worker_facts JOIN worker USING (worker_ip)
     ORDER BY position, worker_ip`,
  );
  return rows.map((row) => ({ ...row, facts: JSON.parse(row.facts) as unknown }));
}
