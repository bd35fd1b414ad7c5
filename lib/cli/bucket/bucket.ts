import { hostname, userInfo } from "node:os";
import path from "node:path";
import { isAuthorityCut } from "../../bucket/base/authority-change.ts";
import { type Layout, layoutOf, runLayout } from "../../bucket/base/layout.ts";
import { type BucketLock, heldBy } from "../../bucket/base/lock.ts";
import { builtSchedules } from "../../bucket/workspace/schedules.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { sleep } from "../../core/async.ts";
import { explain, Failure } from "../../core/errors.ts";
import { APPEND, exists, openRegularSync, realPlace } from "../../core/files.ts";
import { Launcher } from "../../core/spawn.ts";
import { ActivityWriter } from "../../run/activity-writer.ts";
import type { OutcomeMessage, RunKind, RunParams, RunSecrets } from "../../run/protocol.ts";
import { type Actor, addAudit, askedBy, createRecord, isCancelled, saveRecord, settle } from "../../run/record.ts";
import { finishRun, takeBucket } from "../../run/recovery.ts";
import { requireNames } from "../../run/request.ts";
import { requireThawed } from "../../server/watch/freeze.ts";
import { bucketDir, EXIT, type Parsed, withoutServerVariables } from "../base/flags.ts";
import { brokenGlass } from "../base/start-flags.ts";
import { printAnswer, type StopRequest, stopRequest, toStderr } from "../base/terminal.ts";
import { activityPrinter, liveView, type RunView, showResult } from "./output.ts";

/** How long commands that an operation left running have to end by themselves. */
const LEFT_GRACE_MS = 2_000;

/** How often a command that waits looks whether its bucket is free. */
const FREE_LOOK_MS = 200;

/** How a command carries out a run. */
export interface RunOptions {
  view?: RunView | undefined;
  /** How long it waits at most where the bucket is busy; default: not at all. */
  waitMs?: number | undefined;
  /** See {@link RunSecrets}. */
  secrets?: RunSecrets | undefined;
  /** Why it goes past what holds it back. */
  breakGlass?: string | undefined;
}

/**
 * `ops init`: makes the folder a bucket, with this id if one is given, or upgrades its database. Takes no lock (control-plane.md, Runs 2), unless a
 * restore or a change of the CA was cut off: that is finished first, so that nothing which it has yet to put back is made anew.
 */
export async function initCommand(input: Parsed): Promise<number> {
  const dir = bucketDir(input);
  const bucketId = input.values.get("id");
  const layout = layoutOf(dir);
  if ((await exists(layout.journal)) || (await isAuthorityCut(layout)))
    await (await takeBucket(layout, uuidV7(), "init")).release();
  // Below a server root the folder's name is the id.
  if (bucketId !== undefined && (await exists(layout.bucketJson)) && path.basename(realPlace(dir)) !== bucketId)
    throw new Failure("invalid_bucket_id", `${dir} is a bucket of a server: its id is the name of its folder`);
  const { initBucket } = await import("../../bucket/workspace/init.ts");
  const done = await initBucket(dir, { ...(bucketId !== undefined && { bucketId }), source: true });
  const { bucketId: bucket_id, schemaVersion: schema_version, upgraded } = done;
  return printAnswer(
    input,
    { bucket_id, dir, schema_version, upgraded },
    `bucket ${bucket_id} in ${dir} ${upgraded ? "is ready" : "was up to date"} (schema ${schema_version})\n`,
  );
}

/** The bucket in a folder. Throws `bucket_not_initialized` for a folder that is no bucket. */
export async function initialisedBucket(dir: string): Promise<Layout> {
  const layout = layoutOf(dir);
  if (await exists(layout.database)) return layout;
  const above = await bucketAbove(dir);
  const advice =
    above === undefined ? "run `ops init` there first" : `it lies in ${above}; go there, or give --bucket-dir ${above}`;
  throw new Failure("bucket_not_initialized", `${dir} is not an initialised bucket: ${advice}`);
}

/** The nearest bucket that a folder lies in: a bucket has its database, or at least ops.conf. */
async function bucketAbove(folder: string): Promise<string | undefined> {
  const above = path.dirname(folder);
  if (above === folder) return undefined;
  const { database, opsConf } = layoutOf(above);
  return (await exists(database)) || (await exists(opsConf)) ? above : bucketAbove(above);
}

/**
 * Carries out a run in this very process, under the bucket's lock and with the same files as a run of a server. Activity
 * goes to stdout, unless there is a view. Answers the exit code: 0 done, 1 failed, 130 cancelled. Throws `bucket_busy`
 * while another operation goes on, `unknown_name` for a name that is not in the catalog.
 */
