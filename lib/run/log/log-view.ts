import type { Layout } from "../../bucket/base/layout.ts";
import { writtenTo } from "../../bucket/base/line-place.ts";
import { Failure } from "../../core/errors.ts";
import { boolean, described, type Infer, integer, list, nullable, object, oneOf, string, withExample } from "../../core/shape.ts";
import { RUN_STATUS } from "../protocol.ts";
import { type OpenedLog, openIndexed } from "./log-index.ts";
import { type LineFilter, type LineStart, lineStartOf, MOST_LINE_BYTES, wrongStart } from "./log-lines.ts";
import { LogScan, type ScanFilter, type ScannedLine } from "./log-scan.ts";

/** Which lines of a log are meant, and how many of them; from the first line on where no field says where. */
export interface LinesQuery extends ScanFilter {
  /** The number of the first line to look at. */
  from?: number | undefined;
  /** `next` of an earlier answer. */
  after?: string | undefined;
  /** The number of a line: to look backwards from there. */
  before?: number | undefined;
  /** To look backwards from the end. */
  tail: boolean;
  limit: number;
}

const SHOWN_BYTES = 4_096;

/** A line of a run's Activity. */
export const LOG_LINE = object({
  line: described(integer({ min: 1 }), "Counted from 1"),
  offset: described(integer({ min: 0 }), "The byte at which the line begins"),
  at: described(nullable(string()), "When it was written, at most about 250 ms later; null where that is not known"),
  job: described(nullable(string()), "As it was recorded when the line was written; null without one"),
  worker: described(nullable(string()), "As it was recorded when the line was written; null without one"),
  stream: described(
    nullable(oneOf("stdout", "stderr", "ops")),
    "An output of a program on a worker, or `ops` for what ops tells; null where nothing was recorded",
  ),
  error: described(boolean(), "The line tells of an error"),
  text: described(string(), "Without the place that ops put before it; over 4 KiB it is cut and ends in …"),
  length: described(integer({ min: 0 }), "The bytes of the whole text"),
});
/** The value of {@link LOG_LINE}. */
export type LogLine = Infer<typeof LOG_LINE>;

/** Lines of a run's Activity, with what is known of each. */
export const LOG_LINES = object({
  lines: list(LOG_LINE),
  next: described(withExample(string(), "4711.42"), "To go on, as `after`: the byte and the number of the line that follows"),
  scanned_to: described(
    integer({ min: 0 }),
    "The byte up to which lines were looked at, 32 MiB at most; backwards the byte at which the looking ended",
  ),
  scanned_line: described(integer({ min: 1 }), "The number of the line that begins there: to go on backwards, as `before`"),
  total: described(integer({ min: 0 }), "The lines so far"),
  size_bytes: described(integer({ min: 0 }), "The bytes of these lines"),
  status: RUN_STATUS,
  done: described(boolean(), "The run has ended and `next` is the end"),
});
/** The value of {@link LOG_LINES}. */
export type LogLines = Infer<typeof LOG_LINES>;

/**
 * Lines of the Activity of a run, which may still grow: a line counts once it is complete or the run has ended. One call
 * looks at up to 32 MiB. Throws `run_not_found`, and `invalid_request` for a wrong text or place.
 */
export async function readLines(layout: Layout, runId: string, query: LinesQuery): Promise<LogLines> {
  const { from, after, before, tail } = query;
  if ([from, after, before, tail || undefined].filter((one) => one !== undefined).length > 1)
    throw new Failure("invalid_request", "expected only one of from, after, before and tail");
  const start = lineStartOf(after);
  await using log = await openIndexed(layout, runId);
  if (start.offset > log.size) throw wrongStart();
  const scan = new LogScan(log, query);
  const isBackwards = tail || before !== undefined;
  const { found, next, scanned } = isBackwards
    ? await linesBefore(scan, Math.min(before ?? Number.POSITIVE_INFINITY, log.lines + 1), query.limit)
    : await linesFrom(scan, Math.min(from ?? start.line, log.lines + 1), query.limit);
  const { status } = log.record;
  return {
    lines: found.map(shownLine),
    next: `${next.offset}.${next.line}`,
    scanned_to: scanned.offset,
    scanned_line: scanned.line,
    total: log.lines,
    size_bytes: log.size,
    status,
    done: status !== "running" && next.offset === log.size,
  };
}

