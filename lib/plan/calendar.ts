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
      let wall = nextWall(cron, zone.wallAt(instant));
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

/** Windows in which nothing is deployed: one, or one each time that a calendar says. */
export type FreezeRule = { reason: string } & ({ fromMs: number; toMs: number } | { rhythm: Rhythm; forMs: number });

/** One window; it ends before `toMs`. */
export interface FreezeWindow {
  fromMs: number;
  toMs: number;
  reason: string;
}

/** How long before its beginning a freeze is shown. */
const SHOWN_BEFORE_MS = 7 * DAY_IN_MS;
/** Repeated windows that follow on one another are one, but are looked at no further than this. */
const MOST_JOINED = 100;

/** The window that is open now; of several the one that ends last. */
export function openFreeze(rules: readonly FreezeRule[], now: number): FreezeWindow | undefined {
  const open = rules.flatMap((rule) => windowAt(rule, now) ?? []).filter(({ fromMs }) => fromMs <= now);
  return open.sort((a, b) => b.toMs - a.toMs)[0];
}

/** The windows that are open now or begin within seven days, by their beginning; of a rule the first one. */
export function freezesAhead(rules: readonly FreezeRule[], now: number): FreezeWindow[] {
  const found = rules.flatMap((rule) => windowAt(rule, now) ?? []);
  return found.filter(({ fromMs }) => fromMs <= now + SHOWN_BEFORE_MS).sort((a, b) => a.fromMs - b.fromMs);
}

/** The same in sentences, for whoever plans a deploy. */
export function toldFreezes(rules: readonly FreezeRule[], now: number): string[] {
  return freezesAhead(rules, now).map(({ fromMs, toMs, reason }) => {
    const [from, to] = [fromMs, toMs].map((at) => new Date(at).toISOString());
    return fromMs <= now ? `a deploy is refused until ${to}: ${reason}` : `from ${from} to ${to} deploys are refused: ${reason}`;
  });
}

/** The window of a rule that is open now, else the next one. */
function windowAt(rule: FreezeRule, now: number): FreezeWindow | undefined {
  const { reason } = rule;
  if ("fromMs" in rule) return rule.toMs > now ? { fromMs: rule.fromMs, toMs: rule.toMs, reason } : undefined;
  const calendar = calendarOf(rule.rhythm);
  const last = calendar.by(now);
  const isOpen = last !== undefined && last + rule.forMs > now;
  const fromMs = isOpen ? last : calendar.after(now);
  return fromMs === undefined ? undefined : { fromMs, toMs: joinedEnd(calendar, fromMs, rule.forMs), reason };
}

/** When a window ends; one that begins before the one before has ended makes it longer. */
function joinedEnd(calendar: Calendar, from: number, ms: number): number {
  let last = from;
  for (let joined = 0; joined < MOST_JOINED; joined++) {
    const next = calendar.after(last);
    if (next === undefined || next > last + ms) break;
    last = next;
  }
  return last + ms;
}

/** A due time that is noticed this late counts as in time: a server that starts again needs a moment. */
export const IN_TIME_MS = 60_000;
/** A clock that is set back by more than this makes schedules begin anew; by less, no due time comes twice. */
export const MOST_SET_BACK_MS = 3_600_000;

/** What is to be done about a due time. */
export interface Due {
  due: number;
  verdict: "start" | "missed";
}

/**
 * What a schedule has to do now, whose due times up to `decided` are dealt with: of several due times only the last one
 * counts. One that is noticed too late is missed, or with `catchUp` done all the same. Undefined where nothing is due.
 */
export function dueNow(
  calendar: Calendar,
  catchUp: boolean,
  { decided, now }: { decided: number; now: number },
): Due | undefined {
  const due = calendar.by(now);
  if (due === undefined || due <= decided) return undefined;
  const isStart = now - due <= IN_TIME_MS || catchUp;
  return { due, verdict: isStart ? "start" : "missed" };
}

/** Up to when due times are dealt with, by a clock that shows `now`: it may have been set back since. */
export function decidedBy(decided: number, now: number): number {
  return decided > now + MOST_SET_BACK_MS ? now : decided;
}

/** When a schedule is due next. */
export function nextDue(calendar: Calendar, decided: number, now: number): number | undefined {
  return calendar.after(Math.max(decidedBy(decided, now), now));
}

/** Hours of the day, on the clocks of a timezone, in which messages wait. */
export interface QuietHours {
  /** In minutes since midnight. Where the end is before the beginning, it is on the next day. */
  fromMinute: number;
  toMinute: number;
  /** The days of the week on which they begin; 0 is Sunday. */
  days: readonly number[];
  timezone: string;
}

/** True in one of the quiet hours. */
export function isQuiet(hours: readonly QuietHours[], now: number): boolean {
  return hours.some(({ fromMinute, toMinute, days, timezone }) => {
    const wall = new Zone(timezone).wallAt(now);
    const minute = Math.floor((wall % DAY_IN_MS) / MINUTE_IN_MS);
    const today = new Date(wall).getUTCDay();
    if (fromMinute < toMinute) return days.includes(today) && fromMinute <= minute && minute < toMinute;
    return (days.includes(today) && minute >= fromMinute) || (days.includes((today + 6) % 7) && minute < toMinute);
  });
}
