import path from "node:path";
import type { Layout } from "../../bucket/base/layout.ts";
import { Failure, hasErrno } from "../../core/errors.ts";
import { namesIn, readRegularSync, remove, writeAtomic } from "../../core/files.ts";
import { described, type Infer, nullable, object, oneOf, record, string, valueIn } from "../../core/shape.ts";
import { TIME } from "../../run/progress.ts";
import { RUN_STATUS } from "../../run/protocol.ts";

/** What became of a due time. */
export const LAST_DUE = object({
  due: TIME,
  outcome: described(
    oneOf("started", "skipped", "missed", "refused"),
    "skipped: the bucket was busy or frozen; missed: the server was away; refused: the run could not be started",
  ),
  reason: described(nullable(string()), "Why it was not started, one sentence"),
  run_id: nullable(string()),
  status: described(nullable(RUN_STATUS), "Of the run"),
});
/** The value of {@link LAST_DUE}. */
export type LastDue = Infer<typeof LAST_DUE>;

/** Since when a schedule is paused, and by whom. */
export const PAUSED = object({ at: TIME, by: string() });

const SCHEDULE_STATE = object({
  /** Its rhythm as it was; with another one its due times begin anew. */
  rhythm: string(),
  /** Due times up to this one are dealt with. */
  decided: TIME,
  last: nullable(LAST_DUE),
  paused: nullable(PAUSED),
});
/** What a server keeps of a schedule. */
export type ScheduleState = Infer<typeof SCHEDULE_STATE>;

const STATES = record(SCHEDULE_STATE);
const HALF_WRITTEN = /^\.schedules\.json\.[0-9a-f]+\.tmp$/;

/**
 * What a server keeps of the schedules of a bucket, by name: on the disk, and written as a whole. A file that cannot be
 * understood counts as none: its schedules begin anew.
 */
export function readStates({ scheduleStates }: Layout): Map<string, ScheduleState> {
  try {
    return new Map(Object.entries(valueIn(STATES, readRegularSync(scheduleStates)) ?? {}));
  } catch (error) {
    if (error instanceof Failure || hasErrno(error, "ENOENT", "ENOTDIR")) return new Map();
    throw error;
  }
}

/** Writes what {@link readStates} reads, one call after the other. What a killed server left half-written is removed. */
export async function writeStates(
  { scheduleStates, internal }: Layout,
  states: ReadonlyMap<string, ScheduleState>,
): Promise<void> {
  for (const name of await namesIn(internal)) if (HALF_WRITTEN.test(name)) await remove(path.join(internal, name));
  await writeAtomic(scheduleStates, `${JSON.stringify(Object.fromEntries(states), null, 2)}\n`);
}
