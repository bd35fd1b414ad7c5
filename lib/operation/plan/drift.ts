import { catalogAllocations, catalogJobs, catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { allocationsNamed, jobsNamed } from "../../bucket/catalog/choices.ts";
import { type Promotion, promotionsOf } from "../../bucket/catalog/promotions.ts";
import { runAll } from "../../core/async.ts";
import { Failure } from "../../core/errors.ts";
import type { AllocationDrift, DriftedFile } from "../../plan/deploy-plan.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { type CancelReceipts, Fleet } from "../base/fleet.ts";
import { gradeOf } from "../base/grades.ts";
import {
  type DiffRoom,
  type DriftEffects,
  describeDrift,
  driftEffects,
  driftOn,
  type Promoted,
} from "../reach/tree-drift.ts";

const WORKERS_AT_ONCE = 64;
/** Of diffs, on all workers together. */
const DIFF_BYTES = 1024 * 1024;
/** The most workers that the error of a drift run names. */
const MOST_NAMED = 20;

/** How a worker was found; without an answer there are no allocations. */
interface WorkerDrift {
  worker: string;
  outcome: "in_sync" | "drifted" | "failed" | "unreachable" | "cancelled" | "not_started";
  error: string | null;
  duration_ms: number | null;
  allocations: WorkerAllocation[];
}

/** How an allocation on it was found. */
type WorkerAllocation = Omit<AllocationDrift, "files"> & { job: string; files: Omit<DriftedFile, "sha256">[] };

/** The result of a drift run. */
interface DriftResult {
  workers: WorkerDrift[];
  /** Only where it was cancelled. */
  cancelled?: CancelReceipts;
}

/**
 * Compares the files on workers with what was promoted there, over one connection to each, and changes nothing:
 * content, whether the owner may still execute what was executable, and links in the place of folders. Throws `failed`
 * at the end where anything differs or a worker gave no answer, with the whole result in the details; `unknown_name`
 * for an unknown job or worker.
 */
export const drift: Operation = async (context, params) => {
  const { db, signal } = context;
  const given = parametersOf("drift", params);
  const jobs = jobsNamed(catalogJobs(db), given.jobs);
  const allocations = allocationsNamed(catalogAllocations(db), jobs, given.workers, "workers");
  const promotions = new Map(jobs.map(({ name }) => [name, promotionsOf(db, name)]));
  const byWorker = Map.groupBy(allocations, ({ worker }) => worker);
  const results = [...byWorker.keys()].map(
    (worker): WorkerDrift => ({ worker, outcome: "not_started", error: null, duration_ms: null, allocations: [] }),
  );
  const fleet = new Fleet(context, catalogWorkers(db));
  const effects = driftEffects(context, fleet);
  const room = { bytes: DIFF_BYTES };
  let done = 0;
  const look = async (result: WorkerDrift) => {
    const own = (byWorker.get(result.worker) ?? []).map((allocation) => ({
      allocation,
      promotion: promotions.get(allocation.job)?.(allocation.id) as Promotion,
    }));
    await lookAt(context, effects, own, room, result);
    context.progress.report({ phase: "drift", done: ++done, total: results.length });
  };
  try {
    await runAll(results, WORKERS_AT_ONCE, look, signal);
    return conclude(context, fleet, { workers: results });
  } finally {
    await fleet.close();
  }
};

async function lookAt(
  context: OperationContext,
  effects: DriftEffects,
  own: readonly Promoted[],
  room: DiffRoom,
  result: WorkerDrift,
): Promise<void> {
  const started = performance.now();
  try {
    const found = await driftOn(context, effects, result.worker, own, room);
    result.allocations = found.map(({ files, ...one }) => ({
      ...one,
      files: files.map(({ path, state, diff }) => ({ path, state, diff })),
    }));
    const isDrifted = result.allocations.some(({ outcome }) => outcome === "drifted");
    result.outcome = isDrifted ? "drifted" : "in_sync";
  } catch (error) {
    Object.assign(result, { ...gradeOf(error), allocations: [] });
  }
  result.duration_ms = Math.round(performance.now() - started);
}

function conclude({ log, signal }: OperationContext, fleet: Fleet, result: DriftResult): DriftResult {
  const { workers } = result;
  for (const worker of workers) for (const line of linesOf(worker)) log.info(line);
  const bad = workers.filter(({ outcome }) => outcome !== "in_sync");
  if (bad.length > 0 && signal.aborted)
    throw new Failure("cancelled", "cancelled", { details: { ...result, cancelled: fleet.cancelReceipts() } });
  log.info(`${workers.length - bad.length} of ${workers.length} workers are as promoted`);
  if (bad.length === 0) return result;
  const names = bad.slice(0, MOST_NAMED).map(({ worker, outcome }) => `${worker} (${outcome})`);
  const more = bad.length > names.length ? ` and ${bad.length - names.length} more` : "";
  const sentence = `${bad.length} of ${workers.length} workers are not as promoted`;
  throw new Failure("failed", `${sentence}: ${names.join(", ")}${more}`, { details: result });
}

function linesOf({ worker, outcome, error, allocations }: WorkerDrift): string[] {
  if (error !== null) return [`${worker}: ${outcome}: ${error}`];
  return allocations.flatMap(({ job, ...drift }) => [
    `${job}@${worker}: ${drift.outcome.replace("_", " ")}${drift.is_unfinished ? ", a change of it has not ended" : ""}`,
    ...describeDrift(drift),
  ]);
}
