import { sleep } from "../../core/async.ts";
import { explain } from "../../core/errors.ts";
import type { LogChunk } from "../../run/activity.ts";
import type { RunParams, RunStatus } from "../../run/protocol.ts";
import { EXIT } from "../base/flags.ts";
import { diffColours, hasColours, toStderr, toStdout } from "../base/terminal.ts";

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
