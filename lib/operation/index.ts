import { type Database, isDamaged, openDatabase } from "../bucket/base/database.ts";
import { layoutOf } from "../bucket/base/layout.ts";
import type { LinePlace } from "../bucket/base/line-place.ts";
import { RunLog } from "../bucket/base/logs.ts";
import { Problems } from "../bucket/base/problems.ts";
import { bucketNames } from "../bucket/catalog/info.ts";
import { KvStore } from "../bucket/kv/kv.ts";
import { loadKvKey } from "../bucket/kv/kv-access.ts";
import { readOpsConf } from "../bucket/workspace/settings.ts";
import { explain, Failure, firstError, messageOf } from "../core/errors.ts";
import { emptyFolder } from "../core/files.ts";
import type { ProcessIdentity } from "../core/process.ts";
import { Redactor } from "../core/redact.ts";
import type { Launcher } from "../core/spawn.ts";
import type { Progress } from "../run/progress.ts";
import type { Orders, OutcomeMessage, RunKind } from "../run/protocol.ts";
import { type Operation, type OperationContext, ProgressBoard } from "./base/context.ts";
import { masked } from "./base/outcome.ts";

/** What carries out each kind of run. Loaded when asked for: a run's start costs only what it needs. */
const OPERATIONS: Record<RunKind, () => Promise<Operation>> = {
  push: async () => (await import("./build/build.ts")).push,
  rollback: async () => (await import("./build/build.ts")).push,
  build: async () => (await import("./build/build.ts")).build,
  deploy: async () => (await import("./deploy/deploy.ts")).deploy,
  hooks: async () => (await import("./hooks/hooks.ts")).runHooks,
  health_check: async () => (await import("./health/health-check.ts")).healthCheck,
  drift: async () => (await import("./plan/drift.ts")).drift,
  job_start: async () => (await import("./control/job-control.ts")).control("job_start"),
  job_stop: async () => (await import("./control/job-control.ts")).control("job_stop"),
  job_restart: async () => (await import("./control/job-control.ts")).control("job_restart"),
  job_reload: async () => (await import("./control/job-control.ts")).control("job_reload"),
  job_status: async () => (await import("./control/job-control.ts")).control("job_status"),
  job_run: async () => (await import("./control/job-control.ts")).control("job_run"),
  gc: async () => (await import("./tend/gc.ts")).collectGarbage,
  snapshot_create: async () => (await import("./tend/snapshots.ts")).takeSnapshot,
  snapshot_restore: async () => (await import("./tend/snapshots.ts")).restoreSnapshot,
  kv_rekey: async () => (await import("./keys/kv-rekey.ts")).rekey,
  ca_rotate: async () => (await import("./keys/ca-rotate.ts")).rotateAuthority,
  ssh_key_rotate: async () => (await import("./keys/ssh-key-rotate.ts")).rotateSshKey,
  run_command: async () => (await import("./control/run-command.ts")).runCommand,
  worker_trust: async () => (await import("./base/workers.ts")).trust,
  worker_facts: async () => (await import("./tend/readings.ts")).facts,
  worker_uptime: async () => (await import("./tend/readings.ts")).uptime,
  worker_sysstat: async () => (await import("./tend/readings.ts")).sysstat,
};

/** What a run's process gives an operation to work with. */
interface RunInput {
  launcher: Launcher;
  /** The server that has started the run; null on the command line. */
  server: ProcessIdentity | null;
  signal: AbortSignal;
  /** Appends text of one place to the run's Activity. */
  activity: (text: string, place: LinePlace) => void;
  progress: (progress: Progress) => void;
}

/**
 * Carries out one run in a bucket whose lock the caller holds, and answers how it ended; throws only when ops.conf cannot
 * be looked at. The database, the key and the settings are read once and stay as they are for the run
 * (control-plane.md, Runs 3).
 */
export async function perform(orders: Omit<Orders, "type">, input: RunInput): Promise<OutcomeMessage> {
  const { runId, kind, bucketId, revision, by, breakGlass, hookUser } = orders;
  const started = performance.now();
  const layout = layoutOf(orders.bucketDir);
  const { logFormat: format, runOutputLimit: outputLimit } = await readOpsConf(layout, new Problems());
  const { activity } = input;
  // At both ends of the log, because somebody who reads only one of them must not take a plan for a deploy.
  const what = orders.params.dry_run === true ? `${kind} (PLAN: a dry run)` : kind;
  const log = new RunLog({ layout, runId, command: kind, redactor: new Redactor(), activity, format, outputLimit });
  try {
    const source = revision === null ? "no known revision" : `revision ${revision}`;
    log.info(`${what} of bucket ${bucketId}, ${source}, run ${runId} by ${by}`);
    if (breakGlass) log.warn(`BREAK GLASS: ${breakGlass}`);
    // A run that was killed left its staged files.
    await emptyFolder(layout.tmp);
    if (hookUser) await (await import("./hooks/apart.ts")).sweepApart(input.launcher, hookUser);
    // Of a damaged database a restore needs nothing.
    const isLost = kind === "snapshot_restore" && isDamaged(layout.database);
    using db = isLost ? undefined : openDatabase(layout.database);
    const run = { id: runId, kind, bucketId };
    // The run that this run repeats is for the record alone.
    const { retry_of: _, ...params } = orders.params;
    const progress = new ProgressBoard(input.progress, input.signal);
    const { signal, launcher, server } = input;
    const { secrets } = orders;
    const context = { layout, log, signal, launcher, run, secrets, server, progress, hookUser };
    const result = await carriedOut(db, context, params).finally(() => log.endOutput());
    log.info(`${what} succeeded in ${secondsSince(started)}`);
    return { type: "outcome", ok: true, error: null, result: masked(result, log.redactor) };
  } catch (error) {
    return failed(error, log, (end) => `${what} ${end} after ${secondsSince(started)}`, input.signal);
  } finally {
    log.close();
    await emptyFolder(layout.tmp).catch(() => {});
  }
}

async function carriedOut(
  db: Database | undefined,
  context: Omit<OperationContext, "db" | "kv">,
  params: Record<string, unknown>,
): Promise<unknown> {
  if (!db) return (await import("./tend/snapshots.ts")).restoreSnapshot({ ...context, db }, params);
  const operation = await OPERATIONS[context.run.kind]();
  const kv = new KvStore(db, await loadKvKey(context.layout));
  for (const { value } of kv.secrets()) context.log.redactor.add(value);
  context.log.redactor.keep([...bucketNames(db), context.run.id, ...namesIn(params)]);
  return operation({ ...context, db, kv }, params);
}

function secondsSince(started: number): string {
  return `${((performance.now() - started) / 1000).toFixed(1)} s`;
}

function failed(thrown: unknown, log: RunLog, told: (end: string) => string, signal: AbortSignal): OutcomeMessage {
  const error = firstError(thrown);
  const code = error instanceof Failure ? error.code : "internal";
  const message = explain(error);
  try {
    if (thrown instanceof SuppressedError) log.warn(`cannot clean up: ${messageOf(thrown.error)}`);
    if (signal.aborted) log.info(told("cancelled"));
    else log.error(`${told("failed")}: ${message}`);
  } catch {
    // Where no log can be written, the outcome has the error all the same.
  }
  const result = error instanceof Failure ? masked(error.details, log.redactor) : null;
  return { type: "outcome", ok: false, error: { code, message: log.redactor.sentence(message) }, result };
}

/** All strings in a request are names, except a command. */
function namesIn({ command: _, ...params }: Orders["params"]): string[] {
  return Object.values(params)
    .flat()
    .filter((value) => typeof value === "string");
}