export async function runInBucket(kind: RunKind, params: RunParams, dir: string, options: RunOptions): Promise<number> {
  const { view, waitMs, secrets, breakGlass } = options;
  const layout = await initialisedBucket(dir);
  using stop = stopRequest();
  const id = uuidV7();
  await using lock = await lockInTime(layout, waitMs ?? 0, stop.signal, () => takeBucket(layout, id, kind));
  const actor: Actor = { address: `${userInfo().username}@${hostname()} (process ${process.pid})`, via: "cli" };
  const bucket_id = await bucketIdFor(layout, kind, params, breakGlass !== undefined);
  const start = { id, bucket_id, origin: "cli", kind, params, actor, requestId: null, breakGlass } as const;
  const record = await createRecord(layout, start);
  const outcome = await performHere({ layout, record, params, secrets, lock, stop, view });
  // An interrupt that came too late to stop anything is no cancel: the work is done.
  if (stop.signal.aborted && !outcome.ok) addAudit(record, "cancel", actor, null);
  const exitCode = outcome.ok ? EXIT.done : isCancelled(record) ? EXIT.cancelled : EXIT.failed;
  settle(record, { exitCode, signal: null, outcome });
  await finishRun(layout, record).catch((error: unknown) => toStderr(`error: ${explain(error)}\n`));
  const isShown = await showResult(view, outcome.result);
  await lock.release();
  await saveRecord(layout, record);
  if (record.break_glass !== null) toStderr(brokenGlass(id, record.break_glass));
  return isShown ? exitCode : exitCode || EXIT.failed;
}

/** The lock of a bucket, once it is free; at first it may be held for `waitMs` milliseconds. Throws `bucket_busy`. */
async function lockInTime<T>(layout: Layout, waitMs: number, signal: AbortSignal, take: () => Promise<T>): Promise<T> {
  const until = performance.now() + waitMs;
  for (let isTold = false; ; ) {
    try {
      return await take();
    } catch (error) {
      const isBusy = error instanceof Failure && error.code === "bucket_busy";
      if (!isBusy || performance.now() >= until) throw error;
      if (!isTold) toStderr(`waiting: ${error.message}\n`);
      isTold = true;
    }
    do await sleep(FREE_LOOK_MS, signal);
    while (performance.now() < until && (await heldBy(layout)) !== undefined);
  }
}

interface RunHere {
  layout: Layout;
  record: Awaited<ReturnType<typeof createRecord>>;
  /** As they were given, with secrets; the record has none. */
  params: RunParams;
  secrets: RunSecrets | undefined;
  lock: BucketLock;
  stop: StopRequest;
  view: RunView | undefined;
}

async function performHere({ layout, record, params, secrets, lock, stop, view }: RunHere): Promise<OutcomeMessage> {
  const print = activityPrinter(view, record.kind, params);
  using live = process.stderr.isTTY && process.env.TERM !== "dumb" ? liveView(process.stderr) : undefined;
  const { perform } = await import("../../operation/index.ts");
  const files = runLayout(layout, record.id);
  // Open until the process ends, which is soon: the number of a closed file could be that of another file by then.
  const writer = new ActivityWriter(openRegularSync(files.activity, APPEND), files);
  const launcher = new Launcher(
    withoutServerVariables(process.env),
    (change, group) => void lock.changeGroup(change, group).catch(() => {}),
  );
  stop.signal.addEventListener("abort", () => void lock.tellEnding().catch(() => {}));
  // On a second signal the running commands are killed, and the operation unwinds over its dead commands.
  void stop.insisted.then(() => launcher.endAll(0));
  const { id: runId, bucket_id: bucketId, kind, revision, break_glass } = record;
  const outcome = await perform(
    {
      runId,
      bucketDir: layout.root,
      bucketId,
      kind,
      params,
      ...(secrets && { secrets }),
      revision,
      by: askedBy(record),
      breakGlass: break_glass,
    },
    {
      launcher,
      server: null,
      signal: stop.signal,
      activity(text, place) {
        if (live) live.above(() => print(text));
        else print(text);
        writer.append(text, place);
      },
      progress: (progress) => live?.update(progress),
    },
  );
  await launcher.endAll(LEFT_GRACE_MS);
  writer.close();
  return outcome;
}

/**
 * The id of the bucket that a run works on. Where the database is damaged and the run restores it, the id comes from the
 * bucket's own snapshot. Throws `frozen`, and what {@link requireNames} throws, before there is a run.
 */
async function bucketIdFor(layout: Layout, kind: RunKind, params: RunParams, isForced: boolean): Promise<string> {
  const { bucketIdOf, isDamaged, openForReading } = await import("../../bucket/base/database.ts");
  const snapshot = String(params.snapshot);
  const isOwn = kind === "snapshot_restore" && path.dirname(snapshot) === layout.snapshots;
  if (isOwn && isDamaged(layout.database))
    return (await (await import("../../bucket/snapshots/envelope.ts")).readFace(snapshot)).head.bucket_id;
  using db = openForReading(layout.database);
  if (!isForced) requireThawed(builtSchedules(db).freeze, { kind, params }, Date.now());
  if (params.retry_of === undefined) requireNames(db, kind, params);
  return bucketIdOf(db);
}
