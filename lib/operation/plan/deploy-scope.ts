import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { catalogAllocations, catalogJobs } from "../../bucket/catalog/catalog.ts";
import { allocationsNamed, jobsNamed } from "../../bucket/catalog/choices.ts";
import type { ChangeOptions } from "../../plan/changes.ts";
import type { OperationContext } from "../base/context.ts";

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

/**
 * The catalog, and the jobs of it that the deploy is for. Throws `unknown_name` for a job that is not in the catalog.
 */
export function deployScope({ db }: OperationContext, wanted: string[] | undefined): DeployScope {
  const all = catalogJobs(db);
  const allocations = catalogAllocations(db);
  const present = Map.groupBy(
    allocations.filter((one) => !one.removed),
    (one) => one.job,
  );
  return { all, jobs: jobsNamed(all, wanted), allocations, present };
}

/**
 * The options of a deploy that concern its changes. Throws `unknown_name` for a name in `force_only` that no allocation
 * has.
 */
export function changeOptionsOf(
  { allocations, jobs }: DeployScope,
  asked: { force: boolean; force_only?: string[] | undefined; sync_only: boolean },
): ChangeOptions {
  const { force, force_only: names, sync_only: syncOnly } = asked;
  if (names === undefined) return { force, syncOnly };
  const forced = new Set(allocationsNamed(allocations, jobs, names, "force_only").map(({ id }) => id));
  return { force: true, forced, syncOnly };
}

/** The jobs by wave, from the lowest `deployment_seq` up. */
export function wavesOf(jobs: readonly CatalogJob[]): [seq: number, jobs: CatalogJob[]][] {
  const waves = Map.groupBy(jobs, (job) => job.deploymentSeq);
  return [...waves].sort(([a], [b]) => a - b);
}
