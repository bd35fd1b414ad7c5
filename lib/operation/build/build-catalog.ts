import { randomUUID } from "node:crypto";
import type { CatalogAllocation, CatalogWorker } from "../../bucket/base/model.ts";
import { type FileProblems, type Problems, unknownName } from "../../bucket/base/problems.ts";
import type { BuiltCatalog, BuiltWorker, Reservation } from "../../bucket/catalog/catalog.ts";
import type { JobSettings } from "../../bucket/workspace/bucket-conf.ts";
import type { JobSource } from "../../bucket/workspace/jobs.ts";
import { assignPorts, type PortNumbers } from "../../bucket/workspace/ports.ts";
import type { SCHEDULED_KINDS } from "../../bucket/workspace/schedules.ts";
import type { Workspace } from "../../bucket/workspace/workspace.ts";
import { parseCpuMhz, parseMemoryMb } from "../../codec/config/number.ts";
import { uuidV5 } from "../../codec/uuid.ts";
import { messageOf } from "../../core/errors.ts";
import { check, type Shape } from "../../core/shape.ts";
import { checkDemands, demandGraph, deploymentSequence } from "../../plan/demands.ts";
import { RUNS, type RunKind } from "../../run/protocol.ts";
import { allocate, checkCapacity, checkCounts, enabledAgain } from "./allocate.ts";
import type { KvJob } from "./build-kv.ts";

/** The parts of the last build that the next build keeps. */
interface LastBuild {
  workers: readonly CatalogWorker[];
  allocations: readonly CatalogAllocation[];
  ports: PortNumbers;
}

/** A catalog, and the other inputs of the KV store. */
export interface Built extends BuiltCatalog {
  jobs: KvJob[];
  /** See {@link jobsPlacedAnew}. */
  placedAnew: Set<string>;
}

/**
 * Computes the catalog of a workspace. Throws where the workspace has a problem, after all problems are collected:
 * also those about the places of jobs, where workers and reservations are known.
 */
export function buildCatalog(bucketId: string, workspace: Workspace, last: LastBuild, problems: Problems): Built {
  const jobs = buildJobs(bucketId, workspace, last.ports, problems);
  checkSchedules(workspace, problems);
  const before = new Set(problems.errors.map(({ code }) => code));
  const ids = new Map(last.workers.map((worker) => [worker.host, worker.id]));
  const workers = workspace.workers.map((worker) => ({ ...worker, id: ids.get(worker.host) ?? randomUUID() }));
  const { disabled } = workspace;
  const allocations = allocate({ bucketId, workers, jobs, disabled, previous: last.allocations });
  if (!before.has("ErrInvalidWorkerJSON")) {
    checkCounts(workspace.jobs, allocations, problems);
    const isKnown = !before.has("ErrInvalidBucketConf") && !before.has("ErrInvalidDisabledJSON");
    if (isKnown) checkCapacity(workers, jobs, allocations, problems);
  }
  problems.throwIfAny();
  const startAnew = [
    ...enabledAgain(last.allocations, allocations),
    ...movedAllocations(workers, last.workers, allocations, problems),
  ];
  const known = new Set(last.allocations);
  const changed = allocations.filter((allocation) => !known.has(allocation));
  const placedAnew = jobsPlacedAnew(last.workers, workers, allocations, changed);
  const texts = { schedules: workspace.schedules.text, notify: workspace.notify.text };
  return { workers, jobs, allocations, changed, startAnew, placedAnew, ...texts };
}

/**
 * The jobs whose allocations may have other indexes or peers than after the last build. These follow from which
 * allocations the job has and from the order of the workers: where the order is as it was, only jobs with a new or
 * changed allocation count, else all. What the last build found is stored in one transaction with the keys it wrote,
 * and nobody else writes these keys; so those of all other jobs are as a build would write them.
 */
function jobsPlacedAnew(
  before: readonly CatalogWorker[],
  workers: readonly BuiltWorker[],
  allocations: readonly CatalogAllocation[],
  changed: readonly CatalogAllocation[],
): Set<string> {
  const orderOf = (list: readonly { host: string }[]) => list.map(({ host }) => host).join(",");
  const isAsBefore = orderOf(before.filter(({ removed }) => !removed)) === orderOf(workers);
  return new Set((isAsBefore ? changed : allocations).map(({ job }) => job));
}

function buildJobs(bucketId: string, workspace: Workspace, stored: PortNumbers, problems: Problems): KvJob[] {
  const levels = checkOrder(workspace, problems);
  const requests = workspace.jobs.map(({ name, file, manifest }) => ({ job: name, file, ports: manifest.ports }));
  const ports = assignPorts(requests, stored, workspace.bucketConf.ports, problems);
  return workspace.jobs.map((job) => {
    const { name, manifest, files, vars } = job;
    const { certs: _, minAllocationsCount: __, version, ...same } = manifest;
    return {
      ...same,
      ...reserve(job, workspace.jobSettings, problems),
      name,
      id: uuidV5(bucketId, name),
      version: version || "unknown",
      newVersion: version || "0.0.0",
      deploymentSeq: levels.get(name) ?? 0,
      ports: Object.fromEntries(ports.get(name) ?? []),
      files,
      vars,
      settings: workspace.jobSettings.jobs.get(name) ?? new Map(),
    };
  });
}

