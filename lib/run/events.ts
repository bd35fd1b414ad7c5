import { randomBytes } from "node:crypto";
import { woken } from "../core/async.ts";
import { boolean, described, type Infer, list, object, oneOf, string } from "../core/shape.ts";
import { TIME } from "./progress.ts";
import { RUN_STATUS } from "./protocol.ts";
import { durationOf, ID, RUN_KIND, type RunRecord } from "./record.ts";

/** The changes of a run: it begins, a cancel is accepted, it has ended. */
const RUN_CHANGES = ["started", "cancelling", "ended"] as const;

const RUN_EVENT = object({
  at: TIME,
  change: oneOf(...RUN_CHANGES),
  bucket_id: ID,
  run_id: ID,
  kind: RUN_KIND,
  status: RUN_STATUS,
});
type RunEvent = Infer<typeof RUN_EVENT>;

/** The changes after a place, and the place behind them. */
export const RUN_EVENTS = object({
  items: list(RUN_EVENT),
  next: described(string(), "What to send as `after`"),
  reset: described(boolean(), "Changes were missed: look at everything anew, then go on with `next`"),
});
type RunEvents = Infer<typeof RUN_EVENTS>;

/** How long to wait for changes, and for which. */
interface EventWait {
  timeoutMs: number;
  signal: AbortSignal;
  isShown?: (event: RunEvent) => boolean;
}

const MOST_EVENTS = 1_000;

/**
 * The latest 1,000 changes of the runs of this server, of all buckets. A place among them is an opaque text, valid until
 * the server ends.
 */
export class EventLog {
  /** Part of each place, so that the places of another server are unknown. */
  readonly #own = randomBytes(6).toString("hex");
  readonly #events: RunEvent[] = [];
  readonly #waiting = new Set<() => void>();
  /** Called with each change, once the run's record shows it. */
  onChange: (change: RunEvent["change"], record: RunRecord) => void = () => {};
  #count = 0;
  /** The runs that have ended, by kind and status: how many, and how long they took together. */
  readonly ended = new Map<string, { kind: string; status: string; count: number; seconds: number }>();

  /** Notes a change once the run's record shows it. */
  add(change: RunEvent["change"], record: RunRecord): void {
    const { bucket_id, id, kind, status } = record;
    if (change === "ended") this.#countEnd(record);
    this.#events.push({ at: new Date().toISOString(), change, bucket_id, run_id: id, kind, status });
    if (this.#events.length > MOST_EVENTS) this.#events.shift();
    this.#count++;
    for (const wake of [...this.#waiting]) wake();
    this.onChange(change, record);
  }

  /**
   * The changes after a place; waits while there is none. Without a place, and for an unknown place, the answer comes at
   * once and holds the present place.
   */
  async after(place: string | undefined, { timeoutMs, signal, isShown = () => true }: EventWait): Promise<RunEvents> {
    const until = performance.now() + timeoutMs;
    let seen = this.#seen(place);
    if (seen === undefined) return { items: [], next: this.#place(), reset: place !== undefined };
    for (;;) {
      const first = this.#count - this.#events.length;
      if (seen < first) return { items: [], next: this.#place(), reset: true };
      const items = this.#events.slice(seen - first).filter(isShown);
      const leftMs = until - performance.now();
      if (items.length > 0 || leftMs <= 0 || signal.aborted) return { items, next: this.#place(), reset: false };
      seen = this.#count;
      await woken(this.#waiting, leftMs, signal);
    }
  }

  #countEnd(record: RunRecord): void {
    const { kind, status } = record;
    const { count, seconds } = this.ended.get(`${kind} ${status}`) ?? { count: 0, seconds: 0 };
    this.ended.set(`${kind} ${status}`, { kind, status, count: count + 1, seconds: seconds + durationOf(record) / 1000 });
  }

  /** How many changes came before a place; undefined for a place that is unknown or too old. */
  #seen(place: string | undefined): number | undefined {
    const [own, count = ""] = place?.split(".") ?? [];
    if (own !== this.#own || !/^\d{1,15}$/.test(count)) return undefined;
    const seen = Number(count);
    return seen <= this.#count && seen >= this.#count - this.#events.length ? seen : undefined;
  }

  #place(): string {
    return `${this.#own}.${this.#count}`;
  }
}
