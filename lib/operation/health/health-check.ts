import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { catalogAllocations, catalogJobs } from "../../bucket/catalog/catalog.ts";
import { jobsNamed } from "../../bucket/catalog/choices.ts";
import { mapAll, sleep } from "../../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { type Fleet, JOBS_AT_ONCE, WORKERS_AT_ONCE } from "../base/fleet.ts";
import { concluded } from "../base/outcome.ts";
import { hooksOn, withHooks } from "../hooks/hooks.ts";
import { gateEffects } from "../reach/gate-effects.ts";
import { type AllocationHealth, checkHealth, type HealthQuestion, hasGate } from "./gate.ts";
import { healthOf, keepHealth, reachOf } from "./history.ts";

const REACH_LIMIT_MS = 60_000;
/** How often a worker is tried with `wait`, and how long after each time. */
const REACH_ATTEMPTS = 30;
const REACH_PAUSE_MS = 1_000;

/** Whether a worker answered. */
type WorkerHealth = Awaited<ReturnType<typeof reachWorker>>;

/** How a job was found; `reason` is null only where the outcome is `ok`. */
type JobHealth = Awaited<ReturnType<typeof checkJob>>;

/** A health check of all jobs. */
interface Check extends Pick<HealthQuestion, "context" | "effects" | "wait" | "verbose"> {
  allocations: readonly CatalogAllocation[];
  /** The errors of the workers that did not answer. */
  lost: ReadonlyMap<string, WorkerHealth>;
}

/**
 * Looks whether workers and jobs are well, and changes nothing: an ssh round trip to each worker, then of every job the
 * probes and the hooks for health_check. A worker that gives no answer fails its own allocations only. Throws
 * `ErrHealthCheckFailed` at the end, where anything is not well, with the whole result in the details;
 * `unknown_name` for an unknown job.
 */
export const healthCheck: Operation = async (context, params) => {
  const { jobs: wanted, wait, verbose } = parametersOf("health_check", params);
  const jobs = jobsNamed(catalogJobs(context.db), wanted);
  const allocations = catalogAllocations(context.db).filter(({ removed }) => !removed);
  return await withHooks(context, async (hooks, fleet) => {
    const hosts = concerned(fleet, allocations, wanted && jobs);
    const reach = (host: string) => reachWorker(context, fleet, host, wait ? REACH_ATTEMPTS : 1);
    const workers = await mapAll(hosts, WORKERS_AT_ONCE, reach, context.signal);
    const lost = new Map(workers.filter(({ outcome }) => outcome !== "ok").map((one) => [one.worker, one]));
    const effects = gateEffects(context, fleet, hooks);
    const check = { context, effects, allocations, lost, wait, verbose };
    let done = 0;
    const look = async (job: CatalogJob) => {
      const health = await checkJob(check, job);
      context.progress.report({ phase: "health_check", done: ++done, total: jobs.length });
      return health;
    };
    const checked = await mapAll(jobs, JOBS_AT_ONCE, look, context.signal);
    keepHealth(context, [...reachOf(workers), ...checked.flatMap((one) => healthOf(one.job, one.allocations))]);
    return concludeHealth(context, { workers, jobs: checked });
  });
};

/** All workers, or those of some jobs. */
function concerned(fleet: Fleet, allocations: readonly CatalogAllocation[], jobs: readonly CatalogJob[] | undefined): string[] {
  const present = fleet.workers.filter(({ removed }) => !removed).map(({ host }) => host);
  if (jobs === undefined) return present;
  const names = new Set(jobs.map(({ name }) => name));
  const own = new Set(allocations.filter(({ job }) => names.has(job)).map(({ worker }) => worker));
  return present.filter((host) => own.has(host));
}

async function reachWorker(context: OperationContext, fleet: Fleet, worker: string, attempts: number) {
  const { log, signal } = context;
  for (let attempt = 1; ; attempt++) {
    const started = performance.now();
    const health = await roundTrip(fleet, worker, signal);
    const duration_ms = Math.round(performance.now() - started);
    if (health.outcome !== "unreachable" || attempt >= attempts) {
      if (health.error !== null) log.error(`worker ${worker}: ${health.error}`, { worker });
      return { worker, ...health, attempts: attempt, duration_ms };
    }
    if (attempt === 1) log.info(`worker ${worker}: waiting for an answer: ${health.error}`, { worker });
    await sleep(REACH_PAUSE_MS, signal);
  }
}

