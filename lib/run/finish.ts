import type { Layout } from "../bucket/base/layout.ts";
import { RunLog } from "../bucket/base/logs.ts";
import { Problems } from "../bucket/base/problems.ts";
import { readOpsConf } from "../bucket/workspace/settings.ts";
import { Redactor } from "../core/redact.ts";
import { pruneRuns } from "./history.ts";
import type { RunRecord } from "./record.ts";

/**
 * What every run's end brings, under the bucket's lock and after all its processes are gone: the outcome is noted in
 * the run's ops.log (control-plane.md, Source push 4) and old history is pruned (Runs 6). The record, which must have
 * its end state, is saved by the caller.
 */
export async function finishRun(layout: Layout, record: RunRecord): Promise<void> {
  const settings = await readOpsConf(layout, new Problems());
  const log = logFor(layout, record, settings.logFormat);
  try {
    log.record({
      event: "run_end",
      action: record.status,
      ...(record.error !== null && { reason: record.error }),
      duration_ms: Date.parse(record.finished_at as string) - Date.parse(record.created_at),
    });
  } finally {
    log.close();
  }
  await pruneRuns(layout, settings.logRunRetentionCount, settings.logRunRetentionDays);
}

/** Applies the bucket's retention settings; an ops.conf that cannot be read means their defaults. */
export async function pruneHistory(layout: Layout): Promise<void> {
  const settings = await readOpsConf(layout, new Problems());
  await pruneRuns(layout, settings.logRunRetentionCount, settings.logRunRetentionDays);
}

/** The structured log of a run for whoever is not its process; says nothing in Activity. */
function logFor(layout: Layout, record: RunRecord, format: "kv" | "json"): RunLog {
  const activity = () => {};
  return new RunLog({ layout, runId: record.id, command: record.kind, redactor: new Redactor(), activity, format });
}
