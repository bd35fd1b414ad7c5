import { createHash } from "node:crypto";
import type { CatalogAllocation, CatalogWorker } from "../../bucket/base/model.ts";
import { jobsJson, RUNNER_PATH, runnerText, workerJson } from "../../transport/ask/runner.ts";
import type { SyncFile } from "../../transport/files/sync.ts";

/** `worker.json`, `jobs.json` and `bin/` of a worker; the runner goes by them (hook-runtime.md, Deploy order 3). */
export function workerFiles(
  bucketId: string,
  worker: CatalogWorker,
  allocations: readonly CatalogAllocation[],
  updateSeq: number,
): SyncFile[] {
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

function file(path: string, mode: number, text: string): SyncFile {
  const content = Buffer.from(text);
  return syncFile(path, mode, content, createHash("sha256").update(content).digest("hex"));
}

/** A file whose content is in memory. */
export function syncFile(path: string, mode: number, content: Buffer, sha256: string): SyncFile {
  async function* open() {
    yield content;
  }
  return { path, mode, sha256, size: content.length, open };
}
