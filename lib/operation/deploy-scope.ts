import {
  type CatalogAllocation,
  type CatalogJob,
  catalogAllocations,
  catalogJobs,
} from "../bucket/catalog.ts";
import { jobsNamed } from "../bucket/job-choice.ts";
import type { OperationContext } from "./context.ts";

/** What a deploy is about. */
export interface DeployScope {
  /** All jobs of the catalog. */
  all: CatalogJob[];
  /** Those that are to be deployed. */
  jobs: CatalogJob[];
  /** Of all jobs, removed ones too. */
  allocations: CatalogAllocation[];
  /** Those that are not removed, by job. */
  present: ReadonlyMap<string, CatalogAllocation[]>;
}

/** The catalog, and of its jobs those that were asked for. Throws `invalid_request` for a name that it does not know. */
export function deployScope({ db }: OperationContext, wanted: string[] | undefined): DeployScope {
  const all = catalogJobs(db);
  const allocations = catalogAllocations(db);
  const present = Map.groupBy(
    allocations.filter((one) => !one.removed),
    (one) => one.job,
  );
  return { all, jobs: jobsNamed(all, wanted), allocations, present };
}

/** The jobs by wave, from the lowest `deployment_seq` up. */
export function wavesOf(jobs: readonly CatalogJob[]): [seq: number, jobs: CatalogJob[]][] {
  const waves = Map.groupBy(jobs, (job) => job.deploymentSeq);
  return [...waves].sort(([a], [b]) => a - b);
}
