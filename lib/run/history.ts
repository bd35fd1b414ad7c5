import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { isUuid } from "../codec/uuid.ts";
import { namesIn, remove } from "../core/files.ts";
import { readRecord, timeOfRun } from "./record.ts";

/** The ids of all stored runs, oldest first (a run id is a UUIDv7, so this is their order in time). */
export async function runIds(layout: Layout): Promise<string[]> {
  return (await namesIn(layout.runs)).filter(isUuid).sort();
}

const DAY_MS = 86_400_000;

/**
 * Removes completed runs beyond the newest `count` or older than `days` (0 = unlimited); never one that runs, nor the
 * newest (control-plane.md, Runs 6). Folders of runs whose record cannot be read count like completed ones.
 */
export async function pruneRuns(layout: Layout, count: number, days: number, now = Date.now()): Promise<void> {
  const ids = (await runIds(layout)).reverse();
  for (const [index, id] of ids.entries()) {
    const tooMany = count > 0 && index >= count;
    const tooOld = days > 0 && timeOfRun(id) < now - days * DAY_MS;
    if (index === 0 || !(tooMany || tooOld)) continue;
    if (readRecord(layout, id)?.status !== "running") await remove(runLayout(layout, id).folder);
  }
}
