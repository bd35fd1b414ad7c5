import { Failure } from "../../core/errors.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { commentedText, runScriptOn, scriptText } from "../base/scripts.ts";
import type { ScriptOptions, Transport } from "../base/transport.ts";

/** The path of the runner below the bucket's folder on a worker; it has mode 0755. */
export const RUNNER_PATH = "bin/runner";

/** The exit codes by which bin/runner refuses, described in runner.sh; any other code is that of make. */
export const RUNNER_EXIT = {
  arguments: 64,
  unknownJob: 65,
  missingFolder: 66,
  busy: 67,
  unfinishedSync: 68,
  missingProgram: 69,
  unwritable: 70,
  link: 71,
} as const;

/** The content of bin/runner. */
export function runnerText(): string {
  return `#!/bin/sh\n${commentedText("runner")}`;
}

/** What worker.json tells scripts and hooks about the worker that they run on. */
export interface WorkerFacts {
  bucketId: string;
  workerId: string;
  workerIp: string;
  labels: readonly string[];
  updateSeq: number;
}

/** The content of worker.json. */
export function workerJson(facts: WorkerFacts): string {
  return spacedJson({
    bucket_id: facts.bucketId,
    worker_id: facts.workerId,
    worker_ip: facts.workerIp,
    labels: [...facts.labels].sort(),
    update_seq: facts.updateSeq,
  });
}

/** The content of jobs.json: the jobs of a worker whose allocations are not removed. bin/runner searches the lines. */
export function jobsJson(jobs: readonly { job: string; disabled: boolean }[]): string {
  const sorted = [...jobs].sort((a, b) => (a.job < b.job ? -1 : 1));
  return spacedJson(sorted.map(({ job, disabled }) => ({ job, disabled: disabled ? 1 : 0 })));
}

function spacedJson(value: unknown): string {
  return `${JSON.stringify(value, null, 3)}\n`;
}

/** One target of a job on a worker. */
export interface TargetOrder {
  job: string;
  target: string;
  runId: string;
  /** Runs that are over: a target that such a run left running is ended. For targets of other runs the runner waits. */
  overRuns?: readonly string[];
  /** The digest of what the target runs with; recorded when the target has succeeded. */
  hash?: string;
  /** For the target, and the wait for another target of the job, together. */
  timeoutMs: number;
  /** CURRENT_VERSION, NEW_VERSION and whatever else the target needs. */
  env?: Record<string, string>;
  onLine?: ScriptOptions["onLine"];
  onBegin?: ScriptOptions["onBegin"];
  signal?: AbortSignal;
}

/**
 * Runs a target of a job on a worker through bin/runner. Exit codes are not errors; by those of {@link RUNNER_EXIT} the
 * runner itself refuses, with one line on standard error. All output of make comes as `stdout`: with a pipe for each
 * stream the order of their lines to each other would be lost. Processes that the target left running are not waited for.
 */
export function runTarget(transport: Transport, order: TargetOrder): Promise<CommandOutcome> {
  // One second less, so that the runner can still say which run it waited for.
  const patience = Math.max(0, Math.floor(order.timeoutMs / 1000) - 1);
  const { env, onLine, onBegin, signal, timeoutMs } = order;
  const { job, target, runId, hash = "-", overRuns = [] } = order;
  const args = [job, target, runId, hash, String(patience), overRuns.join(",")];
  return transport.script(scriptText("target"), {
    args,
    env,
    onLine,
    onBegin,
    signal,
    timeoutMs,
    survivesAs: `\`make ${target}\` of ${job} (run ${runId})`,
  });
}

/**
 * True where a target may have run without success; false where the target succeeded, or bin/runner refused to run it.
 */
export function isCut({ exitCode }: Pick<CommandOutcome, "exitCode">): boolean {
  const refused: readonly number[] = Object.values(RUNNER_EXIT);
  return exitCode !== 0 && !refused.includes(exitCode as number);
}

/** A target that has succeeded; `hash` is undefined where the run did not give one. */
export interface LastTarget {
  hash: string | undefined;
  target: string;
}

const LAST_LIMIT_MS = 60_000;

/**
 * The last target of a job that succeeded on a worker since the worker started, whichever command ran it; undefined
 * where there is none: what ran before a restart of the worker runs no more.
 */
export async function lastTarget(
  transport: Transport,
  job: string,
  options: { signal?: AbortSignal } = {},
): Promise<LastTarget | undefined> {
  const doing = `Cannot read what ran last for ${job} on ${transport.worker.host}`;
  const limits = { timeoutMs: LAST_LIMIT_MS, isShort: true, ...options };
  const { stdout } = await runScriptOn(transport, "last", doing, { args: [job], ...limits });
  const found = /^(\S+) (\S+) (\S+)\n(\S+)\n$/.exec(stdout);
  if (!found && stdout !== "") throw new Failure("failed", `${doing}: the record cannot be understood`);
  const [, hash, target, boot, present] = found ?? [];
  return target === undefined || boot !== present ? undefined : { hash: hash === "-" ? undefined : hash, target };
}