/** Judges versions, demands and `after` of all jobs and answers each job's place in the order of deployment. */
function checkOrder({ jobs, broken }: Workspace, problems: Problems): ReadonlyMap<string, number> {
  const known = new Map(jobs.map((job) => [job.name, job]));
  const demands = jobs.map(({ name, manifest }) => ({ ...manifest, name }));
  for (const { code, job, path, message } of checkDemands(demands, broken))
    problems.error(code, fileOf(known, job), path, message);
  const { levels, cycle } = deploymentSequence(demandGraph(demands));
  if (cycle === undefined) return levels;
  const [first = "", second = first] = cycle;
  const circle = [...cycle, first].join(" -> ");
  const path = known.get(first)?.manifest.after.includes(second) ? "after" : "hooks";
  problems.error("ErrCircularHookDependency", fileOf(known, first), path, `jobs come after each other: ${circle}`);
  return new Map();
}

function fileOf(jobs: ReadonlyMap<string, JobSource>, name: string): string {
  return jobs.get(name)?.file ?? "";
}

/**
 * Allocations whose worker is now reached another way or keeps its files elsewhere: what was promoted there says
 * nothing about the new place.
 */
function movedAllocations(
  workers: readonly BuiltWorker[],
  before: readonly CatalogWorker[],
  allocations: readonly CatalogAllocation[],
  problems: Problems,
): CatalogAllocation[] {
  const placeOf = ({ connection, root }: Pick<CatalogWorker, "connection" | "root">) => `${connection} ${root}`;
  const places = new Map(before.map((worker) => [worker.host, placeOf(worker)]));
  const moved = workers.filter((worker) => (places.get(worker.host) ?? placeOf(worker)) !== placeOf(worker));
  const follows = "they are started there like new ones, and services at the old place are left alone";
  for (const { host, root } of moved)
    problems.warn("workspace/workers.json", host, `now keeps its jobs below ${root}; ${follows}`);
  const hosts = new Set(moved.map((worker) => worker.host));
  return allocations.filter((allocation) => hosts.has(allocation.worker));
}

/**
 * The memory and cpu of a job: the value in the bucket's job settings, else the manifest's maximum. A setting outside the
 * manifest's bounds is `ErrUnsupportedResourceConfiguration`; without bounds the setting becomes both of them.
 */
function reserve(source: JobSource, settings: JobSettings, problems: Problems): { memory: Reservation; cpu: Reservation } {
  const { name, file, manifest } = source;
  const reservation = (what: "memory" | "cpu", parse: (text: string) => number): Reservation => {
    const bounds = manifest[what];
    const own = { ...bounds, current: bounds.max, source: "manifest" };
    const text = settings.jobs.get(name)?.get(what)?.trim() ?? "";
    if (text === "") return own;
    const path = `${name}/${what}`;
    try {
      const current = parse(text);
      if (!(current >= 0 && current < 1e12)) throw new Error("must be at least 0 and below 1e12");
      const { min, max } = bounds.max === 0 ? { min: current, max: current } : bounds;
      const message = `${text} is outside what ${file} allows (${min} to ${max})`;
      if (current < min || current > max) problems.error("ErrUnsupportedResourceConfiguration", settings.file, path, message);
      return { min, max, current, source: settings.file };
    } catch (error) {
      problems.error("ErrInvalidBucketConf", settings.file, path, messageOf(error));
      return own;
    }
  };
  return { memory: reservation("memory", parseMemoryMb), cpu: reservation("cpu", parseCpuMhz) };
}

/** What the parameters of a run may name, by field. */
type Known = Record<"jobs" | "workers" | "labels", { kind: string; names: ReadonlySet<string> }>;

/** Checks the parameters of each schedule as a start of the run would: their shapes, and the names in them. */
export function checkSchedules({ schedules, jobs, broken, workers }: Workspace, problems: Problems): void {
  const found = problems.in("workspace/schedules.json", "ErrInvalidSchedules");
  const known: Known = {
    jobs: { kind: "job", names: new Set([...jobs.map(({ name }) => name), ...broken]) },
    workers: { kind: "worker", names: new Set(workers.map(({ host }) => host.toLowerCase())) },
    labels: { kind: "label", names: new Set(workers.flatMap(({ labels }) => labels)) },
  };
  for (const [index, { kind, parameters }] of schedules.schedules.entries()) {
    const path = `schedules/${index}/parameters`;
    const shape: Shape<unknown> = RUNS[kind satisfies (typeof SCHEDULED_KINDS)[number] & RunKind].parameters;
    const checked = check(shape, parameters);
    if (!checked.ok) for (const one of checked.problems) found.error(`${path}/${one.path}`.replace(/\/$/, ""), one.message);
    else checkNames(parameters, path, known, found);
  }
}

function checkNames(parameters: Record<string, unknown>, path: string, known: Known, found: FileProblems): void {
  for (const [field, { kind, names }] of Object.entries(known))
    for (const [index, name] of ((parameters[field] ?? []) as string[]).entries())
      if (!names.has(name.trim().toLowerCase())) found.error(`${path}/${field}/${index}`, unknownName(kind, name, names));
}
