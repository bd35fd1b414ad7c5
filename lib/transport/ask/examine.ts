import { cancelledFailure, Failure } from "../../core/errors.ts";
import { shortText } from "../base/sync-scripts.ts";
import type { Transport } from "../base/transport.ts";
import { ScriptAnswer } from "./answer.ts";

/** What was found on a worker. */
export interface Examination {
  /** Tools that are not installed there. */
  missing: string[];
  /** What is no folder, but stands where the bucket's folder is to be. */
  blocked: string | undefined;
  /** How far its clock is ahead of ours, in whole seconds. */
  aheadSeconds: number;
  freeBytes: number;
  diskBytes: number;
  /** Locks, below the bucket's folder, whose holder lives there. */
  held: string[];
  /** What commands that were cut off have left: locks, and syncs that were not finished. */
  left: string[];
}

const LIMIT_MS = 20_000;
const KIB = 1024;

/**
 * Looks at a worker; writes nothing and needs no folder of the bucket there. Throws `unreachable`, `cancelled`, `timeout`
 * after 20 s, or `failed` where what it tells is no answer.
 */
export async function examineWorker(
  transport: Transport,
  tools: readonly string[],
  signal: AbortSignal,
): Promise<Examination> {
  const started = Date.now();
  const outcome = await transport.script(shortText("doctor"), {
    args: [transport.folder, ...tools],
    signal,
    timeoutMs: LIMIT_MS,
    isShort: true,
    isFolderOptional: true,
  });
  if (outcome.reason === "cancelled") throw cancelledFailure();
  if (outcome.reason === "timeout")
    throw new Failure("timeout", `the worker did not answer within ${LIMIT_MS / 1000} s`);
  const answer = new ScriptAnswer(outcome.stdout);
  const [clock = 0] = answer.numbers("clock", 1);
  const [free = 0, all = 0] = answer.numbers("disk", 2);
  return {
    missing: answer.all("missing"),
    blocked: answer.text("blocked"),
    aheadSeconds: difference(clock, started / 1000, Date.now() / 1000),
    freeBytes: free * KIB,
    diskBytes: all * KIB,
    held: answer.all("held"),
    left: [...answer.all("left"), ...answer.all("cut")],
  };
}

/** What a clock that shows whole seconds is ahead, at least, when it was read between two moments of ours. */
function difference(clock: number, from: number, to: number): number {
  if (clock > to) return Math.floor(clock - to);
  return clock + 1 < from ? Math.ceil(clock + 1 - from) : 0;
}
