import { createHash, hash } from "node:crypto";
import { isUuid } from "../../codec/uuid.ts";
import { Failure, hasErrno } from "../../core/errors.ts";
import { readRegularSync } from "../../core/files.ts";
import { firstOf } from "../../core/plain-text.ts";
import type { Database } from "../base/database.ts";
import { type Layout, runLayout } from "../base/layout.ts";
import { catalogAllocations } from "./catalog.ts";
import { type Listing, type PageOf, readPage } from "./pages.ts";
import { promotionsOf } from "./promotions.ts";
import { inStates, type LAST_OUTCOMES } from "./states.ts";

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
      (SELECT COUNT(*) FROM allocations WHERE removed = 0) AS allocations,
      (SELECT version FROM schema_version) AS schema_version FROM bucket`,
  );
  return { ...(info as BucketInfo) };
}

// Each column for itself: to look for duplicates over all columns takes twice the time.
const ALL_NAMES = `
  SELECT bucket_id AS name FROM bucket UNION ALL SELECT DISTINCT worker_ip FROM worker
  UNION ALL SELECT DISTINCT worker_id FROM worker UNION ALL SELECT DISTINCT hostname FROM worker
  UNION ALL SELECT DISTINCT root FROM worker UNION ALL SELECT DISTINCT ssh_user FROM worker
  UNION ALL SELECT DISTINCT ssh_jump FROM worker UNION ALL SELECT DISTINCT label FROM worker_labels
  UNION ALL SELECT DISTINCT key FROM worker_tags UNION ALL SELECT DISTINCT name FROM job
  UNION ALL SELECT DISTINCT job_id FROM job UNION ALL SELECT DISTINCT version FROM job
  UNION ALL SELECT DISTINCT name FROM job_ports UNION ALL SELECT DISTINCT name FROM job_certs
  UNION ALL SELECT DISTINCT common_name FROM job_certs UNION ALL SELECT DISTINCT path FROM job_files
  UNION ALL SELECT DISTINCT name FROM hooks UNION ALL SELECT DISTINCT alloc_id FROM allocations
  UNION ALL SELECT DISTINCT new_version FROM allocations UNION ALL SELECT DISTINCT current_version FROM hash
  UNION ALL SELECT DISTINCT namespace FROM kv_version UNION ALL SELECT DISTINCT key FROM kv_version`;

/** All names in a bucket, some twice: of workers, labels, jobs, versions, ports, files, hooks, allocations and keys. */
export function bucketNames(db: Database): string[] {
  return db.tuples<[name: string | null]>(ALL_NAMES).flatMap(([name]) => name || []);
}

const FACTS: Listing = {
  columns: "w.worker_ip AS worker, taken_at, facts",
  from: "worker w JOIN worker_facts USING (worker_ip)",
  key: ["w.position", "w.worker_ip"],
};

/** Stores the facts of a worker, in the place of older ones. */
export function storeFacts(db: Database, worker: string, facts: unknown): void {
  const sql = "INSERT OR REPLACE INTO worker_facts (worker_ip, taken_at, facts) VALUES (?, ?, ?)";
  db.run(sql, worker, new Date().toISOString(), JSON.stringify(facts));
}

/** A page of the facts of the workers, in the order of the catalog. Workers without facts are left out. */
export function knownFacts(db: Database, page: PageOf) {
  const { rows, next } = readPage(db, FACTS, page);
  const items = rows.map(({ worker, taken_at, facts }) => {
    return { worker: String(worker), taken_at: String(taken_at), facts: JSON.parse(String(facts)) as unknown };
  });
  return { items, next };
}

/** The last action on an allocation, and its outcome. */
export interface LastOutcome {
  /** `sync`, a target, `promote`, `gate`, `restore`, `remove` or `gc`. */
  action: string;
  outcome: (typeof LAST_OUTCOMES)[number];
  /** Why the outcome is what it is; may be empty. */
  reason: string;
}

/** Records the action of a run on an allocation, and replaces the previous record. */
export function setLastOutcome(db: Database, allocationId: string, runId: string, lastOutcome: LastOutcome): void {
  const { action, outcome, reason } = lastOutcome;
  const sql = "INSERT OR REPLACE INTO last_outcome (alloc_id, action, outcome, run_id, reason) VALUES (?, ?, ?, ?, ?)";
  db.run(sql, allocationId, action, outcome, runId, reason);
}

/** Counts the allocations, without removed ones, whose last action failed or found the worker unreachable. */
export function countFailed(db: Database): number {
  const failed = inStates(undefined, ["failed", "unreachable"]);
  const sql = `SELECT COUNT(*) AS count FROM allocations a INDEXED BY allocations_by_state WHERE ${failed} AND a.removed = 0`;
  return db.get<{ count: number }>(sql)?.count ?? 0;
}

const MOST_PLACES = 10;

/** What a plan was made from: while it is the same, a deploy does what the plan says. */
type PlanBasis = ReturnType<typeof planBasis>;

/** What a plan made now would be made from. */
export function planBasis(db: Database) {
  /** The number of the build that made the catalog, and the number that each deploy with work raises. */
  const bucket = db.get<Record<"build_seq" | "update_seq", number>>("SELECT build_seq, update_seq FROM bucket");
  /** A digest of the newest version of every key in the KV store. */
  const keys = createHash("sha256");
  for (const row of db.all("SELECT namespace, key, MAX(version) FROM kv_version GROUP BY namespace, key"))
    keys.update(`${JSON.stringify(Object.values(row))}\n`);
  /** `<job>@<worker>` to a digest of what was promoted there and how that went. */
  const promoted: Record<string, string> = {};
  for (const [job, own] of Map.groupBy(catalogAllocations(db), (one) => one.job)) {
    const promotionOf = promotionsOf(db, job);
    for (const { id, worker } of own) {
      const promotion = JSON.stringify({ id, ...promotionOf(id), files: null, before: null });
      promoted[`${job}@${worker}`] = hash("sha256", promotion).slice(0, 32);
    }
  }
  return { build_seq: 0, update_seq: 0, ...bucket, kv: keys.digest("hex"), promoted };
}

/**
 * The plan that a dry run left, as it was written. Throws `run_not_found` where the run left none, `plan_stale` with
 * what moved since (decisions: Rulings, a plan binds).
 */
export function validPlan(layout: Layout, db: Database, runId: string): { basis: PlanBasis } {
  const plan = readPlan(layout, runId);
  const moved = movedSince(plan.basis, planBasis(db));
  if (moved.length === 0) return plan;
  const message = `the plan of run ${runId} does not hold any more: ${moved.join("; ")}; plan again with a dry run`;
  throw new Failure("plan_stale", message, { details: { moved } });
}

function readPlan(layout: Layout, runId: string): { basis: PlanBasis } {
  try {
    if (isUuid(runId)) return JSON.parse(readRegularSync(runLayout(layout, runId).plan));
  } catch (error) {
    if (!hasErrno(error, "ENOENT", "ENOTDIR")) throw error;
  }
  throw new Failure("run_not_found", `run ${runId} left no plan: name a dry run of deploy in this bucket`);
}

function movedSince(before: PlanBasis, now: PlanBasis): string[] {
  const places = Object.keys({ ...before.promoted, ...now.promoted });
  const others = places.filter((place) => before.promoted[place] !== now.promoted[place]).sort();
  return [
    before.build_seq === now.build_seq ? [] : "the bucket was built again",
    before.update_seq === now.update_seq ? [] : "another deploy had work to do",
    before.kv === now.kv ? [] : "keys were written",
    others.length === 0 ? [] : `what is promoted has changed on ${firstOf(others, MOST_PLACES)}`,
  ].flat();
}
