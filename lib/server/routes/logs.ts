import { type Layout, runLayout } from "../../bucket/base/layout.ts";
import { Failure } from "../../core/errors.ts";
import { boolean, described, type Infer, integer, oneOf, optional, string, withDefault, withExample } from "../../core/shape.ts";
import { bytesDownload, type Download, downloadAnswer, fileDownload } from "../../http/download.ts";
import { type Answer, json, readyJson } from "../../http/message.ts";
import { follow, readActivity } from "../../run/activity.ts";
import { type LineFilter, openLog, openLogText } from "../../run/log/log-lines.ts";
import type { LinesQuery, LogLines } from "../../run/log/log-view.ts";
import type { ReadThread } from "../beside.ts";
import { bucketRoute } from "../context.ts";
import { LINES_TYPE } from "../log-readings.ts";
import { NAMES, namesOfList, READ_FAILURES } from "./catalog.ts";
import { findRun, runIdOf } from "./runs.ts";
import { component, pollMs, TIMEOUT } from "./shapes.ts";

/** Names of jobs and workers have no spaces. */
const PLACE = { pattern: /\S+/, means: "a name", max: 253 };

/** Which lines are meant. */
const LINES = {
  q: optional(described(string({ min: 1, max: 200 }), "The text: at most 200 bytes, on one line")),
  case: withDefault(described(boolean(), "Letters of the text must have the same case"), false),
  job: optional(withExample(described(string(PLACE), "Only lines about this job"), "web")),
  worker: optional(withExample(described(string(PLACE), "Only lines from or about this worker"), "10.0.0.7")),
  stream: optional(
    described(
      oneOf("stdout", "stderr", "ops"),
      "Only lines that programs wrote to stdout or to stderr, or only lines of ops itself",
    ),
  ),
};

/** The values that lines may have in a field. */
const VALUES = (what: string) => optional(described(NAMES, `Only lines ${what}, with commas between them`));

