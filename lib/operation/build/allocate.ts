import type { CatalogAllocation } from "../../bucket/base/model.ts";
import type { Problems } from "../../bucket/base/problems.ts";
import type { BuiltJob, BuiltWorker, Reservation } from "../../bucket/catalog/catalog.ts";
import type { JobSource } from "../../bucket/workspace/jobs.ts";
import type { Disabled } from "../../bucket/workspace/workers.ts";
import { plainDecimal } from "../../codec/config/number.ts";
import { uuidV5 } from "../../codec/uuid.ts";
import { counted } from "../../core/plain-text.ts";

/** The parts of a job that decide on its workers. */
interface PlacedJob {
  name: string;
  selectors: readonly string[];
  deploymentSeq: number;
  newVersion: string;
}

/** What allocations are computed from. */
interface AllocationInput {
  bucketId: string;
  /** In the order of deployment. */
  workers: readonly { host: string; labels: readonly string[] }[];
  jobs: readonly PlacedJob[];
  disabled: Disabled;
  /** The allocations of the last build, removed ones included. */
  previous: readonly CatalogAllocation[];
}

/**
 * Places every job on the workers that carry all its selectors as labels, by job and then in the workers' order.
 * Allocations that no longer match stay, marked as removed, until gc; they keep their version. An unchanged allocation
 * is the very object of the last build.
 */
export function allocate(input: AllocationInput): CatalogAllocation[] {
  const before = new Map(input.previous.map((one) => [nameOf(one.job, one.worker), one]));
  const matching = input.jobs.flatMap((job) =>
    workersOf(job, input.workers).map((host) => {
      const name = nameOf(job.name, host);
      const known = before.get(name);
      before.delete(name);
      return place(job, host, known, input);
    }),
  );
  const sequences = new Map(input.jobs.map((job) => [job.name, job.deploymentSeq]));
  const removed = [...before.values()].map((known) =>
    unlessSame(known, {
      ...known,
      removed: true,
      disabled: isDisabled(input.disabled, known.job, known.worker),
      deploymentSeq: sequences.get(known.job) ?? known.deploymentSeq,
    }),
  );
  return [...matching, ...removed];
}

/** The name that the id of an allocation is made from. */
function nameOf(job: string, worker: string): string {
  return `${job}|${worker}`;
}

function workersOf(job: PlacedJob, workers: AllocationInput["workers"]): string[] {
  return workers
    .filter(({ labels }) => job.selectors.every((selector) => labels.includes(selector)))
    .map((worker) => worker.host);
}

function place(job: PlacedJob, worker: string, known: CatalogAllocation | undefined, input: AllocationInput): CatalogAllocation {
  const placed = {
    // Computed once for an allocation: thousands of digests are a noticeable part of a build.
    id: known?.id ?? uuidV5(input.bucketId, nameOf(job.name, worker)),
    worker,
    job: job.name,
    disabled: isDisabled(input.disabled, job.name, worker),
    removed: false,
    deploymentSeq: job.deploymentSeq,
    newVersion: job.newVersion,
  };
  return known ? unlessSame(known, placed) : placed;
}

function unlessSame(known: CatalogAllocation, now: CatalogAllocation): CatalogAllocation {
  const isSame =
    known.disabled === now.disabled &&
    known.removed === now.removed &&
    known.deploymentSeq === now.deploymentSeq &&
    known.newVersion === now.newVersion;
  return isSame ? known : now;
}

function isDisabled(disabled: Disabled, job: string, worker: string): boolean {
  const hosts = disabled.jobs.get(job);
  return disabled.workers.has(worker) || hosts === "all" || hosts?.has(worker) === true;
}

/** The allocations that were disabled and are active now: the next deploy starts them as new ones. */
export function enabledAgain(before: readonly CatalogAllocation[], now: readonly CatalogAllocation[]): CatalogAllocation[] {
  const wereDisabled = new Set(before.filter((one) => one.disabled).map((one) => one.id));
  return now.filter((one) => isActive(one) && wereDisabled.has(one.id));
}

/** Neither disabled nor removed. */
export function isActive(allocation: CatalogAllocation): boolean {
  return !allocation.disabled && !allocation.removed;
}

/** Checks that every job has the workers it asks for (`ErrInsufficientAllocations`); warns where it has none. */
export function checkCounts(
  jobs: readonly Pick<JobSource, "name" | "file" | "manifest">[],
  allocations: readonly CatalogAllocation[],
  problems: Problems,
): void {
  const counts = new Map<string, number>();
  for (const { job, removed } of allocations) if (!removed) counts.set(job, (counts.get(job) ?? 0) + 1);
  for (const { name, file, manifest } of jobs) {
    const { selectors, minAllocationsCount } = manifest;
    const count = counts.get(name) ?? 0;
    const rule = `with the labels ${selectors.join(", ")}`;
    const few = `needs ${counted(minAllocationsCount, "worker")} ${rule}, but there are ${count}`;
    if (count < minAllocationsCount) problems.error("ErrInsufficientAllocations", file, "min_allocations_count", few);
    else if (count === 0) problems.warn(file, "selectors", `the job runs nowhere: there is no worker ${rule}`);
  }
}

/**
 * Checks that every worker declares at least the memory and cpu that its active allocations reserve
 * (`ErrInsufficientResource`).
 */
export function checkCapacity(
  workers: readonly BuiltWorker[],
  jobs: readonly BuiltJob[],
  allocations: readonly CatalogAllocation[],
  problems: Problems,
): void {
  const known = new Map(jobs.map((job) => [job.name, job]));
  const placed = Map.groupBy(allocations.filter(isActive), (allocation) => allocation.worker);
  const check = (worker: BuiltWorker, what: "memory" | "cpu", unit: string, capacity: number) => {
    const here = (placed.get(worker.host) ?? []).flatMap(({ job }) => known.get(job)?.[what] ?? []);
    const needed = here.reduce((sum: number, reservation: Reservation) => sum + reservation.current, 0);
    if (needed <= capacity) return;
    const has = capacity === 0 ? "declares none" : `has ${plainDecimal(capacity)} ${unit}`;
    const message = `active jobs reserve ${plainDecimal(needed)} ${unit} of ${what}, but the worker ${has}`;
    problems.error("ErrInsufficientResource", "workspace/workers.json", worker.host, message);
  };
  for (const worker of workers) {
    check(worker, "memory", "mb", worker.memoryMb);
    check(worker, "cpu", "mhz", worker.cpuMhz);
  }
}
