import type { Batch } from "../plan/rollout.ts";

/** The facts for the environment of one script. */
export interface ScriptFacts {
  allocation: { id: string; worker: string; job: string; disabled: boolean; newVersion: string };
  /** Among the peers that are not removed. */
  allocationIndex: number;
  /** The running version. */
  currentVersion: string;
  event: string;
  hook: string;
  /** `DEPLOY_PHASE`. */
  phase: string;
  batch: Batch;
  /** Where the runtime API listens. */
  api: { host: string; port: number };
  /** Absolute, without symbolic links. */
  bucketRoot: string;
  /** The generated ssh configuration; undefined where no worker can be reached over ssh. */
  sshConfig: string | undefined;
  /** A JSON file that tells how each worker is reached. */
  workersFile: string;
  /** The variables of this event alone. */
  variables: EventVariables;
}

/**
 * The variables of single events (hook-runtime.md, Events). The first two are workers, separated by commas; `TARGET` is a
 * target of make; `DRY_RUN` is `1` in a dry run, which drops the values that a script writes.
 */
const EVENT_VARIABLES = ["NEW_ALLOCATIONS", "UPDATED_ALLOCATIONS", "TARGET", "DRY_RUN"] as const;

/** The variables of one event. */
export type EventVariables = { [name in (typeof EVENT_VARIABLES)[number]]?: string };

/** The variables of our own environment that no script gets: the server's secrets, and those for our own process alone. */
const WITHHELD = /^(OPS_.*|NODE_COMPILE_CACHE|NODE_CHANNEL_.*|NODE_UNIQUE_ID|PWD|OLDPWD)$/;

/**
 * The whole environment of one script (hook-runtime.md, Per-allocation environment variables; hook-runtime.md,
 * Per-batch environment variables): `ours` without the withheld variables, and the facts of the script. A variable of
 * ours never stands in for a fact.
 */
export function scriptEnvironment(ours: NodeJS.ProcessEnv, facts: ScriptFacts): Record<string, string> {
  const ofEvents: readonly string[] = EVENT_VARIABLES;
  const kept = Object.entries(ours).filter(([name]) => !WITHHELD.test(name) && !ofEvents.includes(name));
  const all = { ...Object.fromEntries(kept), ...factVariables(facts), ...facts.variables };
  return Object.fromEntries(Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined));
}

function factVariables({ allocation, batch, api, ...facts }: ScriptFacts) {
  return {
    ALLOCATION_ID: allocation.id,
    ALLOCATION_IP: allocation.worker,
    ALLOCATION_INDEX: String(facts.allocationIndex),
    JOB: allocation.job,
    EVENT: facts.event,
    COMMAND: facts.hook,
    HOOK: facts.hook,
    DISABLED: allocation.disabled ? "1" : "0",
    CURRENT_VERSION: facts.currentVersion,
    NEW_VERSION: allocation.newVersion,
    BATCH_ALLOCATIONS: batch.workers.join(","),
    BATCH_INDEX: String(batch.index),
    BATCH_COUNT: String(batch.count),
    DEPLOY_PHASE: facts.phase,
    ROLLOUT_ORDER: batch.order.workers.join(","),
    ROLLOUT_ORDER_SOURCE: batch.order.source,
    HOOK_API_HOST: api.host,
    HOOK_API_PORT: String(api.port),
    BUCKET_ROOT: facts.bucketRoot,
    OPS_SSH_CONFIG: facts.sshConfig,
    OPS_WORKERS_FILE: facts.workersFile,
  };
}
