import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { fitting } from "../bucket/catalog/summary.ts";
import type { HealthChange } from "../bucket/health/health-history.ts";
import { isObject } from "../core/shape.ts";
import { readRecord } from "../run/record.ts";
import type { RunInShort, RunList } from "./run-list.ts";

/** How many runs the strip of an overview has, and of how many deploys the mean is told. */
const MOST_RECENT = 20;
/** How many drifted allocations an overview names, and how many files one allocation does. */
const MOST_DRIFTED = 50;
const MOST_FILES = 20;
const DRIFT_BYTES = 5 * 1024;
/** Of how many drift runs the outcome is kept in memory. */
const MOST_KEPT_DRIFTS = 20;

/** What an overview tells of the runs of a bucket. */
export async function recentRuns(runList: RunList, layout: Layout) {
  const found = { recent: [] as RunInShort[], deploys: [] as RunInShort[] };
  let newest: RunInShort | undefined;
  let drift: RunInShort | undefined;
  const partial = new Set<string>();
  for await (const run of runList.inShort(layout)) {
    newest ??= run;
    // A drift run of some workers says nothing of the others.
    if (run.kind === "drift" && run.whole && run.status !== "running") drift ??= run;
    if (run.kind === "deploy" && run.dry_run && !run.whole) partial.add(run.id);
    if (run.kind === "deploy" && !run.dry_run) found.deploys.push(run);
    if (run.kind === "deploy" || run.kind === "push") found.recent.push(run);
  }
  const { deploys, recent } = found;
  const isWhole = ({ status, whole, plan }: RunInShort) => status === "succeeded" && whole && !partial.has(plan ?? "");
  const times = deploys.filter(isWhole).slice(0, MOST_RECENT);
  const total = times.reduce((sum, { duration_ms }) => sum + duration_ms, 0);
  return {
    active_run: newest?.status === "running" ? inShort(newest) : null,
    last_run: inShort(newest),
    last_deploy: inShort(deploys[0]),
    last_success: inShort(deploys.find(({ status }) => status === "succeeded")),
    last_drift: inShort(drift),
    recent: recent.slice(0, MOST_RECENT).reverse().map(recentRun),
    mean_deploy_ms: times.length === 0 ? null : Math.round(total / times.length),
  };
}

function inShort(run: RunInShort | undefined) {
  if (!run) return null;
  const { id, kind, status, created_at, finished_at, dry_run } = run;
  return { id, kind, status, created_at, finished_at, dry_run };
}

function recentRun({ id, kind, status, duration_ms, dry_run, created_at }: RunInShort) {
  return { id, kind, status, duration_ms, dry_run, created_at };
}

/** An allocation whose files a drift run found changed: how many, and the first of them. */
interface Drifted {
  job: string;
  worker: string;
  files: number;
  first: { path: string; state: string }[];
}

/** How a drift run found a worker. */
interface WorkerDrifts {
  worker: string;
  outcome: string;
  drifted: Drifted[];
}

/** What of a drift run's findings still holds. */
interface DriftFound {
  /** How many workers have each outcome. */
  workers: Record<string, number>;
  allocations: Drifted[];
}

/** What drift runs have found. The record of each is read once. */
export class Drifts {
  readonly #known = new Map<string, WorkerDrifts[]>();

  /**
   * What a drift run that has ended found, without the files that were put right since: `unwell` is what the bucket's
   * history of health calls not well now.
   */
  of(layout: Layout, id: string, unwell: readonly HealthChange[]): DriftFound {
    const { folder } = runLayout(layout, id);
    const found = this.#known.get(folder) ?? driftIn(readRecord(layout, id)?.result);
    if (this.#known.size >= MOST_KEPT_DRIFTS) this.#known.clear();
    this.#known.set(folder, found);
    const places = new Set(unwell.filter(({ aspect }) => aspect === "files").map(({ job, worker }) => `${job}@${worker}`));
    const allocations = found.flatMap(({ drifted }) => drifted.filter(({ job, worker }) => places.has(`${job}@${worker}`)));
    const changed = new Set(allocations.map(({ worker }) => worker));
    const outcomeNow = ({ worker, outcome }: WorkerDrifts) =>
      outcome === "drifted" && !changed.has(worker) ? "in_sync" : outcome;
    const outcomes = Object.entries(Object.groupBy(found, outcomeNow));
    return { workers: Object.fromEntries(outcomes.map(([outcome, own = []]) => [outcome, own.length])), allocations };
  }
}

function driftIn(result: unknown): WorkerDrifts[] {
  type Worker = { worker: string; outcome: string; allocations: { job: string; files: Drifted["first"] }[] };
  const workers = isObject(result) && Array.isArray(result.workers) ? (result.workers as Worker[]) : [];
  return workers.map(({ worker, outcome, allocations }) => {
    const drifted = allocations.flatMap(({ job, files }): Drifted[] => {
      const first = files.slice(0, MOST_FILES).map(({ path, state }) => ({ path, state }));
      return files.length === 0 ? [] : [{ job, worker, files: files.length, first }];
    });
    return { worker, outcome, drifted };
  });
}

/** The first drifted allocations, as an overview names them. */
export function firstDrifted({ allocations }: DriftFound) {
  const shown = allocations.slice(0, MOST_DRIFTED).map(({ job, worker, files }) => ({ job, worker, files }));
  return fitting(shown, allocations.length, DRIFT_BYTES).items;
}
