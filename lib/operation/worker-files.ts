import { createHash } from "node:crypto";
import type { CatalogAllocation, CatalogWorker } from "../bucket/catalog.ts";
import { runAll } from "../core/async.ts";
import { messageOf, throwIfCancelled } from "../core/errors.ts";
import { jobsJson, RUNNER_PATH, runnerText, workerJson } from "../transport/runner.ts";
import { syncTree, WORKER_TREE } from "../transport/sync.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";

const AT_ONCE = 32;

/**
 * Brings `worker.json`, `jobs.json` and `bin/` on these workers up to date (hook-runtime.md, Deploy order 3) and
 * notes the update sequence each has. Answers what went wrong, by worker: nothing may be run there, since the runner
 * goes by these files.
 */
export async function syncWorkerFiles(
  context: OperationContext,
  fleet: Fleet,
  hosts: readonly string[],
  allocations: readonly CatalogAllocation[],
  updateSeq: number,
): Promise<Map<string, string>> {
  const sync = async (host: string) => {
    const transport = await fleet.reach(host);
    const files = workerFiles(context.run.bucketId, fleet.worker(host), allocations, updateSeq);
    await syncTree(transport, { name: WORKER_TREE, folder: ".", files }, { signal: context.signal });
    context.db.run("UPDATE worker SET synced_seq = ? WHERE worker_ip = ?", updateSeq, host);
  };
  const different = [...new Set(hosts)];
  const results = await runAll(different, AT_ONCE, sync, context.signal);
  throwIfCancelled(context.signal);
  return new Map(
    results.flatMap((result, index): [string, string][] =>
      result.status === "rejected" ? [[different[index] as string, messageOf(result.reason)]] : [],
    ),
  );
}

function workerFiles(
  bucketId: string,
  worker: CatalogWorker,
  allocations: readonly CatalogAllocation[],
  updateSeq: number,
) {
  const jobs = allocations
    .filter((allocation) => allocation.worker === worker.host && !allocation.removed)
    .map(({ job, disabled }) => ({ job, disabled }));
  const { id, host, labels } = worker;
  return [
    file(RUNNER_PATH, 0o755, runnerText()),
    file("jobs.json", 0o644, jobsJson(jobs)),
    file("worker.json", 0o644, workerJson({ bucketId, workerId: id, workerIp: host, labels, updateSeq })),
  ];
}

function file(path: string, mode: number, text: string) {
  const content = Buffer.from(text);
  const sha256 = createHash("sha256").update(content).digest("hex");
  return { path, mode, sha256, size: content.length, open: () => once(content) };
}

async function* once(content: Uint8Array): AsyncGenerator<Uint8Array> {
  yield content;
}
