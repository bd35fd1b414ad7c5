import { batches } from "../core/async.ts";
import type { Action } from "./changes.ts";

/** The order in which workers are taken, and where it came from (`ROLLOUT_ORDER_SOURCE`). */
interface RolloutOrder {
  workers: string[];
  source: "kv" | "default";
}

/** Workers that are taken together, and the place of the batch among those of its rollout or pass. */
export interface Batch {
  workers: string[];
  /** From 0 on (`BATCH_INDEX`). */
  index: number;
  count: number;
  /** The order of all workers of the rollout or pass. */
  order: RolloutOrder;
}

/**
 * What hooks are run for: the event, the label that scripts get as `DEPLOY_PHASE`, which allocations of the job take
 * part and which width of the job applies (hook-runtime.md, Batching rules).
 *
 * `present`: all that are not removed, disabled ones too; `active`: neither removed nor disabled; `any`: removed ones
 * too. Whatever the set, a pass may be for some chosen workers of it only.
 */
export const PASSES = {
  post_build: { event: "post_build", phase: "post_build", set: "present", width: "upgrades" },
  pre_deploy: { event: "pre_deploy", phase: "pre_deploy", set: "present", width: "upgrades" },
  post_deploy: { event: "post_deploy", phase: "post_deploy", set: "present", width: "upgrades" },
  cli: { event: "cli", phase: "cli", set: "present", width: "upgrades" },
  health_check: { event: "health_check", phase: "health_check", set: "present", width: "upgrades" },
  /** Of a deploy: the script replaces start, restart and reload. */
  deploy_control: { event: "job_control", phase: "job_control", set: "present", width: "upgrades" },
  /** Of the job commands, for the chosen workers. */
  command_control: { event: "job_control", phase: "job_control", set: "active", width: "upgrades" },
  /** For the workers of a rollout's batch. */
  started: { event: "after_allocation_started", phase: "new", set: "present", width: "starts" },
  updated: { event: "after_allocation_started", phase: "update", set: "present", width: "upgrades" },
  /** For stopped allocations. */
  stopped: { event: "after_allocation_stopped", phase: "stop", set: "any", width: "upgrades" },
} as const;

/** One of {@link PASSES}. */
export type PassKind = keyof typeof PASSES;

/** An allocation of a job, in catalog order among its peers. */
export interface Peer {
  worker: string;
  disabled: boolean;
  removed: boolean;
}

/** How many allocations of a job are changed at a time (manifest). */
export interface Widths {
  /** 0 = all at once. */
  maxConcurrentStarts: number;
  maxConcurrentUpgrades: number;
}

/**
 * The rollout order of a set of workers given in catalog order: the KV value `rollout_order` (comma-separated hosts)
 * when it names every one of them, filtered to the set; otherwise catalog order (hook-runtime.md, Batching rules).
 * Of a host that is named twice the first place counts.
 */
export function rolloutOrder(kvValue: string | undefined, workers: readonly string[]): RolloutOrder {
  const named = [...new Set((kvValue ?? "").split(",").map((host) => host.trim()))];
  const wanted = new Set(workers);
  const filtered = named.filter((host) => wanted.has(host));
  if (workers.length === 0 || filtered.length < wanted.size) return { workers: [...workers], source: "default" };
  return { workers: filtered, source: "kv" };
}

/** Splits workers, given in catalog order, into batches of `width` in rollout order; width 0 means one batch. */
export function rolloutBatches(kvValue: string | undefined, workers: readonly string[], width: number): Batch[] {
  const order = rolloutOrder(kvValue, workers);
  const parts = batches(order.workers, width);
  return parts.map((part, index) => ({ workers: part, index, count: parts.length, order }));
}

/** The workers of a pass in catalog order; `chosen` narrows the set to some of them. */
export function passWorkers(kind: PassKind, peers: readonly Peer[], chosen?: readonly string[]): string[] {
  const { set } = PASSES[kind];
  const belongs = ({ disabled, removed }: Peer) => set === "any" || (!removed && (set === "present" || !disabled));
  return peers
    .filter((peer) => belongs(peer) && (chosen === undefined || chosen.includes(peer.worker)))
    .map((peer) => peer.worker);
}

/** The batches of a pass over a job; `chosen` narrows its workers to some of them. */
export function passBatches(
  { kind, chosen }: { kind: PassKind; chosen?: readonly string[] | undefined },
  job: Widths,
  peers: readonly Peer[],
  kvValue: string | undefined,
): Batch[] {
  const width = PASSES[kind].width === "starts" ? job.maxConcurrentStarts : job.maxConcurrentUpgrades;
  return rolloutBatches(kvValue, passWorkers(kind, peers, chosen), width);
}

/**
 * The `ALLOCATION_INDEX` of a worker: its place among the peers that are not removed. Removed ones follow behind those,
 * so that no two scripts of a pass have the same.
 */
export function allocationIndex(peers: readonly Peer[], worker: string): number {
  const present = peers.filter((peer) => !peer.removed);
  return [...present, ...peers.filter((peer) => peer.removed)].findIndex((peer) => peer.worker === worker);
}

/** The actions that run a target of the job on the worker. */
const RUNNING: readonly Action[] = ["start", "restart", "reload"];

/** Workers of a job that are changed in the same way, batch after batch. */
export interface Phase {
  /** As in `DEPLOY_PHASE`. */
  phase: "new" | "update" | "job_control";
  /** The target that runs; `job_control` where the job's own hooks run instead. */
  action: "start" | "reload" | "restart" | "job_control";
  batches: Batch[];
}

/** What the phases of a job depend on. */
interface JobToRollOut extends Widths {
  /** It has hooks for job_control. */
  hasOwnControl: boolean;
}

/** True for an action that runs a target of the job. */
export function runsTarget(action: Action): boolean {
  return RUNNING.includes(action);
}

/**
 * The phases of a job's rollout (hook-runtime.md, Batching rules): first starts, then reloads, then restarts, each in
 * batches of its own width. Where hooks for job_control do this instead, there is one phase over all workers of the
 * job, unchanged ones too. `order` is the KV value `rollout_order`; allocations come in catalog order. Without anything
 * to run there is no phase.
 */
export function rolloutPhases(
  job: JobToRollOut,
  allocations: readonly { worker: string; action: Action }[],
  order: string | undefined,
): Phase[] {
  if (!allocations.some(({ action }) => runsTarget(action))) return [];
  const phase = (name: Phase["phase"], action: Phase["action"], width: number): Phase[] => {
    const taking = allocations.filter((one) => action === "job_control" || one.action === action);
    const workers = taking.map(({ worker }) => worker);
    return workers.length === 0 ? [] : [{ phase: name, action, batches: rolloutBatches(order, workers, width) }];
  };
  if (job.hasOwnControl) return phase("job_control", "job_control", job.maxConcurrentUpgrades);
  return [
    ...phase("new", "start", job.maxConcurrentStarts),
    ...phase("update", "reload", job.maxConcurrentUpgrades),
    ...phase("update", "restart", job.maxConcurrentUpgrades),
  ];
}
