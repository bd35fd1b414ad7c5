import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import type { Database, Row } from "../base/database.ts";
import type { Layout } from "../base/layout.ts";
import { unknownName } from "../base/problems.ts";
import { authoritiesOf } from "../keys/key-changes.ts";
import { type Fingerprint, fingerprintsOf, IS_FOUND, noFingerprint, readableNamespaces } from "../kv/kv-access.ts";
import { type Listing, type PageKey, type PageOf, readPage } from "./pages.ts";
import { allocationsIn, countColumns, inStates, LAST_OUTCOMES, STATES } from "./states.ts";

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
  /** Only allocations in one of these states. */
  state?: readonly string[] | undefined;
  /** Only allocations whose last action had one of these outcomes. */
  outcome?: readonly string[] | undefined;
  /** Shows deleted keys too, and those whose ttl has passed. */
  deleted?: boolean | undefined;
}

interface Definition extends Omit<Listing, "conditions" | "values" | "leads"> {
  /** Columns that hold 0 or 1. */
  flags?: readonly string[];
  /** The condition of each filter. A filter that is missing does not apply to this view; `lead` filters by the key. */
  filters: Partial<Record<keyof ViewQuery, string>>;
}

const GIVEN = "IN (SELECT value FROM json_each(?))";
const IS_ACTIVE = "a.disabled = 0 AND a.removed = 0";
const zoneOf = (row: string) => `(SELECT value FROM worker_tags t WHERE t.worker_ip = ${row}.worker_ip AND t.key = 'zone')`;
const OF_ALLOCATIONS = {
  flags: ["disabled", "removed"],
  key: ["a.job", "a.position", "a.worker_ip"],
  filters: { jobs: "lead", workers: `a.worker_ip ${GIVEN}`, active: IS_ACTIVE, state: "index", outcome: "index" },
} as const;

/** A column of the last version of a certificate in the KV store. */
const ofCertificate = (column: string) => `(SELECT ${column} FROM kv_version k
  WHERE k.namespace = iif(job = '', 'ops/worker', 'ops/job/' || job || '/worker/' || worker_ip)
    AND k.key = 'certs/' || iif(job = '', 'ca', name) || '.crt' ORDER BY version DESC LIMIT 1)`;

/** How many allocations of a worker are not removed and meet a condition. */
const ofWorker = (condition: string) =>
  `(SELECT COUNT(*) FROM allocations a WHERE a.worker_ip = w.worker_ip AND a.removed = 0 AND ${condition})`;

