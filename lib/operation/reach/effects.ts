import { hash } from "node:crypto";
import { type Content, piecesOf } from "../../bucket/base/contents.ts";
import type { CatalogAllocation, CatalogWorker } from "../../bucket/base/model.ts";
import { keptContent } from "../../bucket/catalog/contents.ts";
import { type Promotion, recordSynced, type SyncedTree } from "../../bucket/catalog/promotions.ts";
import { type StagedFile, type StagedTree, stagingFolder, writeStaging } from "../../bucket/catalog/staging.ts";
import type { FileDigests } from "../../plan/changes.ts";
import { jobsJson, type LastTarget, lastTarget, RUNNER_PATH, runnerText, workerJson } from "../../transport/ask/runner.ts";
import { adoptTree, type SyncFile, type SyncResult, syncTree, WORKER_TREE } from "../../transport/files/sync.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";
import type { HookSession } from "../hooks/hooks.ts";
import { type GateEffects, gateEffects } from "./gate-effects.ts";
import { makeTarget, type WantedTarget } from "./target.ts";
import { type DriftEffects, driftEffects, driftIgnored, isOfOps, type Place } from "./tree-drift.ts";

/** The limit of each of the two steps of a sync: asking for the digests, and sending the files that differ. */
const SYNC_LIMIT_MS = 900_000;

/**
 * All that a deploy does outside the bucket's database. Each effect throws where it did not succeed: `unreachable` where
 * the worker cannot be reached, `cancelled` once the run is cancelled and what the effect had begun has ended.
 */
export interface Effects extends DriftEffects, GateEffects {
  /** Opens the way to a worker and looks for the tools there. */
  reach(host: string): Promise<void>;
  /** Brings `worker.json`, `jobs.json` and `bin/` of a worker up to date (hook-runtime.md, Deploy order 3). */
  syncWorker(host: string, updateSeq: number): Promise<void>;
  /** Writes the files of an allocation to its staging folder, which then holds nothing else. */
  stage(place: Place, tree: StagedTree): Promise<void>;
  /**
   * Replaces the files of a job that ops owns on a worker by these. A file that differs from `before` is sent even where
   * its content is there: its rights may be other ones.
   */
  sync(place: Place, tree: StagedTree | undefined, before: FileDigests): Promise<SyncResult>;
  /** Makes ops own the files of a job that lie on a worker, and brings its {@link isOfOps} alone. See {@link adoptTree}. */
  adopt(place: Place, tree: StagedTree): Promise<void>;
  /** The last target of the job that succeeded on the worker since the worker's start. */
  lastTarget(place: Place): Promise<LastTarget | undefined>;
  /** Runs a target to its end; throws when it fails. */
  run(target: WantedTarget): Promise<void>;
}

