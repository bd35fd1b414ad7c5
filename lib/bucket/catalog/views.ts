import { Failure } from "../../core/errors.ts";
import type { Database, Row, SqlValue } from "../base/database.ts";
import { unknownName } from "../base/problems.ts";
import { type Fingerprint, noFingerprint, readableNamespaces } from "../kv/kv-access.ts";
import { catalogAllocations } from "./catalog.ts";
import { LAST_OUTCOMES } from "./info.ts";

/** What people may look at: the catalog, resource by resource (control-plane.md, Resources and their fields). */
export const VIEW_NAMES = ["workers", "jobs", "allocations", "deployments", "hooks", "ports", "kv", "certs"] as const;
/** One of {@link VIEW_NAMES}. */
export type ViewName = (typeof VIEW_NAMES)[number];

/** Which rows of a view are wanted. */
export interface ViewQuery {
  jobs?: readonly string[] | undefined;
  workers?: readonly string[] | undefined;
  /** Leaves out removed and disabled entries. */
  active?: boolean | undefined;
  /** Only allocations whose last action had one of these outcomes. */
  outcome?: readonly string[] | undefined;
  /** Shows deleted keys too. */
  deleted?: boolean | undefined;
}

interface Definition {
  /** Columns that hold 0 or 1. */
  flags?: readonly string[];
  /** Columns that only filters and order need. */
  hidden?: readonly string[];
  /** Answers the columns in the order in which they are shown. */
  sql: string;
  order: string;
  /** The condition of each filter. A filter that is missing does not apply to this view. */
  filters: Partial<Record<keyof ViewQuery, string>>;
}

const IN_JOBS = "job IN (SELECT value FROM json_each(?))";
const IN_WORKERS = "lower(worker_ip) IN (SELECT value FROM json_each(?))";
const IS_ACTIVE = "disabled = 0 AND removed = 0";
const ZONE = "(SELECT value FROM worker_tags t WHERE t.worker_ip = w.worker_ip AND t.key = 'zone')";
const HAS_ACTIVE = `EXISTS (SELECT 1 FROM allocations a WHERE a.job = j.name AND ${IS_ACTIVE})`;

