import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import type { Promotion } from "../../bucket/catalog/promotions.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";

/** The jobs that a job's hooks demand. */
export function upstreamOf(job: CatalogJob): string[] {
  return [...new Set(job.hooks.map((hook) => hook.demandJob).filter((name) => name !== ""))];
}

/** The jobs that a job demands, directly or through others. */
export function allUpstreamOf(job: CatalogJob, jobs: readonly CatalogJob[]): string[] {
  const found = new Set(upstreamOf(job));
  // What is added on the way is visited too.
  for (const name of found)
    for (const upstream of jobs.filter((one) => one.name === name).flatMap(upstreamOf)) found.add(upstream);
  return [...found];
}

/** The fields that templates of an allocation have beside the KV store. */
export function templateFields(
  { context, fleet }: { context: OperationContext; fleet: Fleet },
  allocation: CatalogAllocation,
  promoted: Promotion,
  updateSeq: number,
) {
  const worker = fleet.worker(allocation.worker);
  const bucketPath = `${worker.root}/${context.run.bucketId}`;
  return {
    AllocationID: allocation.id,
    Job: allocation.job,
    CurrentVersion: promoted.version,
    NewVersion: allocation.newVersion,
    BucketID: context.run.bucketId,
    WorkerID: worker.id,
    WorkerIP: allocation.worker,
    Labels: worker.labels,
    UpdateSeq: updateSeq,
    BucketPath: bucketPath,
    JobPath: `${bucketPath}/jobs/${allocation.job}`,
  };
}
