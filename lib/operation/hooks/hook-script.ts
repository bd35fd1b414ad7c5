import { realpath } from "node:fs/promises";
import { type Layout, layoutOf } from "../../bucket/base/layout.ts";
import type { CatalogAllocation, CatalogFile, CatalogJob } from "../../bucket/base/model.ts";
import type { Promotion } from "../../bucket/catalog/promotions.ts";
import { stageForScript, stagingFolder } from "../../bucket/catalog/staging.ts";
import { monitoringFor } from "../../bucket/prometheus/monitoring.ts";
import { cancelledFailure, Failure, messageOf } from "../../core/errors.ts";
import { makePrivateFolder, writeAtomic } from "../../core/files.ts";
import { inOneLine, LastLines, withLines } from "../../core/plain-text.ts";
import type { OtherUser } from "../../core/spawn.ts";
import { type EventVariables, scriptEnvironment } from "../../hook/environment.ts";
import type { CommandOrder, RunningScript } from "../../hook/routes.ts";
import type { HookRuntime } from "../../hook/runtime.ts";
import { runScript, type ScriptFile, scriptCommand, scriptFiles, stageScripts } from "../../hook/scripts.ts";
import { allocationIndex, type Batch, PASSES, type PassKind } from "../../plan/rollout.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";
import { exitCodeOf } from "../base/outcome.ts";

/** What all scripts of a session share. */
export interface ScriptHost {
  context: OperationContext;
  fleet: Fleet;
  runtime: HookRuntime;
  place: ScriptPlace;
}

/** One script of a pass. */
export interface Script {
  kind: PassKind;
  job: CatalogJob;
  hook: string;
  batch: Batch;
  variables: EventVariables;
  /** The allocations of the job in catalog order, removed ones too. */
  peers: readonly CatalogAllocation[];
  /** All files of the job. */
  files: readonly CatalogFile[];
  allocation: CatalogAllocation;
  promoted: Promotion;
}

/**
 * Stages a script and runs it; the runtime API knows the script for as long as it runs. Its output goes to Activity and
 * to the worker's log. Answers null, or the error with the last lines of stderr. Throws only where no log can be
 * written.
 */
export async function attemptScript(host: ScriptHost, script: Script): Promise<string | null> {
  const { id: allocationId, job, worker } = script.allocation;
  const { hook } = script;
  const { event, phase } = PASSES[script.kind];
  const { log } = host.context;
  const fields = { worker, job, phase, action: hook, cmd: `hook ${hook}` };
  log.record({ event: "command_begin", ...fields });
  const started = performance.now();
  const running = host.runtime.begin({ allocationId, job, worker, event, phase, hook });
  let error: string | null;
  try {
    error = await runProcess(host, script);
  } catch (thrown) {
    error = messageOf(thrown);
  } finally {
    await running.end();
  }
  const duration_ms = Math.round(performance.now() - started);
  const how = error === null ? { exit: 0 } : { reason: inOneLine(error) };
  log.record({ event: "command_end", ...fields, ...how, duration_ms });
  return error;
}

async function runProcess(host: ScriptHost, script: Script): Promise<string | null> {
  const { job, worker } = script.allocation;
  const { launcher, log, signal } = host.context;
  const { layout, user, stage } = host.place;
  const files = scriptFiles(filesFor(host, script));
  const folder = await stage(worker, job, files);
  const last = { stdout: new LastLines(), stderr: new LastLines() };
  const outcome = await runScript(launcher, await scriptCommand(layout, { folder, files, job, hook: script.hook }), {
    cwd: layout.root,
    user,
    environment: environmentOf(host, script),
    onLine(line, stream) {
      last[stream].add(line);
      log.output(job, worker, line, { stream, phase: PASSES[script.kind].phase, action: script.hook });
    },
    secrets: log.redactor,
    signal,
  });
  if (outcome.exitCode === 0) return null;
  const [said = [], other = []] = [last.stderr, last.stdout].map((one) => one.shown((text) => log.redactor.apply(text)));
  return withLines(`exit code ${outcome.exitCode}`, said.length > 0 ? said : other);
}

function filesFor(host: ScriptHost, script: Script): ScriptFile[] {
  const { db, kv, log } = host.context;
  const { allocation, job, hook, files, promoted } = script;
  const fields = templateFields(host, allocation, promoted, log.updateSeq ?? 0);
  const monitoring = monitoringFor(db, kv, job, files);
  return stageForScript(files, { fields, upstream: upstreamOf(job), kv, monitoring }, hook);
}

function environmentOf(host: ScriptHost, script: Script): Record<string, string> {
  const { allocation, hook, batch, variables } = script;
  const { layout, sshConfig } = host.place;
  return scriptEnvironment(host.context.launcher.environment, {
    allocation,
    hook,
    batch,
    variables,
    ...PASSES[script.kind],
    allocationIndex: allocationIndex(script.peers, allocation.worker),
    currentVersion: script.promoted.version,
    api: host.runtime,
    bucketRoot: layout.root,
    sshConfig,
    workersFile: layout.hookWorkers,
  });
}

/** The jobs that a job's hooks demand: scripts and templates of the job may read their keys. */
export function upstreamOf(job: CatalogJob): string[] {
  return [...new Set(job.hooks.map((hook) => hook.demandJob).filter((name) => name !== ""))];
}