/** The logs of runs, while they run and afterwards. */
export const LOG_ROUTES = [
  bucketRoute("GET /logs", "read", {
    summary: "Read the structured lines that runs and their commands have logged",
    description:
      "As they were written, `log_format` of ops.conf, in the order of time. A run is named by the beginning or the end of " +
      "its id; of exactly one run the lines come from its own folder. The length is not known in advance: an answer that is " +
      "cut ends without its last chunk.",
    query: {
      run: VALUES("of these runs"),
      worker: VALUES("about these workers, - for those about no worker"),
      job: VALUES("about these jobs"),
      phase: VALUES("of these phases"),
      event: VALUES("with these events"),
      tail: optional(described(integer({ min: 0, max: 1_000_000 }), "Only so many of the last lines")),
    },
    answer: {
      status: 200,
      description: "The lines",
      type: LINES_TYPE,
      example: "ts=2026-05-04T12:00:00.250Z level=info msg=begin\n",
    },
    failures: ["run_not_found"],
    async handle({ query: { tail, ...fields }, request, bucket: { id, layout } }, { logReadings }) {
      const lists = Object.entries(fields).map(([name, text]) => [name, namesOfList(text)] as const);
      const filter = Object.fromEntries(lists.filter(([, names]) => names !== undefined));
      const task = { name: "run_logs", bucketDir: layout.root, bucketId: id, input: { filter, tail } } as const;
      return await logReadings.answer(task, request);
    },
  }),
  bucketRoute("GET /jobs/{job}/logs", "read", {
    summary: "Read what a job logs on its workers",
    description:
      "Runs `make logs` where the Makefile of the job has that target, else reads the files in its `logs/`; takes no lock. " +
      "The first line is `asked: ` and the workers. `worker | text` is a line, `worker ! text` one of stderr, secrets masked; " +
      "`error: ` and a sentence tells of a worker that cannot be read, and the others go on. `alive:` comes every 30 s. The " +
      "last line is `end: 0`, or `end: 1` after an error: an answer without it was cut. With `follow` it lasts an hour, else " +
      "a minute at most.",
    query: {
      worker: optional(described(NAMES, "Only these workers, with commas between them (default: all that are not disabled)")),
      tail: withDefault(described(integer({ min: 0, max: 1_000_000 }), "How many lines of each log"), 100),
      follow: withDefault(described(boolean(), "Go on with new lines"), false),
    },
    answer: {
      status: 200,
      description: "The lines",
      type: LINES_TYPE,
      example: "asked: 10.0.0.7 10.0.0.8\n10.0.0.7 | started\nerror: web on 10.0.0.8: timed out\nend: 1\n",
    },
    failures: [...READ_FAILURES, "not_found", "unknown_name"],
    async handle({ params: { job }, query, request, bucket: { id, layout } }, { logReadings }) {
      const input = { job, workers: namesOfList(query.worker), tail: query.tail, follow: query.follow };
      return await logReadings.answer({ name: "job_logs", bucketDir: layout.root, bucketId: id, input }, request);
    },
  }),
  bucketRoute("GET /doctor", "read", {
    summary: "Examine the server's host, the bucket and its workers",
    description:
      "Takes no lock, and 10 minutes at most for all workers. Each line is a finding as JSON: `grade` (`ok`, `warning` or " +
      "`problem`), `where`, `check`, `message` and `advice`, which may be null.",
    answer: {
      status: 200,
      description: "The findings",
      type: LINES_TYPE,
      example: '{"grade":"ok","where":"host","check":"node","message":"Node 24.21.0","advice":null}\n',
    },
    handle: async ({ request, bucket: { id, layout } }, { logReadings }) =>
      logReadings.answer({ name: "doctor", bucketDir: layout.root, bucketId: id, input: null }, request),
  }),
  bucketRoute("GET /runs/{run_id}/logs", "read", {
    summary: "Follow the Activity of a run",
    description:
      "Answers as soon as there is text after `after` or the run has ended; otherwise it waits. " +
      "Ask again with `next` as `after` until `done`.",
    query: {
      after: withDefault(described(integer({ min: 0 }), "Byte offset: the end of the text that was read so far"), 0),
      timeout: TIMEOUT,
    },
    answer: { status: 200, description: "The next text", shape: component("LogChunk") },
    failures: ["run_not_found"],
    async handle({ params, query, request, bucket: { layout } }) {
      const id = runIdOf(params);
      const { after, timeout } = query;
      request.longPoll();
      const chunk = await readActivity(layout, id, { after, timeoutMs: pollMs(timeout), signal: request.signal });
      return json(200, chunk);
    },
  }),
  bucketRoute("GET /runs/{run_id}/logs/lines", "read", {
    summary: "Read lines of the Activity of a run",
    description:
      "Lines with their numbers, times and places, also during the run: from a line on, before a line, or the last ones. " +
      "Job, worker and stream were recorded when the line was written. With filters there are the lines that match all of " +
      "them; one call looks at 32 MiB at most. `after` waits for a line while nothing is new and the run goes on.",
    query: {
      from: optional(described(integer({ min: 1 }), "The number of the first line to look at; 1 where nothing says where")),
      after: optional(described(string({ min: 1, max: 40 }), "`next` of the answer before")),
      before: optional(described(integer({ min: 1 }), "A line number: the last lines before that line")),
      tail: withDefault(described(boolean(), "The last lines"), false),
      limit: withDefault(described(integer({ min: 1, max: 1_000 }), "How many lines at most"), 200),
      ...LINES,
      errors: withDefault(described(boolean(), "Only lines that tell of errors"), false),
      timeout: TIMEOUT,
    },
    answer: { status: 200, description: "The lines, in their order", shape: component("LogLines") },
    failures: ["run_not_found"],
    async handle({ params, query: { timeout, ...query }, request, bucket: { layout } }, { beside }) {
      const order = { id: runIdOf(params), query: { ...query, ...lineFilter(query) } };
      if (query.after === undefined) return await beside.answer("lines", layout, order);
      request.longPoll();
      return await nextLines(beside, { layout, ...order }, { timeoutMs: pollMs(timeout), signal: request.signal });
    },
  }),
  bucketRoute("GET /runs/{run_id}/logs/map", "read", {
    summary: "See where in the Activity of a run the errors and the matches are",
    description:
      "Counts lines in 160 parts of the log, also during the run. Errors are counted for the whole log; matches are the " +
      "lines that match all that is asked for.",
    query: LINES,
    answer: { status: 200, description: "The parts, in their order", shape: component("LogMap") },
    failures: ["run_not_found"],
    handle: async ({ params, query, bucket: { layout } }, { beside }) =>
      beside.answer("logMap", layout, { id: runIdOf(params), filter: lineFilter(query) }),
  }),
  bucketRoute("GET /runs/{run_id}/evidence", "read", {
    summary: "Read why allocations failed in a run",
    description:
      "With a job and a worker the last 20 lines of the job's programs there, before the job was put back, without the " +
      "closing lines of make, and which of them most likely tells the reason; what ops said where the programs said " +
      "nothing. Without, the allocations of the run's result that failed or could not be reached, one item for equal reasons.",
    query: {
      job: optional(withExample(described(string(PLACE), "The job; only together with the worker"), "web")),
      worker: optional(withExample(described(string(PLACE), "The worker; only together with the job"), "10.0.0.7")),
    },
    answer: { status: 200, description: "The lines, or the failed allocations", shape: component("Evidence") },
    failures: ["run_not_found"],
    async handle({ params, query: { job, worker }, bucket: { layout } }, { beside }) {
      if ((job === undefined) !== (worker === undefined))
        throw new Failure("invalid_request", "expected both a job and a worker, or neither");
      return await beside.answer("evidence", layout, { id: runIdOf(params), job, worker });
    },
  }),
  bucketRoute("GET /runs/{run_id}/logs/search", "read", {
    summary: "Search the Activity of a run",
    description:
      "Finds lines with a literal text, of a job, of a worker, or with all of these, also during the run. One " +
      "call looks at 32 MiB at most: go on with `next` as `after` until `done`, or, during the run, until nothing " +
      "new is found.",
    query: {
      ...LINES,
      after: optional(
        described(
          string({ min: 1, max: 40 }),
          "`next` of the answer before: `<offset>.<line>`, the byte at which a line begins and its number; or `0`",
        ),
      ),
      until: optional(described(integer({ min: 0 }), "Byte offset: only lines that end before it")),
      limit: withDefault(described(integer({ min: 1, max: 500 }), "How many lines at most"), 50),
    },
    answer: { status: 200, description: "The lines that were found", shape: component("LogMatches") },
    failures: ["run_not_found"],
    handle: async ({ params, query, bucket: { layout } }, { beside }) =>
      beside.answer("search", layout, { id: runIdOf(params), query: { ...query, ...lineFilter(query) } }),
  }),
  bucketRoute("GET /runs/{run_id}/logs/text", "read", {
    summary: "Download lines of the Activity of a run",
    description:
      "All lines, or those that `logs/search` would find, each whole. During the run these are the " +
      "lines that are complete. The length is not known in advance: an answer that is cut ends without its last chunk.",
    query: {
      ...LINES,
      times: withDefault(
        described(boolean(), "Each line begins with the time when it was written, at most about 250 ms later, or with `- `"),
        false,
      ),
    },
    answer: {
      status: 200,
      description: "The lines, as an attachment",
      type: LINES_TYPE,
      example: "2026-05-04T12:00:00.250Z web@10.0.0.7 | started\n- web@10.0.0.7 ! without a time\n",
    },
    failures: ["run_not_found"],
    async handle({ params, query, bucket: { layout } }) {
      const record = findRun(layout, params);
      const name = `${record.kind}-${record.id}.log`;
      return {
        status: 200,
        headers: { "Content-Type": LINES_TYPE, "Content-Disposition": `attachment; filename="${name}"` },
        body: await openLogText(layout, record, lineFilter(query), query.times),
      };
    },
  }),
  bucketRoute("GET /runs/{run_id}/activity.log", "read", {
    summary: "Read the Activity of a run as it is",
    description: "Has an ETag and takes ranges. While the run goes on it grows, and its version changes.",
    answer: { status: 200, description: "Its bytes", type: LINES_TYPE, ranges: true },
    failures: ["run_not_found"],
    async handle({ params, request, bucket: { layout } }) {
      const { activity } = runLayout(layout, findRun(layout, params).id);
      return downloadAnswer(request, await logDownload(activity));
    },
  }),
  bucketRoute("GET /runs/{run_id}/activity.times", "read", {
    summary: "Read when the Activity of a run was written",
    description:
      "Lines `<byte offset> <unix ms>`: output from that offset on was written at that time or " +
      "later. A line precedes output that comes 250 ms or more after the last line. Empty for a run without times; " +
      "a last line without a newline does not count. Has an ETag and takes ranges, and grows like the log.",
    answer: {
      status: 200,
      description: "Its bytes",
      type: LINES_TYPE,
      ranges: true,
      example: "0 1790000000000\n4711 1790000000250\n",
    },
    failures: ["run_not_found"],
    async handle({ params, request, bucket: { layout } }) {
      const { activityTimes } = runLayout(layout, findRun(layout, params).id);
      return downloadAnswer(request, await logDownload(activityTimes));
    },
  }),
];

