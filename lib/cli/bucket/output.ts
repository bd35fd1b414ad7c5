import { sleep } from "../../core/async.ts";
import { explain } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import type { LogChunk } from "../../run/activity.ts";
import type { Progress } from "../../run/progress.ts";
import type { RunParams, RunStatus } from "../../run/protocol.ts";
import { isAsking } from "../base/ask.ts";
import { EXIT } from "../base/flags.ts";
import { diffColours, hasColours, toStderr, toStdout, visible } from "../base/terminal.ts";

/** The exit code for the end of a run. */
export const EXIT_OF: Readonly<Record<RunStatus, number>> = {
  succeeded: EXIT.done,
  failed: EXIT.failed,
  cancelled: EXIT.cancelled,
  running: EXIT.failed,
};

/** Shows the result of a run on stdout once it has ended. */
export interface RunView {
  /** The text for a result, which is null where a run has none. May throw: the command then fails. */
  show(result: unknown): string | Promise<string>;
  /** Activity goes to stdout (`before`) or to stderr (`aside`); with `quiet` only its warnings and errors go to stderr. */
  meanwhile: "before" | "aside" | "quiet";
}

/**
 * Prints Activity: failures on stderr, where scripts look for them, and the rest on stdout unless the view says otherwise.
 * `isWhole` is for a log as a document: all of it goes to stdout.
 */
export function activityPrinter(
  view: RunView | undefined,
  kind: string,
  params: RunParams,
  isWhole = false,
): (text: string) => void {
  const hasDiffs = kind === "drift" || params.dry_run === true;
  const painted = hasDiffs && hasColours() ? diffColours : undefined;
  const { meanwhile = "before" } = view ?? {};
  return (text) => {
    if (meanwhile === "quiet" && !/^(error|warning): /.test(text)) return;
    const isAside = meanwhile !== "before" || (text.startsWith("error: ") && !isWhole);
    if (isAside) toStderr(text);
    else toStdout(text, painted);
  };
}

/** Shows the result of a run. Answers false, and says why on stderr, where the result cannot be shown. */
export async function showResult(view: RunView | undefined, result: unknown): Promise<boolean> {
  try {
    if (view) toStdout(await view.show(result));
    return true;
  } catch (error) {
    toStderr(`error: ${explain(error)}\n`);
    return false;
  }
}

/** What following a run needs of a piece of its Activity. */
export type LogPiece = Pick<LogChunk, "next" | "data" | "done">;

/** How long after nothing new a log is read again. */
const LOOK_AGAIN_MS = 200;
/** Among so many last lines the reason of a failure is looked for. */
const LAST_LINES = 50;

/** Text that comes in pieces, handed out in whole lines. */
export class Lines {
  readonly #output: (text: string) => void;
  readonly #last: string[] = [];
  #rest = "";

  constructor(output: (text: string) => void) {
    this.#output = output;
  }

  /** Adds a piece. */
  add(text: string): void {
    const all = this.#rest + text;
    const end = all.lastIndexOf("\n") + 1;
    this.#rest = all.slice(end);
    for (const [line] of all.slice(0, end).matchAll(/.*\n/g)) this.#hand(line);
  }

  /** Hands out what is left as a line. */
  end(): void {
    if (this.#rest !== "") this.#hand(`${this.#rest}\n`);
    this.#rest = "";
  }

  /** Adds the Activity of a run from a byte on until the run has ended; `next` answers the piece at a byte. */
  async follow(next: (after: number) => Promise<LogPiece>, from: number, signal: AbortSignal): Promise<void> {
    try {
      for (let [after, isDone] = [from, false]; !isDone; ) {
        const chunk = await next(after);
        this.add(chunk.data);
        ({ next: after, done: isDone } = chunk);
        if (!isDone && chunk.data === "") await sleep(LOOK_AGAIN_MS, signal);
      }
    } finally {
      this.end();
    }
  }

  /** Why a run failed, where none of the last lines has it: the process of a run that was killed has not told why. */
  untold({ status, error }: { status: RunStatus; error: string | null }): string | undefined {
    const isTold = !error || status !== "failed" || this.#last.some((line) => line.includes(error));
    return isTold ? undefined : error;
  }

  #hand(line: string): void {
    this.#last.push(line);
    if (this.#last.length > LAST_LINES) this.#last.shift();
    this.#output(line);
  }
}

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