type Reached = { outcome: "ok" | "failed" | "unreachable"; error: string | null };

async function roundTrip(fleet: Fleet, worker: string, signal: AbortSignal): Promise<Reached> {
  try {
    const transport = await fleet.open(worker);
    const { exitCode, reason } = await transport.script(":", { isShort: true, timeoutMs: REACH_LIMIT_MS, signal });
    throwIfCancelled(signal);
    if (exitCode === 0) return { outcome: "ok", error: null };
    const why = reason === "exit" ? `exit code ${exitCode}` : `no answer within ${REACH_LIMIT_MS / 1000} s`;
    return { outcome: "failed", error: `Cannot run a script on worker ${worker}: ${why}` };
  } catch (error) {
    if (signal.aborted || !(error instanceof Failure)) throw error;
    return { outcome: error.code === "unreachable" ? "unreachable" : "failed", error: messageOf(error) };
  }
}

async function checkJob(check: Check, job: CatalogJob) {
  const { context, lost } = check;
  const own = check.allocations.filter((one) => one.job === job.name);
  const active = own.filter(({ disabled }) => !disabled).map(({ worker }) => worker);
  // Hooks run for disabled allocations too (hook-runtime.md, Batching rules), probes do not.
  const looked = hooksOn(job, "health_check").length > 0 ? own : active;
  if (looked.length === 0) return skippedHealth(context, job, "it has no active allocation");
  if (!hasGate(job)) return skippedHealth(context, job, "it has neither probes nor hooks for health_check");
  const isThere = (worker: string) => !lost.has(worker);
  const workers = { probed: active.filter(isThere), hooked: own.map(({ worker }) => worker).filter(isThere) };
  const found = workers.hooked.length === 0 ? [] : await checkHealth({ ...check, job, workers, isThorough: true });
  const unreached = active.flatMap((worker): AllocationHealth[] => {
    const { outcome, error } = lost.get(worker) ?? {};
    if (outcome === undefined || error === undefined) return [];
    return [{ worker, outcome, error, attempts: 0, checks: [], evidence: null }];
  });
  return jobHealth(context, job, [...found, ...unreached]);
}

function skippedHealth({ log }: OperationContext, { name: job }: CatalogJob, reason: string) {
  log.info(`${job}: skipped, ${reason}`, { job });
  return { job, outcome: "skipped" as const, reason, allocations: [] as AllocationHealth[] };
}

function jobHealth({ log }: OperationContext, { name: job }: CatalogJob, allocations: AllocationHealth[]) {
  const bad = allocations.filter(({ outcome }) => outcome !== "ok");
  const well = allocations.filter(({ outcome }) => outcome === "ok").map(({ worker }) => worker);
  if (well.length > 0) log.info(`${job}: healthy on ${well.join(", ")}`, { job });
  if (bad.length === 0) return { job, outcome: "ok" as const, reason: null, allocations };
  const reason = bad.map(({ error }) => error).join("; ");
  log.error(`${job}: ${reason}`, { job });
  const outcome = bad.some((one) => one.outcome === "failed") ? ("failed" as const) : ("unreachable" as const);
  return { job, outcome, reason, allocations };
}

function concludeHealth({ log }: OperationContext, result: { workers: WorkerHealth[]; jobs: JobHealth[] }) {
  const count = (outcome: JobHealth["outcome"]) => result.jobs.filter((job) => job.outcome === outcome).length;
  const bad = `${count("failed")} failed, ${count("unreachable")} unreachable`;
  log.info(`jobs: ${count("ok")} healthy, ${bad}, ${count("skipped")} skipped`);
  const jobs = result.jobs.filter(({ outcome }) => outcome === "failed" || outcome === "unreachable");
  const told = new Set(jobs.flatMap(({ allocations }) => allocations.map(({ worker }) => worker)));
  const workers = result.workers.filter(({ worker, outcome }) => outcome !== "ok" && !told.has(worker));
  const errors = [
    ...jobs.map(({ job, reason }) => `${job}: ${reason}`),
    ...workers.map(({ worker, error }) => `worker ${worker}: ${error}`),
  ];
  return concluded(result, "not everything is well", errors, "ErrHealthCheckFailed");
}
