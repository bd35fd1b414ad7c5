import { catalogAllocations, catalogJobs, catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { allocationsNamed, jobsNamed } from "../../bucket/catalog/choices.ts";
import { type Promotion, promotionsOf } from "../../bucket/catalog/promotions.ts";
import type { Observation } from "../../bucket/health/health-history.ts";
import { mapAll, runAll } from "../../core/async.ts";
import type { AllocationDrift, DriftedFile, PlannedJob } from "../../plan/deploy-plan.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { Fleet } from "../base/fleet.ts";
import { concludeWorkers, gradeOf, type Trouble, troubleOf } from "../base/outcome.ts";
import { keepHealth, reachOf } from "../health/history.ts";
import { type DriftEffects, describeDrift, driftEffects, driftLooks, type LookAt, type Promoted } from "../reach/tree-drift.ts";

const LOOKS_AT_ONCE = 64;
/** The most bytes of diffs, on all workers together, in a drift run and in a plan. */
const RUN_DIFF_BYTES = 1024 * 1024;
const PLAN_DIFF_BYTES = 128 * 1024;
/** How many changed files the history names. */
const TOLD_FILES = 5;

/** How a worker was found. A worker that gave no answer has no allocations. */
interface WorkerDrift {
  worker: string;
  outcome: "in_sync" | "drifted" | "failed" | "unreachable" | "cancelled" | "not_started";
  error: string | null;
  duration_ms: number | null;
  allocations: WorkerAllocation[];
}

/** How an allocation was found. */
type WorkerAllocation = Omit<AllocationDrift, "files"> & { job: string; files: Omit<DriftedFile, "sha256">[] };

/**
 * Compares the files on workers with what was promoted there, over one connection to each, and changes nothing. It
 * compares content, whether the owner may still execute what was executable, and links in the place of folders. Throws
 * `failed` at the end, with the whole result in the details, where anything differs or a worker gave no answer;
 * `unknown_name` for an unknown job or worker.
 */
export const drift: Operation = async (context, params) => {
  const { db, signal } = context;
  const given = parametersOf("drift", params);
  const jobs = jobsNamed(catalogJobs(db), given.jobs);
  const allocations = allocationsNamed(catalogAllocations(db), jobs, given.workers, "workers");
  const promotions = new Map(jobs.map(({ name }) => [name, promotionsOf(db, name)]));
  const byWorker = Map.groupBy(allocations, ({ worker }) => worker);
  const nothing = { outcome: "not_started", error: null, duration_ms: null } as const;
  const results = [...byWorker.keys()].map((worker): WorkerDrift => ({ worker, ...nothing, allocations: [] }));
  await using fleet = new Fleet(context, catalogWorkers(db));
  const lookAt = driftLooks(context, driftEffects(context, fleet), RUN_DIFF_BYTES);
  let done = 0;
  const look = async (result: WorkerDrift) => {
    const own = (byWorker.get(result.worker) ?? []).map((allocation) => ({
      allocation,
      promotion: promotions.get(allocation.job)?.(allocation.id) as Promotion,
    }));
    await lookAtWorker(lookAt, own, result);
    context.progress.report({ phase: "drift", done: ++done, total: results.length });
  };
  await runAll(results, LOOKS_AT_ONCE, look, signal);
  for (const result of results) for (const line of driftLines(result)) context.log.info(line, { worker: result.worker });
  const files = results.flatMap(({ worker, allocations }) => allocations.flatMap((one) => filesOf(worker, one)));
  keepHealth(context, [...reachOf(results), ...files]);
  const wanted = { outcome: "in_sync", words: "as promoted" };
  return concludeWorkers(context, fleet, { workers: results }, { wanted, isTold: true });
};

/**
 * How the files were found, for the history. Drift is left out where a deploy did not come to its end: the files differ
 * because of that deploy, and `problems` tell of it.
 */
function filesOf(worker: string, { job, outcome, files, is_unfinished }: WorkerAllocation): Observation[] {
  const about = { job, worker, aspect: "files" } as const;
  if (outcome !== "drifted") return [{ ...about, state: "in_sync", reason: "" }];
  const names = files.slice(0, TOLD_FILES).map(({ path }) => path);
  return is_unfinished ? [] : [{ ...about, state: "drifted", reason: names.join(", ") }];
}

async function lookAtWorker(lookAt: LookAt, own: readonly Promoted[], result: WorkerDrift): Promise<void> {
  const started = performance.now();
  try {
    const found = await lookAt(result.worker, own);
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

function driftLines({ worker, outcome, error, allocations }: WorkerDrift): string[] {
  if (error !== null) return [`${worker}: ${outcome}: ${error}`];
  return allocations.flatMap(({ job, ...drift }) => [
    `${job}@${worker}: ${drift.outcome.replace("_", " ")}${drift.is_unfinished ? ", a change of it has not ended" : ""}`,
    ...describeDrift(drift),
  ]);
}

/**
 * Adds to a plan how the files of its allocations are on their workers. Each worker is asked once. Answers by
 * worker why there was no answer. Throws only `cancelled`.
 */
export async function addDrift(
  context: OperationContext,
  effects: DriftEffects,
  jobs: readonly PlannedJob[],
  promoted: readonly Promoted[],
): Promise<ReadonlyMap<string, Trouble>> {
  const planned = new Map(jobs.flatMap(({ job, allocations }) => allocations.map((one) => [`${job}@${one.worker}`, one])));
  const byWorker = [...Map.groupBy(promoted, ({ allocation }) => allocation.worker)];
  const lookAt = driftLooks(context, effects, PLAN_DIFF_BYTES);
  let done = 0;
  const look = async ([worker, own]: [string, Promoted[]]): Promise<[string, Trouble][]> => {
    try {
      for (const { job, ...drift } of await lookAt(worker, own)) Object.assign(planned.get(`${job}@${worker}`) ?? {}, { drift });
      return [];
    } catch (error) {
      return [[worker, troubleOf(error)]];
    } finally {
      context.progress.report({ phase: "look at files", done: ++done, total: byWorker.length });
    }
  };
  return new Map((await mapAll(byWorker, LOOKS_AT_ONCE, look, context.signal)).flat());
}
