import {
  type CatalogAllocation,
  type CatalogJob,
  catalogAllocations,
  catalogJobs,
} from "../bucket/catalog.ts";
import { Failure } from "../core/errors.ts";
import { nearest, quote } from "../core/shape.ts";
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

/** The catalog, and of its jobs those that were asked for. Throws `failed` for a name that it does not know. */
export function deployScope({ db }: OperationContext, wanted: string[] | undefined): DeployScope {
  const all = catalogJobs(db);
  const allocations = catalogAllocations(db);
  const present = Map.groupBy(
    allocations.filter((one) => !one.removed),
    (one) => one.job,
  );
  return { all, jobs: selectJobs(all, wanted), allocations, present };
}

function selectJobs(all: CatalogJob[], wanted: string[] | undefined): CatalogJob[] {
  if (wanted === undefined) return all;
  const names = new Set(wanted.map((name) => name.toLowerCase()));
  for (const name of names) {
    if (all.some((job) => job.name === name)) continue;
    const close = nearest(
      name,
      all.map((job) => job.name),
    );
    throw new Failure(
      "failed",
      `the catalog has no job ${quote(name)}${close === undefined ? "" : `; did you mean ${close}?`}`,
    );
  }
  return all.filter((job) => names.has(job.name));
}

/** The jobs by wave, from the lowest `deployment_seq` up. */
export function wavesOf(jobs: readonly CatalogJob[]): [seq: number, jobs: CatalogJob[]][] {
  const waves = Map.groupBy(jobs, (job) => job.deploymentSeq);
  return [...waves].sort(([a], [b]) => a - b);
}
