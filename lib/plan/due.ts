import type { Calendar } from "./calendar.ts";

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
