import type { Database } from "../bucket/base/database.ts";
import { catalogAllocations, catalogJobs, catalogWorkers } from "../bucket/catalog/catalog.ts";
import { jobOfHook } from "../bucket/catalog/hook-choice.ts";
import { allocationsNamed, jobsNamed } from "../bucket/catalog/job-choice.ts";
import { selectWorkers } from "../bucket/catalog/worker-choice.ts";
import { RUNS, type RunKind } from "./protocol.ts";

/** The parameters of runs that hold names. */
interface Named {
  jobs?: string[];
  job?: string;
  hook?: string;
  workers?: string[];
  labels?: string[];
  allocations?: string[];
  force_only?: string[];
  build?: boolean;
}

/**
 * Checks the parameters of a run before the run is made. Throws `unknown_name` for jobs, hooks, workers, labels and
 * allocations that are not in the catalog, and `invalid_request` for a hook that several jobs have. A run that builds
 * first is not checked here: it checks against its own catalog.
 */
export function requireNames(db: Database, kind: RunKind, params: Record<string, unknown>): void {
  const { jobs, job, hook, workers, labels, allocations, force_only, build } = params as Named;
  if (build === true) return;
  if (hook !== undefined) jobOfHook(catalogJobs(db), hook, job);
  // Drift looks at the workers of its jobs, the commands on workers at any.
  const places = kind === "drift" ? { workers } : { force_only, allocations };
  const [path, names] = Object.entries(places).find(([, given]) => given !== undefined) ?? [];
  if (jobs !== undefined || path !== undefined) {
    const meant = jobsNamed(catalogJobs(db), jobs);
    if (path !== undefined) allocationsNamed(catalogAllocations(db), meant, names, path);
  }
  if (kind !== "drift" && (workers ?? labels) !== undefined) selectWorkers(catalogWorkers(db), { workers, labels });
}

/** Whether the parameters of a run can hold names that {@link requireNames} looks for. */
export function canName(kind: RunKind): boolean {
  const { properties } = RUNS[kind].parameters.schema as { properties: Record<string, unknown> };
  return ["jobs", "job", "workers"].some((name) => Object.hasOwn(properties, name));
}
