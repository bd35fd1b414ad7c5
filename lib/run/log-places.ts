import { type About, type LinePlace, prefixOf } from "../bucket/base/line-place.ts";
import { EntryCursor } from "./log-entries.ts";

/** The places of a run's lines, by their numbers in activity.places, as far as entries were read. */
export class Places {
  readonly #known = new Map<number, { place: LinePlace; prefix: string }>();

  /** A cursor that begins at a position of an earlier cursor and learns the places that it passes. */
  cursor(descriptor: number | undefined, position?: number): EntryCursor {
    return new EntryCursor(descriptor, position, (number, text) => {
      const [stream, job, worker] = text.split(" ").map((name) => (name === "-" ? undefined : name));
      const place = { stream, job, worker } as LinePlace;
      this.#known.set(number, { place, prefix: prefixOf(place) });
    });
  }

  /**
   * The place of a line that begins with this text, and the length of what ops has put before the line's text. A line
   * without the prefix of its place was not written for the place, but by Node: its place is not known.
   */
  of(number: number | undefined, beginning: string): { place: LinePlace | undefined; from: number } {
    const known = number === undefined ? undefined : this.#known.get(number);
    if (!known || !beginning.startsWith(known.prefix)) return { place: undefined, from: 0 };
    return { place: known.place, from: known.prefix.length };
  }

  /** The numbers of the places that are wanted; undefined where the run has no record. */
  numbers(isWanted: (place: LinePlace) => boolean): Set<number> | undefined {
    if (this.#known.size === 0) return undefined;
    return new Set([...this.#known].filter(([, { place }]) => isWanted(place)).map(([number]) => number));
  }
}

/** True for a place of this job and this worker; one that is undefined is any. */
export function isAbout(place: LinePlace, { job, worker }: About): boolean {
  return (job === undefined || place.job === job) && (worker === undefined || place.worker === worker);
}

/**
 * Tells whether the line that begins at a byte of the log, with this text, is of a job and a worker, by the record of
 * places; to be asked in the order of the lines. Undefined where the run has no record, or where any place is wanted.
 */
export function recordedPlaces(descriptor: number | undefined, about: About) {
  if (about.job === undefined && about.worker === undefined) return undefined;
  const places = new Places();
  const cursor = places.cursor(descriptor);
  if (cursor.isAtEnd) return undefined;
  return (offset: number, beginning: string) => {
    const { place } = places.of(cursor.moveTo(offset), beginning);
    return place !== undefined && isAbout(place, about);
  };
}
