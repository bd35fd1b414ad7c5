import { lstat } from "node:fs/promises";
import { setImmediate as nextRound } from "node:timers/promises";
import { settleAuthority } from "../bucket/base/authority-change.ts";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { acquireLock, type BucketLock, isOwned, readLock, takeOver } from "../bucket/base/lock.ts";
import { RunLog } from "../bucket/base/logs.ts";
import { Problems } from "../bucket/base/problems.ts";
import { recoverSource } from "../bucket/source/source.ts";
import { readOpsConf } from "../bucket/workspace/settings.ts";
import { isUuid, timeOfUuid, uuidV7 } from "../codec/uuid.ts";
import { Failure, hasErrno } from "../core/errors.ts";
import { makePrivateFolder, readRegularSync, remove, unlessMissing } from "../core/files.ts";
import { Redactor } from "../core/redact.ts";
import {
  COMMAND_ENDED,
  hasFreshKey,
  READ_AT_ONCE,
  type RunEnd,
  type RunRecord,
  readRecord,
  readRecordHead,
  removedRuns,
  runIds,
  runNotFound,
  SERVER_RESTARTED,
  saveRecord,
  settle,
} from "./record.ts";
import { compareWithLast } from "./repeats.ts";

/**
 * Takes the lock of a bucket for a run and settles what a killed process left there: the run whose lock was taken over
 * gets its end state, and an interrupted change of the source or of the CA is finished or undone. Throws `bucket_busy`.
 */
export async function takeBucket(layout: Layout, runId: string, command: string): Promise<BucketLock> {
  const lock = await acquireLock(layout, runId, command);
  try {
    if (lock.abandoned !== undefined) await settleRun(layout, lock.abandoned);
    await recoverSource(layout);
    await settleAuthority(layout);
    return lock;
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/**
 * Settles a bucket at the start of a server (decisions: Runs, Startup). Processes of runs that outlived their server are
 * ended, then their groups, then the lock is removed. Every run that is `running` although no process carries it out
 * gets its end state, and an interrupted change of the source or of the CA is finished or undone. A bucket that a living command holds
 * is left alone, but for its earlier runs. Answers the runs that were settled.
 */
export async function recoverBucket(layout: Layout): Promise<RunRecord[]> {
  const found = await readLock(layout);
  if (found !== undefined && found !== "unreadable" && isOwned(found)) return settleRuns(layout, found.run_id);
  if (found !== undefined) await takeOver(layout, true);
  await using _ = await acquireLock(layout, uuidV7(), "recovery");
  const settled = await settleRuns(layout);
  await recoverSource(layout);
  await settleAuthority(layout);
  await pruneHistory(layout);
  return settled;
}

/** Gives every `running` run but the one that is `alive` its end state. */
async function settleRuns(layout: Layout, alive?: string): Promise<RunRecord[]> {
  const settled: RunRecord[] = [];
  for (const id of await runIds(layout)) if (id !== alive) settled.push(...(await settleRun(layout, id)));
  return settled;
}

/** Gives a run its end state where it is still `running` although its process is gone; answers it. */
async function settleRun(layout: Layout, id: string): Promise<RunRecord[]> {
  // The id may come from a lock file, which could hold anything.
  const record = isUuid(id) ? readRecord(layout, id) : undefined;
  if (record?.status !== "running") return [];
  const reason = record.origin === "cli" ? COMMAND_ENDED : SERVER_RESTARTED;
  const outcome = readOutcome(layout, id);
  settle(record, { exitCode: null, signal: null, outcome }, reason);
  await saveRecord(layout, record);
  await remove(runLayout(layout, id).outcome);
  await finishRun(layout, record);
  return [record];
}

/** The outcome that a run's process left in a file because its server was gone; an unreadable file counts as none. */
function readOutcome(layout: Layout, id: string): RunEnd["outcome"] {
  try {
    return JSON.parse(readRegularSync(runLayout(layout, id).outcome)) as RunEnd["outcome"];
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof Failure) return undefined;
    if (hasErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
}

/**
 * What the end of every run brings: the outcome is noted in the run's ops.log (control-plane.md, Source push 4), and old
 * history is pruned (control-plane.md, Runs 6). The caller holds the bucket's lock, all processes of the run are gone,
 * and the record has its end state. The caller saves the record. Throws where the log cannot be written.
 */
export async function finishRun(layout: Layout, record: RunRecord): Promise<void> {
  const settings = await readOpsConf(layout, new Problems());
  const log = new RunLog({
    layout,
    runId: record.id,
    command: record.kind,
    redactor: new Redactor(),
    // This is not the run's own process: in Activity it says nothing.
    activity: () => {},
    format: settings.logFormat,
  });
  try {
    log.record({
      event: "run_end",
      action: record.status,
      ...(record.error !== null && { reason: record.error }),
      duration_ms: Date.parse(record.finished_at as string) - Date.parse(record.created_at),
    });
  } finally {
    log.close();
  }
  await compareWithLast(layout, record);
  await pruneRuns(layout, settings.logRunRetentionCount, settings.logRunRetentionDays);
}

/** Applies the bucket's retention settings; an ops.conf that cannot be read means their defaults. */
export async function pruneHistory(layout: Layout): Promise<void> {
  const settings = await readOpsConf(layout, new Problems());
  await pruneRuns(layout, settings.logRunRetentionCount, settings.logRunRetentionDays);
}

/**
 * Removes completed runs beyond the newest `count` or older than `days` (0 = unlimited); never one that runs, nor the newest
 * (control-plane.md, Runs 6). A key that is still remembered is kept without its run. Folders of runs whose record cannot be
 * read count like completed ones. A run is as old as the earliest time of its id, its record and its folder.
 */
export async function pruneRuns(layout: Layout, count: number, days: number): Promise<void> {
  const ids = (await runIds(layout)).reverse();
  const removed = removedRuns(layout);
  const limit = days > 0 ? Date.now() - days * 24 * 3_600_000 : Number.NEGATIVE_INFINITY;
  for (const [index, id] of ids.entries()) {
    const tooMany = count > 0 && index >= count;
    if (index === 0 || (!tooMany && days === 0)) continue;
    if (index % READ_AT_ONCE === 0) await nextRound();
    const record = readRecordHead(layout, id);
    const { mtimeMs = Number.NaN } = (await unlessMissing(lstat(runLayout(layout, id).folder))) ?? {};
    const times = [record?.created_at, record?.finished_at].map((time) => Date.parse(time ?? ""));
    const tooOld = [timeOfUuid(id), mtimeMs, ...times].some((time) => time < limit);
    if ((!tooMany && !tooOld) || record?.status === "running") continue;
    if (hasFreshKey(record)) {
      await makePrivateFolder(runLayout(removed, id).folder);
      await saveRecord(removed, record);
    }
    await remove(runLayout(layout, id).folder);
  }
  for (const id of await runIds(removed))
    if (!hasFreshKey(readRecordHead(removed, id))) await remove(runLayout(removed, id).folder);
}

/** The failure of a cancel: why the run is none that this server carries out now. */
export function notActive(layout: Layout, runId: string): Failure {
  const record = readRecord(layout, runId);
  if (!record) return runNotFound(runId);
  if (record.status !== "running") return new Failure("run_not_active", `run ${runId} has already ended: ${record.status}`);
  if (record.origin !== "cli") return new Failure("run_not_active", `run ${runId} is just ending`);
  const { actor } = record.audit[0] ?? { actor: { address: "an unknown process" } };
  return new Failure("run_not_active", `run ${runId} was started on the command line by ${actor.address}; stop it there`);
}