/** The jobs that come before a job, by demands or `after`, directly or through others. */
export function allUpstreamOf(job: CatalogJob, jobs: readonly CatalogJob[]): string[] {
  const before = (one: CatalogJob) => [...upstreamOf(one), ...one.after];
  const found = new Set(before(job));
  // What is added on the way is visited too.
  for (const name of found) for (const upstream of jobs.filter((one) => one.name === name).flatMap(before)) found.add(upstream);
  return [...found];
}

/** The fields that templates of an allocation have beside the KV store. */
export function templateFields(
  { context, fleet }: { context: OperationContext; fleet: Fleet },
  allocation: CatalogAllocation,
  promoted: Promotion,
  updateSeq: number,
) {
  const worker = fleet.worker(allocation.worker);
  const bucketPath = `${worker.root}/${context.run.bucketId}`;
  return {
    AllocationID: allocation.id,
    Job: allocation.job,
    CurrentVersion: promoted.version,
    NewVersion: allocation.newVersion,
    BucketID: context.run.bucketId,
    WorkerID: worker.id,
    WorkerIP: allocation.worker,
    Labels: worker.labels,
    UpdateSeq: updateSeq,
    BucketPath: bucketPath,
    JobPath: `${bucketPath}/jobs/${allocation.job}`,
  };
}

/** The code with which ssh itself ends where it has no connection. */
const NO_CONNECTION = 255;
const CUT = "\n… more was not kept (run_output_limit)\n";

/**
 * The command line is the input, so that no list of processes shows its secrets. All of the input is read before the
 * command begins, which finds its own input empty.
 */
const RUN_INPUT = `cd "$1" 2>/dev/null || cd /
shell=sh
if command -v bash >/dev/null; then shell=bash; fi
exec "$shell" -c 'ops_text=$(cat; echo x); exec </dev/null; eval " \${ops_text%x}"'`;

/** What commands of scripts need; `outputLimit` is for the bytes of each output. */
type CommandHost = Pick<ScriptHost, "context" | "fleet"> & { outputLimit: number };

/** Runs a command line of a script on a worker, for `command` of the options of its API. */
export async function runHookCommand(
  { context, fleet, outputLimit }: CommandHost,
  { job, worker: own, hook }: RunningScript,
  { worker, command, timeout_seconds }: CommandOrder,
  signal: AbortSignal,
): Promise<object | undefined> {
  if (!fleet.workers.some(({ host }) => host === worker)) return undefined;
  const timeoutMs = timeout_seconds * 1000;
  const run = async (onBegin: () => void) => {
    const survivesAs = `a command of hook ${hook} of ${job} (run ${context.run.id})`;
    const transport = await fleet.openUnmasked(worker);
    return await transport.script(RUN_INPUT, {
      args: [transport.folder],
      input: command,
      keepBytes: outputLimit,
      isFolderOptional: true,
      survivesAs,
      onBegin,
      timeoutMs,
      signal,
    });
  };
  const wait = { reason: "command", job, worker: own, detail: `a command of hook ${hook} on ${worker}` } as const;
  try {
    const outcome = await context.progress.during(wait, timeoutMs, run);
    const { reason, stdout, stderr } = outcome;
    if (reason === "cancelled") throw cancelledFailure();
    const shown = (text: string) => (Buffer.byteLength(text) < outputLimit ? text : text + CUT);
    return { exit_code: exitCodeOf(outcome), stdout: shown(stdout), stderr: shown(stderr), reason };
  } catch (error) {
    if (!(error instanceof Failure) || error.code === "cancelled") throw error;
    return { exit_code: NO_CONNECTION, stdout: "", stderr: `${error.message}\n`, reason: "exit" };
  }
}

/** Where the scripts of a session run, and as whom. */
export interface ScriptPlace {
  /** Of the folder that is a bucket's root to the scripts: absolute, without symbolic links. */
  layout: Layout;
  /** Without one, scripts run as the user of this program. */
  user: OtherUser | undefined;
  /** The configuration for `ssh -F`; undefined where no worker can be reached over ssh. */
  sshConfig: string | undefined;
  /** Puts these files where a script of the allocation finds them, and answers the folder. */
  stage(worker: string, job: string, files: readonly ScriptFile[]): Promise<string>;
  close(): Promise<void>;
}

/** Opens the bucket itself as the place of a session's scripts. `workers` is the content of `OPS_WORKERS_FILE`. */
export async function openPlace(context: OperationContext, fleet: Fleet, workers: string): Promise<ScriptPlace> {
  const layout = layoutOf(await realpath(context.layout.root));
  await makePrivateFolder(layout.tmp);
  await writeAtomic(layout.hookWorkers, workers);
  return {
    layout,
    user: undefined,
    sshConfig: await unlessWithoutSsh(context, () => fleet.sshConfigFile()),
    async stage(worker, job, files) {
      const folder = stagingFolder(layout, worker, job);
      await stageScripts(folder, files);
      return folder;
    },
    async close() {},
  };
}

/** Scripts that never use ssh run without a key, too. */
export async function unlessWithoutSsh<T>(
  { log, signal }: Pick<OperationContext, "log" | "signal">,
  open: () => Promise<T | undefined>,
): Promise<T | undefined> {
  try {
    return await open();
  } catch (error) {
    if (!(error instanceof Failure) || signal.aborted) throw error;
    log.warn(`hooks cannot use ssh: ${error.message}`);
    return undefined;
  }
}