const DEFINITIONS: Record<ViewName, Definition> = {
  workers: {
    flags: ["removed"],
    sql: `SELECT worker_ip, hostname, ${ZONE} AS zone, available_cpu_mhz AS cpu_mhz, available_memory_mb AS memory_mb,
      position, (SELECT group_concat(label, ',' ORDER BY label) FROM worker_labels l WHERE l.worker_ip = w.worker_ip) AS labels,
      connection, removed FROM worker w`,
    order: "position, worker_ip",
    filters: { workers: IN_WORKERS, active: "removed = 0" },
  },
  jobs: {
    flags: ["disabled"],
    sql: `SELECT name AS job, version, NOT ${HAS_ACTIVE} AS disabled, deployment_seq,
      current_cpu_mhz AS cpu_mhz, current_cpu_source AS cpu_source,
      current_memory_mb AS memory_mb, current_memory_source AS memory_source,
      (SELECT group_concat(selector, ',' ORDER BY selector) FROM job_selectors s WHERE s.job = j.name) AS selectors FROM job j`,
    order: "job",
    filters: { jobs: IN_JOBS, active: "disabled = 0" },
  },
  allocations: {
    flags: ["disabled", "removed"],
    hidden: ["position"],
    sql: `SELECT alloc_id AS allocation_id, a.worker_ip, ${ZONE} AS zone, job, disabled, a.removed, w.position
      FROM allocations a LEFT JOIN worker w ON w.worker_ip = a.worker_ip`,
    order: "job, position, worker_ip",
    filters: { jobs: IN_JOBS, workers: IN_WORKERS, active: IS_ACTIVE },
  },
  deployments: {
    flags: ["disabled", "removed"],
    hidden: ["position"],
    // The words are those of hook-runtime.md, States. `stop` is what the next deploy does first. Health is in the gate.
    sql: `SELECT a.job, a.worker_ip, a.alloc_id AS allocation_id,
      CASE
        WHEN (a.removed OR disabled) AND stopped <> 1 AND (unfinished OR previous_hash <> '') THEN 'stop'
        WHEN a.removed THEN 'removed'
        WHEN disabled THEN 'disabled'
        WHEN COALESCE(previous_hash, '') = '' THEN 'new'
        WHEN unfinished OR current_hash <> previous_hash OR current_version <> new_version THEN 'update'
        ELSE 'promoted'
      END AS rollout, COALESCE(gate, '') AS gate, COALESCE(current_hash, '') AS current_hash,
      COALESCE(previous_hash, '') AS previous_hash,
      COALESCE(NULLIF(current_version, ''), '0.0.0') AS current_version, new_version, disabled, a.removed,
      COALESCE(o.action, '') AS last_action, COALESCE(o.outcome, '') AS last_outcome,
      COALESCE(o.run_id, '') AS last_run, COALESCE(o.reason, '') AS last_reason, w.position
      FROM allocations a LEFT JOIN worker w ON w.worker_ip = a.worker_ip
      LEFT JOIN hash h ON h.namespace = a.job || '_allocation' AND h.key = a.alloc_id
      LEFT JOIN last_outcome o ON o.alloc_id = a.alloc_id`,
    order: "job, position, worker_ip",
    filters: {
      jobs: IN_JOBS,
      workers: IN_WORKERS,
      active: IS_ACTIVE,
      outcome: "last_outcome IN (SELECT value FROM json_each(?))",
    },
  },
  hooks: {
    sql: "SELECT job, name AS hook, executed_on, demand_job, demand_hook, demand_config FROM hooks",
    order: "job, hook, executed_on",
    filters: { jobs: IN_JOBS },
  },
  ports: { sql: "SELECT job, name, port FROM job_ports", order: "job, name", filters: { jobs: IN_JOBS } },
  kv: {
    flags: ["deleted"],
    // SQLite takes the other columns from the row with the greatest version. A sealed value is never shown: the one of a
    // secret stands where its fingerprint will be.
    sql: `SELECT namespace, key, CASE WHEN value LIKE 'enc:v2:%' THEN '[encrypted]' ELSE value END AS value, MAX(version) AS version, ttl,
      strftime('%Y-%m-%dT%H:%M:%SZ', created_date, 'unixepoch') AS created_date, deleted,
      iif(namespace LIKE 'secrets/%' AND NOT deleted, value, '') AS fingerprint FROM key_value GROUP BY namespace, key`,
    order: "namespace, key",
    filters: { jobs: "namespace IN (SELECT value FROM json_each(?))", active: "deleted = 0", deleted: "" },
  },
  certs: {
    hidden: ["worker_ip", "position"],
    // A deploy delivers the certificate in the KV store; without that one it is invalid. Days are rounded down.
    sql: `SELECT scope, job, worker, cert, common_name,
      strftime('%Y-%m-%dT%H:%M:%SZ', not_after, 'unixepoch') AS not_after,
      (seconds - CASE WHEN seconds < 0 THEN 86399 ELSE 0 END) / 86400 AS days_left,
      CASE
        WHEN (SELECT deleted FROM kv_version k WHERE k.namespace = c.namespace AND k.key = c.key
          ORDER BY version DESC LIMIT 1) IS NOT 0 THEN 'invalid'
        WHEN seconds <= 0 THEN 'expired'
        WHEN expiring_from <= unixepoch() THEN 'expiring'
        ELSE 'ok'
      END AS status, worker_ip, position
      FROM (SELECT j.*, j.worker_ip AS worker, j.name AS cert, position, not_after - unixepoch() AS seconds,
        iif(job = '', 'ca', 'job') AS scope,
        iif(job = '', 'ops/worker', 'ops/job/' || job || '/worker/' || j.worker_ip) AS namespace,
        'certs/' || iif(job = '', 'ca', name) || '.crt' AS key
        FROM job_certs j LEFT JOIN worker w ON w.worker_ip = j.worker_ip) c`,
    order: "scope, job, position, worker_ip, cert",
    filters: { jobs: IN_JOBS, workers: IN_WORKERS },
  },
};

