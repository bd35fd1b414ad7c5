import type { Database, Row } from "../base/database.ts";
import type {
  CatalogAllocation,
  CatalogFile,
  CatalogHook,
  CatalogJob,
  CatalogWorker,
  HealthCheck,
} from "../base/model.ts";

/** The columns of table `worker` that hold a field as it is, by field. */
export const WORKER_COLUMNS = {
  host: "worker_ip",
  id: "worker_id",
  hostname: "hostname",
  connection: "connection",
  root: "root",
  sshUser: "ssh_user",
  sshPort: "ssh_port",
  sshJump: "ssh_jump",
  position: "position",
} as const;

/** The columns of table `job` that hold a field as it is, or lists and objects as JSON, by field. */
export const JOB_COLUMNS = {
  name: "name",
  id: "job_id",
  version: "version",
  deploymentSeq: "deployment_seq",
  maxConcurrentUpgrades: "max_concurrent_upgrades",
  maxConcurrentStarts: "max_concurrent_starts",
  restartPolicy: "restart_policy",
  restartGlobs: "restart_globs",
  healthCheck: "health_check",
  driftIgnore: "drift_ignore",
  lifecycleTimeoutSeconds: "lifecycle_timeout_seconds",
  onFailure: "on_failure",
  secretMode: "secret_mode",
  tolerateUnreachable: "tolerate_unreachable",
} as const;

function asFields(columns: Record<string, string>): string {
  return Object.entries(columns)
    .map(([field, column]) => `${column} AS ${field}`)
    .join(", ");
}

/** The workers, by position and host; removed ones that still have allocations are included. */
export function catalogWorkers(db: Database): CatalogWorker[] {
  const labels = grouped(db, "SELECT worker_ip AS owner, label FROM worker_labels ORDER BY label");
  const sql = `SELECT ${asFields(WORKER_COLUMNS)}, removed, synced_seq AS syncedSeq FROM worker
    ORDER BY position, worker_ip`;
  return db
    .all<WorkerRow>(sql)
    .map(({ sshUser, sshPort, sshJump, ...row }) => ({
      ...row,
      ...(sshUser !== null && { sshUser }),
      ...(sshPort !== null && { sshPort }),
      ...(sshJump !== null && { sshJump }),
      labels: (labels.get(row.host) ?? []).map((one) => String(one.label)),
      removed: row.removed === 1,
    }));
}

type SshFields = "sshUser" | "sshPort" | "sshJump";
type WorkerRow = Omit<CatalogWorker, SshFields | "labels" | "removed"> & {
  [K in SshFields]: NonNullable<CatalogWorker[K]> | null;
} & { removed: number };

/** The jobs, by name. */
export function catalogJobs(db: Database): CatalogJob[] {
  const ports = catalogPorts(db);
  const hooks = grouped(db, "SELECT job AS owner, * FROM hooks ORDER BY name, executed_on");
  return db
    .all<JobRow>(`SELECT ${asFields(JOB_COLUMNS)} FROM job ORDER BY name`)
    .map((row) => ({
      ...row,
      restartGlobs: JSON.parse(row.restartGlobs) as string[],
      driftIgnore: JSON.parse(row.driftIgnore) as string[],
      healthCheck: JSON.parse(row.healthCheck) as HealthCheck | null,
      ports: Object.fromEntries(ports.get(row.name) ?? []),
      hooks: hooksOf(hooks.get(row.name) ?? []),
    }));
}

type JobRow = Omit<CatalogJob, "restartGlobs" | "driftIgnore" | "healthCheck" | "ports" | "hooks"> & {
  restartGlobs: string;
  driftIgnore: string;
  healthCheck: string;
};

function hooksOf(rows: Row[]): CatalogHook[] {
  const hooks = new Map<string, CatalogHook>();
  for (const row of rows) {
    const name = String(row.name);
    const known = hooks.get(name);
    if (known) known.events.push(String(row.executed_on));
    else
      hooks.set(name, {
        name,
        events: [String(row.executed_on)],
        demandJob: String(row.demand_job),
        demandHook: String(row.demand_hook),
        demandConfig: JSON.parse(String(row.demand_config)) as Record<string, unknown>,
      });
  }
  return [...hooks.values()];
}

/** The numbers of all ports by job and name, names in order. */
export function catalogPorts(db: Database): Map<string, Map<string, number>> {
  const ports = grouped(db, "SELECT job AS owner, name, port FROM job_ports ORDER BY name");
  return new Map(
    [...ports].map(([job, rows]) => [job, new Map(rows.map((row) => [String(row.name), Number(row.port)]))]),
  );
}

type AllocationRow = [
  id: string,
  worker: string,
  job: string,
  disabled: number,
  removed: number,
  deploymentSeq: number,
  newVersion: string,
];

/** The allocations: by job, then the worker's position, then host. */
export function catalogAllocations(db: Database): CatalogAllocation[] {
  const order = "LEFT JOIN worker w ON w.worker_ip = a.worker_ip ORDER BY job, w.position, a.worker_ip";
  return unorderedAllocations(db, order);
}

/** The allocations in no order, which of 10,000 takes a third of the time; or as the rest of the query has it. */
export function unorderedAllocations(db: Database, inOrder = ""): CatalogAllocation[] {
  const columns = "alloc_id, a.worker_ip, job, disabled, a.removed, deployment_seq, new_version";
  return db
    .tuples<AllocationRow>(`SELECT ${columns} FROM allocations a ${inOrder}`)
    .map(([id, worker, job, disabled, removed, deploymentSeq, newVersion]) => ({
      id,
      worker,
      job,
      disabled: disabled === 1,
      removed: removed === 1,
      deploymentSeq,
      newVersion,
    }));
}

/** The files of a job, by path. */
export function catalogFiles(db: Database, job: string): CatalogFile[] {
  const rows = db.all<CatalogFile & { content: Uint8Array }>(
    "SELECT path, mode, sha256, content FROM job_files WHERE job = ? ORDER BY path",
    job,
  );
  return rows.map((row) => ({ ...row, content: Buffer.from(row.content) }));
}

/** The files of a job from the path after `after` on, at most `limit`, without their content. */
export function listCatalogFiles(
  db: Database,
  job: string,
  { after, limit }: { after: string; limit: number },
): (Omit<CatalogFile, "content"> & { size_bytes: number })[] {
  return db.all(
    `SELECT path, mode, sha256, length(content) AS size_bytes FROM job_files
     WHERE job = ? AND path > ? ORDER BY path LIMIT ?`,
    ...[job, after, limit],
  );
}

/** One file of a job; undefined where there is none. */
export function catalogFile(db: Database, job: string, path: string): CatalogFile | undefined {
  const sql = "SELECT path, mode, sha256, content FROM job_files WHERE job = ? AND path = ?";
  const row = db.get<CatalogFile & { content: Uint8Array }>(sql, job, path);
  return row && { ...row, content: Buffer.from(row.content) };
}

/** True when the catalog has a job of this name. */
export function hasCatalogJob(db: Database, job: string): boolean {
  return db.get("SELECT 1 FROM job WHERE name = ?", job) !== undefined;
}

/** Rows by their column `owner`, in the order of the query. */
function grouped(db: Database, sql: string): Map<string, Row[]> {
  return Map.groupBy(db.all(sql), (row) => String(row.owner));
}
