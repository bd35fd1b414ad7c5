import type { Database, Row, SqlValue } from "../base/database.ts";
import {
  ALLOCATION,
  BUILT_WORKER,
  type CatalogAllocation,
  type CatalogFile,
  type CatalogJob,
  type CatalogWorker,
  HOOK,
  JOB,
  JOB_FILE,
  WORKER,
} from "../base/model.ts";
import { readRecords, replaceRows, rowOf, writeRows } from "../base/table.ts";
import type { Worker } from "../workspace/workers.ts";
import { contentBeside } from "./contents.ts";
import { startAnew } from "./promotions.ts";

/** The workers, by position and host; removed workers that still have allocations are included. */
export function catalogWorkers(db: Database): CatalogWorker[] {
  const sql = "SELECT worker_ip, label FROM worker_labels ORDER BY label";
  const rows = db.all<{ worker_ip: string; label: string }>(sql);
  const labels = Map.groupBy(rows, (row) => row.worker_ip);
  return readRecords(db, WORKER, "ORDER BY position, worker_ip").map((worker) => {
    return { ...worker, labels: (labels.get(worker.host) ?? []).map(({ label }) => label) };
  });
}

/** The jobs, by name. */
export function catalogJobs(db: Database): CatalogJob[] {
  const ports = catalogPorts(db);
  const hooks = Map.groupBy(readRecords(db, HOOK, "ORDER BY job, name, executed_on"), ({ job }) => job);
  return readRecords(db, JOB, "ORDER BY name").map((job) => ({
    ...job,
    ports: Object.fromEntries(ports.get(job.name) ?? []),
    hooks: [...Map.groupBy(hooks.get(job.name) ?? [], ({ name }) => name).values()].map((rows) => {
      const [{ job: _, event: __, ...hook }] = rows as [(typeof rows)[0]];
      return { ...hook, events: rows.map(({ event }) => event) };
    }),
  }));
}

/** The numbers of all ports by job and name, names in order. */
export function catalogPorts(db: Database): Map<string, Map<string, number>> {
  const ports = new Map<string, Map<string, number>>();
  const sql = "SELECT job, name, port FROM job_ports ORDER BY name";
  const rows = db.all<{ job: string; name: string; port: number }>(sql);
  for (const { job, name, port } of rows) ports.set(job, (ports.get(job) ?? new Map()).set(name, port));
  return ports;
}

/** The allocations: by job, then the worker's position, then host. */
export function catalogAllocations(db: Database): CatalogAllocation[] {
  return readRecords(db, ALLOCATION, "ORDER BY job, position, worker_ip");
}

/** The allocations in no order, which of 10,000 takes a third of the time. */
export function unorderedAllocations(db: Database): CatalogAllocation[] {
  return readRecords(db, ALLOCATION);
}

/** The files of a job, by path; with a folder (`_hooks/`) those below it. */
export function catalogFiles(db: Database, job: string, folder = ""): CatalogFile[] {
  return filesWhere(db, "WHERE job = ? AND path GLOB ? ORDER BY path", job, `${folder}*`);
}

/** One file of a job; undefined where there is none. */
export function catalogFile(db: Database, job: string, path: string): CatalogFile | undefined {
  return filesWhere(db, "WHERE job = ? AND path = ?", job, path)[0];
}

function filesWhere(db: Database, rest: string, ...values: SqlValue[]): CatalogFile[] {
  return readRecords(db, JOB_FILE, rest, ...values).map(({ sizeBytes, content, ...file }) => {
    return { ...file, content: content ?? contentBeside(db, file.sha256, sizeBytes) };
  });
}

/** The files of a job from the path after `after` on, at most `limit`, without their content. */
export function listCatalogFiles(db: Database, job: string, { after, limit }: { after: string; limit: number }) {
  return db.all<Omit<CatalogFile, "content"> & { size_bytes: number }>(
    "SELECT path, mode, sha256, size_bytes FROM job_files WHERE job = ? AND path > ? ORDER BY path LIMIT ?",
    ...[job, after, limit],
  );
}

/** The names of the jobs. */
export function jobNames(db: Database): Set<string> {
  return new Set(db.tuples<[string]>("SELECT name FROM job").flat());
}

/** A worker of a build with the id that the catalog knows it by. */
export interface BuiltWorker extends Worker {
  id: string;
}

/** What a job gets of a resource, in MB or MHz, and the file that says so. */
export interface Reservation extends Record<"min" | "max" | "current", number> {
  source: string;
}

