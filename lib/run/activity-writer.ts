import { appendFileSync, closeSync, fstatSync } from "node:fs";
import { APPEND, openRegularSync } from "../core/files.ts";

/** How long after an entry the next output gets one of its own. */
const STEP_MS = 250;

/**
 * What appends text to a run's activity.log, whose descriptor is `output`. Before output that comes 250 ms or more after
 * the last entry, the file `times` gets one: `<byte offset> <unix ms>\n`. What begins at that offset or behind it was
 * written at that time or later. Throws what keeps the text from being written. Where an entry cannot be written the
 * times just end: only the log itself decides whether a run may go on. `now` is the clock, in milliseconds.
 */
export function activityWriter(output: number, times: string, now: () => number = Date.now): (text: string) => void {
  let notedAt = Number.NEGATIVE_INFINITY;
  let isNoting = true;
  return (text) => {
    const at = now();
    // A clock that was set back goes on from there.
    if (isNoting && Math.abs(at - notedAt) >= STEP_MS) {
      notedAt = at;
      isNoting = note(output, times, at);
    }
    // Not through a stream: where the disk is full, the run is to learn it.
    appendFileSync(output, text);
  };
}

/** Answers false where no entry may follow, since this one might be there in part. */
function note(output: number, times: string, at: number): boolean {
  try {
    // The size, not a count of what was written: a warning of Node may stand between.
    const file = openRegularSync(times, APPEND);
    try {
      appendFileSync(file, `${fstatSync(output).size} ${at}\n`);
    } finally {
      closeSync(file);
    }
    return true;
  } catch {
    return false;
  }
}
