import { counted } from "../../core/plain-text.ts";
import type { Progress } from "../../run/progress.ts";
import { isAsking } from "../base/ask.ts";
import { visible } from "../base/terminal.ts";

/** So many jobs and waits are named; the others are counted. */
const MOST_JOBS = 8;
const MOST_WAITS = 3;
/** How often the seconds of a wait are counted on. */
const REDRAW_MS = 1_000;

/** A terminal as far as the live view needs it. */
interface Terminal {
  write(text: string): unknown;
  columns?: number;
}

/** Lines at the end of a terminal that are redrawn in place, until they are disposed of. */
interface LiveView extends Disposable {
  /** Shows this progress from now on. */
  update(progress: Progress): void;
  /** Removes the lines, writes, and shows them again below. Everything else must be written in this way. */
  above(write: () => void): void;
}

/** Shows on a terminal what a run is doing and waiting for. */
export function liveView(terminal: Terminal): LiveView {
  let progress: Progress | undefined;
  let shown = 0;
  const erase = () => {
    if (shown > 0) terminal.write(`\x1b[${shown}A\x1b[J`);
    shown = 0;
  };
  const draw = () => {
    if (isAsking()) return;
    erase();
    if (!progress) return;
    // A terminal that does not know its width says 0. A line that the terminal breaks in two could not be erased.
    const width = Math.max(1, (terminal.columns || 80) - 1);
    const lines = liveLines(progress, Date.now()).map((line) => line.slice(0, width));
    terminal.write(lines.map((line) => `${line}\n`).join(""));
    shown = lines.length;
  };
  const timer = setInterval(draw, REDRAW_MS).unref();
  return {
    update(now) {
      progress = now;
      draw();
    },
    above(write) {
      erase();
      write();
      draw();
    },
    [Symbol.dispose]() {
      clearInterval(timer);
      progress = undefined;
      erase();
    },
  };
}

/** What a run is doing, in lines for a terminal; `now` is in milliseconds since 1970. */
export function liveLines(progress: Progress, now: number): string[] {
  const { phase, done, total, rollouts, waiting, cancel } = progress;
  const jobs = rollouts.slice(0, MOST_JOBS).map(({ job, action, batch, batches, ...workers }) => {
    const place = batch === 0 ? action : `${action}, batch ${batch} of ${batches}`;
    const { done: ready, workers: all, running, failed } = workers;
    return `  ${job}: ${place}: ${ready} of ${counted(all, "worker")} done, ${running} running, ${failed} failed`;
  });
  const more = rollouts.length - jobs.length;
  const waits = waiting.slice(0, MOST_WAITS).map((wait) => describeWait(wait, now));
  if (waiting.length > waits.length) waits.push(`${waiting.length - waits.length} more`);
  return [
    `${phase}: ${done} of ${total} done`,
    ...(cancel ? [`  cancelling: ${cancel.confirmed} of ${cancel.total} confirmed`] : []),
    ...jobs,
    ...(more > 0 ? [`  and ${counted(more, "more job")}`] : []),
    ...(waits.length > 0 ? [`  waiting: ${waits.join(", ")}`] : []),
  ].map(visible);
}

function describeWait({ on, since, until }: Progress["waiting"][number], now: number): string {
  const seconds = (from: number, to: number) => `${Math.max(0, Math.round((to - from) / 1000))} s`;
  const limit = until === null ? "" : ` of ${seconds(Date.parse(since), Date.parse(until))}`;
  return `${on} ${seconds(Date.parse(since), now)}${limit}`;
}
