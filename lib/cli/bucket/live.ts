import type { Progress } from "../../run/protocol.ts";
import { visible } from "../base/terminal.ts";

/** So many jobs and so many waits are named; of the others only how many there are. */
const MOST_JOBS = 8;
const MOST_WAITS = 3;
/** How often the seconds of what is waited for are counted on. */
const REDRAW_MS = 1_000;

/** A terminal as far as this needs it. */
interface Terminal {
  write(text: string): unknown;
  columns?: number;
}

/**
 * A few lines at the end of a terminal that tell what a run is doing and waiting for, redrawn in place. Everything else
 * that goes to the terminal meanwhile is written by `above`, so that no line is lost.
 */
export class LiveView implements Disposable {
  readonly #terminal: Terminal;
  readonly #timer: NodeJS.Timeout;
  #progress: Progress | undefined;
  #shown = 0;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    this.#timer = setInterval(() => this.#draw(), REDRAW_MS).unref();
  }

  /** Shows this from now on. */
  update(progress: Progress): void {
    this.#progress = progress;
    this.#draw();
  }

  /** Takes the lines away, writes, and shows them again below. */
  above(write: () => void): void {
    this.#erase();
    write();
    this.#draw();
  }

  /** Takes the lines away for good. */
  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#progress = undefined;
    this.#erase();
  }

  #draw(): void {
    this.#erase();
    if (!this.#progress) return;
    // A terminal that does not know its width says 0. A line that were broken in two could not be taken away again.
    const width = Math.max(1, (this.#terminal.columns || 80) - 1);
    const lines = liveLines(this.#progress, Date.now()).map((line) => line.slice(0, width));
    this.#terminal.write(lines.map((line) => `${line}\n`).join(""));
    this.#shown = lines.length;
  }

  #erase(): void {
    if (this.#shown > 0) this.#terminal.write(`\x1b[${this.#shown}A\x1b[J`);
    this.#shown = 0;
  }
}

/** What a run is doing, in lines for a terminal; `now` is in milliseconds since 1970. */
export function liveLines(progress: Progress, now: number): string[] {
  const { phase, done, total, rollouts, waiting, cancel } = progress;
  const jobs = rollouts.slice(0, MOST_JOBS).map(({ job, action, batch, batches, ...workers }) => {
    const place = batch === 0 ? action : `${action}, batch ${batch} of ${batches}`;
    const { done: ready, workers: all, running, failed } = workers;
    return `  ${job}: ${place}: ${ready} of ${all} workers done, ${running} running, ${failed} failed`;
  });
  const more = rollouts.length - jobs.length;
  const waits = waiting.slice(0, MOST_WAITS).map((wait) => describeWait(wait, now));
  if (waiting.length > waits.length) waits.push(`${waiting.length - waits.length} more`);
  return [
    `${phase}: ${done} of ${total} done`,
    ...(cancel ? [`  cancelling: ${cancel.confirmed} of ${cancel.total} confirmed`] : []),
    ...jobs,
    ...(more > 0 ? [`  and ${more} more jobs`] : []),
    ...(waits.length > 0 ? [`  waiting: ${waits.join(", ")}`] : []),
  ].map(visible);
}

function describeWait({ on, since, until }: Progress["waiting"][number], now: number): string {
  const seconds = (from: number, to: number) => `${Math.max(0, Math.round((to - from) / 1000))} s`;
  const limit = until === null ? "" : ` of ${seconds(Date.parse(since), Date.parse(until))}`;
  return `${on} ${seconds(Date.parse(since), now)}${limit}`;
}
