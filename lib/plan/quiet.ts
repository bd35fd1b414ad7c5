import { DAY_IN_MS, MINUTE_IN_MS, Zone } from "../codec/calendar/zone.ts";

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
