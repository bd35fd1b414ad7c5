import type { CatalogJob } from "../../bucket/base/model.ts";
import { keepContents, type Promotion, promote, setStopped } from "../../bucket/catalog/promotions.ts";
import type { OperationContext } from "../base/context.ts";
import type { AllocationState } from "../plan/allocation-state.ts";

/** Promotes the synced files of allocations of a job, in one transaction with the KV writes of the job's hooks. */
export function promoteAll(
  { db, kv }: OperationContext,
  { name }: CatalogJob,
  batch: readonly AllocationState[],
  gate?: Promotion["gate"],
): void {
  try {
    db.transaction(() => {
      for (const { plan } of batch) {
        const { id, job, worker, newVersion, disabled } = plan.allocation;
        keepContents(db, kv, plan.tree.files);
        promote(db, job, id, newVersion, gate);
        if (!disabled) setStopped(db, job, id, "no");
        kv.put(`ops/job/${job}/worker/${worker}`, "version", newVersion);
      }
      kv.flush(name);
    });
  } catch (error) {
    kv.discard(name);
    throw error;
  }
  for (const state of batch) state.done = true;
}
