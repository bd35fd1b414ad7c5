import { cancelledFailure, Failure } from "../../core/errors.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { type ScriptName, shortText } from "../base/sync-scripts.ts";
import type { Transport } from "../base/transport.ts";

const LIMIT_MS = 900_000;

/**
 * Removes all that a job has on a worker: its folder with data and logs, and what sync and the runner keep about it. May be
 * interrupted and repeated. Throws `failed` where a target of the job still runs there, `timeout` after 15 minutes.
 */
export async function discardJob(transport: Transport, job: string, signal: AbortSignal): Promise<void> {
  await run(transport, "discard", [job], signal);
}

/**
 * Removes the bucket's whole folder from a worker that has left the bucket; nothing may be run there afterwards. Answers
 * false, having removed nothing, where the folder is by now that of another worker: the same machine under another name.
 */
export async function vacate(transport: Transport, signal: AbortSignal): Promise<boolean> {
  const { folder, worker } = transport;
  const name = folder.slice(folder.lastIndexOf("/") + 1);
  const { stdout } = await run(transport, "vacate", [name, worker.host], signal);
  return stdout.trim() !== "used";
}

async function run(
  transport: Transport,
  script: ScriptName,
  args: string[],
  signal: AbortSignal,
): Promise<CommandOutcome> {
  const outcome = await transport.script(shortText(script), { args, signal, timeoutMs: LIMIT_MS });
  if (outcome.reason === "cancelled") throw cancelledFailure();
  if (outcome.reason === "timeout")
    throw new Failure(
      "timeout",
      `Cannot clean up on ${transport.worker.host}: it had not ended after ${LIMIT_MS / 1000} s`,
    );
  if (outcome.exitCode === 0) return outcome;
  const said = outcome.stderr.trim().replaceAll("\n", "; ").slice(0, 1000);
  throw new Failure(
    "failed",
    `Cannot clean up on ${transport.worker.host}: ${said || `exit code ${outcome.exitCode}`}`,
  );
}
