import type { CatalogAllocation, CatalogJob, CatalogWorker } from "../../bucket/base/model.ts";
import { catalogAllocations, catalogJobs } from "../../bucket/catalog/catalog.ts";
import { allocationsNamed, jobsNamed } from "../../bucket/catalog/choices.ts";
import { promotionsOf } from "../../bucket/catalog/promotions.ts";
import { mapAll } from "../../core/async.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { inOneLine, plainLines } from "../../core/plain-text.ts";
import { anything, object, valueIn } from "../../core/shape.ts";
import { isClosing } from "../../core/trouble-lines.ts";
import { type ControlKind, parametersOf } from "../../run/protocol.ts";
import { makeStatus, readWorkerJson } from "../../transport/ask/inspect.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { type Fleet, JOBS_AT_ONCE, WORKERS_AT_ONCE } from "../base/fleet.ts";
import { concluded, countGrades, describeGrades, endCancelled, toldOnce, worstOf } from "../base/outcome.ts";
import { withHooks } from "../hooks/hooks.ts";
import { effectsOf } from "../reach/effects.ts";
import {
  blameStates,
  type Control,
  type ControlState,
  checkAfter,
  controlJob,
  hostsOf,
  type JobWork,
  noteControl,
  versionsOf,
} from "./job-batches.ts";

/** The targets that every job has by contract; any other is one of its own Makefile. */
const BUILT_IN: readonly string[] = ["start", "stop", "restart", "reload", "status"];

type ControlResult = ReturnType<typeof controlResult>;

/**
 * Runs a target of jobs on their workers (hook-runtime.md, Events: job_control of a job-control command). Jobs are in
 * no order among each other. A worker that cannot be reached or is not in sync is left out, the others go on. Throws
 * `unknown_name` for an unknown job or an unknown worker in `allocations`; `ErrRunCommand` at the end where not all is
 * ok, or `cancelled`, both with the whole result in the details.
 */
export function control(kind: ControlKind): Operation {
  return async (context, params) => {
    const given = { forget: false, target: kind.slice("job_".length), ...parametersOf(kind, params) };
    const jobs = jobsNamed(catalogJobs(context.db), given.jobs);
    const present = catalogAllocations(context.db).filter(({ removed }) => !removed);
    const states = controlStates(context, jobs, allocationsNamed(present, jobs, given.allocations, "allocations"));
    return await withHooks(context, async (hooks, fleet) => {
      const effects = effectsOf(context, fleet, hooks, present);
      const lower = given.target.toLowerCase();
      const target = BUILT_IN.includes(lower) ? lower : given.target;
      const { health_check: healthCheck, forget } = given;
      const all = { context, fleet, effects, present, target, healthCheck, forget };
      const resultNow = () => controlResult(all, jobs, states);
      try {
        await leaveOutWorkers(all, states);
        await controlJobs(all, jobs, states);
      } catch (error) {
        endCancelled(context.signal, fleet, error, resultNow);
      }
      return concludeControl(context, resultNow(), states);
    });
  };
}

function controlStates(
  { db }: OperationContext,
  jobs: readonly CatalogJob[],
  allocations: readonly CatalogAllocation[],
): ControlState[] {
  return jobs.flatMap(({ name }) => {
    const promotionOf = promotionsOf(db, name);
    const own = allocations.filter(({ job }) => job === name);
    return own.map((allocation) => ({
      allocation,
      promoted: promotionOf(allocation.id),
      ...(allocation.disabled
        ? { outcome: "skipped" as const, error: "disabled" }
        : { outcome: "not_started" as const, error: null }),
      duration_ms: 0,
    }));
  });
}

/** Grades the allocations whose worker cannot be used. Each worker is asked once, before any target runs. */
async function leaveOutWorkers(control: Control, states: readonly ControlState[]): Promise<void> {
  const { context, fleet } = control;
  const wanted = states.filter(({ outcome }) => outcome === "not_started");
  const byWorker = Map.groupBy(wanted, ({ allocation }) => allocation.worker);
  const ask = async ([worker, own]: [string, ControlState[]]) => {
    try {
      await checkWorker(context, fleet, worker);
    } catch (error) {
      throwIfCancelled(context.signal);
      context.log.error(blameStates(own, error), { worker });
    }
  };
  await mapAll([...byWorker], WORKERS_AT_ONCE, ask, context.signal);
  noteControl(control, states);
}

async function controlJobs(all: Control, jobs: readonly CatalogJob[], states: readonly ControlState[]): Promise<void> {
  const { context, target } = all;
  let done = 0;
  const work = async (job: CatalogJob) => {
    const own = states.filter(({ allocation }) => allocation.job === job.name);
    const disabled = own.filter(({ allocation }) => allocation.disabled);
    if (own.length === 0) context.log.info(`${job.name}: skipped, it has no allocation`, { job: job.name });
    if (disabled.length > 0) context.log.info(`${job.name}: skipped where disabled, on ${hostsOf(disabled)}`, { job: job.name });
    const jobWork = { ...all, job, states: own };
    if (target !== "status") await controlJob(jobWork);
    else {
      await askStatus(jobWork);
      const well = own.filter(({ outcome }) => outcome === "ok");
      if (all.healthCheck && well.length > 0) await checkAfter(jobWork, well);
    }
    context.progress.report({ phase: context.run.kind, done: ++done, total: jobs.length });
  };
  await mapAll(jobs, JOBS_AT_ONCE, work, context.signal);
}

