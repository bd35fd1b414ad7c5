import type { CatalogJob } from "../../bucket/base/model.ts";
import { DEFAULT_WAIT } from "../../bucket/workspace/manifest-blocks.ts";
import { mapAll, sleep } from "../../core/async.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { counted, inOneLine, plainLine, withLines } from "../../core/plain-text.ts";
import { rolloutBatches } from "../../plan/rollout.ts";
import type { ProbeResult } from "../../transport/ask/probes.ts";
import type { OperationContext } from "../base/context.ts";
import type { Evidence } from "../base/evidence.ts";
import { type Trouble, troubleOf } from "../base/outcome.ts";
import { hooksOn, scriptErrors } from "../hooks/hooks.ts";
import type { GateEffects } from "../reach/gate-effects.ts";
import { healthOf, keepHealth } from "./history.ts";

/** The characters of a probe's evidence that are shown. */
const SHOWN_LENGTH = 1_200;
const ONCE = { attempts: 1, intervalSeconds: 0 };
const SHORTEST_PAUSE_MS = 50;

/** Which workers a gate is about; those of `hooked` that are disabled are not probed. */
export interface Gated {
  probed: readonly string[];
  hooked: readonly string[];
}

/** How an allocation was found. */
export interface AllocationHealth {
  worker: string;
  outcome: "ok" | "failed" | "unreachable";
  error: string | null;
  /** How many attempts of `wait` it took; probes that come early belong to the first one. */
  attempts: number;
  /** The last attempt: what was asked, what came, and how long that took. */
  checks: { ok: boolean; evidence: string; duration_ms: number }[];
  /** What was found on the worker after the allocation failed. */
  evidence: Evidence | null;
}

/** What a health check of a job is about. */
export interface HealthQuestion {
  context: OperationContext;
  effects: GateEffects;
  job: CatalogJob;
  workers: Gated;
  /** Gives each worker and hook as many attempts as the manifest's `wait` says, instead of one. */
  wait: boolean;
  /** Goes on with the next batch of probes after one that failed. */
  isThorough: boolean;
  /** Tells in Activity what each probe found, and how each script has ended. */
  verbose: boolean;
}

/** True for a job whose rollout has a gate: probes, or hooks for health_check. */
export function hasGate(job: CatalogJob): boolean {
  return job.healthCheck !== null || hooksOn(job, "health_check").length > 0;
}

/**
 * Probes a job in rollout order and batches of `max_concurrent_upgrades`, and then runs its hooks for health_check
 * (hook-runtime.md, Batching rules), unless a probe failed. Answers what was found on each worker that was looked at,
 * with evidence of each failure, which is collected before anything else happens. Throws only `cancelled` and defects.
 */
export async function checkHealth(question: HealthQuestion): Promise<AllocationHealth[]> {
  const probed = await probeAll(question);
  const lost = new Set(probed.filter(({ outcome }) => outcome !== "ok").map(({ worker }) => worker));
  const isFailed = probed.some(({ outcome }) => outcome === "failed");
  if (isFailed || (lost.size > 0 && !question.isThorough)) return probed;
  const hooked = question.workers.hooked.filter((host) => !lost.has(host));
  const found = await runHealthHooks(question, hooked);
  const before = new Map(probed.map((one) => [one.worker, one]));
  for (const one of found) {
    const { checks, attempts } = before.get(one.worker) ?? one;
    before.set(one.worker, { ...one, checks, attempts });
  }
  return [...before.values()];
}

/**
 * The gate of a rollout: {@link checkHealth} with all attempts, up to the first batch that fails. Throws
 * `ErrHealthCheckFailed` with what was seen last on every worker that failed; {@link gateTroubles} tells them apart.
 */
export async function passGate(context: OperationContext, effects: GateEffects, job: CatalogJob, workers: Gated): Promise<void> {
  const how = { wait: true, isThorough: false, verbose: false };
  const allocations = await checkHealth({ context, effects, job, workers, ...how });
  keepHealth(context, healthOf(job.name, allocations));
  const errors = allocations.flatMap(({ error }) => (error === null ? [] : inOneLine(error)));
  if (errors.length === 0) return;
  const message = `the health check of job ${job.name} failed: ${errors.join("; ")}`;
  throw new Failure("ErrHealthCheckFailed", message, { details: { allocations } });
}

/** The troubles by worker in the error of a gate; none in any other error. */
export function gateTroubles(error: unknown): ReadonlyMap<string, Trouble> {
  if (!(error instanceof Failure && error.code === "ErrHealthCheckFailed")) return new Map();
  const { allocations } = error.details as { allocations: AllocationHealth[] };
  const troubles = allocations.flatMap(({ worker, outcome, error, evidence }): [string, Trouble][] =>
    outcome === "ok" ? [] : [[worker, { grade: outcome, message: error ?? "", evidence }]],
  );
  return new Map(troubles);
}

async function probeAll(question: HealthQuestion): Promise<AllocationHealth[]> {
  const { context, job, workers, isThorough } = question;
  if (!job.healthCheck) return [];
  const found: AllocationHealth[] = [];
  const order = context.kv.get(`ops/job/${job.name}`, "rollout_order");
  const work = (host: string) => probeWorker(question, host);
  for (const batch of rolloutBatches(order, workers.probed, job.maxConcurrentUpgrades)) {
    found.push(...(await mapAll(batch.workers, batch.workers.length, work, context.signal)));
    if (!isThorough && found.some(({ outcome }) => outcome !== "ok")) break;
  }
  return found;
}

