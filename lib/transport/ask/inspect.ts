import { cancelledFailure, Failure } from "../../core/errors.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { shortText } from "../base/sync-scripts.ts";
import type { ScriptOptions, Transport } from "../base/transport.ts";
import { RUNNER_EXIT } from "./runner.ts";

/** The end of a log of a job. */
export interface JobLog {
  /** Its name below `jobs/<job>/logs/`, as the worker has it. */
  file: string;
  /** Whole lines where the file has any; a longer file begins somewhere. */
  text: string;
}

/** How much of which logs is read. */
export interface LogLimits {
  files: number;
  /** Of each file. */
  bytes: number;
  timeoutMs: number;
  signal?: AbortSignal;
}

/** Names are given on a line of their own, lines of a file begin with `|`. Links are not followed. */
const LOGS = `
${shortText("way")}
real "jobs/$1" 2>/dev/null || exit 0
cd "jobs/$1/logs" 2>/dev/null || exit 0
left=$2
ls -t 2>/dev/null | while [ "$left" -gt 0 ] && IFS= read -r name; do
  [ -f "./$name" ] && [ ! -L "./$name" ] && [ -s "./$name" ] || continue
  case $name in *.gz | *.bz2 | *.xz | *.zst) continue ;; esac
  left=$((left - 1))
  printf '>%s\\n' "$name"
  tail -c "$3" "./$name" | sed 's/^/|/'
  echo
done`;

/**
 * The ends of the logs of a job that were written to last, newest first; compressed ones are left out.
 * Throws `timeout`, `unreachable`, `cancelled`, or `failed` with what the worker said.
 */
export async function lastLogs(transport: Transport, job: string, limits: LogLimits): Promise<JobLog[]> {
  const { files, bytes, timeoutMs, signal } = limits;
  const outcome = await transport.script(LOGS, {
    args: [job, String(files), String(bytes)],
    // The bytes of a log need not be text.
    env: { LC_ALL: "C" },
    // Each line of a file has one more byte.
    keepBytes: files * bytes * 2,
    timeoutMs,
    signal,
  });
  if (outcome.reason === "cancelled") throw cancelledFailure();
  if (outcome.reason === "timeout")
    throw new Failure("timeout", `the logs could not be read within ${timeoutMs / 1000} s`);
  if (outcome.exitCode !== 0)
    throw new Failure(
      "failed",
      `the logs could not be read: ${outcome.stderr.trim() || `exit code ${outcome.exitCode}`}`,
    );
  return parseLogs(outcome.stdout);
}

function parseLogs(answer: string): JobLog[] {
  const logs: JobLog[] = [];
  for (const line of answer.split("\n")) {
    const rest = line.slice(1);
    if (line.startsWith(">")) logs.push({ file: rest, text: "" });
    const last = logs.at(-1);
    if (last && line.startsWith("|")) last.text += `${rest}\n`;
  }
  return logs;
}

const STATUS = `
${shortText("way")}
real "jobs/$1" || exit ${RUNNER_EXIT.link}
if [ ! -d "jobs/$1" ]; then
  echo "jobs/$1 is missing on this worker: deploy to it first"
  exit ${RUNNER_EXIT.missingFolder}
fi
exec make -s -C "jobs/$1" status 2>&1`;

/**
 * Asks a job on a worker for its status: `make status`, all it says coming as `stdout`. Not through bin/runner: a
 * question waits for no other target, and does not count as what ran there last. Exit codes are not errors.
 * Throws as {@link Transport.script} does.
 */
export function makeStatus(
  transport: Transport,
  job: string,
  options: Pick<ScriptOptions, "env" | "onLine" | "keepBytes" | "timeoutMs" | "signal">,
): Promise<CommandOutcome> {
  return transport.script(STATUS, { args: [job], ...options });
}

const WORKER_FILE = `if [ -f worker.json ] && [ ! -L worker.json ]; then head -c 65536 worker.json; fi`;
const WORKER_FILE_LIMIT_MS = 60_000;

/**
 * The content of worker.json on a worker; empty where there is none. Throws `failed` where it cannot be read, and as
 * {@link Transport.script} does.
 */
export async function readWorkerJson(transport: Transport, signal: AbortSignal): Promise<string> {
  const outcome = await transport.script(WORKER_FILE, { isShort: true, timeoutMs: WORKER_FILE_LIMIT_MS, signal });
  if (outcome.reason === "cancelled") throw cancelledFailure();
  if (outcome.exitCode !== 0)
    throw new Failure(
      "failed",
      `Cannot read worker.json on ${transport.worker.host}: ${outcome.stderr.trim() || outcome.reason}`,
    );
  return outcome.stdout;
}
