import { mapAll } from "../../core/async.ts";
import { throwIfCancelled } from "../../core/errors.ts";
import type { DeployPlan, PlannedJob } from "../../plan/deploy-plan.ts";
import type { OperationContext } from "../base/context.ts";
import { gradeOf } from "../base/grades.ts";
import { type DriftEffects, driftOn, type Promoted } from "../reach/tree-drift.ts";

const WORKERS_AT_ONCE = 64;
/** Of diffs of what was changed by hand, on all workers together. */
const DIFF_BYTES = 128 * 1024;

/**
 * Adds to a plan how the files of its allocations are on their workers, each worker being asked once. Answers the
 * workers that gave no answer; throws `cancelled`.
 */
export async function addDrift(
  context: OperationContext,
  effects: DriftEffects,
  jobs: readonly PlannedJob[],
  promoted: readonly Promoted[],
): Promise<DeployPlan["unreachable"]> {
  const planned = new Map(
    jobs.flatMap(({ job, allocations }) => allocations.map((one) => [`${job}@${one.worker}`, one])),
  );
  const byWorker = [...Map.groupBy(promoted, ({ allocation }) => allocation.worker)];
  const room = { bytes: DIFF_BYTES };
  let done = 0;
  const look = async ([worker, own]: [string, Promoted[]]): Promise<DeployPlan["unreachable"]> => {
    try {
      for (const { job, ...drift } of await driftOn(context, effects, worker, own, room))
        Object.assign(planned.get(`${job}@${worker}`) ?? {}, { drift });
      return [];
    } catch (error) {
      throwIfCancelled(context.signal);
      return [{ worker, ...gradeOf(error) }];
    } finally {
      context.progress.report({ phase: "look at files", done: ++done, total: byWorker.length });
    }
  };
  return (await mapAll(byWorker, WORKERS_AT_ONCE, look, context.signal)).flat();
}
