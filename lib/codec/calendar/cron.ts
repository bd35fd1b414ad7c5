import { DAY_IN_MS, MINUTE_IN_MS } from "./zone.ts";

/** The times of day and the days that a cron expression names, on the clock of a wall. */
export interface Cron {
  /** In minutes since midnight, ascending. */
  readonly times: readonly number[];
  /** True for a day on which it comes. */
  isDay(date: Date): boolean;
}

/** Why a text is no cron expression, in words that follow its place. */
export class CronError extends Error {}

interface Field {
  name: string;
  min: number;
  max: number;
  /** The name of `min` and of those that follow. */
  names?: readonly string[];
}

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const CRON_FIELDS = [
  { name: "minute", min: 0, max: 59 },
  { name: "hour", min: 0, max: 23 },
  { name: "day of the month", min: 1, max: 31 },
  { name: "month", min: 1, max: 12, names: MONTHS },
  // 7 is Sunday, too.
  { name: "day of the week", min: 0, max: 7, names: WEEKDAYS },
] as const satisfies readonly Field[];

/** The first of a month falls on each weekday within 12 years, and 29 February comes within 8. */
const MOST_DAYS = 12 * 366;

/**
 * Reads the five fields of a cron expression: numbers, names of months and weekdays, ranges, lists and steps. Where both
 * fields of days are restricted, a day that either names counts, as in every cron; a field that begins with `*` is not
 * restricted. Throws a {@link CronError}, also for a day that never comes.
 */
export function parseCron(text: string): Cron {
  const parts = text.trim().split(/\s+/);
  if (parts.length !== CRON_FIELDS.length)
    throw new CronError(
      `expected five fields (${CRON_FIELDS.map(({ name }) => name).join(", ")}), found ${parts.filter(Boolean).length}`,
    );
  const [minutes, hours, days, months, weekdays] = CRON_FIELDS.map((field, index) =>
    valuesNamed(field, parts[index] as string),
  ) as [Set<number>, Set<number>, Set<number>, Set<number>, Set<number>];
  if (weekdays.has(7)) weekdays.add(0);
  const isRestricted = (index: number) => !(parts[index] as string).startsWith("*");
  const either = isRestricted(2) && isRestricted(4);
  const cron: Cron = {
    times: [...hours].flatMap((hour) => [...minutes].map((minute) => hour * 60 + minute)).sort((a, b) => a - b),
    isDay(date) {
      const [isOfMonth, isOfWeek] = [days.has(date.getUTCDate()), weekdays.has(date.getUTCDay())];
      return months.has(date.getUTCMonth() + 1) && (either ? isOfMonth || isOfWeek : isOfMonth && isOfWeek);
    },
  };
  if (nextWall(cron, 0) === undefined) throw new CronError("names a day that never comes");
  return cron;
}

function valuesNamed(field: Field, text: string): Set<number> {
  const values = new Set<number>();
  for (const part of text.split(",")) {
    const [, range = "", step] = /^([^/]+)(?:\/(\d{1,4}))?$/.exec(part) ?? [];
    const [first, last] = rangeOf(field, range, step !== undefined);
    const by = Number(step ?? 1);
    if (by < 1) throw wrong(field, part);
    for (let value = first; value <= last; value += by) values.add(value);
  }
  return values;
}

function rangeOf(field: Field, text: string, hasStep: boolean): [first: number, last: number] {
  // As a range, days of the week end with Saturday: 0 and 7 are the same day.
  const max = field.max === 7 ? 6 : field.max;
  if (text === "*") return [field.min, max];
  const [first = "", last, ...more] = text.split("-");
  const from = numberNamed(field, first);
  const to = last === undefined ? (hasStep ? max : from) : numberNamed(field, last);
  if (more.length > 0 || from === undefined || to === undefined || from > to) throw wrong(field, text);
  return [from, to];
}

function numberNamed({ min, max, names }: Field, text: string): number | undefined {
  const named = names?.indexOf(text.toLowerCase()) ?? -1;
  const value = named >= 0 ? named + min : /^\d{1,2}$/.test(text) ? Number(text) : Number.NaN;
  return value >= min && value <= max ? value : undefined;
}

function wrong({ name, min, max, names }: Field, found: string): CronError {
  const words = names ? ` or ${names[0]} to ${names.at(-1)}` : "";
  return new CronError(
    `${name}: expected *, numbers from ${min} to ${max}${words}, ranges, lists or steps, found ${JSON.stringify(found)}`,
  );
}

/**
 * The first minute of a cron expression at or after a time on the clock of a wall. Such times count the milliseconds
 * since the clock showed 1970-01-01 00:00. Undefined where there is none within twelve years.
 */
export function nextWall({ times, isDay }: Cron, wall: number): number | undefined {
  const from = Math.ceil(wall / MINUTE_IN_MS) * MINUTE_IN_MS;
  const today = Math.floor(from / DAY_IN_MS) * DAY_IN_MS;
  for (let day = 0; day <= MOST_DAYS; day++) {
    const midnight = today + day * DAY_IN_MS;
    if (!isDay(new Date(midnight))) continue;
    const time = times.find((minutes) => midnight + minutes * MINUTE_IN_MS >= from);
    if (time !== undefined) return midnight + time * MINUTE_IN_MS;
  }
  return undefined;
}

/** The last minute of a cron expression at or before a time on the clock of a wall. */
export function previousWall({ times, isDay }: Cron, wall: number): number | undefined {
  const today = Math.floor(wall / DAY_IN_MS) * DAY_IN_MS;
  for (let day = 0; day <= MOST_DAYS; day++) {
    const midnight = today - day * DAY_IN_MS;
    if (!isDay(new Date(midnight))) continue;
    const time = times.findLast((minutes) => midnight + minutes * MINUTE_IN_MS <= wall);
    if (time !== undefined) return midnight + time * MINUTE_IN_MS;
  }
  return undefined;
}
