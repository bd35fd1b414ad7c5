import type { Database, Row } from "../base/database.ts";
import { bucketInfo } from "./info.ts";
import { type Listing, readPage } from "./pages.ts";
import { allocationsIn, countColumns, inStates } from "./states.ts";

/** The bytes of JSON that each list of a summary has at most, and the characters of a reason. */
const LIST_BYTES = 16 * 1024;
const REASON_LENGTH = 300;
/** More rows never fit. */
const MOST_ROWS = 200;

/** The first rows of a list that may be long. */
interface Shortened {
  items: Row[];
  total: number;
  /** How many of them are left out. */
  cut: number;
}

/** A bucket at a glance, at most about 50 KB of JSON at any size. */
export interface BucketSummary {
  built_at: string | null;
  update_seq: number;
  workers: number;
  jobs: number;
  /** Without removed allocations: all of them, those in each state, and those with trouble. */
  counts: Row;
  /** By the last action: failed, or their worker was unreachable. */
  failed: Shortened;
  /** A rollout began there and did not come to its end. */
  unsettled: Shortened;
  /** Certificates that have ended or are near their end. */
  certs: Shortened;
}

const TROUBLED: Listing = {
  columns: `a.job, a.worker_ip AS worker, a.alloc_id AS allocation_id, a.rollout, a.outcome, COALESCE(o.action, '') AS action,
    COALESCE(o.run_id, '') AS run_id, COALESCE(o.reason, '') AS reason`,
  from: "allocations a INDEXED BY allocations_by_state",
  joins: "a LEFT JOIN last_outcome o ON o.alloc_id = a.alloc_id",
  key: ["a.job", "a.position", "a.worker_ip"],
};

const ENDING: Listing = {
  columns: `job, worker_ip AS worker, name AS cert, strftime('%Y-%m-%dT%H:%M:%SZ', not_after, 'unixepoch') AS not_after,
    iif(not_after <= unixepoch(), 'expired', 'expiring') AS status`,
  from: "job_certs",
  key: ["not_after", "job", "worker_ip", "name"],
  conditions: ["expiring_from <= unixepoch()"],
};

/** Reads the summary of a bucket. */
export function bucketSummary(db: Database): BucketSummary {
  const { built_at, update_seq, workers, jobs } = bucketInfo(db);
  const found = db.get(`SELECT ${countColumns("1")}`) ?? {};
  const counts = { allocations: allocationsIn(found), ...found };
  const troubled = (condition: string, total: unknown) =>
    shortened(db, { ...TROUBLED, conditions: [condition, "a.removed = 0"] }, Number(total));
  const ending = db.get("SELECT COUNT(*) AS total FROM job_certs WHERE expiring_from <= unixepoch()");
  return {
    built_at,
    update_seq,
    workers,
    jobs,
    counts,
    failed: troubled(inStates(undefined, ["failed", "unreachable"]), Number(found.failed) + Number(found.unreachable)),
    unsettled: troubled(inStates(["unsettled"]), found.unsettled),
    certs: shortened(db, ENDING, Number(ending?.total)),
  };
}

function shortened(db: Database, listing: Listing, total: number): Shortened {
  const { rows } = readPage(db, listing, { limit: MOST_ROWS });
  const items: Row[] = [];
  let bytes = 0;
  for (const row of rows) {
    const item = Object.fromEntries(Object.entries(row).filter(([name]) => !/^key\d$/.test(name)));
    const reason = String(item.reason ?? "");
    if (reason.length > REASON_LENGTH) item.reason = `${reason.slice(0, REASON_LENGTH)}…`.toWellFormed();
    bytes += Buffer.byteLength(JSON.stringify(item));
    if (bytes > LIST_BYTES) break;
    items.push(item);
  }
  return { items, total, cut: total - items.length };
}
