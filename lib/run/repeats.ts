import { hash } from "node:crypto";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { causeOf } from "../bucket/catalog/problems.ts";
import { remove } from "../core/files.ts";
import { isObject } from "../core/shape.ts";
import { MOST_KEYS, type OfSchedule, type RunRecord, readRecordHead, runIds, saveRecord } from "./record.ts";

/**
 * Notes in the record of a schedule's run how the run compares with the one before: whether it ended the same way, and how
 * many have done so. A deploy repeats none: two with equal outcomes may have brought different files, and the plan of a dry
 * run may be proposed or carried out later. The caller saves the record.
 */
export async function compareWithLast(layout: Layout, record: RunRecord): Promise<void> {
  const { schedule, kind } = record;
  if (!schedule || kind === "deploy") return;
  schedule.sum = hash("sha256", JSON.stringify(wayOfEnd(record))).slice(0, 32);
  const last = await runBefore(layout, record);
  if (last?.sum !== schedule.sum) return;
  schedule.repeats = last.repeats + 1;
  schedule.since = last.since;
}

/**
 * Saves the record of a run that has ended. Of the runs of a schedule that ended the same way, one after the other, the
 * first one stays and the last one, whose record counts all of them: the one before goes once this one is on the disk.
 */
export async function saveEnd(layout: Layout, record: RunRecord): Promise<void> {
  await saveRecord(layout, record);
  if (!record.schedule || record.schedule.repeats < 2) return;
  const last = await runBefore(layout, record);
  const isRepeat = last?.sum === record.schedule.sum && last.repeats > 0;
  if (isRepeat) await remove(runLayout(layout, last.id).folder);
}

/** The last run of the same schedule that began before this one. */
async function runBefore(layout: Layout, { id, schedule }: RunRecord): Promise<(OfSchedule & { id: string }) | undefined> {
  const before = (await runIds(layout)).filter((one) => one < id).slice(-MOST_KEYS);
  for (const one of before.reverse()) {
    const found = readRecordHead(layout, one)?.schedule;
    if (found?.name === schedule?.name && found) return { ...found, id: one };
  }
  return undefined;
}

/** The fields of a result that tell what was found where; all others are measurements, times and texts. */
const TELLING = new Set(
  "jobs job workers worker allocations outcome state action exit_code files path waves removed reconciled".split(" "),
);

/** What is equal for runs that ended the same way. */
function wayOfEnd({ status, error, result }: RunRecord): unknown {
  const telling = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(telling);
    if (!isObject(value)) return value;
    return Object.entries(value).flatMap(([name, one]) => (TELLING.has(name) ? [[name, telling(one)]] : []));
  };
  return [status, error === null ? null : causeOf(error), isObject(result) ? telling(result) : null];
}

/** Of each schedule of a bucket, the last due time among the newest 1,000 runs, and the run that it began. */
export async function newestOfSchedules(layout: Layout): Promise<Map<string, { due: number; runId: string }>> {
  const found = new Map<string, { due: number; runId: string }>();
  for (const id of (await runIds(layout)).slice(-MOST_KEYS)) {
    const { schedule } = readRecordHead(layout, id) ?? {};
    const due = Date.parse(schedule?.due ?? "");
    if (schedule && due > (found.get(schedule.name)?.due ?? 0)) found.set(schedule.name, { due, runId: id });
  }
  return found;
}
