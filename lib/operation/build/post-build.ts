import { catalogJobs } from "../../bucket/catalog/catalog.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import type { OperationContext } from "../base/context.ts";
import { hooksOn, withHooks } from "../hooks/hooks.ts";

/**
 * Runs the hooks for post_build, by deployment_seq and then by job (hook-runtime.md, Deploy order 7). All jobs have
 * their turn; what the scripts wrote is stored at the end as one, and dropped when any failed. Throws `ErrHookFailed`,
 * or `cancelled`.
 */
export async function runPostBuild(context: OperationContext): Promise<void> {
  const { db, kv, signal } = context;
  const jobs = catalogJobs(db).filter((job) => hooksOn(job, "post_build").length > 0);
  const errors: string[] = [];
  await withHooks(context, async (hooks) => {
    for (const job of jobs.sort((a, b) => a.deploymentSeq - b.deploymentSeq)) {
      await hooks.run({ kind: "post_build", job }).catch((error) => errors.push(messageOf(error)));
      throwIfCancelled(signal);
    }
  });
  if (errors.length > 0)
    throw new Failure("ErrHookFailed", `the catalog is stored, but not the values that hooks wrote: ${errors.join("; ")}`);
  kv.flush();
}
