import { type Cron, nextWall, parseCron, previousWall } from "../codec/calendar/cron.ts";
import { DAY_IN_MS, MINUTE_IN_MS, Zone } from "../codec/calendar/zone.ts";

/** The instants at which something is due, in milliseconds since 1970. */
export interface Calendar {
  /** The first one after an instant; undefined where none comes any more. */
  after(instant: number): number | undefined;
  /** The last one at or before an instant. */
  by(instant: number): number | undefined;
}

/** When something is due: every so much time, or by cron on the clocks of a timezone. */
export type Rhythm = { everyMs: number } | { cron: string; timezone: string };

/**
 * The calendar of a rhythm. `every` counts from the start of 1970 in UTC, whatever clocks on walls do. For cron, a time
 * that the clocks skip is due at the first instant after the gap, and a time that they show twice is due the first time;
 * times that fall on one instant are due once. The rhythm must be a valid one.
 */
export function calendarOf(rhythm: Rhythm): Calendar {
  if ("everyMs" in rhythm) return everyCalendar(rhythm.everyMs);
  return cronCalendar(parseCron(rhythm.cron), new Zone(rhythm.timezone));
}

/** The same calendar, so many milliseconds later. */
export function delayed(calendar: Calendar, ms: number): Calendar {
  const later = (instant: number | undefined) => (instant === undefined ? undefined : instant + ms);
  return { after: (instant) => later(calendar.after(instant - ms)), by: (instant) => later(calendar.by(instant - ms)) };
}

function everyCalendar(ms: number): Calendar {
  const by = (instant: number) => Math.floor(instant / ms) * ms;
  return { by, after: (instant) => by(instant) + ms };
}

// A later time on a wall is never due before an earlier one, so that both searches may go from time to time.
function cronCalendar(cron: Cron, zone: Zone): Calendar {
  return {
    after(instant) {
      let wall = nextWall(cron, Math.floor(zone.wallAt(instant) / MINUTE_IN_MS + 1) * MINUTE_IN_MS);
      while (wall !== undefined) {
        const due = zone.instantOf(wall);
        if (due > instant) return due;
        wall = nextWall(cron, wall + MINUTE_IN_MS);
      }
      return undefined;
    },
    by(instant) {
      // Where the clocks were set back a while ago, they have shown later times than now.
      let wall = previousWall(cron, instant + Math.max(zone.offsetAt(instant), zone.offsetAt(instant - DAY_IN_MS)));
      while (wall !== undefined) {
        const due = zone.instantOf(wall);
        if (due <= instant) return due;
        wall = previousWall(cron, wall - MINUTE_IN_MS);
      }
      return undefined;
    },
  };
}