async function linesFrom(scan: LogScan, from: number, limit: number) {
  const found: ScannedLine[] = [];
  let next = await scan.startOf(from);
  for (let block = scan.blockOf(from); block < scan.blocks && scan.bytes < MOST_LINE_BYTES; block++) {
    const lines = await scan.lines(block, from, Number.POSITIVE_INFINITY);
    found.push(...lines.slice(0, limit - found.length));
    if (found.length === limit) {
      next = await scan.startOf((found.at(-1) as ScannedLine).line + 1);
      break;
    }
    next = scan.begin(block + 1);
  }
  return { found, next, scanned: next };
}

async function linesBefore(scan: LogScan, before: number, limit: number) {
  let found: ScannedLine[] = [];
  const next = await scan.startOf(before);
  let scanned: LineStart = next;
  for (let block = scan.blockOf(before - 1); block >= 0 && scan.bytes < MOST_LINE_BYTES; block--) {
    const lines = await scan.lines(block, 1, before);
    found = [...lines.slice(Math.max(0, lines.length - (limit - found.length))), ...found];
    const isFull = found.length === limit;
    scanned = isFull ? (found[0] as ScannedLine) : scan.begin(block);
    if (isFull) break;
  }
  return { found, next, scanned };
}

/** A line as it is answered. */
export function shownLine({ line, offset, bytes, place, from, at, error }: ScannedLine): LogLine {
  const text = bytes.subarray(from);
  const shown = text.subarray(0, SHOWN_BYTES).toString();
  return {
    line,
    offset,
    at: at === undefined ? null : new Date(at).toISOString(),
    job: place?.job ?? null,
    worker: place?.worker ?? null,
    stream: place ? writtenTo(place) : null,
    error,
    text: text.length > SHOWN_BYTES ? `${shown.replace(/\ufffd+$/, "")}…` : shown,
    length: text.length,
  };
}

const PARTS = 160;

/** Where in a log the errors and the matches are. */
export const LOG_MAP = object({
  buckets: described(
    list(object({ errors: integer({ min: 0 }), matches: integer({ min: 0 }) })),
    "160 parts of the log, of as many lines each as can be: how many lines of each tell of errors, and how many match",
  ),
  lines: described(integer({ min: 0 }), "The lines so far"),
  errors: described(integer({ min: 0 }), "The lines that tell of errors, of all jobs and workers"),
  matches: described(integer({ min: 0 }), "The lines that match all that was asked for; 0 where nothing was"),
  first_error: described(nullable(object({ line: integer({ min: 1 }), offset: integer({ min: 0 }) })), "null without one"),
  done: described(boolean(), "The run has ended"),
});

/**
 * The map of a run's Activity, which may still grow. Lines that are known are not looked at again for errors. Throws
 * `run_not_found`, and `invalid_request` for a text that cannot be searched for.
 */
export async function readMap(layout: Layout, runId: string, filter: LineFilter): Promise<Infer<typeof LOG_MAP>> {
  await using log = await openIndexed(layout, runId);
  const { index, lines } = log;
  const scan = new LogScan(log, { ...filter, errors: false });
  const beginOf = (part: number) => 1 + Math.floor((part * lines) / PARTS);
  const buckets = Array.from({ length: PARTS }, (_, part) => ({
    errors: index.errorsIn(beginOf(part), beginOf(part + 1)),
    matches: 0,
  }));
  if (filter.text !== undefined || filter.job !== undefined || filter.worker !== undefined)
    await countMatches(scan, log, buckets);
  const count = (of: "errors" | "matches") => buckets.reduce((sum, bucket) => sum + bucket[of], 0);
  const errors = count("errors");
  return {
    buckets,
    lines,
    errors,
    matches: count("matches"),
    first_error: errors === 0 ? null : await scan.startOf(index.firstError()),
    done: log.record.status !== "running",
  };
}

async function countMatches(scan: LogScan, { lines }: OpenedLog, buckets: { matches: number }[]): Promise<void> {
  for (let block = 0; block < scan.blocks; block++)
    // The last part that begins at the line or before.
    for (const { line } of await scan.found(block, 1, lines + 1))
      (buckets[Math.ceil((line * PARTS) / lines) - 1] as { matches: number }).matches++;
}
