import type { CatalogAllocation, CatalogFile, CatalogJob } from "./catalog.ts";
import type { Database, Row, SqlValue } from "./database.ts";
import { startAnew } from "./promotions.ts";
import type { Worker } from "./workers.ts";

/** A worker of a build with the id that the catalog knows it by. */
export interface BuiltWorker extends Worker {
  id: string;
}

/** What a job gets of a resource, in MB or MHz, and which file says so. */
export interface Reservation {
  min: number;
  max: number;
  current: number;
  source: string;
}

/** A job of a build. */
export interface BuiltJob extends CatalogJob {
  selectors: string[];
  memory: Reservation;
  cpu: Reservation;
  files: CatalogFile[];
}

/** All that a build found out. */
export interface BuiltCatalog {
  workers: BuiltWorker[];
  jobs: BuiltJob[];
  /** Removed ones included. */
  allocations: CatalogAllocation[];
  /** Those that differ from the last build; none is ever missing from the next one until gc takes its row away. */
  changed: CatalogAllocation[];
  /** Allocations whose promoted state does not count any more: the next deploy starts them as new. */
  startAnew: CatalogAllocation[];
}

/**
 * Replaces the catalog by what was built; only rows that differ are written. To be called in a transaction. Workers
 * that are gone keep their row, marked as removed, while an allocation is left on them.
 */
export function saveCatalog(db: Database, built: BuiltCatalog, now: Date): void {
  const present = new Set(built.workers.map((worker) => worker.host));
  const left = new Set<SqlValue>(
    built.allocations.map(({ worker }) => worker).filter((host) => !present.has(host)),
  );
  for (const host of left) db.run("UPDATE worker SET removed = 1 WHERE worker_ip = ?", host);
  replaceRows(db, TABLES.worker, built.workers.map(workerRow), left);
  db.run("DELETE FROM worker_facts WHERE worker_ip NOT IN (SELECT worker_ip FROM worker)");
  replaceRows(db, TABLES.labels, built.workers.flatMap(labelRows), left);
  replaceRows(db, TABLES.tags, built.workers.flatMap(tagRows), left);
  replaceRows(db, TABLES.job, built.jobs.map(jobRow));
  replaceRows(db, TABLES.selectors, built.jobs.flatMap(selectorRows));
  replaceRows(db, TABLES.ports, built.jobs.flatMap(portRows));
  replaceRows(db, TABLES.hooks, built.jobs.flatMap(hookRows));
  replaceRows(db, TABLES.files, built.jobs.flatMap(fileRows));
  const { allocations } = TABLES;
  const upsert = upsertInto(allocations);
  for (const changed of built.changed) db.run(upsert, ...valuesOf(allocations, allocationRow(changed)));
  startAnew(db, built.startAnew);
  db.run("UPDATE bucket SET build_seq = build_seq + 1, built_at = ?", now.toISOString());
}

interface Table {
  name: string;
  key: readonly string[];
  columns: readonly string[];
  /** Written with a row but not compared: another column tells whether it differs. */
  payload?: readonly string[];
}

const TABLES = {
  worker: {
    name: "worker",
    key: ["worker_ip"],
    columns: [
      ...["worker_id", "hostname", "position", "connection", "root", "ssh_user", "ssh_port", "ssh_jump"],
      ...["available_memory_mb", "available_cpu_mhz", "removed"],
    ],
  },
  labels: { name: "worker_labels", key: ["worker_ip", "label"], columns: [] },
  tags: { name: "worker_tags", key: ["worker_ip", "key"], columns: ["value"] },
  job: {
    name: "job",
    key: ["name"],
    columns: [
      ...["job_id", "version", "deployment_seq", "max_concurrent_upgrades", "max_concurrent_starts"],
      ...["min_memory_mb", "max_memory_mb", "current_memory_mb", "current_memory_source"],
      ...["min_cpu_mhz", "max_cpu_mhz", "current_cpu_mhz", "current_cpu_source"],
      ...["restart_policy", "restart_globs", "health_check", "lifecycle_timeout_seconds"],
      ...["on_failure", "secret_mode", "tolerate_unreachable"],
    ],
  },
  selectors: { name: "job_selectors", key: ["job", "selector"], columns: [] },
  ports: { name: "job_ports", key: ["job", "name"], columns: ["port"] },
  hooks: {
    name: "hooks",
    key: ["job", "name", "executed_on"],
    columns: ["demand_job", "demand_hook", "demand_config"],
  },
  files: { name: "job_files", key: ["job", "path"], columns: ["mode", "sha256"], payload: ["content"] },
  allocations: {
    name: "allocations",
    key: ["worker_ip", "job"],
    columns: ["alloc_id", "disabled", "removed", "deployment_seq", "new_version"],
  },
} satisfies Record<string, Table>;

