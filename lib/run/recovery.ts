import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { acquireLock, type BucketLock, isOwned, readLock, takeOver } from "../bucket/base/lock.ts";
import { recoverSource } from "../bucket/source/source.ts";
import { isUuid, uuidV7 } from "../codec/uuid.ts";
import { Failure, hasErrno } from "../core/errors.ts";
import { readRegularSync, remove } from "../core/files.ts";
import { finishRun, pruneHistory } from "./finish.ts";
import { runIds } from "./history.ts";
import { COMMAND_ENDED, type RunEnd, readRecord, SERVER_RESTARTED, saveRecord, settle } from "./record.ts";

/**
 * Takes the lock of a bucket for a run and settles what a killed process left there: an interrupted change of the
 * source is finished or undone, and the run whose lock was taken over gets its end state. Throws `bucket_busy`.
 */
export async function takeBucket(layout: Layout, runId: string, command: string): Promise<BucketLock> {
  const lock = await acquireLock(layout, runId, command);
  try {
    if (lock.abandoned !== undefined) await settleRun(layout, lock.abandoned);
    await recoverSource(layout);
    return lock;
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/**
 * Settles a bucket at the start of a server (decisions: Runs, Startup): run processes that outlived their server are
 * ended, then their groups, then the lock goes, every run that was `running` without anybody carrying it out gets its
 * end state, and an interrupted change of the source is finished or undone. What a living command holds is left
 * alone. Answers a sentence for each run it settled.
 */
export async function recoverBucket(layout: Layout): Promise<string[]> {
  const found = await readLock(layout);
  if (found !== undefined && found !== "unreadable" && isOwned(found)) return settleRuns(layout, found.run_id);
  if (found !== undefined) await takeOver(layout, true);
  const lock = await acquireLock(layout, uuidV7(), "recovery");
  try {
    const settled = await settleRuns(layout);
    await recoverSource(layout);
    await pruneHistory(layout);
    return settled;
  } finally {
    await lock.release();
  }
}

/** Gives every `running` run but the one that is `alive` its end state. */
async function settleRuns(layout: Layout, alive?: string): Promise<string[]> {
  const settled: string[] = [];
  for (const id of await runIds(layout)) if (id !== alive) settled.push(...(await settleRun(layout, id)));
  return settled;
}

/** Gives a run that is still `running`, though its process is gone, its end state; answers the sentence about it. */
async function settleRun(layout: Layout, id: string): Promise<string[]> {
  // The id may come from a lock file, which could hold anything.
  const record = isUuid(id) ? readRecord(layout, id) : undefined;
  if (record?.status !== "running") return [];
  const reason = record.origin === "server" ? SERVER_RESTARTED : COMMAND_ENDED;
  const outcome = readOutcome(layout, id);
  settle(record, { exitCode: null, signal: null, outcome }, reason);
  await saveRecord(layout, record);
  await remove(runLayout(layout, id).outcome);
  await finishRun(layout, record);
  return [`run ${id} (${record.kind}) of bucket ${record.bucket_id} is settled: ${record.status}`];
}

/** What the run's process left where it could not tell its server any more; an unreadable file counts as none. */
function readOutcome(layout: Layout, id: string): RunEnd["outcome"] {
  try {
    return JSON.parse(readRegularSync(runLayout(layout, id).outcome)) as RunEnd["outcome"];
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof Failure) return undefined;
    if (hasErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
}
