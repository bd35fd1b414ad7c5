import {
  type CatalogAllocation,
  catalogAllocations,
  catalogJobs,
  catalogWorkers,
} from "../bucket/catalog.ts";
import { keptContent } from "../bucket/contents.ts";
import { allocationsNamed, jobsNamed } from "../bucket/job-choice.ts";
import { type Promotion, promotionsOf } from "../bucket/promotions.ts";
import { textOf, unifiedDiff } from "../codec/diff.ts";
import { runAll } from "../core/async.ts";
import { Failure } from "../core/errors.ts";
import { parametersOf } from "../run/protocol.ts";
import { compareTrees, type FileDrift, readText, type TreeDrift } from "../transport/compare.ts";
import type { Transport } from "../transport/transport.ts";
import type { Operation, OperationContext } from "./context.ts";
import { type CancelReceipts, Fleet } from "./fleet.ts";
import { gradeOf } from "./grades.ts";

const WORKERS_AT_ONCE = 64;
/** Of longer files no diff is shown, nor of more files than that on a worker. */
const DIFF_BYTES = 64 * 1024;
const DIFFS = 20;
/** What a worker's extra files are told of. */
const MOST_NAMED = 20;

/** A file that is not as it was promoted. */
interface DriftedFile {
  path: string;
  state: FileDrift["state"];
  /** From what was promoted to what is there; null where the file is no text, long, or a secret was read for it. */
  diff: string | null;
}

/** How an allocation was found. */
interface AllocationDrift {
  job: string;
  outcome: "in_sync" | "drifted" | "not_promoted";
  /** A deploy of it has not come to its end: what is there may be newer than what was promoted. */
  is_unfinished: boolean;
  files: DriftedFile[];
}

/** How a worker was found; without an answer there are no allocations. */
interface WorkerDrift {
  worker: string;
  outcome: "in_sync" | "drifted" | "failed" | "unreachable" | "cancelled" | "not_started";
  error: string | null;
  duration_ms: number | null;
  allocations: AllocationDrift[];
}

/** The result of a drift run. */
interface DriftResult {
  workers: WorkerDrift[];
  /** Only where it was cancelled. */
  cancelled?: CancelReceipts;
}

/** An allocation with what was promoted of it. */
interface Promoted {
  allocation: CatalogAllocation;
  promotion: Promotion;
}

/**
 * Compares the files on workers with what was promoted there, over one connection to each, and changes nothing: content
 * and the execute bit of the owner, and what else lies in the folders of a job that are not its own. Throws `failed` at
 * the end where anything differs or a worker gave no answer, with the whole result in the details; `invalid_request`
 * for an unknown job or worker.
 */
