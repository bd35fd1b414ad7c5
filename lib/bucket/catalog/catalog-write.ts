import type { Database, Row, SqlValue } from "../base/database.ts";
import type { CatalogAllocation, CatalogFile, CatalogJob } from "../base/model.ts";
import type { Worker } from "../workspace/workers.ts";
import { JOB_COLUMNS, WORKER_COLUMNS } from "./catalog.ts";
import { startAnew } from "./promotions.ts";

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
  const left = new Set<SqlValue>(built.allocations.map(({ worker }) => worker).filter((host) => !present.has(host)));
  for (const host of left) db.run("UPDATE worker SET removed = 1 WHERE worker_ip = ?", host);
  replaceRows(db, { name: "worker", key: ["worker_ip"] }, built.workers.map(workerRow), left);
  db.run("DELETE FROM worker_facts WHERE worker_ip NOT IN (SELECT worker_ip FROM worker)");
  const { workers, jobs } = built;
  replaceRows(db, { name: "worker_labels", key: ["worker_ip", "label"] }, workers.flatMap(labelRows), left);
  replaceRows(db, { name: "worker_tags", key: ["worker_ip", "key"] }, workers.flatMap(tagRows), left);
  replaceRows(db, { name: "job", key: ["name"] }, jobs.map(jobRow));
  replaceRows(db, { name: "job_selectors", key: ["job", "selector"] }, jobs.flatMap(selectorRows));
  replaceRows(db, { name: "job_ports", key: ["job", "name"] }, jobs.flatMap(portRows));
  replaceRows(db, { name: "hooks", key: ["job", "name", "executed_on"] }, jobs.flatMap(hookRows));
  const files = { name: "job_files", key: ["job", "path"], payload: "content" };
  replaceRows(db, files, jobs.flatMap(fileRows));
  upsert(db, { name: "allocations", key: ["worker_ip", "job"] }, built.changed.map(allocationRow));
  startAnew(db, built.startAnew);
  db.run("UPDATE bucket SET build_seq = build_seq + 1, built_at = ?", now.toISOString());
}

interface Table {
  name: string;
  key: readonly string[];
  /** A column that is not compared: another one tells whether it differs. */
  payload?: string;
}

/** Makes a table hold exactly these rows, besides those of the workers that `keep` names. Writes only what differs. */
function replaceRows(db: Database, table: Table, rows: Row[], keep: ReadonlySet<SqlValue> = new Set()): void {
  const { name, key, payload } = table;
  const columns = Object.keys(rows[0] ?? {}).filter((column) => !key.includes(column) && column !== payload);
  const compared = [...key, ...columns];
  const identity = (values: SqlValue[]) => values.slice(0, key.length).join("\0");
  const known = db.tuples(`SELECT ${compared.join(", ")} FROM ${name}`);
  const stored = new Map(known.map((values) => [identity(values), values]));
  const differing = rows.filter((row) => {
    const values = compared.map((column) => row[column] as SqlValue);
    const before = stored.get(identity(values));
    stored.delete(identity(values));
    return !before?.every((value, index) => value === values[index]);
  });
  upsert(db, table, differing);
  const where = key.map((column) => `${column} = ?`).join(" AND ");
  for (const values of stored.values())
    if (!keep.has(values[0] ?? null)) db.run(`DELETE FROM ${name} WHERE ${where}`, ...values.slice(0, key.length));
}

/** Writes rows, all with the same columns, in the place of those with the same key. */
function upsert(db: Database, { name, key }: Table, rows: readonly Row[]): void {
  const all = Object.keys(rows[0] ?? {});
  const updates = all.filter((column) => !key.includes(column)).map((one) => `${one} = excluded.${one}`);
  const sql = `INSERT INTO ${name} (${all.join(", ")}) VALUES (${all.map(() => "?").join(", ")})
    ON CONFLICT (${key.join(", ")}) DO ${updates.length === 0 ? "NOTHING" : `UPDATE SET ${updates.join(", ")}`}`;
  for (const row of rows) db.run(sql, ...Object.values(row));
}

/** The columns of a row that hold a field as it is. */
function columnsOf<F extends string>(
  columns: Readonly<Record<F, string>>,
  fields: { readonly [K in NoInfer<F>]?: SqlValue },
): Row {
  const entries = Object.entries(columns) as [F, string][];
  return Object.fromEntries(entries.map(([field, column]) => [column, fields[field] ?? null]));
}

function workerRow(worker: BuiltWorker): Row {
  const amounts = { available_memory_mb: worker.memoryMb, available_cpu_mhz: worker.cpuMhz };
  return { ...columnsOf(WORKER_COLUMNS, worker), ...amounts, removed: 0 };
}

function labelRows(worker: BuiltWorker): Row[] {
  return worker.labels.map((label) => ({ worker_ip: worker.host, label }));
}

function tagRows(worker: BuiltWorker): Row[] {
  return [...worker.tags].map(([key, value]) => ({ worker_ip: worker.host, key, value }));
}

function jobRow(job: BuiltJob): Row {
  const restartGlobs = JSON.stringify(job.restartGlobs);
  const driftIgnore = JSON.stringify(job.driftIgnore);
  const healthCheck = JSON.stringify(job.healthCheck);
  return {
    ...columnsOf(JOB_COLUMNS, { ...job, restartGlobs, driftIgnore, healthCheck }),
    min_memory_mb: job.memory.min,
    max_memory_mb: job.memory.max,
    current_memory_mb: job.memory.current,
    current_memory_source: job.memory.source,
    min_cpu_mhz: job.cpu.min,
    max_cpu_mhz: job.cpu.max,
    current_cpu_mhz: job.cpu.current,
    current_cpu_source: job.cpu.source,
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
