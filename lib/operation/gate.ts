import type { CatalogJob } from "../bucket/catalog.ts";
import { DEFAULT_WAIT } from "../bucket/health-check.ts";
import { runAll, sleep } from "../core/async.ts";
import { Failure, throwIfCancelled } from "../core/errors.ts";
import { rolloutBatches } from "../plan/rollout.ts";
import type { OperationContext } from "./context.ts";
import type { Effects } from "./effects.ts";
import { hooksOn, scriptErrors } from "./hooks.ts";
import { type Trouble, troubleOf } from "./outcome.ts";

/** Which workers a gate is about; those of `hooked` that are disabled are not probed. */
export interface Gated {
  probed: readonly string[];
  hooked: readonly string[];
}

/** True for a job whose rollout has a gate: probes, or hooks for health_check. */
export function hasGate(job: CatalogJob): boolean {
  return job.healthCheck !== null || hooksOn(job, "health_check").length > 0;
}

/**
 * Probes a job until every check passes on each worker, in rollout order and batches of `max_concurrent_upgrades`
 * (hook-runtime.md, Batching rules), and then runs its hooks for health_check. Each worker gets as many attempts as the
 * manifest's `wait` says, at the probes and at each hook. Throws `ErrHealthCheckFailed` with what was seen last, for
 * every worker of the batch that failed; {@link gateTroubles} tells them apart.
 */
export async function passGate(
  context: OperationContext,
  effects: Pick<Effects, "probe" | "hooks">,
  job: CatalogJob,
  workers: Gated,
): Promise<void> {
  await passProbes(context, effects, job, workers.probed);
  const wait = job.healthCheck?.wait ?? DEFAULT_WAIT;
  try {
    await effects.hooks({ kind: "health_check", job, workers: workers.hooked, wait });
  } catch (error) {
    if (!(error instanceof Failure) || error.code !== "ErrHookFailed") throw error;
    const errors = [...scriptErrors(error)];
    throw gateFailure(
      job,
      error.message,
      errors.map(([worker, message]) => [worker, { grade: "failed", message }]),
    );
  }
}

/** What was wrong on which worker, where an error is that of a gate. */
export function gateTroubles(error: unknown): ReadonlyMap<string, Trouble> {
  const isOurs = error instanceof Failure && error.code === "ErrHealthCheckFailed";
  return new Map(isOurs ? (error.details as { troubles: [string, Trouble][] }).troubles : []);
}

function gateFailure(job: CatalogJob, why: string, troubles: readonly [string, Trouble][]): Failure {
  const message = `the health check of job ${job.name} failed: ${why}`;
  return new Failure("ErrHealthCheckFailed", message, { details: { troubles } });
}

async function passProbes(
  context: OperationContext,
  effects: Pick<Effects, "probe">,
  job: CatalogJob,
  workers: readonly string[],
): Promise<void> {
  if (!job.healthCheck) return;
  const order = context.kv.get(`ops/job/${job.name}`, "rollout_order");
  for (const batch of rolloutBatches(order, workers, job.maxConcurrentUpgrades)) {
    const results = await runAll(
      batch.workers,
      batch.workers.length,
      (host) => probeWorker(context, effects, job, host),
      context.signal,
    );
    throwIfCancelled(context.signal);
    const troubles = results.flatMap((result, index): [string, Trouble][] =>
      result.status === "rejected" ? [[batch.workers[index] as string, troubleOf(result.reason)]] : [],
    );
    if (troubles.length > 0)
      throw gateFailure(job, troubles.map(([, { message }]) => message).join("; "), troubles);
  }
}

async function probeWorker(
  { log, progress, signal }: OperationContext,
  effects: Pick<Effects, "probe">,
  job: CatalogJob,
  host: string,
): Promise<void> {
  const { attempts, intervalSeconds } = job.healthCheck?.wait ?? { attempts: 1, intervalSeconds: 0 };
  for (let attempt = 1; ; attempt++) {
    const failed = (await effects.probe(job, host)).filter((result) => !result.ok);
    if (failed.length === 0) return;
    const evidence = failed.map((result) => result.evidence).join(", ");
    if (attempt >= attempts)
      throw new Failure(
        "ErrHealthCheckFailed",
        `${host} after ${attempt} attempt${attempt > 1 ? "s" : ""}: ${evidence}`,
      );
    if (attempt === 1) log.info(`${job.name}@${host}: waiting to become healthy: ${evidence}`);
    const pauseMs = intervalSeconds * 1000;
    const what = `${job.name}@${host}: to become healthy (attempt ${attempt} of ${attempts} failed)`;
    await progress.during(what, pauseMs, sleep(pauseMs, signal));
  }
}