export const drift: Operation = async (context, params) => {
  const { db, signal } = context;
  const given = parametersOf("drift", params);
  const jobs = jobsNamed(catalogJobs(db), given.jobs);
  const allocations = allocationsNamed(catalogAllocations(db), jobs, given.workers);
  const promotions = new Map(jobs.map(({ name }) => [name, promotionsOf(db, name)]));
  const byWorker = Map.groupBy(allocations, ({ worker }) => worker);
  const results = [...byWorker.keys()].map(
    (worker): WorkerDrift => ({
      ...{ worker, outcome: "not_started", error: null, duration_ms: null, allocations: [] },
    }),
  );
  const fleet = new Fleet(context, catalogWorkers(db));
  let done = 0;
  const look = async (result: WorkerDrift) => {
    const own = (byWorker.get(result.worker) ?? []).map((allocation) => ({
      allocation,
      promotion: promotions.get(allocation.job)?.(allocation.id) as Promotion,
    }));
    await lookAt(context, fleet, own, result);
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
  fleet: Fleet,
  own: readonly Promoted[],
  result: WorkerDrift,
): Promise<void> {
  const started = performance.now();
  try {
    const wanted = own.filter(({ promotion }) => promotion.hash !== "");
    const trees = new Map(wanted.map(({ allocation, promotion }) => [allocation.job, promotion.files]));
    const transport = await fleet.open(result.worker);
    const found = await compareTrees(transport, trees, context.signal);
    const differ = new Differ(context, transport);
    for (const one of own)
      result.allocations.push(await allocationDrift(differ, one, found.get(one.allocation.job)));
    const isDrifted = result.allocations.some(({ outcome }) => outcome === "drifted");
    result.outcome = isDrifted ? "drifted" : "in_sync";
  } catch (error) {
    Object.assign(result, { ...gradeOf(error), allocations: [] });
  }
  result.duration_ms = Math.round(performance.now() - started);
}

async function allocationDrift(
  differ: Differ,
  { allocation: { job }, promotion }: Promoted,
  found: TreeDrift | undefined,
): Promise<AllocationDrift> {
  const is_unfinished = promotion.unfinished || (found?.isUnsettled ?? false);
  if (!found) return { job, outcome: "not_promoted", is_unfinished, files: [] };
  const files: DriftedFile[] = [];
  for (const file of found.files) {
    const { path, state } = file;
    files.push({ path, state, diff: await differ.diffOf(job, file, promotion.files[path]) });
  }
  const isSame = files.length === 0 && !found.isUnsettled;
  return { job, outcome: isSame ? "in_sync" : "drifted", is_unfinished, files };
}

/** Shows how files on one worker differ, as far as they may be shown. */
class Differ {
  readonly #context: OperationContext;
  readonly #transport: Transport;
  #left = DIFFS;

  constructor(context: OperationContext, transport: Transport) {
    this.#context = context;
    this.#transport = transport;
  }

  /** Secrets are masked before the texts are compared: no line of one can be told from the diff. */
  async diffOf(job: string, file: FileDrift, digest: string | undefined): Promise<string | null> {
    const { db, kv, log, signal } = this.#context;
    if (!file.hasOtherContent || digest === undefined || this.#left === 0) return null;
    const kept = keptContent(db, kv, digest.slice(digest.indexOf(":") + 1));
    const before = kept.isSecret ? undefined : textOf(kept.content);
    if (before === undefined || kept.content.length > DIFF_BYTES) return null;
    this.#left--;
    const after = await readText(this.#transport, job, file.path, DIFF_BYTES, signal);
    if (after === undefined) return null;
    return unifiedDiff(log.redactor.apply(before), log.redactor.apply(after));
  }
}

function conclude({ log, signal }: OperationContext, fleet: Fleet, result: DriftResult): DriftResult {
  const { workers } = result;
  for (const worker of workers) for (const line of linesOf(worker)) log.info(line);
  const bad = workers.filter(({ outcome }) => outcome !== "in_sync");
  if (bad.length > 0 && signal.aborted)
    throw new Failure("cancelled", "cancelled", {
      details: { ...result, cancelled: fleet.cancelReceipts() },
    });
  log.info(`${workers.length - bad.length} of ${workers.length} workers are as promoted`);
  if (bad.length === 0) return result;
  const names = bad.slice(0, MOST_NAMED).map(({ worker, outcome }) => `${worker} (${outcome})`);
  const more = bad.length > names.length ? ` and ${bad.length - names.length} more` : "";
  const sentence = `${bad.length} of ${workers.length} workers are not as promoted`;
  throw new Failure("failed", `${sentence}: ${names.join(", ")}${more}`, { details: result });
}

function linesOf({ worker, outcome, error, allocations }: WorkerDrift): string[] {
  if (error !== null) return [`${worker}: ${outcome}: ${error}`];
  return allocations.flatMap(({ job, outcome, is_unfinished, files }) => [
    `${job}@${worker}: ${outcome.replace("_", " ")}${is_unfinished ? ", a change of it has not ended" : ""}`,
    ...files.flatMap(({ path, state, diff }) => [
      `  ${state} ${path}`,
      ...(diff ?? "")
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => `    ${line}`),
    ]),
  ]);
}
