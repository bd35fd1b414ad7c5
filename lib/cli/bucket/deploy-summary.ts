import type { DeployResult, JobResult } from "../../operation/deploy/deploy-result.ts";
import { textTable } from "../base/table.ts";

/**
 * The jobs of a deploy as a table of actions, worker counts and durations, and below it the services that the deploy
 * left down; empty for a dry run.
 */
export function deploySummary(result: unknown, width?: number): string {
  const { jobs, left_down = [] } = (result ?? {}) as Partial<DeployResult>;
  if (!Array.isArray(jobs) || jobs.length === 0) return "";
  const rows = jobs.map((job) => [
    ...[job.job, job.outcome.replace("_", " "), actionsOf(job), outcomesOf(job)],
    ...[(job.duration_ms / 1000).toFixed(1)],
  ]);
  const table = textTable(["job", "outcome", "actions", "workers", "seconds"], rows, width);
  return table + left_down.map((sentence) => `${sentence}\n`).join("");
}

function actionsOf({ allocations }: JobResult): string {
  return counted(allocations.map(({ action }) => action ?? "none"));
}

function outcomesOf({ allocations }: JobResult): string {
  return counted(allocations.map(({ outcome }) => outcome.replace("_", " ")));
}

function counted(names: readonly string[]): string {
  const counts = Map.groupBy(names, (name) => name);
  return [...counts].map(([name, all]) => `${all.length} ${name}`).join(", ") || "-";
}
