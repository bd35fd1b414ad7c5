import type { DemandGraph } from "./demands.ts";

/** The order of deployment: a level for every job, or the jobs of one cycle, in order, when there is one. */
export type DeploymentSequence =
  | { levels: ReadonlyMap<string, number>; cycle: undefined }
  | { levels: undefined; cycle: readonly string[] };

/**
 * Gives every job its `deployment_seq`: the length of the longest path of demands below it, so 0 for a job that
 * demands nothing (hook-runtime.md, deployment_seq). Takes time in proportion to jobs and demands, and no recursion.
 */
export function deploymentSequence(graph: DemandGraph): DeploymentSequence {
  const levels = new Map<string, number>();
  const open = new Map([...graph].map(([job, upstreams]) => [job, upstreams.size]));
  const dependents = reversed(graph);
  const ready = [...open].filter(([, count]) => count === 0).map(([job]) => job);
  // A job becomes ready when its last upstream has a level, so that every path below it has been seen.
  for (let job = ready.pop(); job !== undefined; job = ready.pop()) {
    levels.set(job, levelAbove(graph, levels, job));
    for (const dependent of dependents.get(job) ?? []) {
      const left = (open.get(dependent) ?? 0) - 1;
      open.set(dependent, left);
      if (left === 0) ready.push(dependent);
    }
  }
  return levels.size === graph.size
    ? { levels, cycle: undefined }
    : { levels: undefined, cycle: findCycle(graph, levels) };
}

function levelAbove(graph: DemandGraph, levels: ReadonlyMap<string, number>, job: string): number {
  let level = 0;
  for (const upstream of graph.get(job) ?? []) level = Math.max(level, (levels.get(upstream) as number) + 1);
  return level;
}

function reversed(graph: DemandGraph): Map<string, string[]> {
  const dependents = new Map<string, string[]>();
  for (const [job, upstreams] of graph)
    for (const upstream of upstreams) {
      const list = dependents.get(upstream);
      if (list) list.push(job);
      else dependents.set(upstream, [job]);
    }
  return dependents;
}

/** Follows demands among the jobs without a level: each of them has such an upstream, so a job must come up again. */
function findCycle(graph: DemandGraph, levels: ReadonlyMap<string, number>): string[] {
  const next = (jobs: Iterable<string>) => [...jobs].filter((job) => !levels.has(job)).sort()[0] as string;
  const seen = new Set<string>();
  let job = next(graph.keys());
  while (!seen.has(job)) {
    seen.add(job);
    job = next(graph.get(job) ?? []);
  }
  const path = [...seen];
  return path.slice(path.indexOf(job));
}
