import type { FileHandle } from "node:fs/promises";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { bytesAsText, type LineFilter, openLog, WantedLines, wholeLines } from "./log-lines.ts";
import type { RunRecord } from "./record.ts";

/** What stands before a line of which nobody knows when it was written. */
const UNKNOWN = "- ";

/**
 * The lines of a run's Activity that are wanted, each as it is and whole, to be read once; `close` must follow. While the
 * run goes on these are the lines that are complete by now. With times each begins with the time at which it was written
 * or, by some 250 ms, after which: `2026-11-22T12:00:00.250Z ` or, where that is not known, `- `. Nothing but a piece
 * of the log, of 1 MiB or one line, is in memory. Throws `invalid_request` for a text that cannot be looked for.
 */
export async function openLogText(
  layout: Layout,
  { id, status }: RunRecord,
  filter: LineFilter,
  withTimes: boolean,
): Promise<{ read(): AsyncIterable<Uint8Array>; close(): Promise<void> }> {
  const wanted = new WantedLines(filter);
  const { activity, activityTimes } = runLayout(layout, id);
  await using opening = new AsyncDisposableStack();
  const log = opening.use(await openLog(activity));
  const size = (await log?.stat())?.size ?? 0;
  // After the size: what the log has by now, has its times, too.
  const times = withTimes ? opening.use(await openLog(activityTimes)) : undefined;
  const files = opening.move();
  return {
    async *read() {
      if (log) yield* textOf(wholeLines(log, 0, size, status !== "running"), wanted, times, withTimes);
    },
    close: () => files.disposeAsync(),
  };
}

async function* textOf(
  pieces: AsyncIterable<Buffer>,
  wanted: WantedLines,
  times: FileHandle | undefined,
  withTimes: boolean,
): AsyncGenerator<Uint8Array> {
  const entries = entriesOf(times);
  let [time, next, offset] = [withTimes ? UNKNOWN : "", await entries.next(), 0];
  for await (const piece of pieces) {
    const text = bytesAsText(piece);
    let found = "";
    for (const { start, end } of wanted.in(text)) {
      for (; !next.done && next.value.offset <= offset + start; next = await entries.next()) ({ time } = next.value);
      found += time + text.slice(start, end + 1);
    }
    offset += piece.length;
    // Also where it is empty: only between two pieces is noticed that the reader has left.
    yield Buffer.from(found, "latin1");
  }
}

/** The entries of activity.times; one that was cut when its run was killed is none. */
async function* entriesOf(times: FileHandle | undefined): AsyncGenerator<{ offset: number; time: string }> {
  if (!times) return;
  const { size } = await times.stat();
  for await (const piece of wholeLines(times, 0, size, false))
    for (const [, offset, ms] of bytesAsText(piece).matchAll(/^(\d{1,15}) (\d{1,15})$/gm))
      yield { offset: Number(offset), time: `${new Date(Number(ms)).toISOString()} ` };
}
