import type { CatalogJob } from "../bucket/catalog.ts";
import { batches, runAll, sleep } from "../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../core/errors.ts";
import { inOrder, rolloutOrder } from "../plan/rollout.ts";
import { type ProbeResult, probe } from "../transport/probes.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";

/**
 * Probes a job on the given workers until every check passes on each, in rollout order and batches of
 * `max_concurrent_upgrades` (hook-runtime.md, Batching rules). Each worker gets as many attempts as the manifest's
 * `wait` says. Throws `ErrHealthCheckFailed` with what the last probes saw, for every worker of the batch that failed.
 */
export async function passGate(
  context: OperationContext,
  fleet: Fleet,
  job: CatalogJob,
  workers: readonly string[],
): Promise<void> {
  if (!job.healthCheck || workers.length === 0) return;
  const order = rolloutOrder(context.kv.get(`ops/job/${job.name}`, "rollout_order"), workers);
  for (const batch of batches(
    inOrder(order, workers, (host) => host),
    job.maxConcurrentUpgrades,
  )) {
    const results = await runAll(
      batch,
      batch.length,
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
    return await probe({ ...check, host, port: job.ports[check.port] as number, timeoutMs }, context.signal);
  });
  return results.map((result) => {
    if (result.status === "rejected") throw result.reason;
    return result.value;
  });
}