/** A job of a build. */
export interface BuiltJob extends CatalogJob {
  selectors: string[];
  memory: Reservation;
  cpu: Reservation;
  files: CatalogFile[];
}

/** The result of a build. */
export interface BuiltCatalog {
  workers: BuiltWorker[];
  jobs: BuiltJob[];
  /** Removed allocations included. */
  allocations: CatalogAllocation[];
  /** The allocations that differ from the last build. A later build has them all, until gc removes their rows. */
  changed: CatalogAllocation[];
  /** The allocations whose promoted state does not count any more: the next deploy starts them as new. */
  startAnew: CatalogAllocation[];
  /** What schedules.json says, as JSON. */
  schedules: string;
  /** What notify.json says, with its templates, as JSON. */
  notify: string;
}

/**
 * Replaces the catalog by what was built; only rows that differ are written. To be called in a transaction. A worker
 * that is not in workers.json any more keeps its row, marked as removed, while an allocation is left on the worker.
 */
export function saveCatalog(db: Database, { workers, jobs, ...built }: BuiltCatalog, now: Date): void {
  const present = new Set(workers.map((worker) => worker.host));
  const left = new Set<SqlValue>(built.allocations.map(({ worker }) => worker).filter((host) => !present.has(host)));
  for (const host of left) db.run("UPDATE worker SET removed = 1 WHERE worker_ip = ?", host);
  for (const [table, rows] of Object.entries(workerRows(workers))) replaceRows(db, table, rows, left);
  db.run("DELETE FROM worker_facts WHERE worker_ip NOT IN (SELECT worker_ip FROM worker)");
  for (const [table, rows] of Object.entries(jobRows(jobs))) replaceRows(db, table, rows);
  const positions = new Map(workers.map(({ host, position }) => [host, position]));
  const placed = ({ worker }: CatalogAllocation) => ({ position: positions.get(worker) ?? 0 });
  const changed = built.changed.map((allocation) => ({ ...rowOf(ALLOCATION, allocation), ...placed(allocation) }));
  writeRows(db, "allocations", changed);
  startAnew(db, built.startAnew);
  const { schedules, notify } = built;
  const sql = "UPDATE bucket SET build_seq = build_seq + 1, built_at = ?, schedules = ?, notify = ?";
  db.run(sql, now.toISOString(), schedules, notify);
}

/** The rows of each table about workers. */
function workerRows(workers: readonly BuiltWorker[]): Record<string, Row[]> {
  return {
    worker: workers.map((worker) => rowOf(BUILT_WORKER, { ...worker, removed: false })),
    worker_labels: workers.flatMap(({ host, labels }) => labels.map((label) => ({ worker_ip: host, label }))),
    worker_tags: workers.flatMap(({ host, tags }) => [...tags].map(([key, value]) => ({ worker_ip: host, key, value }))),
  };
}

/** The rows of each table about jobs. */
function jobRows(jobs: readonly BuiltJob[]): Record<string, Row[]> {
  const ofEach = (rowsOf: (job: BuiltJob) => Row[]) =>
    jobs.flatMap((job) => rowsOf(job).map((row) => ({ job: job.name, ...row })));
  return {
    job: jobs.map(jobRow),
    job_selectors: ofEach(({ selectors }) => selectors.map((selector) => ({ selector }))),
    job_ports: ofEach(({ ports }) => Object.entries(ports).map(([name, port]) => ({ name, port }))),
    hooks: jobs.flatMap(hookRows),
    job_files: ofEach(({ files }) => files.map(fileRow)),
  };
}

function jobRow({ memory, cpu, ...job }: BuiltJob): Row {
  return {
    ...rowOf(JOB, job),
    min_memory_mb: memory.min,
    max_memory_mb: memory.max,
    current_memory_mb: memory.current,
    current_memory_source: memory.source,
    min_cpu_mhz: cpu.min,
    max_cpu_mhz: cpu.max,
    current_cpu_mhz: cpu.current,
    current_cpu_source: cpu.source,
  };
}

function fileRow({ content, ...file }: CatalogFile): Row {
  const own = Buffer.isBuffer(content) ? content : undefined;
  return rowOf(JOB_FILE, { ...file, sizeBytes: content.length, content: own });
}

function hookRows({ name: job, hooks }: BuiltJob): Row[] {
  return hooks.flatMap((hook) => hook.events.map((event) => rowOf(HOOK, { ...hook, job, event })));
}