/** The effects of a real deploy. Each of their waits shows in the run's progress. */
export function effectsOf(
  context: OperationContext,
  fleet: Fleet,
  hooks: HookSession,
  allocations: readonly CatalogAllocation[],
): Effects {
  const { db, layout, progress, signal, run } = context;
  const isOwn = driftIgnored(db);
  const syncing = async (place: Place, name: string, folder: string, files: readonly SyncFile[]) => {
    const transport = await fleet.reach(place.worker);
    const work = syncTree(transport, { name, folder, files }, { signal, timeoutMs: SYNC_LIMIT_MS });
    return await progress.during({ ...place, reason: "sync", detail: "sync" }, SYNC_LIMIT_MS, work);
  };
  return {
    async reach(host) {
      await fleet.reach(host);
    },
    async syncWorker(host, updateSeq) {
      const files = workerFiles(run.bucketId, fleet.worker(host), allocations, updateSeq);
      await syncing({ job: "", worker: host }, WORKER_TREE, ".", files);
    },
    stage: (place, tree) => writeStaging(stagingFolder(layout, place.worker, place.job), tree.files),
    sync(place, tree, before) {
      const files = tree?.files ?? [];
      const wanted = files.map((file) => ({
        ...syncFile(file.path, file.mode, file.content, file.sha256),
        isRewritten: before[file.path] !== undefined && before[file.path] !== tree?.digests[file.path],
      }));
      return syncing(place, place.job, `jobs/${place.job}`, wanted);
    },
    async adopt(place, { files }) {
      const transport = await fleet.reach(place.worker);
      const wanted = files.map((file) => syncFile(file.path, file.mode, file.content, file.sha256));
      const tree = { name: place.job, folder: `jobs/${place.job}`, files: wanted };
      const rules = { isOwn: (path: string) => isOwn(place.job, path), isBrought: isOfOps };
      const work = adoptTree(transport, tree, rules, { signal, timeoutMs: SYNC_LIMIT_MS });
      await progress.during({ ...place, reason: "sync", detail: "adopt" }, SYNC_LIMIT_MS, work);
    },
    ...driftEffects(context, fleet),
    async lastTarget({ job, worker }) {
      return await lastTarget(await fleet.reach(worker), job, { signal });
    },
    async run(target) {
      const transport = await fleet.reach(target.worker);
      const { down } = fleet;
      const isRestart = target.target === "restart";
      const onCut = () => (isRestart ? down.set(placeName(target), "restart") : undefined);
      const work = (onBegin: () => void) => makeTarget(context, transport, { ...target, onBegin, onCut });
      const wait = { reason: "make", job: target.job, worker: target.worker, detail: `make ${target.target}` } as const;
      await progress.during(wait, target.limitSeconds * 1000, work);
      if (isRestart || target.target === "start") down.delete(placeName(target));
    },
    ...gateEffects(context, fleet, hooks),
  };
}

/** A job on a worker as people read it. */
function placeName({ job, worker }: Place): string {
  return job === "" ? worker : `${job}@${worker}`;
}

/** The promoted files of an allocation. Throws `failed` where the content of a file is no longer kept. */
export function promotedTree({ db, kv }: OperationContext, { hash, files }: Promotion): StagedTree {
  const staged = Object.entries(files).map(([path, digest]): StagedFile => {
    const [mode = "", sha256 = ""] = digest.split(":");
    return { path, mode: Number.parseInt(mode, 8), sha256, ...keptContent(db, kv, sha256) };
  });
  return { hash, files: staged, digests: files };
}

/**
 * Brings files of an allocation to its worker, which may have the files of `before`, and records that they are there, or
 * puts the record into `synced` for its caller to store. `updateSeq` is the sequence that they were rendered with.
 */
export async function bringFiles(
  { context, effects, synced }: { context: OperationContext; effects: Effects; synced?: SyncedTree[] },
  allocation: CatalogAllocation,
  rendered: { tree: StagedTree; updateSeq: number },
  before: FileDigests,
): Promise<SyncResult> {
  const { tree } = rendered;
  await effects.stage(allocation, tree);
  const result = await effects.sync(allocation, tree, before);
  const record = syncedTree({ allocation, ...rendered });
  if (synced) synced.push(record);
  else recordSynced(context.db, allocation.job, [record]);
  return result;
}

/** What is recorded of a tree that lies on its worker. */
export function syncedTree(of: { allocation: CatalogAllocation; tree: StagedTree; updateSeq: number }): SyncedTree {
  const { allocation, tree, updateSeq } = of;
  return { id: allocation.id, hash: tree.hash, files: tree.digests, updateSeq };
}

/** `worker.json`, `jobs.json` and `bin/` of a worker; the runner goes by them (hook-runtime.md, Deploy order 3). */
function workerFiles(
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
  return syncFile(path, mode, content, hash("sha256", content));
}

function syncFile(path: string, mode: number, content: Content, sha256: string): SyncFile {
  async function* open() {
    yield* piecesOf(content);
  }
  return { path, mode, sha256, size: content.length, open };
}
