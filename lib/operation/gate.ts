import type { CatalogJob } from "../bucket/catalog.ts";
import { DEFAULT_WAIT } from "../bucket/health-check.ts";
import { runAll, sleep } from "../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../core/errors.ts";
import { rolloutBatches } from "../plan/rollout.ts";
import { type ProbeResult, probe } from "../transport/probes.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";
import { type HookSession, hooksOn } from "./hooks.ts";

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
 * every worker of the batch that failed.
 */
export async function passGate(
  context: OperationContext,
  fleet: Fleet,
  hooks: HookSession,
  job: CatalogJob,
  workers: Gated,
): Promise<void> {
  await passProbes(context, fleet, job, workers.probed);
  const wait = job.healthCheck?.wait ?? DEFAULT_WAIT;
  await hooks.run({ kind: "health_check", job, workers: workers.hooked, wait }).catch((error: unknown) => {
    throw error instanceof Failure && error.code === "ErrHookFailed"
      ? new Failure("ErrHealthCheckFailed", `the health check of job ${job.name} failed: ${error.message}`)
      : error;
  });
}

async function passProbes(
  context: OperationContext,
  fleet: Fleet,
  job: CatalogJob,
  workers: readonly string[],
): Promise<void> {
  if (!job.healthCheck) return;
  const order = context.kv.get(`ops/job/${job.name}`, "rollout_order");
  for (const batch of rolloutBatches(order, workers, job.maxConcurrentUpgrades)) {
    const results = await runAll(
      batch.workers,
      batch.workers.length,
      (host) => probeWorker(context, fleet, job, host),
      context.signal,
    );
    throwIfCancelled(context.signal);
    const failures = results.flatMap((result) =>
      result.status === "rejected" ? [messageOf(result.reason)] : [],
    );
    if (failures.length > 0)
      throw new Failure(
        "ErrHealthCheckFailed",
        `the health check of job ${job.name} failed: ${failures.join("; ")}`,
      );
  }
}

async function probeWorker(
  context: OperationContext,
  fleet: Fleet,
  job: CatalogJob,
  host: string,
): Promise<void> {
  const { attempts, intervalSeconds } = job.healthCheck?.wait ?? { attempts: 1, intervalSeconds: 0 };
  for (let attempt = 1; ; attempt++) {
    const failed = (await probeOnce(context, fleet, job, host)).filter((result) => !result.ok);
    if (failed.length === 0) return;
    const evidence = failed.map((result) => result.evidence).join(", ");
    if (attempt >= attempts)
      throw new Failure(
        "ErrHealthCheckFailed",
        `${host} after ${attempt} attempt${attempt > 1 ? "s" : ""}: ${evidence}`,
      );
    if (attempt === 1) context.log.info(`${job.name}@${host}: waiting to become healthy: ${evidence}`);
    await sleep(intervalSeconds * 1000, context.signal);
  }
}

async function probeOnce(
  context: OperationContext,
  fleet: Fleet,
  job: CatalogJob,
  host: string,
): Promise<ProbeResult[]> {
  const checks = job.healthCheck?.checks ?? [];
  const results = await runAll(checks, checks.length, async (check) => {
    const timeoutMs = check.timeoutSeconds * 1000;
    if (check.type === "ssh")
      return await probe({ ...check, transport: await fleet.reach(host), timeoutMs }, context.signal);
    const port = job.ports[check.port] as number;
    const ca = context.kv.get("ops/worker", "certs/ca.crt");
    const trust = check.type === "http" && ca !== undefined ? { ca } : {};
    return await probe({ ...check, ...trust, host, port, timeoutMs }, context.signal);
  });
  return results.map((result) => {
    if (result.status === "rejected") throw result.reason;
    return result.value;
  });
}
