import { hostname, userInfo } from "node:os";
import path from "node:path";
import { type Layout, layoutOf, runLayout } from "../../bucket/base/layout.ts";
import type { BucketLock } from "../../bucket/base/lock.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { explain, Failure } from "../../core/errors.ts";
import { APPEND, exists, openRegularSync } from "../../core/files.ts";
import { Launcher } from "../../core/spawn.ts";
import { activityWriter } from "../../run/activity.ts";
import type { OutcomeMessage, RunKind } from "../../run/protocol.ts";
import { addAudit, askedBy, createRecord, isCancelled, saveRecord, settle } from "../../run/record.ts";
import { finishRun, takeBucket } from "../../run/recovery.ts";
import { EXIT } from "../base/flags.ts";
import { diffColours, type StopRequest, stopRequest, toStderr, toStdout } from "../base/terminal.ts";
import { LiveView } from "./live.ts";

/** For commands that an operation left running when it ended. */
const LEFT_GRACE_MS = 2_000;

/** Shows the result of a run on stdout once it has ended. */
export interface RunView {
  /** The text for a result, which is null where a run has none. May throw: the command then fails. */
  show(result: unknown): string | Promise<string>;
  /**
   * What happens meanwhile goes to stdout (`before`) or to stderr (`aside`), or of it only warnings and errors do
   * (`quiet`).
   */
  meanwhile: "before" | "aside" | "quiet";
}

/**
 * `ops init`: makes the folder a bucket or upgrades its database. Takes no lock (control-plane.md, Runs 2), unless a
 * restore was cut off: what it has not put back yet must not be made anew.
 */
export async function initCommand(dir: string): Promise<number> {
  const layout = layoutOf(dir);
  if (await exists(layout.journal)) await (await takeBucket(layout, uuidV7(), "init")).release();
  const { initBucket } = await import("../../bucket/workspace/init.ts");
  const done = await initBucket(dir, { source: true });
  const what = done.upgraded ? "is ready" : "was up to date";
  toStdout(`bucket ${done.bucketId} in ${dir} ${what} (schema ${done.schemaVersion})\n`);
  return 0;
}

/** The bucket in a folder. Throws `bucket_not_initialized` for what is none. */
export async function initialisedBucket(dir: string): Promise<Layout> {
  const layout = layoutOf(dir);
  if (await exists(layout.database)) return layout;
  throw new Failure("bucket_not_initialized", `${dir} is not an initialised bucket: run \`ops init\` there first`);
}

/**
 * Carries out a run in this very process, under the bucket's lock and with the same files as a run of a server. What
 * happens is shown on stdout, unless there is a view. Answers the exit code: 0 done, 1 failed, 130 cancelled. Throws
 * `bucket_busy` while another operation goes on, `unknown_name` for a name that is not in the catalog.
 */
export async function runInBucket(
  kind: RunKind,
  params: Record<string, unknown>,
  dir: string,
  view?: RunView,
): Promise<number> {
  const layout = await initialisedBucket(dir);
  using stop = stopRequest();
  const runId = uuidV7();
  const lock = await takeBucket(layout, runId, kind);
  try {
    const actor = { address: `${userInfo().username}@${hostname()} (process ${process.pid})`, via: "cli" as const };
    const bucket_id = await bucketIdFor(layout, kind, params);
    const start = { id: runId, bucket_id, origin: "cli" as const, kind, params };
    const record = await createRecord(layout, { ...start, actor, requestId: null });
    const outcome = await performHere(record, params, dir, lock, { stop, view });
    // An interrupt that came too late to stop anything is no cancel: the work is done.
    if (stop.signal.aborted && !outcome.ok) addAudit(record, "cancel", actor, null);
    const exitCode = outcome.ok ? EXIT.done : isCancelled(record) ? EXIT.cancelled : EXIT.failed;
    settle(record, { exitCode, signal: null, outcome });
    await finishRun(layout, record).catch(tell);
    const isShown = view === undefined || (await show(view, outcome.result));
    await lock.release();
    await saveRecord(layout, record);
    return isShown ? exitCode : exitCode || EXIT.failed;
  } finally {
    await lock.release();
  }
}

async function performHere(
  record: Awaited<ReturnType<typeof createRecord>>,
  params: Record<string, unknown>,
  dir: string,
  lock: BucketLock,
  { stop, view }: { stop: StopRequest; view: RunView | undefined },
): Promise<OutcomeMessage> {
  const hasDiffs = record.kind === "drift" || params.dry_run === true;
  const isColoured = hasDiffs && process.stdout.isTTY && !process.env.NO_COLOR;
  const print = printer(view, isColoured ? diffColours : (text) => text);
  using live = process.stderr.isTTY ? new LiveView(process.stderr) : undefined;
  const { perform } = await import("../../operation/index.ts");
  const { activity, activityTimes } = runLayout(layoutOf(dir), record.id);
  // Open until the process ends, which is soon: a number that is free again would soon be that of another file.
  const append = activityWriter(openRegularSync(activity, APPEND), activityTimes);
  const launcher = new Launcher(
    withoutServerVariables(process.env),
    (change, group) => void lock.changeGroup(change, group).catch(() => {}),
  );
  // Asked a second time: what is still running is killed, and the operation unwinds over its dead commands.
  void stop.insisted.then(() => launcher.endAll(0));
  const { id: runId, bucket_id: bucketId, kind, revision } = record;
  const outcome = await perform(
    { runId, bucketDir: dir, bucketId, kind, params, revision, by: askedBy(record) },
    {
      launcher,
      signal: stop.signal,
      activity(text) {
        if (live) live.above(() => print(text));
        else print(text);
        append(text);
      },
      progress: (progress) => live?.update(progress),
    },
  );
  await launcher.endAll(LEFT_GRACE_MS);
  return outcome;
}

/** What the run says of failures is for stderr, where scripts look for it; all else is what it was asked for. */
function printer(view: RunView | undefined, painted: (text: string) => string): (text: string) => void {
  return (text) => {
    const { meanwhile = "before" } = view ?? {};
    if (meanwhile === "quiet" && !/^(error|warning): /.test(text)) return;
    const isAside = meanwhile !== "before" || text.startsWith("error: ");
    if (isAside) toStderr(text);
    else toStdout(text, painted);
  };
}

async function show(view: RunView, result: unknown): Promise<boolean> {
  try {
    toStdout(await view.show(result));
    return true;
  } catch (error) {
    tell(error);
    return false;
  }
}

function tell(error: unknown): void {
  toStderr(`error: ${explain(error)}\n`);
}

/** What holds a server's secrets is nothing for the commands of a bucket. */
export function withoutServerVariables(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith("OPS_SERVE_")));
}

/**
 * The id of the bucket that a run works on. Where the database is damaged and the run restores it, the bucket's own
 * snapshot holds the id. Throws what {@link requireNames} throws, before there is a run.
 */
async function bucketIdFor(layout: Layout, kind: RunKind, params: Record<string, unknown>): Promise<string> {
  const { bucketIdOf, isDamaged, openForReading } = await import("../../bucket/base/database.ts");
  const { requireNames } = await import("../../run/request.ts");
  const snapshot = String(params.snapshot);
  const isOwn = kind === "snapshot_restore" && path.dirname(snapshot) === layout.snapshots;
  if (isOwn && isDamaged(layout.database))
    return (await (await import("../../bucket/snapshots/snapshots.ts")).readManifest(snapshot)).bucket_id;
  using db = openForReading(layout.database);
  if (params.retry_of === undefined) requireNames(db, kind, params);
  return bucketIdOf(db);
}
