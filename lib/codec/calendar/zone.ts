/** Milliseconds of a minute, and of a day of 24 hours. */
export const MINUTE_IN_MS = 60_000;
/** See {@link MINUTE_IN_MS}. */
export const DAY_IN_MS = 24 * 60 * MINUTE_IN_MS;
/** Clocks are at most 14 hours before and 12 hours behind UTC. */
const MOST_BEFORE_MS = 14 * 60 * MINUTE_IN_MS;
const MOST_BEHIND_MS = 12 * 60 * MINUTE_IN_MS;

/** True for a timezone that is known by this name, such as `Europe/Berlin` or `UTC`; fixed offsets are none. */
export function isTimezone(name: string): boolean {
  if (/^[+-]/.test(name)) return false;
  try {
    return formatOf(name) !== undefined;
  } catch {
    return false;
  }
}

/**
 * The clocks on the walls of a timezone. What a clock shows is a number, too: the milliseconds since it showed 1970-01-01
 * 00:00. A change of the clock happens within one hour at least of every other one.
 */
export class Zone {
  readonly #format: Intl.DateTimeFormat;

  /** `name` must be one that {@link isTimezone} knows. */
  constructor(name: string) {
    this.#format = formatOf(name);
  }

  /** How far the clocks are before UTC at an instant, in milliseconds. */
  offsetAt(instant: number): number {
    const second = Math.floor(instant / 1_000) * 1_000;
    const parts = this.#format.formatToParts(second).map(({ type, value }) => [type, Number(value)]);
    const shown: Record<keyof typeof DIGITS, number> = Object.fromEntries(parts);
    return Date.UTC(shown.year, shown.month - 1, shown.day, shown.hour, shown.minute, shown.second) - second;
  }

  /** What the clocks show at an instant. */
  wallAt(instant: number): number {
    return instant + this.offsetAt(instant);
  }

  /**
   * When the clocks show a time: the first time, where they show it twice. Where they skip it, the first instant after
   * the gap.
   */
  instantOf(wall: number): number {
    const [early, late] = [wall - MOST_BEFORE_MS, wall + MOST_BEHIND_MS];
    const [before, after] = [this.offsetAt(early), this.offsetAt(late)];
    const shown = [wall - before, wall - after].filter((instant) => this.wallAt(instant) === wall);
    return shown.length > 0 ? Math.min(...shown) : this.#changeBetween(early, late);
  }

  /** The first instant after the change of the clocks between two instants, which are whole minutes. */
  #changeBetween(early: number, late: number): number {
    const before = this.offsetAt(early);
    let [low, high] = [early, late];
    while (high - low > 1_000) {
      const middle = Math.floor((low + high) / 2_000) * 1_000;
      if (this.offsetAt(middle) === before) low = middle;
      else high = middle;
    }
    return high;
  }
}

const DIGITS = {
  year: "numeric",
  month: "numeric",
  day: "numeric",
  hour: "numeric",
  minute: "numeric",
  second: "numeric",
} as const;
/** By the name of the timezone in lower case; there are some hundreds. A format takes ten times as long to make as to use. */
const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(timeZone: string): Intl.DateTimeFormat {
  const key = timeZone.toLowerCase();
  const known = formats.get(key);
  if (known) return known;
  const made = new Intl.DateTimeFormat("en-US", { ...DIGITS, timeZone, hourCycle: "h23" });
  formats.set(key, made);
  return made;
}