/** An answer of fewer bytes may be one without lines. */
const SHORT_BYTES = 1_000;

/** Lines behind a place. Waits for them; a filter may pass over lines meanwhile. */
async function nextLines(
  beside: ReadThread,
  { layout, id, query }: { layout: Layout; id: string; query: LinesQuery },
  patience: { timeoutMs: number; signal: AbortSignal },
): Promise<Answer> {
  let { after } = query;
  const ask = async (order: LinesQuery) => {
    const bytes = await beside.ask("lines", layout, { id, query: order });
    return { bytes, short: bytes.length < SHORT_BYTES ? (JSON.parse(Buffer.from(bytes).toString()) as LogLines) : undefined };
  };
  const { bytes } = await follow(layout, id, patience, {
    async read(share) {
      const order = { ...query, after };
      const found = await share(`lines ${JSON.stringify(order)}`, () => ask(order));
      after = found.short?.next ?? after;
      return found;
    },
    isNews: ({ short }) => !short || short.lines.length > 0 || short.done || short.scanned_to < short.size_bytes,
  });
  return readyJson(bytes);
}

/** The lines that a query means. */
function lineFilter(query: { [K in keyof typeof LINES]: Infer<(typeof LINES)[K]> }): LineFilter {
  const { q: text, case: matchCase, job, worker, stream } = query;
  return { text, matchCase, job, worker, stream };
}

/** A file of a run for download; empty where it is not there, as for a run that was only recorded yet. */
async function logDownload(file: string): Promise<Download> {
  const handle = await openLog(file);
  return handle ? fileDownload(LINES_TYPE, handle) : bytesDownload(LINES_TYPE, Buffer.alloc(0), "empty");
}
