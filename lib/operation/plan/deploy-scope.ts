import type { Database } from "../../bucket/base/database.ts";
import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { catalogAllocations, catalogJobs } from "../../bucket/catalog/catalog.ts";
import { allocationsNamed, jobsNamed } from "../../bucket/catalog/choices.ts";
import { promotionsOf } from "../../bucket/catalog/promotions.ts";
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

/** An allocation that reconcile has to look after. */
export interface Due {
  allocation: CatalogAllocation;
  action: "stop" | "remove";
  /** Its worker is no longer in workers.json. */
  isGone: boolean;
}

/**
 * The allocations that were removed or disabled since they were promoted: a disabled allocation until it was stopped, a
 * removed one until its files are gone. `neverDeployed` are those where there is nothing to stop.
 */
export function dueForReconcile(
  db: Database,
  allocations: readonly CatalogAllocation[],
  isGone: (host: string) => boolean,
): { due: Due[]; neverDeployed: CatalogAllocation[] } {
  const due: Due[] = [];
  const neverDeployed: CatalogAllocation[] = [];
  for (const [job, own] of Map.groupBy(allocations, (one) => one.job)) {
    const promotionOf = promotionsOf(db, job);
    for (const allocation of own.filter((one) => one.removed || one.disabled)) {
      const { id, worker, removed } = allocation;
      const { synced, unfinished, stopped, stopping } = promotionOf(id);
      // An allocation that is to be started anew has nothing promoted, but its files are on the worker.
      if (synced === "" && !unfinished) neverDeployed.push(allocation);
      else if (removed || !stopped || stopping)
        due.push({ allocation, action: removed ? "remove" : "stop", isGone: removed && isGone(worker) });
    }
  }
  return { due, neverDeployed };
}
