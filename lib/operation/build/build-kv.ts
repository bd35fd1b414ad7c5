import type { CatalogAllocation } from "../../bucket/base/model.ts";
import type { BuiltJob, BuiltWorker } from "../../bucket/catalog/catalog.ts";
import type { KvStore } from "../../bucket/kv/kv.ts";
import { allocationNamespace } from "../../bucket/kv/kv-access.ts";
import type { KvValue } from "../../bucket/kv/kv-rows.ts";
import { plainDecimal } from "../../codec/config/number.ts";
import { uuidV5 } from "../../codec/uuid.ts";
import { isActive } from "./allocate.ts";

/** The facts that a build writes for templates and scripts. */
interface KvInput {
  bucketId: string;
  /** The certificate of the bucket's CA, in PEM. */
  ca: string;
  /** By position, then host. */
  workers: readonly BuiltWorker[];
  /** By name. */
  jobs: readonly KvJob[];
  /** Removed ones included; those of a job in the order of the workers. */
  allocations: readonly CatalogAllocation[];
  /** The jobs whose allocations' keys may differ from what is stored. */
  placedAnew: ReadonlySet<string>;
  /** bucket.conf. */
  bucketValues: ReadonlyMap<string, string>;
  /** Removes variables and secrets of jobs that have no allocation left, too. */
  purgeJobs: boolean;
}

/** A job with its settings of the bucket, its vars.toml and its target version. */
export interface KvJob extends BuiltJob {
  newVersion: string;
  settings: ReadonlyMap<string, string>;
  vars: ReadonlyMap<string, string>;
}

/**
 * Writes the build's part of the KV store (docs/workspace.md, What a build makes): what it owns is made equal to the
 * build, so a `rollout_order` that a script put is gone afterwards; a job's variables are only added to and its secrets
 * left alone. What a deploy wrote about a present allocation stays.
 */
export function writeKv(kv: KvStore, input: KvInput): void {
  kv.deleteExpired();
  kv.sync("ops/bucket", bucketEntries(input));
  kv.sync("vars/bucket", input.bucketValues);
  const labels = hostsByLabel(input.workers);
  kv.sync("ops/worker", labelEntries(input, labels));
  writeWorkers(kv, input, labels);
  const { removed = [], kept = [] } = Object.groupBy(input.allocations, (one) => (one.removed ? "removed" : "kept"));
  const present = Map.groupBy(kept, (one) => one.job);
  const left = new Set(removed.map((one) => one.job));
  // A job that has allocations, but only removed ones, is gone; one that never had any is not.
  const jobs = input.jobs.filter(({ name }) => present.has(name) || !left.has(name));
  for (const job of jobs) writeJob(kv, job, present.get(job.name) ?? []);
  for (const job of input.placedAnew) writeAllocations(kv, job, present.get(job) ?? []);
  clearWhatIsGone(kv, input, new Set(jobs.map((job) => job.name)));
}

function bucketEntries({ bucketId, jobs, allocations }: KvInput): Map<string, string> {
  const active = new Set(allocations.filter(isActive).map(({ job }) => job));
  const allocated = new Set(allocations.filter(({ removed }) => !removed).map(({ job }) => job));
  return new Map([
    ["bucket_id", bucketId],
    ["jobs", csv(jobs.map((job) => job.name))],
    ["activejobs", csv(jobs.filter(({ name }) => active.has(name)).map(({ name }) => name))],
    ...jobs
      .filter(({ name }) => allocated.has(name))
      .flatMap(({ ports }) => Object.entries(ports))
      .map(([name, port]): [string, string] => [name, String(port)]),
  ]);
}

type HostsByLabel = ReadonlyMap<string, string[]>;

function labelEntries({ bucketId, ca }: KvInput, labels: HostsByLabel): Map<string, string> {
  const entries = new Map([["certs/ca.crt", ca]]);
  for (const [label, hosts] of labels) {
    entries.set(`${label}_workers`, csv(hosts));
    entries.set(`${label}_workers_length`, String(hosts.length));
    entries.set(`${label}_label_id`, uuidV5(bucketId, label));
    for (const [index, host] of hosts.entries()) entries.set(`${label}_${index}`, host);
  }
  return entries;
}

function hostsByLabel(workers: readonly BuiltWorker[]): HostsByLabel {
  const pairs = workers.flatMap(({ host, labels }) => labels.map((label) => ({ label, host })));
  const groups = Map.groupBy(pairs, ({ label }) => label);
  return new Map([...groups].map(([label, own]) => [label, own.map(({ host }) => host)]));
}