const DEFINITIONS: Record<ViewName, Definition> = {
  workers: {
    flags: ["removed"],
    columns: `worker_ip, hostname, ${zoneOf("w")} AS zone, available_cpu_mhz AS cpu_mhz, available_memory_mb AS memory_mb,
      position, (SELECT group_concat(label, ',' ORDER BY label) FROM worker_labels l WHERE l.worker_ip = w.worker_ip) AS labels,
      connection, removed, ${ofWorker("1")} AS allocations, ${ofWorker("a.rollout IN ('new', 'update', 'stop')")} AS behind,
      ${ofWorker("a.disabled = 1")} AS disabled`,
    from: "worker w",
    key: ["w.position", "w.worker_ip"],
    filters: { workers: `w.worker_ip ${GIVEN}`, active: "w.removed = 0" },
  },
  jobs: {
    // Without removed allocations, all others are in one of the four states.
    columns: `name AS job, version, deployment_seq,
      (SELECT group_concat(value, ',') FROM json_each(after_jobs)) AS after,
      current_cpu_mhz AS cpu_mhz, current_cpu_source AS cpu_source,
      current_memory_mb AS memory_mb, current_memory_source AS memory_source,
      (SELECT group_concat(selector, ',' ORDER BY selector) FROM job_selectors s WHERE s.job = j.name) AS selectors,
      0 AS allocations, ${countColumns("a.job = j.name")}`,
    from: "job j",
    key: ["name"],
    filters: { jobs: "lead", active: `EXISTS (SELECT 1 FROM allocations a WHERE a.job = j.name AND ${IS_ACTIVE})` },
  },
  allocations: {
    ...OF_ALLOCATIONS,
    columns: `alloc_id AS allocation_id, worker_ip, ${zoneOf("a")} AS zone, job, deployment_seq, disabled, removed`,
    from: "allocations a",
  },
  deployments: {
    ...OF_ALLOCATIONS,
    columns: `a.job, a.worker_ip, a.alloc_id AS allocation_id, a.deployment_seq, a.rollout, COALESCE(gate, '') AS gate,
      COALESCE(NULLIF(current_hash, ''), previous_hash, '') AS current_hash, COALESCE(previous_hash, '') AS previous_hash,
      COALESCE(NULLIF(current_version, ''), '0.0.0') AS current_version, new_version, disabled, removed,
      COALESCE(o.action, '') AS last_action, a.outcome AS last_outcome,
      COALESCE(o.run_id, '') AS last_run, COALESCE(o.reason, '') AS last_reason`,
    from: "allocations a",
    joins: `a LEFT JOIN hash h ON h.namespace = a.job || '_allocation' AND h.key = a.alloc_id
      LEFT JOIN last_outcome o ON o.alloc_id = a.alloc_id`,
  },
  hooks: {
    columns: "job, name AS hook, executed_on, demand_job, demand_hook, demand_config",
    from: "hooks",
    key: ["job", "name", "executed_on"],
    filters: { jobs: "lead" },
  },
  ports: { columns: "job, name, port", from: "job_ports", key: ["job", "name"], filters: { jobs: "lead" } },
  kv: {
    flags: ["deleted"],
    // SQLite takes the other columns from the row with the greatest version. A sealed value is never shown: the one of a
    // secret stands where its fingerprint will be.
    columns: `namespace, key, CASE WHEN value LIKE 'enc:v2:%' THEN '[encrypted]' ELSE value END AS value, MAX(version) AS version,
      ttl, strftime('%Y-%m-%dT%H:%M:%fZ', created_date, 'unixepoch') AS created_date, deleted,
      iif(namespace LIKE 'secrets/%' AND NOT deleted, value, '') AS fingerprint`,
    from: "key_value",
    key: ["namespace", "key"],
    group: "GROUP BY namespace, key",
    filters: { jobs: "lead", active: "", deleted: "" },
  },
  certs: {
    // A deploy delivers the certificate in the KV store; without that one it is invalid. Days are rounded down.
    columns: `iif(job = '', 'ca', 'job') AS scope, job, worker_ip AS worker, name AS cert, common_name,
      strftime('%Y-%m-%dT%H:%M:%fZ', not_after, 'unixepoch') AS not_after,
      (not_after - unixepoch() - iif(not_after < unixepoch(), 86399, 0)) / 86400 AS days_left,
      CASE
        WHEN ${ofCertificate("deleted")} IS NOT 0 THEN 'invalid'
        WHEN not_after <= unixepoch() THEN 'expired'
        WHEN expiring_from <= unixepoch() THEN 'expiring'
        ELSE 'ok'
      END AS status`,
    from: "job_certs c",
    // The CA, whose job is empty, comes first.
    key: ["c.job", "c.position", "c.worker_ip", "c.name"],
    filters: { jobs: "lead", workers: `c.worker_ip ${GIVEN}` },
  },
};
/** What a view is made from besides the database. */
interface ViewSources {
  /** Gives secrets their fingerprints; without it they have none. */
  fingerprintOf?: Fingerprint | undefined;
  /** Tells by which CA a certificate was issued, in the column `authority`; without it there is no such column. */
  authorityOf?: ((certificate: string) => string) | undefined;
}

/** What this view is made from besides the database, read from the bucket's keys. */
export async function viewSources(layout: Layout, name: ViewName): Promise<ViewSources> {
  if (name === "kv") return { fingerprintOf: await fingerprintsOf(layout) };
  return name === "certs" ? { authorityOf: await authoritiesOf(layout) } : {};
}

type Cell = string | number | boolean | null;

/**
 * A page of a view; rows keep their order between pages, and `next` is where the next page begins. Values of secrets and
 * private keys are never in it. Throws `invalid_request` for a filter that the view does not have and `not_found` when
 * none of the given jobs or workers is known.
 */
export function catalogView(
  db: Database,
  name: ViewName,
  query: ViewQuery,
  { fingerprintOf = noFingerprint, authorityOf, ...page }: ViewSources & PageOf,
): { columns: string[]; items: Record<string, Cell>[]; next: PageKey | null } {
  const { flags = [], filters, ...listing } = DEFINITIONS[name];
  if (name === "certs" && authorityOf) listing.columns += `, ${ofCertificate("value")} AS authority`;
  const { rows, next } = readPage(db, { ...listing, ...filtersOf(db, name, query) }, page);
  const columns = db.columns(`SELECT ${listing.columns} FROM ${listing.from} ${listing.joins?.slice(1) ?? ""}`);
  const cellOf = (row: Row, column: string): Cell => {
    const value = row[column] as string | number | null;
    if (column === "fingerprint" && value) return fingerprintOf(String(row.namespace), String(row.key), String(value));
    if (column === "authority" && authorityOf) return value ? authorityOf(String(value)) : "";
    if (name === "jobs" && column === "allocations") return allocationsIn(row);
    return flags.includes(column) ? value === 1 : value;
  };
  return { columns, items: rows.map((row) => Object.fromEntries(columns.map((one) => [one, cellOf(row, one)]))), next };
}

