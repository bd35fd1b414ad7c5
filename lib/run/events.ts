import { randomBytes } from "node:crypto";
import { woken } from "../core/async.ts";
import type { RunStatus } from "./protocol.ts";
import type { RunRecord } from "./record.ts";

/** What can happen to a run: it begins, a cancel is accepted, it has ended. */
export const RUN_CHANGES = ["started", "cancelling", "ended"] as const;

/** A change of a run that can be seen by now. */
export interface RunEvent {
  at: string;
  change: (typeof RUN_CHANGES)[number];
  bucket_id: string;
  run_id: string;
  kind: RunRecord["kind"];
  status: RunStatus;
}

/** The changes after a place, and the place behind them. */
export interface RunEvents {
  items: RunEvent[];
  next: string;
  /** The place is not known, or too long ago: changes may have been missed. */
  reset: boolean;
}

const MOST_EVENTS = 1_000;

/**
 * The latest changes of the runs of this server, over all buckets. A place in them is an opaque text that is good until
 * the server ends; whoever waits is woken by the change itself.
 */
export class EventLog {
  /** Makes places of another server unknown. */
  readonly #own = randomBytes(6).toString("hex");
  readonly #events: RunEvent[] = [];
  readonly #waiting = new Set<() => void>();
  #count = 0;

  /** Notes a change, once it can be seen. */
  add(change: RunEvent["change"], { bucket_id, id, kind, status }: RunRecord): void {
    this.#events.push({ at: new Date().toISOString(), change, bucket_id, run_id: id, kind, status });
    if (this.#events.length > MOST_EVENTS) this.#events.shift();
    this.#count++;
    for (const wake of [...this.#waiting]) wake();
  }

  /**
   * The changes after a place; waits up to `timeoutMs` while there is none. Without a place, and for one that is not
   * known, the answer comes at once and has the present one.
   */
  async after(place: string | undefined, timeoutMs: number, signal: AbortSignal): Promise<RunEvents> {
    const seen = this.#seen(place);
    if (seen === undefined) return { items: [], next: this.#place(), reset: place !== undefined };
    if (seen === this.#count && timeoutMs > 0) await woken(this.#waiting, timeoutMs, signal);
    const first = this.#count - this.#events.length;
    if (seen < first) return { items: [], next: this.#place(), reset: true };
    return { items: this.#events.slice(seen - first), next: this.#place(), reset: false };
  }

  /** How many changes came before a place; undefined where that is not known, or too long ago. */
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