/** Makes a table hold exactly these rows, besides those of the workers that `keep` names. Writes only what differs. */
function replaceRows(db: Database, table: Table, rows: Row[], keep: ReadonlySet<SqlValue> = new Set()): void {
  const { name, key, columns } = table;
  const identity = (values: SqlValue[]) => values.slice(0, key.length).join("\0");
  const known = db.tuples(`SELECT ${[...key, ...columns].join(", ")} FROM ${name}`);
  const stored = new Map(known.map((values) => [identity(values), values]));
  const upsert = upsertInto(table);
  for (const row of rows) {
    const values = valuesOf(table, row);
    const before = stored.get(identity(values));
    stored.delete(identity(values));
    if (!before?.every((value, index) => value === values[index])) db.run(upsert, ...values);
  }
  const where = key.map((column) => `${column} = ?`).join(" AND ");
  for (const values of stored.values())
    if (!keep.has(values[0] ?? null))
      db.run(`DELETE FROM ${name} WHERE ${where}`, ...values.slice(0, key.length));
}

/** Key, columns and payload, in this order. */
function valuesOf({ key, columns, payload = [] }: Table, row: Row): SqlValue[] {
  return [...key, ...columns, ...payload].map((column) => row[column] as SqlValue);
}

function upsertInto({ name, key, columns, payload = [] }: Table): string {
  const all = [...key, ...columns, ...payload];
  const updates = all.slice(key.length).map((column) => `${column} = excluded.${column}`);
  return `INSERT INTO ${name} (${all.join(", ")}) VALUES (${all.map(() => "?").join(", ")})
    ON CONFLICT (${key.join(", ")}) DO ${updates.length === 0 ? "NOTHING" : `UPDATE SET ${updates.join(", ")}`}`;
}

function workerRow(worker: BuiltWorker): Row {
  return {
    worker_ip: worker.host,
    worker_id: worker.id,
    hostname: worker.hostname,
    position: worker.position,
    connection: worker.connection,
    root: worker.root,
    ssh_user: worker.sshUser ?? null,
    ssh_port: worker.sshPort ?? null,
    ssh_jump: worker.sshJump ?? null,
    available_memory_mb: worker.memoryMb,
    available_cpu_mhz: worker.cpuMhz,
    removed: 0,
  };
}

function labelRows(worker: BuiltWorker): Row[] {
  return worker.labels.map((label) => ({ worker_ip: worker.host, label }));
}

function tagRows(worker: BuiltWorker): Row[] {
  return [...worker.tags].map(([key, value]) => ({ worker_ip: worker.host, key, value }));
}

function jobRow(job: BuiltJob): Row {
  return {
    name: job.name,
    job_id: job.id,
    version: job.version,
    deployment_seq: job.deploymentSeq,
    max_concurrent_upgrades: job.maxConcurrentUpgrades,
    max_concurrent_starts: job.maxConcurrentStarts,
    min_memory_mb: job.memory.min,
    max_memory_mb: job.memory.max,
    current_memory_mb: job.memory.current,
    current_memory_source: job.memory.source,
    min_cpu_mhz: job.cpu.min,
    max_cpu_mhz: job.cpu.max,
    current_cpu_mhz: job.cpu.current,
    current_cpu_source: job.cpu.source,
    restart_policy: job.restartPolicy,
    restart_globs: JSON.stringify(job.restartGlobs),
    health_check: JSON.stringify(job.healthCheck),
    lifecycle_timeout_seconds: job.lifecycleTimeoutSeconds,
    on_failure: job.onFailure,
    secret_mode: job.secretMode,
    tolerate_unreachable: job.tolerateUnreachable,
  };
}

function selectorRows(job: BuiltJob): Row[] {
  return job.selectors.map((selector) => ({ job: job.name, selector }));
}

function portRows(job: BuiltJob): Row[] {
  return Object.entries(job.ports).map(([name, port]) => ({ job: job.name, name, port }));
}

function hookRows(job: BuiltJob): Row[] {
  return job.hooks.flatMap((hook) =>
    hook.events.map((event) => ({
      job: job.name,
      name: hook.name,
      executed_on: event,
      demand_job: hook.demandJob,
      demand_hook: hook.demandHook,
      demand_config: JSON.stringify(hook.demandConfig),
    })),
  );
}

function fileRows(job: BuiltJob): Row[] {
  return job.files.map(({ path, mode, sha256, content }) => ({ job: job.name, path, mode, sha256, content }));
}

function allocationRow(allocation: CatalogAllocation): Row {
  return {
    worker_ip: allocation.worker,
    job: allocation.job,
    alloc_id: allocation.id,
    disabled: allocation.disabled ? 1 : 0,
    removed: allocation.removed ? 1 : 0,
    deployment_seq: allocation.deploymentSeq,
    new_version: allocation.newVersion,
  };
}