/** The filters of a query in SQL. */
function filtersOf(db: Database, name: ViewName, query: ViewQuery): Partial<Listing> {
  const { filters, from, group } = DEFINITIONS[name];
  for (const [filter, given] of Object.entries(query))
    if (given !== undefined && given !== false && filters[filter as keyof ViewQuery] === undefined)
      throw new Failure("invalid_request", `${filter}: cat ${name} has no such filter`);
  const jobs = knownJobs(db, query.jobs);
  const workers = knownWorkers(db, query.workers);
  const state = knownWords("state", query.state, STATES);
  const outcome = knownWords("outcome", query.outcome, LAST_OUTCOMES);
  const conditions = state || outcome ? [inStates(state, outcome)] : [];
  if (workers) conditions.push(filters.workers ?? "");
  if (query.active && filters.active) conditions.push(filters.active);
  const isLiving = name === "kv" && (!query.deleted || query.active);
  return {
    from: from === "allocations a" ? `${from} INDEXED BY ${indexFor(workers, state, outcome)}` : from,
    conditions,
    values: workers ? [JSON.stringify(workers)] : [],
    group: isLiving ? `${group} HAVING ${IS_FOUND}` : group,
    leads: name === "kv" && jobs ? namespacesReadBy(db, jobs) : jobs,
  };
}

type Words = readonly string[] | undefined;

/** The index that leads to the allocations in question; SQLite, which does not know their numbers, often takes another. */
function indexFor(workers: Words, state: Words, outcome: Words): string {
  // The name that SQLite gives to the primary key.
  if (workers) return "sqlite_autoindex_allocations_2";
  return state || outcome ? "allocations_by_state" : "allocations_by_job";
}

/** The namespaces that the allocations of jobs may read. */
function namespacesReadBy(db: Database, jobs: readonly string[]): string[] {
  return jobs.flatMap((job) => {
    const demands = db.all<{ demand_job: string }>("SELECT demand_job FROM hooks WHERE job = ? AND demand_job <> ''", job);
    const upstream = demands.map((row) => row.demand_job);
    const placed = db.all<{ worker_ip: string }>("SELECT worker_ip FROM allocations WHERE job = ?", job);
    const names = [...readableNamespaces({ job, worker: "<worker>", upstream })];
    const ofWorkers = names.filter((name) => name.includes("<worker>"));
    const own = placed.flatMap(({ worker_ip }) => ofWorkers.map((name) => name.replace("<worker>", worker_ip)));
    return placed.length === 0 ? [] : [...names.filter((name) => !ofWorkers.includes(name)), ...own];
  });
}

function lower(names: readonly string[]): string[] {
  return names.map((name) => name.toLowerCase());
}

function knownWords(kind: string, given: readonly string[] | undefined, known: readonly string[]): string[] | undefined {
  const words = given && lower(given);
  const wrong = words?.find((word) => !known.includes(word));
  if (wrong === undefined) return words;
  throw new Failure("invalid_request", `${kind}: expected one of ${known.join(", ")}, found ${quote(wrong)}`);
}

/** A typing mistake must not look like an empty answer. Where some of the names are known, their rows are shown. */
function knownJobs(db: Database, given: readonly string[] | undefined): string[] | undefined {
  if (given === undefined) return undefined;
  const isKnown = (name: string) =>
    db.get("SELECT 1 FROM job WHERE name = ?1 UNION ALL SELECT 1 FROM allocations WHERE job = ?1", name);
  const names = lower(given).filter(isKnown);
  if (names.length > 0) return names;
  const all = db.tuples<[name: string]>("SELECT name FROM job UNION SELECT DISTINCT job FROM allocations").flat();
  throw new Failure("not_found", `in the catalog ${unknownName("job", given[0] ?? "", all)}`);
}

/** {@link knownJobs} for workers, as the catalog writes them. */
function knownWorkers(db: Database, given: readonly string[] | undefined): string[] | undefined {
  if (given === undefined) return undefined;
  const hosts = db.all<{ worker_ip: string }>("SELECT worker_ip FROM worker").map((row) => row.worker_ip);
  const wanted = new Set(lower(given));
  const names = hosts.filter((host) => wanted.has(host.toLowerCase()));
  if (names.length > 0) return names;
  throw new Failure("not_found", `in the catalog ${unknownName("worker", given[0] ?? "", hosts)}`);
}
