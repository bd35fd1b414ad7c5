import { appendFileSync, closeSync, fstatSync } from "node:fs";
import type { runLayout } from "../bucket/base/layout.ts";
import type { LinePlace } from "../bucket/base/line-place.ts";
import { APPEND, openRegularSync } from "../core/files.ts";

/** Output this long after the last entry of `activity.times` gets an entry of its own. */
const STEP_MS = 250;

/**
 * Appends text to a run's activity.log, whose descriptor is `output`, and notes beside the log what its bytes do not tell.
 * Before output that comes 250 ms or more after the last entry, `activity.times` gets an entry
 * `<byte offset> <unix ms>\n`: output from that offset on was written at that time or later. Before output of another place
 * than the last output, `activity.places` gets an entry `<byte offset> <number>\n`: lines from that offset on are of the
 * place with that number. The first entry of a place names it: `<byte offset> <number> <stream> <job> <worker>\n`, with `-`
 * for no job or no worker. Where an entry cannot be written, no entry follows in that file and the run goes on. `now` is
 * the clock, in milliseconds.
 */
export class ActivityWriter {
  readonly #output: number;
  readonly #now: () => number;
  readonly #times: Entries;
  readonly #places: Entries;
  readonly #numbers = new Map<string, number>();
  #notedAt = Number.NEGATIVE_INFINITY;
  #last = "";

  constructor(
    output: number,
    { activityTimes, activityPlaces }: Pick<ReturnType<typeof runLayout>, "activityTimes" | "activityPlaces">,
    now: () => number = Date.now,
  ) {
    this.#output = output;
    this.#now = now;
    this.#times = new Entries(output, activityTimes);
    this.#places = new Entries(output, activityPlaces);
  }

  /** Appends whole lines of one place. Throws where they cannot be written. */
  append(text: string, { stream, job = "-", worker = "-" }: LinePlace): void {
    const at = this.#now();
    // abs(): a clock that was set back goes on from there.
    if (Math.abs(at - this.#notedAt) >= STEP_MS) {
      this.#notedAt = at;
      this.#times.add(String(at));
    }
    const place = `${stream} ${job} ${worker}`;
    if (place !== this.#last) {
      this.#last = place;
      const number = this.#numbers.get(place) ?? this.#numbers.size;
      this.#places.add(this.#numbers.has(place) ? String(number) : `${number} ${place}`);
      this.#numbers.set(place, number);
    }
    // Not through a stream: a full disk shall fail the run.
    appendFileSync(this.#output, text);
  }

  /** Ends the entries. The log can still be appended to. */
  close(): void {
    this.#times.close();
    this.#places.close();
  }
}

/** Appends entries to a file beside the log, until one cannot be written: a part of it may have been. */
class Entries {
  readonly #output: number;
  readonly #file: string;
  #descriptor: number | undefined;
  #isOver = false;

  constructor(output: number, file: string) {
    this.#output = output;
    this.#file = file;
  }

  add(entry: string): void {
    if (this.#isOver) return;
    try {
      this.#descriptor ??= openRegularSync(this.#file, APPEND);
      // The size of the log, not a count of our bytes: Node may have written a warning in between.
      appendFileSync(this.#descriptor, `${fstatSync(this.#output).size} ${entry}\n`);
    } catch {
      this.close();
    }
  }

  close(): void {
    this.#isOver = true;
    if (this.#descriptor !== undefined) closeSync(this.#descriptor);
    this.#descriptor = undefined;
  }
}
