import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { plainLine, plainLines } from "../../core/plain-text.ts";
import { lastLogs, makeStatus } from "../../transport/ask/inspect.ts";
import type { Transport } from "../../transport/base/transport.ts";
import type { OperationContext } from "./context.ts";
import type { Fleet } from "./fleet.ts";

const FILES = 3;
/** Bytes read of the end of each log, beside the length of the longest secret: a secret is only found whole. */
const READ_BYTES = 16 * 1024;
const EVIDENCE_SHOWN = { lines: 20, length: 400 };
const EVIDENCE_LIMIT_MS = 10_000;

/** What was found on a worker after a job's health check failed there and before anything else was touched. */
export type Evidence = Awaited<ReturnType<typeof collectEvidence>>;

/**
 * Looks at a job on a worker and tells in Activity what it finds: the ends of its logs and `make status`, each for at
 * most 10 s. Secrets are masked, and control characters of terminals are left out. The answer says what cannot be found
 * out. Throws only `cancelled`.
 */
export async function collectEvidence(context: OperationContext, fleet: Fleet, job: string, host: string) {
  /** Why something could not be found out. */
  const errors: string[] = [];
  const attempt = async <T>(work: (context: OperationContext, transport: Transport, job: string) => Promise<T>) => {
    try {
      return await work(context, await fleet.open(host), job);
    } catch (error) {
      errors.push(plainLine(context.log.redactor.sentence(messageOf(error)), EVIDENCE_SHOWN.length));
      return undefined;
    }
  };
  const [logs = [], status = null] = await Promise.all([attempt(readLogs), attempt(askStatus)]);
  throwIfCancelled(context.signal);
  // The last lines of the newest logs, newest first; the end of the output of `make status`, null without an answer.
  const evidence = { logs, status, errors };
  for (const line of evidenceLines(evidence))
    context.log.remark(job, host, line, { phase: "health_check", action: "evidence", stream: "stdout" });
  return evidence;
}

async function readLogs({ log, signal }: OperationContext, transport: Transport, job: string) {
  const { redactor } = log;
  const bytes = READ_BYTES + redactor.longest;
  const limits = { files: FILES, bytes, timeoutMs: EVIDENCE_LIMIT_MS, signal };
  const logs = await lastLogs(transport, job, limits);
  redactor.keep(logs.map(({ file }) => file));
  return logs.map(({ file, text }) => ({
    file: plainLine(file, EVIDENCE_SHOWN.length),
    lines: plainLines(redactor.apply(wholeOf(text)), EVIDENCE_SHOWN),
  }));

  /** A text that was cut, without its beginning: that may be the end of a secret. */
  function wholeOf(text: string): string {
    const all = Buffer.from(text);
    return all.length < bytes ? text : all.subarray(redactor.cut(all, redactor.longest)).toString();
  }
}

async function askStatus({ log, signal }: OperationContext, transport: Transport, job: string) {
  const order = { timeoutMs: EVIDENCE_LIMIT_MS, keepBytes: READ_BYTES, signal };
  const { reason, exitCode, stdout } = await makeStatus(transport, job, order);
  const lines = plainLines(log.redactor.apply(stdout), EVIDENCE_SHOWN);
  const late = `make status did not end within ${EVIDENCE_LIMIT_MS / 1000} s: ${lines.at(-1) ?? "it said nothing"}`;
  if (reason === "timeout") throw new Failure("timeout", late);
  return { exit_code: exitCode, lines };
}

function evidenceLines({ logs, status, errors }: Evidence): string[] {
  const answer = status === null ? [] : [`make status: exit code ${status.exit_code}`, ...indentedLines(status)];
  const files = logs.flatMap((log) => [`end of logs/${log.file}:`, ...indentedLines(log)]);
  return [...(files.length > 0 ? files : ["no logs there"]), ...answer, ...errors];
}

function indentedLines({ lines }: { lines: readonly string[] }): string[] {
  return lines.map((line) => `  ${line}`);
}
