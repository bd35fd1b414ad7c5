import type { Database, Row } from "../base/database.ts";
import { IS_FOUND } from "../kv/kv-access.ts";
import { bucketInfo } from "./info.ts";
import { type Listing, readPage } from "./pages.ts";
import { problemsOf } from "./problems.ts";
import { allocationsIn, countColumns, inStates } from "./states.ts";
import { catalogView } from "./views.ts";

/** The bytes of JSON that each list of a summary has at most, all together less than 64 KB, and the characters of a reason. */
const LIST_BYTES = 4 * 1024;
const TROUBLED_BYTES = 10 * 1024;
const PROBLEM_BYTES = 14 * 1024;
const REASON_LENGTH = 300;
/** More rows never fit. */
const MOST_ROWS = 200;

/** The first items of a list that may be long. */
interface Shortened<T = Row> {
  items: T[];
  total: number;
  /** How many of them are left out. */
  cut: number;
}

/** What the database tells of a bucket at a glance, at most about 40 KB of JSON at any size. */
export type BucketSummary = ReturnType<typeof bucketSummary>;

const TROUBLED: Listing = {
  columns: `a.job, a.worker_ip AS worker, a.alloc_id AS allocation_id, a.rollout, a.outcome, COALESCE(o.action, '') AS action,
    COALESCE(o.run_id, '') AS run_id, COALESCE(o.reason, '') AS reason`,
  from: "allocations a INDEXED BY allocations_by_state",
  joins: "a LEFT JOIN last_outcome o ON o.alloc_id = a.alloc_id",
  key: ["a.job", "a.position", "a.worker_ip"],
};

const ENDING: Listing = {
  columns: `job, worker_ip AS worker, name AS cert, strftime('%Y-%m-%dT%H:%M:%fZ', not_after, 'unixepoch') AS not_after,
    iif(not_after <= unixepoch(), 'expired', iif(expiring_from <= unixepoch(), 'expiring', 'ok')) AS status`,
  from: "job_certs",
  key: ["not_after", "job", "worker_ip", "name"],
};
const SOON = "expiring_from <= unixepoch()";

const TOTALS = "SELECT (SELECT COUNT(*) FROM job_certs) AS certs, (SELECT COUNT(*) FROM hooks) AS hooks";
const KV_VERSIONS = "SELECT COUNT(*) AS count FROM kv_version";
const KV_KEYS = `SELECT COUNT(*) AS count FROM (SELECT MAX(version) FROM kv_version GROUP BY namespace, key HAVING ${IS_FOUND})`;
/** How long a number of keys counts for a number of versions: a purge may take as many away as others have added. */
const KEYS_KNOWN_MS = 60_000;

/** Reads the summary of a bucket; `activeRun` is the id of the run that goes on. */
export function bucketSummary(db: Database, activeRun: string | null) {
  const { built_at, update_seq, workers, jobs } = bucketInfo(db);
  const found = db.get(`SELECT ${countColumns("1")}`) ?? {};
  const counts: Row = { allocations: allocationsIn(found), ...found };
  const troubled = (condition: string, total: unknown) =>
    shortened(db, { ...TROUBLED, conditions: [condition, "a.removed = 0"] }, Number(total), TROUBLED_BYTES);
  const ending = db.get(`SELECT COUNT(*) AS total FROM job_certs WHERE ${SOON}`);
  const problems = problemsOf(db, activeRun);
  return {
    built_at,
    update_seq,
    workers,
    jobs,
    /** Without removed allocations: all of them, those in each state, and those with trouble. */
    counts,
    problems: fitting(problems, problems.length, PROBLEM_BYTES),
    /** By the last action: failed, or their worker was unreachable. */
    failed: troubled(inStates(undefined, ["failed", "unreachable"]), Number(found.failed) + Number(found.unreachable)),
    /** A rollout began there and did not come to its end. */
    unsettled: troubled(inStates(["unsettled"]), found.unsettled),
    /** Certificates that have ended or are near their end. */
    certs: shortened(db, { ...ENDING, conditions: [SOON] }, Number(ending?.total)),
    /** The certificate that ends first. */
    next_cert: withoutKeys(readPage(db, ENDING, { limit: 1 }).rows)[0] ?? null,
    /** How much there is to list. */
    totals: { jobs, workers, ...db.get(TOTALS), kv: keysIn(db) } as Row,
  };
}

/** A certificate near its end; the CA has no job. */
export interface EndingCert {
  job: string;
  worker: string;
  cert: string;
  /** Milliseconds since 1970. */
  ends: number;
}

/** The certificates that end by a time, the first to end first, at most 1,000. */
export function certificatesEndingBy(db: Database, time: number): EndingCert[] {
  const sql = `SELECT job, worker_ip AS worker, name AS cert, not_after * 1000 AS ends FROM job_certs
    WHERE not_after <= ? ORDER BY not_after, job, worker_ip, name LIMIT 1000`;
  return db.all(sql, time / 1_000) as unknown as EndingCert[];
}

/** The allocations of a bucket by state and by trouble, and its certificates. */
export function bucketNumbers(db: Database) {
  const { failed, unreachable, waiting: _, ...states } = (db.get(`SELECT ${countColumns("1")}`) ?? {}) as Record<string, number>;
  const certs = catalogView(db, "certs", {}, { limit: Number.MAX_SAFE_INTEGER }).items.map((row) => ({
    scope: String(row.scope),
    job: String(row.job),
    worker: String(row.worker),
    cert: String(row.cert),
    common_name: String(row.common_name),
    status: String(row.status),
    not_after: String(row.not_after),
  }));
  return { states, outcomes: { failed: failed ?? 0, unreachable: unreachable ?? 0 }, certs };
}

const knownKeys = new WeakMap<Database, { versions: number; keys: number; sinceMs: number }>();

/** The keys of the KV store: with 100,000 of them, to count them takes longer than all the rest of a summary. */
function keysIn(db: Database): number {
  const countOf = (sql: string) => Number(db.get(sql)?.count);
  const versions = countOf(KV_VERSIONS);
  const known = knownKeys.get(db);
  if (known?.versions === versions && performance.now() - known.sinceMs < KEYS_KNOWN_MS) return known.keys;
  const keys = countOf(KV_KEYS);
  knownKeys.set(db, { versions, keys, sinceMs: performance.now() });
  return keys;
}

function shortened(db: Database, listing: Listing, total: number, bytes = LIST_BYTES): Shortened {
  const rows = withoutKeys(readPage(db, listing, { limit: MOST_ROWS }).rows);
  for (const row of rows) {
    const reason = String(row.reason ?? "");
    if (reason.length > REASON_LENGTH) row.reason = `${reason.slice(0, REASON_LENGTH)}…`.toWellFormed();
  }
  return fitting(rows, total, bytes);
}

function withoutKeys(rows: readonly Row[]): Row[] {
  return rows.map((row) => Object.fromEntries(Object.entries(row).filter(([name]) => !/^key\d$/.test(name))));
}

/** The first items that fit into so many bytes of JSON. */
export function fitting<T>(all: readonly T[], total: number, bytes = LIST_BYTES): Shortened<T> {
  let left = bytes;
  const items: T[] = [];
  for (const item of all) {
    left -= Buffer.byteLength(JSON.stringify(item));
    if (left < 0) break;
    items.push(item);
  }
  return { items, total, cut: total - items.length };
}
