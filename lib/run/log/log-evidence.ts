import type { Layout } from "../../bucket/base/layout.ts";
import { isOfOps, type LinePlace } from "../../bucket/base/line-place.ts";
import { causeOf } from "../../bucket/catalog/problems.ts";
import { inOneLine } from "../../core/plain-text.ts";
import { described, type Infer, integer, isObject, list, nullable, object, oneOf, optional, string } from "../../core/shape.ts";
import { isClosing, reasonLine } from "../../core/trouble-lines.ts";
import { type OpenedLog, openIndexed } from "./log-index.ts";
import { MOST_LINE_BYTES } from "./log-lines.ts";
import { LogScan } from "./log-scan.ts";
import { LOG_LINE, type LogLine, shownLine } from "./log-view.ts";

const MOST_LINES = 20;
const MOST_ITEMS = 50;
const MOST_WORKERS = 20;

const FAILURE = object({
  job: string(),
  worker: described(string(), "The first of the workers"),
  workers: described(list(string()), "The first 20 workers where the same happened"),
  worker_count: integer({ min: 1 }),
  action: described(nullable(string()), "null where none was planned"),
  outcome: oneOf("failed", "unreachable"),
  reason: described(string(), "One line"),
  line: described(nullable(integer({ min: 1 })), "The line of the log that most likely tells the reason; null without one"),
});
type FailureItem = Infer<typeof FAILURE>;

/** The last lines of a job on a worker in a run, or all that failed in the run. */
export const EVIDENCE = object({
  lines: optional(described(list(LOG_LINE), "The last 20 lines of the job on the worker")),
  reason_line: optional(described(nullable(integer({ min: 1 })), "The number of the line that most likely tells the reason")),
  left_out: optional(described(integer({ min: 0 }), "How many closing lines of make were left out among them")),
  first_line: optional(described(nullable(integer({ min: 1 })), "The number of the first of the lines")),
  items: optional(described(list(FAILURE), "Without a job and a worker: what failed, the first 50 causes")),
  total: optional(described(integer({ min: 0 }), "How many causes there are")),
});
type Evidence = Partial<Infer<typeof EVIDENCE>>;

/**
 * The allocations that failed or could not be reached, by the result of a run; those of a job with the same action and
 * the same cause are one item. Throws `run_not_found`.
 */
export async function readFailures(layout: Layout, runId: string): Promise<Evidence> {
  await using log = await openIndexed(layout, runId);
  const groups = Map.groupBy(failuresIn(log.record.result), ({ job, worker, action, outcome, reason }) =>
    JSON.stringify([job, action, outcome, causeOf(reason.replaceAll(worker, ""))]),
  );
  const items: FailureItem[] = [];
  for (const group of [...groups.values()].slice(0, MOST_ITEMS)) {
    const [first] = group as [Failed];
    const { reason_line: line = null } = await evidenceIn(log, first);
    const workers = group.map(({ worker }) => worker);
    items.push({ ...first, workers: workers.slice(0, MOST_WORKERS), worker_count: workers.length, line });
  }
  return { items, total: groups.size };
}

type Failed = Pick<FailureItem, "job" | "worker" | "action" | "outcome" | "reason">;

/** The results of deploys, job control and health checks have jobs with allocations; a deploy has also stopped some. */
function failuresIn(result: unknown): Failed[] {
  const { jobs, reconciled, target = null } = isObject(result) ? result : {};
  const ofJobs = objectsIn(jobs).flatMap(({ job, allocations }) => objectsIn(allocations).map((one) => ({ job, ...one })));
  return [...ofJobs, ...objectsIn(reconciled)].flatMap((one: Record<string, unknown>) => {
    const { job, worker, action = target, outcome, error } = one;
    if (outcome !== "failed" && outcome !== "unreachable") return [];
    const reason = typeof error === "string" ? inOneLine(error) : "";
    return [{ job: String(job), worker: String(worker), action: typeof action === "string" ? action : null, outcome, reason }];
  });
}

function objectsIn(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/**
 * What a job's programs said last on a worker, by the recorded places; what ops said about them where they said nothing.
 * Throws `run_not_found`.
 */
export async function readEvidence(layout: Layout, runId: string, about: OnWorker): Promise<Evidence> {
  await using log = await openIndexed(layout, runId);
  return await evidenceIn(log, about);
}

interface OnWorker {
  job: string;
  worker: string;
}

async function evidenceIn(log: OpenedLog, about: OnWorker): Promise<Evidence> {
  const before = await restoreLine(log, about.job);
  let said = await lastLines(log, about, before, (place) => !isOfOps(place));
  if (said.length === 0) said = await lastLines(log, about, before, isOfOps);
  const telling = said.filter(({ text }) => !isClosing(text));
  const lines = (telling.length > 0 ? telling : said).slice(-MOST_LINES);
  const [first] = lines;
  const shown = first ? said.filter(({ line }) => line >= first.line) : [];
  return {
    lines,
    reason_line: reasonLine(lines)?.line ?? null,
    left_out: shown.length - lines.length,
    first_line: first?.line ?? null,
  };
}

/** The line with which a job began to be put back; the line behind the last one where that did not happen. */
async function restoreLine(log: OpenedLog, job: string): Promise<number> {
  const end = log.lines + 1;
  const isRestore = ({ stream }: LinePlace) => stream === "restore";
  if (!log.index.places.numbers((place) => place.job === job && isRestore(place))?.size) return end;
  const scan = new LogScan(log, { job, matchCase: false, errors: false }, isRestore);
  for (let block = 0; block < scan.blocks; block++) for (const { line } of await scan.found(block, 1, end)) return line;
  return end;
}

async function lastLines(log: OpenedLog, about: OnWorker, before: number, isWanted: (place: LinePlace) => boolean) {
  const scan = new LogScan(log, { ...about, matchCase: false, errors: false }, isWanted);
  let lines: LogLine[] = [];
  const isEnough = () => lines.filter(({ text }) => !isClosing(text)).length >= MOST_LINES;
  for (let block = scan.blockOf(before - 1); block >= 0 && scan.bytes < MOST_LINE_BYTES && !isEnough(); block--)
    lines = [...(await scan.lines(block, 1, before)).map(shownLine), ...lines];
  return lines;
}
