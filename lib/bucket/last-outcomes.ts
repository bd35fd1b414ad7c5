import type { Database } from "./database.ts";

/**
 * How the last thing that was done to an allocation went. `unknown`: it has begun, and its end is not noted: it is at work,
 * or its run was killed. `changed`: done, by a deploy; `ok`: done by job control, or found healthy.
 */
export const LAST_OUTCOMES = ["unknown", "changed", "ok", "failed", "unreachable", "cancelled"] as const;

/** The last thing that was done to an allocation. */
export interface LastOutcome {
  /** `sync`, a target, `promote`, `gate`, `restore`, `remove` or `gc`. */
  action: string;
  outcome: (typeof LAST_OUTCOMES)[number];
  /** Why it went so; empty where there is nothing to say. */
  reason: string;
}

/** Notes what a run has done to an allocation, in the place of what was noted before. */
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

/** Forgets an allocation. */
export function forgetLastOutcome(db: Database, allocationId: string): void {
  db.run("DELETE FROM last_outcome WHERE alloc_id = ?", allocationId);
}

/** How many allocations there are, removed ones aside, where the last thing that was done went wrong. */
export function countFailed(db: Database): number {
  const row = db.get<{ count: number }>(
    `SELECT COUNT(*) AS count FROM allocations JOIN last_outcome USING (alloc_id)
     WHERE removed = 0 AND outcome IN ('failed', 'unreachable')`,
  );
  return row?.count ?? 0;
}
