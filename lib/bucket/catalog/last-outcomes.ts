import type { Database } from "../base/database.ts";

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