function writeWorkers(kv: KvStore, { workers, allocations }: KvInput, labels: HostsByLabel): void {
  const lists = new Map([...labels].map(([label, hosts]) => [label, csv(hosts)]));
  const placed = Map.groupBy(allocations.filter(isActive), (allocation) => allocation.worker);
  const seen = new Map<string, number>();
  for (const worker of workers) {
    const entries = new Map<string, KvValue>([
      ["worker_ip", worker.host],
      ["worker_id", worker.id],
      ["labels", csv(worker.labels)],
      ["worker_cpu_mhz", plainDecimal(worker.cpuMhz)],
      ["worker_memory_mb", plainDecimal(worker.memoryMb)],
      ["jobs", csv((placed.get(worker.host) ?? []).map((allocation) => allocation.job).sort())],
      ["position", String(worker.position)],
    ]);
    if (worker.hostname !== null) entries.set("hostname", worker.hostname);
    for (const label of worker.labels) {
      const index = seen.get(label) ?? 0;
      seen.set(label, index + 1);
      entries.set(`${label}_allocation_index`, String(index));
      const hosts = lists.get(label) ?? "";
      if (hosts !== worker.host) entries.set(`${label}_peers`, { hosts, without: worker.host });
    }
    kv.sync(`ops/worker/${worker.host}`, entries);
    kv.sync(`ops/worker/${worker.host}/tags`, worker.tags);
  }
}

function writeJob(kv: KvStore, job: KvJob, allocations: readonly CatalogAllocation[]): void {
  const hosts = allocations.filter(isActive).map((one) => one.worker);
  const entries = jobEntries(job, hosts);
  // Written later in the build, where the job is scraped.
  const scrapeName = kv.get(`ops/job/${job.name}`, "job_name");
  if (scrapeName !== undefined) entries.set("job_name", scrapeName);
  kv.sync(`ops/job/${job.name}`, entries);
  kv.sync(`vars/bucket/job/${job.name}`, job.settings);
  for (const [key, value] of job.vars) kv.put(`vars/job/${job.name}`, key, value);
}

/** Writes the index and the peers of each allocation. Deletes all keys of allocations that have gone, whoever wrote them. */
function writeAllocations(kv: KvStore, job: string, allocations: readonly CatalogAllocation[]): void {
  const left = kv.loadAllocations(job);
  const hosts = csv(allocations.map((allocation) => allocation.worker));
  for (const [index, { worker }] of allocations.entries()) {
    const namespace = allocationNamespace(job, worker);
    left.delete(namespace);
    kv.put(namespace, `${job}_allocation_index`, String(index));
    kv.put(namespace, "peer_workers", { hosts, without: worker });
  }
  for (const namespace of left) kv.sync(namespace, new Map());
}

function jobEntries(job: KvJob, hosts: string[]): Map<string, string> {
  return new Map([
    ["job_id", job.id],
    ["name", job.name],
    ["version", job.newVersion],
    ["selectors", csv(job.selectors)],
    ["min_memory_mb", plainDecimal(job.memory.min)],
    ["max_memory_mb", plainDecimal(job.memory.max)],
    ["memory", plainDecimal(job.memory.current)],
    ["min_cpu_mhz", plainDecimal(job.cpu.min)],
    ["max_cpu_mhz", plainDecimal(job.cpu.max)],
    ["cpu", plainDecimal(job.cpu.current)],
    ["workers", csv(hosts)],
    ["workers_length", String(hosts.length)],
    ...hosts.map((host, index): [string, string] => [`worker_${index}`, host]),
  ]);
}

const JOB_NAMESPACE = /^(ops\/job|vars\/bucket\/job|vars\/job|secrets\/job)\/([^/]+)$/;
const WORKER_NAMESPACE = /^ops\/worker\/([^/]+)$/;

/**
 * Empties the namespaces of workers and jobs that are gone. Variables and secrets stay unless they are to be purged,
 * since a job's data may outlive its allocations; a removed worker's tags stay until gc.
 */
function clearWhatIsGone(kv: KvStore, input: KvInput, jobs: ReadonlySet<string>): void {
  const hosts = new Set(input.workers.map((worker) => worker.host));
  const isGone = (namespace: string) => {
    const [, host] = WORKER_NAMESPACE.exec(namespace) ?? [];
    if (host !== undefined) return !hosts.has(host);
    const [, kind, job = ""] = JOB_NAMESPACE.exec(namespace) ?? [];
    if (kind === undefined) return false;
    return !jobs.has(job) && (kind === "ops/job" || kind === "vars/bucket/job" || input.purgeJobs);
  };
  for (const namespace of kv.namespaces()) if (isGone(namespace)) kv.sync(namespace, new Map());
}

function csv(values: readonly string[]): string {
  return values.join(",");
}
