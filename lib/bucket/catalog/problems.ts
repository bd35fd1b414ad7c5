import { reasonLine } from "../../core/trouble-lines.ts";
import type { Database } from "../base/database.ts";
import { FAILED_OUTCOMES, inStates, OTHER_OUTCOMES } from "./states.ts";

/** The names that a problem shows of its workers or jobs. */
const MOST_NAMES = 20;
/** The characters of a reason that are shown, and those that tell one cause from another. */
const SHOWN_REASON = 300;
const CAUSE_LENGTH = 200;
/** Ends a reason that was cut. */
const CUT = "…";
/** For how many problems the line that tells most is looked up. */
const MOST_TOLD = 50;

/** What is wrong, in the order in which it is shown. */
export const PROBLEM_KINDS = ["failed", "unreachable", "unsettled"] as const;
type ProblemKind = (typeof PROBLEM_KINDS)[number];

/** What is wrong with some allocations for one cause. */
export type Problem = ReturnType<typeof problemOf>;

type Troubled = [
  job: string,
  worker: string,
  position: number,
  outcome: string,
  since: string,
  action: string,
  run: string,
  reason: string,
];

const troubledIn = (condition: string) => `SELECT a.job, a.worker_ip, a.position, a.outcome, a.troubled_since,
  COALESCE(o.action, ''), COALESCE(o.run_id, ''), COALESCE(substr(o.reason, 1, ${SHOWN_REASON + 1}), '')
  FROM allocations a INDEXED BY allocations_by_state LEFT JOIN last_outcome o ON o.alloc_id = a.alloc_id
  WHERE ${condition} AND a.removed = 0`;
/** The allocations whose last action failed, and those on which a rollout began and did not come to its end. */
const ALL_TROUBLED = `${troubledIn(inStates(undefined, FAILED_OUTCOMES))} UNION ALL ${troubledIn(inStates(["unsettled"], OTHER_OUTCOMES))}`;

/**
 * What is wrong in a bucket, one entry for each cause: allocations of a job whose last action failed for the same reason,
 * a worker that was unreachable, allocations of a job that wait for a deploy to come to its end. Failed ones come first,
 * then by age. What the run that goes on has begun is no problem yet.
 */
export function problemsOf(db: Database, activeRun: string | null): Problem[] {
  const groups = new Map<string, Troubled[]>();
  const causes = new Map<string, string>();
  for (const row of db.tuples<Troubled>(ALL_TROUBLED)) {
    const [job, worker, , , , action, run, reason] = row;
    const kind = kindOf(row);
    if (kind === "unsettled" && run !== "" && run === activeRun) continue;
    const key = [kind, worker];
    if (kind !== "unreachable") {
      const shared = reason.replaceAll(worker, "");
      const cause = causes.get(shared) ?? causeOf(shared);
      causes.set(shared, cause);
      key.splice(1, 1, job, action, cause);
    }
    const group = groups.get(key.join("\0"));
    if (group) group.push(row);
    else groups.set(key.join("\0"), [row]);
  }
  const rank = ({ kind, since }: Problem) => `${PROBLEM_KINDS.indexOf(kind)}${since}`;
  const found = [...groups.values()].map((rows) => ({ ...problemOf(rows), newest: newestOf(rows) }));
  const problems = found.sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
  return problems.map(({ newest, ...problem }, index) => {
    const isCut = newest[7].length > SHOWN_REASON;
    return isCut && index < MOST_TOLD ? { ...problem, reason: toldReason(db, newest) } : problem;
  });
}

/** A long reason: its first line, and the line that tells most. */
function toldReason(db: Database, [job, worker, , , , , , reason]: Troubled): string {
  const sql = `SELECT o.reason FROM allocations a JOIN last_outcome o ON o.alloc_id = a.alloc_id
    WHERE a.worker_ip = ? AND a.job = ?`;
  const whole = db.get<{ reason: string }>(sql, worker, job)?.reason ?? reason;
  const [head = "", ...lines] = whole.split("\n");
  const telling = reasonLine(lines.map((text) => ({ text })))?.text ?? "";
  return cutReason([head, telling].join("\n"));
}

function cutReason(reason: string): string {
  return reason.length > SHOWN_REASON ? `${reason.slice(0, SHOWN_REASON - CUT.length)}${CUT}`.toWellFormed() : reason;
}

function kindOf([, , , outcome]: Troubled): ProblemKind {
  return outcome === "failed" || outcome === "unreachable" ? outcome : "unsettled";
}

/** Of the newest run. */
function newestOf(rows: readonly Troubled[]): Troubled {
  return rows.reduce((found, row) => (row[6] > found[6] ? row : found));
}

function problemOf(rows: Troubled[]) {
  rows.sort((a, b) => a[2] - b[2] || (`${a[1]}\0${a[0]}` < `${b[1]}\0${b[0]}` ? -1 : 1));
  const newest = newestOf(rows);
  const since = rows.reduce((first, [, , , , at]) => (at < first ? at : first), newest[4]);
  const [job, worker, , , , action, run_id, reason] = newest;
  const kind = kindOf(newest);
  const isWorker = kind === "unreachable";
  const names = [...new Set(rows.map((row) => (isWorker ? row[0] : row[1])))];
  const shown = names.slice(0, MOST_NAMES);
  return {
    kind,
    /** null for an unreachable worker, which has many jobs. */
    job: isWorker ? null : job,
    /** The last action. */
    action,
    /** The first 20 names, by position. */
    workers: isWorker ? [worker] : shown,
    worker_count: isWorker ? 1 : names.length,
    allocation_count: rows.length,
    jobs: isWorker ? shown : [job],
    job_count: isWorker ? names.length : 1,
    /**
     * Of the newest run among the last actions; masked, at most 300 characters. Of a longer one the first line and, in the
     * first 50 problems, the line that tells most.
     */
    reason: cutReason(reason),
    /** Since when there was trouble all the time, of the allocation that had it first. */
    since,
    run_id,
  };
}

/** Quotes; ids and numbers in hex of at least 6 digits, of which one is a digit; all other numbers, with what is between. */
const VARIABLE = /"[^"]*"|`[^`]*`|(?<![\w'])'[^']*'(?!\w)|\b(?=[a-f-]*\d)[0-9a-f][0-9a-f-]{5,}\b|\d[\d.:]*|\s+/gi;

/**
 * What is the same in a reason wherever it is met: without what stands in quotes, ids, addresses and numbers, its first
 * 200 characters. Names of workers are taken out before.
 */
export function causeOf(reason: string): string {
  return reason.replace(VARIABLE, " ").replace(/ {2,}/g, " ").trim().slice(0, CAUSE_LENGTH);
}
