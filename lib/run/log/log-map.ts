import type { Layout } from "../../bucket/base/layout.ts";
import { boolean, described, type Infer, integer, list, nullable, object } from "../../core/shape.ts";
import { type OpenedLog, openIndexed } from "./log-index.ts";
import type { LineFilter } from "./log-lines.ts";
import { LogScan } from "./log-scan.ts";

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
  const first = errors === 0 ? undefined : index.firstError();
  return {
    buckets,
    lines,
    errors,
    matches: count("matches"),
    first_error: first === undefined ? null : await scan.startOf(first),
    done: log.record.status !== "running",
  };
}

async function countMatches(scan: LogScan, { lines }: OpenedLog, buckets: { matches: number }[]): Promise<void> {
  for (let block = 0; block < scan.blocks; block++)
    // The last part that begins at the line or before.
    for (const { line } of await scan.found(block, 1, lines + 1))
      (buckets[Math.ceil((line * PARTS) / lines) - 1] as { matches: number }).matches++;
}
