/** The order in which workers are taken, and where it came from (`ROLLOUT_ORDER_SOURCE`). */
export interface RolloutOrder {
  workers: string[];
  source: "kv" | "default";
}

/**
 * The rollout order of a set of workers given in catalog order: the KV value `rollout_order` (comma-separated hosts)
 * when it names every one of them, filtered to the set; otherwise catalog order (hook-runtime.md, Batching rules).
 * A host that is named twice counts where it is named first.
 */
export function rolloutOrder(kvValue: string | undefined, workers: readonly string[]): RolloutOrder {
  const named = [...new Set((kvValue ?? "").split(",").map((host) => host.trim()))];
  const wanted = new Set(workers);
  const filtered = named.filter((host) => wanted.has(host));
  if (workers.length === 0 || filtered.length < wanted.size)
    return { workers: [...workers], source: "default" };
  return { workers: filtered, source: "kv" };
}

/** Sorts things that belong to workers into rollout order. */
export function inOrder<T>(order: RolloutOrder, items: readonly T[], workerOf: (item: T) => string): T[] {
  const position = new Map(order.workers.map((worker, index) => [worker, index]));
  const rank = (item: T) => position.get(workerOf(item)) ?? order.workers.length;
  return [...items].sort((a, b) => rank(a) - rank(b));
}
