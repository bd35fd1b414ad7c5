import { hash } from "node:crypto";
import { isUuid } from "../../codec/uuid.ts";
import { messageOf, throwIfCancelled } from "../../core/errors.ts";
import { namesIn } from "../../core/files.ts";
import { LastLines, withLines } from "../../core/plain-text.ts";
import { isCut, runTarget } from "../../transport/ask/runner.ts";
import { describeCut, type Transport } from "../../transport/base/transport.ts";
import type { OperationContext } from "../base/context.ts";
import { failedWith } from "../base/outcome.ts";

/** The most runs back that a target which still runs can belong to. */
const NEWEST = 20;

/** A target of a job that is to succeed on a worker. */
export interface WantedTarget {
  job: string;
  worker: string;
  target: string;
  /** The phase of the run, for the worker's log. */
  phase: string;
  limitSeconds: number;
  /** {@link targetHash} where the files on the worker are known. */
  hash?: string;
  env?: Record<string, string>;
  /** Called when the target begins to run on the worker. */
  onBegin?: () => void;
  /** Called where the target began and did not succeed, or its outcome is unknown. */
  onCut?: () => void;
  /** Exit codes that are as good as 0. */
  accepted?: readonly number[];
}

/**
 * What a worker notes with a target that succeeded: a hash of its files and its version. The same files may run another
 * version, which their Makefile only knows from `NEW_VERSION`.
 */
export function targetHash(treeHash: string, version: string): string {
  return hash("sha256", `${treeHash} ${version}`);
}

/**
 * Runs a target of a job on a worker, its output going to Activity and to the worker's log. Throws `timeout` or
 * `failed` naming target, job and worker, with the last lines of its output, or `cancelled`.
 */
export async function makeTarget(context: OperationContext, transport: Transport, wanted: WantedTarget): Promise<void> {
  const { job, worker, target, phase, limitSeconds, accepted = [], onBegin, onCut = () => {}, ...order } = wanted;
  const { log, run, signal } = context;
  const fields = { worker, job, phase, action: target };
  const overRunIds = await overRuns(context);
  log.record({ event: "command_begin", ...fields, cmd: `make ${target}` });
  const started = performance.now();
  const end = (how: { exit?: number; reason?: string }) => {
    const duration_ms = Math.round(performance.now() - started);
    log.record({ event: "command_end", ...fields, cmd: `make ${target}`, ...how, duration_ms });
  };
  const said = new LastLines();
  let isBegun = false;
  const outcome = await runTarget(transport, {
    job,
    target,
    ...order,
    timeoutMs: limitSeconds * 1000,
    runId: run.id,
    overRuns: overRunIds,
    onBegin() {
      isBegun = true;
      onBegin?.();
    },
    onLine(line, stream) {
      said.add(line);
      log.output(job, worker, line, { stream, phase, action: target });
    },
    signal,
  }).catch((error: unknown) => {
    end({ reason: messageOf(error) });
    if (isBegun) onCut();
    throw error;
  });
  if (isBegun && isCut(outcome)) onCut();
  end(outcome.exitCode === null ? { reason: outcome.reason } : { exit: outcome.exitCode });
  throwIfCancelled(signal);
  const what = `\`make ${target}\` of job ${job} on ${worker}`;
  const failed = (code: "timeout" | "failed", how: string) => {
    const lines = said.shown((text) => log.redactor.apply(text));
    return failedWith(code, withLines(`${what} ${how}`, lines));
  };
  if (outcome.reason === "timeout") throw failed("timeout", `was ${describeCut(outcome.receipt, limitSeconds)}`);
  const ending = outcome.signal === null ? `exit code ${outcome.exitCode}` : `signal ${outcome.signal}`;
  if (outcome.exitCode !== 0 && !accepted.includes(outcome.exitCode ?? -1)) throw failed("failed", `failed: ${ending}`);
}

/**
 * The newest runs in the bucket's history beside this run. They are over, however they ended, since this run has the
 * bucket's lock.
 */
async function overRuns({ layout, run }: OperationContext): Promise<string[]> {
  const others = (await namesIn(layout.runs)).filter((id) => isUuid(id) && id !== run.id);
  return others.sort().slice(-NEWEST);
}
