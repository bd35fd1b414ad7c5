import type { CommandOutcome } from "../../core/spawn.ts";
import { runScriptOn, ScriptAnswer, scriptText } from "../base/scripts.ts";
import type { ScriptOptions, Transport } from "../base/transport.ts";

/** The end of a log of a job. */
interface JobLog {
  /** Its name below `jobs/<job>/logs/`, as the worker has it. */
  file: string;
  /** Whole lines where the file has any; a longer file begins somewhere. */
  text: string;
}

/** How much of which logs is read. */
interface LogLimits {
  files: number;
  /** Of each file. */
  bytes: number;
  timeoutMs: number;
  signal?: AbortSignal;
}

/**
 * The ends of the logs of a job that were written to last, newest first; compressed logs are left out.
 * Throws `timeout`, `unreachable`, `cancelled`, or `failed` with what the worker said.
 */
export async function lastLogs(transport: Transport, job: string, limits: LogLimits): Promise<JobLog[]> {
  const { files, bytes, timeoutMs, signal } = limits;
  const { stdout } = await runScriptOn(transport, "logs", "Cannot read the logs", {
    args: [job, String(files), String(bytes)],
    // The bytes of a log need not be text.
    env: { LC_ALL: "C" },
    // Each line of a file has one more byte.
    keepBytes: files * bytes * 2,
    timeoutMs,
    signal,
  });
  const logs: JobLog[] = [];
  for (const line of stdout.split("\n")) {
    const rest = line.slice(1);
    if (line.startsWith(">")) logs.push({ file: rest, text: "" });
    const last = logs.at(-1);
    if (last && line.startsWith("|")) last.text += `${rest}\n`;
  }
  return logs;
}

/**
 * Asks a job on a worker for its status: `make status`, with all its output as `stdout`. Not through bin/runner: a
 * question waits for no other target, and does not count as the last target there. Exit codes are not errors.
 * Throws as {@link Transport.script} does.
 */
export function makeStatus(
  transport: Transport,
  job: string,
  options: Pick<ScriptOptions, "env" | "onLine" | "keepBytes" | "timeoutMs" | "signal">,
): Promise<CommandOutcome> {
  return transport.script(scriptText("status"), { args: [job], ...options });
}

const WORKER_FILE_BYTES = 64 * 1024;
const WORKER_FILE_LIMIT_MS = 60_000;

/**
 * The content of worker.json on a worker, at most 64 KiB; empty where there is none. Throws `failed` where the file
 * cannot be read, and as {@link Transport.script} does.
 */
export async function readWorkerJson(transport: Transport, signal: AbortSignal): Promise<string> {
  const args = ["worker.json", String(WORKER_FILE_BYTES)];
  const options = { args, isShort: true, timeoutMs: WORKER_FILE_LIMIT_MS, signal };
  const doing = `Cannot read worker.json on ${transport.worker.host}`;
  return (await runScriptOn(transport, "read", doing, options)).stdout;
}

const EXAMINE_LIMIT_MS = 20_000;
const KIB = 1024;

/**
 * Looks at a worker; writes nothing and needs no folder of the bucket there. Throws `unreachable`, `cancelled`,
 * `timeout` after 20 s, or `failed` where the answer cannot be understood.
 */
export async function examineWorker(transport: Transport, tools: readonly string[], signal: AbortSignal) {
  const started = Date.now();
  const limits = { timeoutMs: EXAMINE_LIMIT_MS, signal, isShort: true, isFolderOptional: true };
  const args = [transport.folder, ...tools];
  const { stdout } = await runScriptOn(transport, "doctor", "Cannot examine the worker", { args, ...limits });
  const answer = new ScriptAnswer(stdout);
  const [clock] = answer.numbers("clock", 1) as [number];
  const [free, all] = answer.numbers("disk", 2) as [number, number];
  return {
    /** Tools that are not installed there. */
    missing: answer.all("missing"),
    /** The path of something else in the place of the bucket's folder or of a folder above; null where nothing is. */
    blocked: answer.text("blocked"),
    /** Folders, below the bucket's folder, in which the user there cannot write. */
    unwritable: answer.all("unwritable"),
    /** How far the worker's clock is ahead of ours, in whole seconds. */
    aheadSeconds: clockLead(clock, started / 1000, Date.now() / 1000),
    freeBytes: free * KIB,
    diskBytes: all * KIB,
    /** Locks, below the bucket's folder, whose holder lives there. */
    held: answer.all("held"),
    /** What commands that were cut off have left: locks, and syncs that were not finished. */
    left: [...answer.all("left"), ...answer.all("cut")],
  };
}

/** By how much a clock that shows whole seconds is ahead, at least, when it was read between two moments of ours. */
function clockLead(clock: number, from: number, to: number): number {
  return Math.max(0, Math.floor(clock - to)) + Math.min(0, Math.ceil(clock + 1 - from));
}