/** Which rows of a view are wanted, and what gives secrets their fingerprints; without it they have none. */
interface ViewPage {
  offset: number;
  limit: number;
  fingerprintOf?: Fingerprint | undefined;
}

/**
 * A page of a view, from `offset` on; rows keep their order between pages. Values of secrets and private keys are never
 * in it. Throws `invalid_request` for a filter that the view does not have and `not_found` when none of the given jobs
 * or workers is known.
 */
export function catalogView(
  db: Database,
  name: ViewName,
  query: ViewQuery,
  { offset, limit, fingerprintOf = noFingerprint }: ViewPage,
) {
  checkNames(db, "job", query.jobs, "SELECT name AS name FROM job UNION SELECT job FROM allocations");
  const hosts = "SELECT worker_ip AS name FROM worker UNION SELECT worker_ip FROM allocations";
  checkNames(db, "worker", query.workers, hosts);
  for (const one of lower(query.outcome ?? []))
    if (!(LAST_OUTCOMES as readonly string[]).includes(one))
      throw new Failure("invalid_request", unknownName("outcome", one, LAST_OUTCOMES));
  const { flags = [], hidden = [], sql, order, filters } = DEFINITIONS[name];
  const conditions = name === "kv" && !query.deleted ? ["deleted = 0"] : [];
  const values: SqlValue[] = [];
  for (const filter of ["jobs", "workers", "active", "outcome", "deleted"] as const) {
    const given = query[filter];
    if (given === undefined || given === false) continue;
    const condition = filters[filter];
    if (condition === undefined) throw new Failure("invalid_request", `${filter}: cat ${name} has no such filter`);
    if (condition !== "") conditions.push(condition);
    if (typeof given !== "boolean") values.push(JSON.stringify(name === "kv" ? namespacesReadBy(db, given) : lower(given)));
  }
  const where = conditions.length === 0 ? "" : `WHERE ${conditions.join(" AND ")}`;
  const statement = `SELECT * FROM (${sql}) ${where} ORDER BY ${order} LIMIT ? OFFSET ?`;
  const rows = db.all(statement, ...values, limit + 1, offset);
  const columns = db.columns(sql).filter((column) => !hidden.includes(column));
  const cellOf = (row: Row, column: string) => {
    const value = row[column] as string | number | null;
    if (column === "fingerprint" && value) return fingerprintOf(String(row.namespace), String(row.key), String(value));
    return flags.includes(column) ? value === 1 : value;
  };
  const items = rows.slice(0, limit).map((row) => Object.fromEntries(columns.map((name) => [name, cellOf(row, name)])));
  return { columns, items, more: rows.length > limit };
}

/** The namespaces that the allocations of jobs may read. */
function namespacesReadBy(db: Database, jobs: readonly string[]): string[] {
  const names = lower(jobs);
  const sql = "SELECT job, demand_job FROM hooks WHERE demand_job <> ''";
  const demands = Map.groupBy(db.all<{ job: string; demand_job: string }>(sql), (row) => row.job);
  const readable = catalogAllocations(db)
    .filter(({ job }) => names.includes(job))
    .flatMap(({ job, worker }) => {
      const upstream = (demands.get(job) ?? []).map((row) => row.demand_job);
      return [...readableNamespaces({ job, worker, upstream })];
    });
  return [...new Set(readable)];
}

function lower(names: readonly string[]): string[] {
  return names.map((name) => name.toLowerCase());
}

/** A typing mistake must not look like an empty answer. Where some of the names are known, their rows are shown. */
function checkNames(db: Database, kind: string, names: readonly string[] | undefined, sql: string): void {
  if (names === undefined) return;
  const known = new Set(lower(db.all<{ name: string }>(sql).map((row) => row.name)));
  const [first = ""] = names;
  if (!lower(names).some((name) => known.has(name)))
    throw new Failure("not_found", `in the catalog ${unknownName(kind, first, known)}`);
}