async function probeWorker(question: HealthQuestion, worker: string): Promise<AllocationHealth> {
  const { context, effects, job, wait, verbose } = question;
  const { log, progress, signal } = context;
  const { attempts, intervalSeconds } = (wait ? job.healthCheck?.wait : undefined) ?? ONCE;
  let pauses: ReturnType<typeof pausesOf> | undefined;
  for (let attempt = 1; ; ) {
    const found = await probeOnce(question, worker);
    if (!Array.isArray(found)) return { ...found, attempts: attempt };
    const checks = found.map((one) => shownProbe(context, one));
    if (verbose)
      for (const { evidence, duration_ms } of checks)
        log.info(`${job.name}@${worker}: ${evidence} (${duration_ms} ms)`, { job: job.name, worker });
    const bad = found.filter(({ ok }) => !ok).map((one) => probeReason(context, one));
    const health = { worker, attempts: attempt, checks };
    if (bad.length === 0) return { ...health, outcome: "ok", error: null, evidence: null };
    if (attempt >= attempts) {
      const error = attemptsFailed(`${worker} after ${counted(attempt, "attempt")}`, bad);
      if (found.some(({ isUnreachable }) => isUnreachable)) return { ...health, outcome: "unreachable", error, evidence: null };
      return { ...health, outcome: "failed", error, evidence: await effects.evidence(job, worker) };
    }
    if (!pauses)
      log.info(`${job.name}@${worker}: waiting to become healthy: ${bad.map(inOneLine).join(", ")}`, { job: job.name, worker });
    pauses ??= pausesOf(intervalSeconds * 1000);
    const { pauseMs, isEarly } = pauses.next().value;
    const detail = `to become healthy (attempt ${attempt} of ${attempts} failed)`;
    await progress.during({ reason: "gate", job: job.name, worker, detail }, pauseMs, sleep(pauseMs, signal));
    if (!isEarly) attempt++;
  }
}

/**
 * The pauses behind probes that failed, counted from the first. Most services need a moment and not a whole interval:
 * within the first interval probes come early, so that nobody waits much longer than the service needs. They are no
 * attempts.
 */
function* pausesOf(intervalMs: number): Generator<{ pauseMs: number; isEarly: boolean }, never> {
  const due = performance.now() + intervalMs;
  const restMs = () => Math.max(0, due - performance.now());
  let waitedMs = 0;
  for (let pauseMs = SHORTEST_PAUSE_MS; pauseMs < restMs(); pauseMs = Math.max(SHORTEST_PAUSE_MS, waitedMs / 4)) {
    yield { pauseMs, isEarly: true };
    waitedMs += pauseMs;
  }
  yield { pauseMs: restMs(), isEarly: false };
  for (;;) yield { pauseMs: intervalMs, isEarly: false };
}

/** What the probes of a worker found, or the failure that kept them from being carried out. Throws any other error on. */
async function probeOnce(
  { effects, job }: HealthQuestion,
  worker: string,
): Promise<ProbeResult[] | Omit<AllocationHealth, "attempts">> {
  try {
    return await effects.probe(job, worker);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const outcome = troubleOf(error).grade === "unreachable" ? "unreachable" : "failed";
    return { worker, outcome, error: messageOf(error), checks: [], evidence: null };
  }
}

function shownProbe(context: OperationContext, found: ProbeResult) {
  const { ok, durationMs } = found;
  return { ok, evidence: inOneLine(probeReason(context, found)), duration_ms: Math.round(durationMs) };
}

/** Masked before it is cut: of a secret, not even the beginning is shown. */
function probeReason({ log }: OperationContext, { evidence, said }: ProbeResult): string {
  const lines = said?.shown((text) => log.redactor.apply(text)) ?? [];
  return withLines(plainLine(log.redactor.sentence(evidence), SHOWN_LENGTH), lines);
}

function attemptsFailed(what: string, reasons: readonly string[]): string {
  return reasons.some((one) => one.includes("\n")) ? withLines(what, reasons) : `${what}: ${reasons.join(", ")}`;
}

/** Runs the hooks for health_check. Answers the health of each worker for which a script has run. */
async function runHealthHooks(question: HealthQuestion, workers: readonly string[]): Promise<AllocationHealth[]> {
  const { context, effects, job, wait, verbose } = question;
  const attempts = wait ? (job.healthCheck?.wait ?? DEFAULT_WAIT) : ONCE;
  const none = { attempts: 0, checks: [] };
  try {
    const scripts = await effects.hooks({ kind: "health_check", job, workers, wait: attempts, verbose });
    const hosts = [...new Set(scripts.map(({ worker }) => worker))];
    return hosts.map((worker) => ({ ...none, worker, outcome: "ok", error: null, evidence: null }));
  } catch (thrown) {
    const errors = scriptErrors(thrown);
    if (errors.size === 0) throw thrown;
    return await mapAll([...errors], errors.size, async ([worker, said]): Promise<AllocationHealth> => {
      const error = `${worker}: ${context.log.redactor.sentence(said)}`;
      return { ...none, worker, outcome: "failed", error, evidence: await effects.evidence(job, worker) };
    });
  }
}