function controlResult({ context, fleet, target }: Control, jobs: readonly CatalogJob[], states: readonly ControlState[]) {
  const left = fleet.leftDown();
  for (const line of left.left_down ?? []) context.log.warn(line);
  return {
    target,
    jobs: jobs.map(({ name }) => {
      const own = states.filter(({ allocation }) => allocation.job === name);
      const allocations = own.map(({ allocation, promoted, ...state }) => ({
        worker: allocation.worker,
        version: promoted.version,
        ...state,
      }));
      return { job: name, outcome: worstOf(own.map(({ outcome }) => outcome)), allocations };
    }),
    ...left,
  };
}

function concludeControl({ log }: OperationContext, result: ControlResult, states: readonly ControlState[]): ControlResult {
  log.info(`${result.target}: ${describeGrades(countGrades(states.map(({ outcome }) => outcome)))}`);
  const bad = states.filter(({ outcome }) => outcome !== "ok" && outcome !== "skipped");
  const reasonOf = ({ outcome, error }: ControlState) => (error === null ? outcome.replaceAll("_", " ") : inOneLine(error));
  const errors = bad.map((one) => `${one.allocation.job}@${one.allocation.worker}: ${reasonOf(one)}`);
  const left = errors.length > 0 ? (result.left_down ?? []) : [];
  return concluded(result, `${result.target} failed`, toldOnce([...errors, ...left]), "ErrRunCommand");
}

const STATUS_LIMIT_SECONDS = 60;
const STATUS_BYTES = 64 * 1024;
const STATUS_SHOWN = { lines: 100, length: 400 };

/**
 * Asks a job for its status on all workers that can be used, at once: a question needs no batches and waits for no other
 * target. The hooks for job_control do not run, because they may do anything.
 */
async function askStatus({ context, fleet, states }: JobWork): Promise<void> {
  const { signal } = context;
  const asked = states.filter(({ outcome }) => outcome === "not_started");
  const ask = async (state: ControlState) => {
    const started = performance.now();
    try {
      await askOne(context, fleet, state);
      state.outcome = "ok";
    } catch (error) {
      throwIfCancelled(signal);
      blameStates([state], error);
    }
    state.duration_ms = Math.round(performance.now() - started);
  };
  await mapAll(asked, WORKERS_AT_ONCE, ask, signal);
}

async function askOne(context: OperationContext, fleet: Fleet, state: ControlState): Promise<void> {
  const { job, worker } = state.allocation;
  const outcome = await makeStatus(await fleet.reach(worker), job, {
    env: versionsOf(state),
    onLine: (line, stream) => context.log.output(job, worker, line, { stream, phase: "job_control", action: "status" }),
    keepBytes: STATUS_BYTES,
    timeoutMs: STATUS_LIMIT_SECONDS * 1000,
    signal: context.signal,
  });
  throwIfCancelled(context.signal);
  const lines = plainLines(context.log.redactor.apply(outcome.stdout), STATUS_SHOWN);
  state.status = { exit_code: outcome.exitCode, lines };
  if (outcome.reason === "timeout") throw new Failure("timeout", `\`make status\` did not end within ${STATUS_LIMIT_SECONDS} s`);
  const last = lines.findLast((line) => !isClosing(line)) ?? lines.at(-1);
  if (outcome.exitCode !== 0) throw new Failure("failed", `exit code ${outcome.exitCode}: ${last ?? "it says nothing"}`);
}

const WORKER_JSON = object({ bucket_id: anything(), worker_id: anything(), update_seq: anything() }, { unknown: "warn" });

/**
 * The worker sync check of job control: the worker.json on a worker must be that of the last sync in the database.
 * Throws `failed` with the reason and advice, `unreachable` or `cancelled`.
 */
async function checkWorker(context: OperationContext, fleet: Fleet, host: string): Promise<void> {
  const worker = fleet.worker(host);
  if (worker.syncedSeq === 0) throw notInSync(host, "nothing was deployed to it yet", "run `ops deploy`");
  const text = await readWorkerJson(await fleet.reach(host), context.signal);
  const wrong = text === "" ? "worker.json is missing there" : differenceOf(text, worker, context.run.bucketId);
  if (wrong !== undefined)
    throw notInSync(host, wrong, "its files may be others than the bucket knows: run `ops deploy --force`");
}

function differenceOf(text: string, { id, syncedSeq }: CatalogWorker, bucketId: string): string | undefined {
  const found = valueIn(WORKER_JSON, text);
  if (!found) return "worker.json there cannot be read";
  const { bucket_id, worker_id, update_seq } = found;
  if (bucket_id !== bucketId) return "worker.json there is that of another bucket";
  if (worker_id !== id) return "worker.json there is that of another worker";
  if (update_seq === syncedSeq) return undefined;
  const seq = Number.isSafeInteger(update_seq) ? String(update_seq) : "no";
  return `worker.json there has update sequence ${seq}, ${syncedSeq} was synced last`;
}

function notInSync(host: string, why: string, advice: string): Failure {
  return new Failure("failed", `worker ${host} is not in sync: ${why}; ${advice}`);
}
