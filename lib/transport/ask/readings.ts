import { cancelledFailure, Failure } from "../../core/errors.ts";
import { shortText } from "../base/sync-scripts.ts";
import type { Transport } from "../base/transport.ts";
import { ScriptAnswer } from "./answer.ts";
import { type Facts, parseFacts, TOOLS } from "./facts.ts";
import { parseSysstat, parseUptime, type Sysstat, type Uptime } from "./sysstat.ts";

/** What a worker can be asked for, and the form of what it tells. */
export interface Readings {
  facts: Facts;
  uptime: Uptime;
  sysstat: Sysstat;
}

const PARSERS: { [K in keyof Readings]: (answer: ScriptAnswer) => Readings[K] } = {
  facts: parseFacts,
  uptime: parseUptime,
  sysstat: parseSysstat,
};

const LIMIT_MS = 30_000;

/**
 * Asks a worker, in one script, which needs no folder of the bucket there. Throws `unreachable`, `cancelled`, `timeout`
 * after 30 s, or `failed` where what it tells is no answer.
 */
export async function takeReading<K extends keyof Readings>(
  transport: Transport,
  what: K,
  signal: AbortSignal,
): Promise<Readings[K]> {
  const outcome = await transport.script(shortText(what), {
    args: TOOLS,
    signal,
    timeoutMs: LIMIT_MS,
    isShort: true,
    isFolderOptional: true,
  });
  if (outcome.reason === "cancelled") throw cancelledFailure();
  if (outcome.reason === "timeout")
    throw new Failure("timeout", `the worker did not answer within ${LIMIT_MS / 1000} s`);
  return PARSERS[what](new ScriptAnswer(outcome.stdout));
}
