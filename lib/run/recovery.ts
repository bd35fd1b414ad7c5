import type { Layout } from "../bucket/layout.ts";
import { acquireLock, isOwned, readLock, takeOver } from "../bucket/lock.ts";
import { recoverSource } from "../bucket/source.ts";
import { uuidV7 } from "../codec/uuid.ts";
import { finishRun, pruneHistory } from "./finish.ts";
import { runIds } from "./history.ts";
import { COMMAND_ENDED, type RunRecord, readRecord, SERVER_RESTARTED, saveRecord, settle } from "./record.ts";

/**
 * Settles a bucket at the start of a server (decisions: Runs, Startup): run processes that outlived their server are
 * ended, then their groups, then the lock goes, an interrupted change of the source is finished or undone, and every
 * run that was `running` without anybody carrying it out gets its end state. What a living command holds is left
 * alone. Answers a sentence for each thing it settled.
 */
export async function recoverBucket(layout: Layout): Promise<string[]> {
  const found = await readLock(layout);
  if (found !== undefined && found !== "unreadable" && isOwned(found))
    return settleRuns(layout, found.run_id, async () => {});
  if (found !== undefined) await takeOver(layout, true);
  const lock = await acquireLock(layout, uuidV7(), "recovery");
  try {
    await recoverSource(layout);
    const settled = await settleRuns(layout, undefined, (record) => finishRun(layout, record));
    await pruneHistory(layout);
    return settled;
  } finally {
    await lock.release();
  }
}

/** Gives every `running` run but the one that is `alive` its end state. */
async function settleRuns(
  layout: Layout,
  alive: string | undefined,
  finish: (record: RunRecord) => Promise<void>,
): Promise<string[]> {
  const settled: string[] = [];
  for (const id of await runIds(layout)) {
    const record = id === alive ? undefined : await readRecord(layout, id);
    if (record?.status !== "running") continue;
    const reason = record.origin === "server" ? SERVER_RESTARTED : COMMAND_ENDED;
    settle(record, { exitCode: null, signal: null, outcome: undefined }, reason);
    await finish(record);
    await saveRecord(layout, record);
    settled.push(`run ${id} (${record.kind}) of bucket ${record.bucket_id} is settled: ${record.status}`);
  }
  return settled;
}
