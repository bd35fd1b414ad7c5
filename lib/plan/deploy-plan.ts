import { type Action, changedPaths, type FileDigests } from "./changes.ts";
import type { Phase } from "./rollout.ts";

/**
 * A file that would differ from the promoted file, in an adoption from the file on the worker; each side is
 * `<mode>:<SHA-256>`, null where there is no file.
 */
export interface PlannedFile {
  path: string;
  change: "added" | "changed" | "removed";
  from: string | null;
  to: string | null;
  /** From that content to the wanted one, secrets masked. */
  diff?: string;
  /** Why there is no diff; in an adoption also why the file cannot be equal. */
  note?: string;
}

/** A file on a worker that differs from the promoted file. */
export interface DriftedFile {
  path: string;
  state: "changed" | "missing" | "extra" | "link";
  /** Of the content on the worker; null where there is no regular file. */
  sha256: string | null;
  /** From the promoted content to that on the worker; null where the file is no text, long, or renders a secret. */
  diff: string | null;
}

/** How the files of an allocation were found on its worker. */
export interface AllocationDrift {
  outcome: "in_sync" | "drifted" | "not_promoted";
  /** A deploy of the allocation has not come to its end: files on the worker may be newer than the promoted ones. */
  is_unfinished: boolean;
  files: DriftedFile[];
}

/** What a deploy would do to one allocation. */
export interface PlannedAllocation {
  worker: string;
  /** `unknown` where a template reads a key that does not exist yet; `leave` where an adoption leaves what differs alone. */
  action: Action | "unknown" | "leave";
  reason: string;
  /** A gate of an earlier deploy has to be passed first. */
  is_gate_open: boolean;
  from: { hash: string; version: string };
  /** The hash is null where it is not known. */
  to: { hash: string | null; version: string };
  files: PlannedFile[];
  /** How many further files there are, in an abridged plan. */
  more_files?: number;
  /** How the files were found on the worker now; null where the worker gave no answer, and in an adoption. */
  drift: AllocationDrift | null;
}

/** What a deploy would do to one job. */
export interface PlannedJob {
  job: string;
  version: string;
  outcome: "roll_out" | "skip" | "failed" | "not_started";
  reason: string;
  /** The hooks that would run, by event, in the order of the events. */
  hooks: { event: string; names: string[] }[];
  phases: { phase: Phase["phase"]; action: Phase["action"]; batches: string[][] }[];
  allocations: PlannedAllocation[];
}

/** All that a deploy would do, wave by wave. */
export interface DeployPlan {
  /** What the plan was made from; see `planBasis` in `bucket/catalog/info.ts`. */
  basis: { build_seq: number; update_seq: number; kv: string; promoted: Record<string, string> };
  /** The number of the build that made the catalog. */
  build_seq: number;
  /** The update sequence before. */
  update_seq: number;
  options: { force: boolean; force_only?: string[]; sync_only: boolean; with_hooks: boolean; adopt?: boolean };
  /** `hooks` are those for after_allocation_stopped that would run. */
  reconcile: { job: string; worker: string; action: "stop" | "remove"; hooks: string[] }[];
  /** `update_seq` is the sequence that the wave would write, or the one before for a wave without work. */
  waves: { seq: number; update_seq: number; jobs: PlannedJob[] }[];
  /** The workers that gave no answer when they were asked for their files: a deploy could do nothing on them now. */
  unreachable: { worker: string; outcome: string; error: string | null }[];
}

/** The plan with at most so many files in all: the record of a run must not grow with the fleet. */
export function abridged(plan: DeployPlan, mostFiles: number): DeployPlan {
  let left = mostFiles;
  const shortened = (one: PlannedAllocation): PlannedAllocation => {
    const files = one.files.slice(0, left);
    left -= files.length;
    const more_files = one.files.length - files.length;
    return more_files === 0 ? one : { ...one, files, more_files };
  };
  const waves = plan.waves.map((wave) => ({
    ...wave,
    jobs: wave.jobs.map((job) => ({ ...job, allocations: job.allocations.map(shortened) })),
  }));
  return { ...plan, waves };
}

/** Where a deploy differs from its plan for an allocation, because of values that its own hooks wrote. */
export interface PlanDifference {
  job: string;
  worker: string;
  planned_action: PlannedAllocation["action"];
  action: PlannedAllocation["action"];
  /** The files that are rendered otherwise; all changed files where the plan could not know them. */
  files: string[];
}

/** How the work on a job now differs from the plan. */
export function planDifferences(plan: DeployPlan, job: string, now: readonly PlannedAllocation[]): PlanDifference[] {
  const planned = plan.waves.flatMap(({ jobs }) => jobs).find((one) => one.job === job)?.allocations ?? [];
  return now.flatMap(({ worker, action, files }) => {
    const before = planned.find((one) => one.worker === worker);
    const others = changedPaths(wantedIn(before?.files ?? []), wantedIn(files));
    if (before?.action === action && others.length === 0) return [];
    return [{ job, worker, planned_action: before?.action ?? "unknown", action, files: others }];
  });
}

function wantedIn(files: readonly PlannedFile[]): FileDigests {
  return Object.fromEntries(files.map(({ path, to }) => [path, to ?? "removed"]));
}

/** The files that differ between two trees, by path. */
export function plannedFiles(before: FileDigests, after: FileDigests): PlannedFile[] {
  return changedPaths(before, after).map((path) => {
    const [from = null, to = null] = [before[path], after[path]];
    return { path, change: from === null ? "added" : to === null ? "removed" : "changed", from, to };
  });
}

/** The phases of a rollout by the names of their workers. */
export function plannedPhases(phases: readonly Phase[]): PlannedJob["phases"] {
  return phases.map(({ phase, action, batches }) => ({ phase, action, batches: batches.map(({ workers }) => workers) }));
}
