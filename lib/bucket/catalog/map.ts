import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import type { Database, Row } from "../base/database.ts";

/** The most workers and the most jobs on a map. */
const MOST = 1_000;

/** The letters of a map; upper case where files were changed by hand. */
export const MAP_LETTERS = {
  " ": "not allocated",
  o: "ok",
  c: "changed by the newest deploy",
  f: "failed",
  u: "unreachable",
  w: "waiting for a deploy",
  x: "cancelled",
  d: "disabled",
} as const;

/** The letter of an allocation `a`; `c` is still to be told from `o`. */
const LETTER = `CASE WHEN a.outcome = 'failed' THEN 'f' WHEN a.outcome = 'unreachable' THEN 'u'
  WHEN a.rollout IN ('disabled', 'stop') THEN 'd' WHEN a.outcome = 'cancelled' THEN 'x'
  WHEN a.unsettled OR a.rollout IN ('new', 'update') THEN 'w'
  WHEN a.outcome = 'changed' THEN 'c' ELSE 'o' END`;

/** The jobs and workers of a bucket, and how each allocation stands, one letter each. */
export type JobMap = ReturnType<typeof jobMap>;

/** Reads the map: `newestDeploy` is a run, `drifted` says where files were changed by hand. */
export function jobMap(db: Database, newestDeploy: string, drifted: Iterable<{ job: string; worker: string }>) {
  const workers = db.all<{ worker: string; hostname: string | null; labels: string; tags: string }>(
    `SELECT worker_ip AS worker, hostname,
      (SELECT json_group_array(label ORDER BY label) FROM worker_labels l WHERE l.worker_ip = w.worker_ip) AS labels,
      (SELECT json_group_object(key, value) FROM worker_tags t WHERE t.worker_ip = w.worker_ip) AS tags
      FROM worker w WHERE removed = 0 ORDER BY w.position, w.worker_ip LIMIT ${MOST}`,
  );
  const jobs = db.all<{ job: string; version: string; wave: number }>(
    `SELECT name AS job, version, deployment_seq AS wave FROM job ORDER BY name LIMIT ${MOST}`,
  );
  const columns = new Map(workers.map(({ worker }, index) => [worker, index]));
  const rows = new Map(jobs.map(({ job }) => [job, new Array<string>(workers.length).fill(" ")]));
  // Looked up one by one, the runs of 100,000 allocations take twice the time.
  const changed = new Set(db.tuples<[id: string]>("SELECT alloc_id FROM last_outcome WHERE run_id = ?", newestDeploy).flat());
  const found = `SELECT a.job, a.worker_ip, ${LETTER}, a.alloc_id FROM allocations a WHERE a.removed = 0`;
  const place = (job: string, worker: string, letterOf: (now: string) => string) => {
    const [cells, column] = [rows.get(job), columns.get(worker)];
    if (cells && column !== undefined) cells[column] = letterOf(cells[column] as string);
  };
  for (const [job, worker, letter, id] of db.tuples<[string, string, string, string]>(found))
    place(job, worker, () => (letter === "c" && !changed.has(id) ? "o" : letter));
  for (const { job, worker } of drifted) place(job, worker, (letter) => letter.toUpperCase());
  const [all] = db.tuples<[number, number]>("SELECT (SELECT COUNT(*) FROM worker WHERE removed = 0), (SELECT COUNT(*) FROM job)");
  return {
    /** By position. */
    workers: workers.map((one) => ({
      ...one,
      labels: JSON.parse(one.labels) as string[],
      tags: JSON.parse(one.tags) as Record<string, string>,
    })),
    /** By name; `cells` has a letter for each of the workers, in their order. */
    jobs: jobs.map((one) => ({ ...one, cells: rows.get(one.job)?.join("") ?? "" })),
    letters: MAP_LETTERS,
    /** How many are not on the map. */
    cut: { workers: (all?.[0] ?? 0) - workers.length, jobs: (all?.[1] ?? 0) - jobs.length },
  };
}

/** One allocation, as a map tells of it. Throws `not_found`. */
export function mapCell(db: Database, job: string, worker: string): Row {
  const cell = db.get(
    `SELECT a.job, a.worker_ip AS worker, a.alloc_id AS allocation_id, iif(a.unsettled, 'unsettled', a.rollout) AS state,
      COALESCE(o.action, '') AS action, a.outcome, COALESCE(o.reason, '') AS reason, a.troubled_since AS since,
      COALESCE(o.run_id, '') AS run_id, COALESCE(NULLIF(h.current_version, ''), '0.0.0') AS current_version,
      a.new_version, a.deployment_seq AS wave
      FROM allocations a LEFT JOIN hash h ON h.namespace = a.job || '_allocation' AND h.key = a.alloc_id
      LEFT JOIN last_outcome o ON o.alloc_id = a.alloc_id WHERE a.worker_ip = ? AND a.job = ?`,
    ...[worker, job],
  );
  if (cell) return { ...cell };
  throw new Failure("not_found", `the catalog has no allocation of job ${quote(job)} on ${quote(worker)}`);
}
