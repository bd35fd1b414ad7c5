import { appendFileSync } from "node:fs";
import { userInfo } from "node:os";
import { layoutOf, runLayout } from "../bucket/layout.ts";
import { acquireLock, type BucketLock } from "../bucket/lock.ts";
import { recoverSource } from "../bucket/source.ts";
import { uuidV7 } from "../codec/uuid.ts";
import { Failure } from "../core/errors.ts";
import { exists, PRIVATE_FILE } from "../core/files.ts";
import { hostName } from "../core/process.ts";
import { Launcher } from "../core/spawn.ts";
import { finishRun } from "../run/finish.ts";
import type { OutcomeMessage, RunKind } from "../run/protocol.ts";
import { addAudit, createRecord, type RunRecord, saveRecord, settle } from "../run/record.ts";
import { type StopRequest, stopRequest } from "./stop.ts";

/** `ops init`: makes the folder a bucket or upgrades its database. Takes no lock (control-plane.md, Runs 2). */
export async function initCommand(dir: string): Promise<number> {
  const { initBucket } = await import("../bucket/init.ts");
  const done = await initBucket(dir, { source: true });
  const what = done.upgraded ? "is ready" : "was up to date";
  process.stdout.write(`bucket ${done.bucketId} in ${dir} ${what} (schema ${done.schemaVersion})\n`);
  return 0;
}

/**
 * Carries out a run in this very process, under the bucket's lock and with the same files as a run of a server.
 * Answers the exit code: 0 done, 1 failed, 130 cancelled. Throws `bucket_busy` while another operation goes on.
 */
export async function runInBucket(
  kind: RunKind,
  params: Record<string, unknown>,
  dir: string,
): Promise<number> {
  const layout = layoutOf(dir);
  if (!(await exists(layout.database)))
    throw new Failure(
      "bucket_not_initialized",
      `${dir} is not an initialised bucket: run \`ops init\` there first`,
    );
  const runId = uuidV7();
  const lock = await acquireLock(layout, runId, kind);
  const stop = stopRequest();
  try {
    await recoverSource(layout);
    const actor = {
      address: `${userInfo().username}@${hostName()} (process ${process.pid})`,
      via: "cli" as const,
    };
    const start = { id: runId, bucket_id: await bucketId(dir), origin: "cli" as const, kind, params };
    const record = await createRecord(layout, { ...start, actor, requestId: null });
    const outcome = await performHere(record, dir, lock, stop);
    // An interrupt that came too late to stop anything is no cancel: the work is done.
    if (stop.signal.aborted && !outcome.ok) addAudit(record, "cancel", actor, null);
    settle(record, { exitCode: outcome.ok ? 0 : 1, signal: null, outcome });
    await finishRun(layout, record);
    await lock.release();
    await saveRecord(layout, record);
    return record.status === "succeeded" ? 0 : record.status === "cancelled" ? 130 : 1;
  } catch (error) {
    await lock.release();
    throw error;
  } finally {
    stop.dispose();
  }
}

async function performHere(
  record: RunRecord,
  dir: string,
  lock: BucketLock,
  stop: StopRequest,
): Promise<OutcomeMessage> {
  const { perform } = await import("../operation/index.ts");
  const { activity } = runLayout(layoutOf(dir), record.id);
  const launcher = new Launcher(
    process.env,
    (change, group) => void lock.changeGroup(change, group).catch(() => {}),
  );
  // Asked a second time: what is still running is killed, and the operation unwinds over its dead commands.
  void stop.insisted.then(() => launcher.endAll(0));
  const { id: runId, bucket_id, kind, params } = record;
  return await perform(
    { runId, bucketDir: dir, bucketId: bucket_id, kind, params },
    {
      launcher,
      signal: stop.signal,
      activity(text) {
        process.stdout.write(text);
        appendFileSync(activity, text, { mode: PRIVATE_FILE });
      },
      progress: () => {},
    },
  );
}

async function bucketId(dir: string): Promise<string> {
  const { bucketIdOf, openForReading } = await import("../bucket/database.ts");
  using db = openForReading(layoutOf(dir).database);
  return bucketIdOf(db);
}
