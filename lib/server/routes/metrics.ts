import { monitorEventLoopDelay } from "node:perf_hooks";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { programRelease } from "../../core/self.ts";
import { raw } from "../../http/message.ts";
import { type Context, route, type Services } from "../context.ts";
import type { BucketNumbers } from "../reads.ts";
import { idsInReach, unlessGone } from "./buckets.ts";

/** The kinds of metrics of Prometheus that are used here. */
type MetricKind = "counter" | "gauge" | "summary";
type Labels = Readonly<Record<string, string>>;
/** A line of a metric: the value, its labels, and for a summary the end of its name. */
type Sample = readonly [value: number, labels?: Labels, suffix?: string];

const TYPE = "text/plain; version=0.0.4; charset=utf-8";
const NANOSECONDS = 1e9;

/** The delay of this server's event loop since the last answer with metrics. */
let delays: ReturnType<typeof monitorEventLoopDelay> | undefined;

/** What the server tells of itself and its buckets to Prometheus. */
export const METRIC_ROUTES = [
  route("GET /metrics", "read", {
    summary: "Show the metrics of the server and of its buckets, for Prometheus",
    description:
      "Text format 0.0.4. Counters begin with the server. A bucket that cannot be read has only `ops_bucket_readable`, " +
      "which is 0, and `ops_starts_waiting`. A token that is limited to some buckets gets the metrics of those alone.",
    answer: { status: 200, description: "The metrics", type: "text/plain" },
    async handle({ request }, context) {
      const ofServer = context.identity.buckets ? [] : serverMetrics(context);
      const lines = [...ofServer, ...(await bucketMetrics(context, request.signal))];
      return raw(TYPE, `${lines.join("\n")}\n`);
    },
  }),
];

function serverMetrics({ supervisor, load }: Services): string[] {
  const { connections, requests, waiting } = load();
  const { rss } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  const ended = [...supervisor.events.ended.values()];
  const { active, queued } = supervisor.load();
  const loop = loopDelays();
  return [
    ...metric("ops_info", "gauge", "The version of the server", [[1, { version: programRelease().version }]]),
    ...metric("ops_runs_active", "gauge", "Runs that are at work or wait for a slot", [[active]]),
    ...metric("ops_runs_queued", "gauge", "Runs that wait for a slot", [[queued]]),
    ...metric(
      "ops_runs_total",
      "counter",
      "Runs that have ended",
      ended.map(({ kind, status, count }) => [count, { kind, status }]),
    ),
    ...metric(
      "ops_run_duration_seconds",
      "summary",
      "How long the runs took that have ended",
      ended.flatMap(({ kind, status, count, seconds }): Sample[] => [
        [seconds, { kind, status }, "_sum"],
        [count, { kind, status }, "_count"],
      ]),
    ),
    ...metric("ops_http_connections", "gauge", "Open connections", [[connections]]),
    ...metric("ops_http_requests_open", "gauge", "Requests that are being answered", [[requests]]),
    ...metric("ops_http_long_polls", "gauge", "Those of them that wait for something to happen", [[waiting]]),
    ...metric("process_resident_memory_bytes", "gauge", "Resident memory of the server", [[rss]]),
    ...metric("process_cpu_seconds_total", "counter", "CPU time of the server", [[(user + system) / 1e6]]),
    ...metric("process_start_time_seconds", "gauge", "When the server started", [[performance.timeOrigin / 1000]]),
    ...metric("ops_event_loop_delay_seconds", "gauge", "The delay of the server's event loop since the last scrape", [
      [loop.mean, { of: "mean" }],
      [loop.p99, { of: "p99" }],
      [loop.max, { of: "max" }],
    ]),
  ];
}

function loopDelays(): { mean: number; p99: number; max: number } {
  const known = delays;
  delays ??= monitorEventLoopDelay({ resolution: 20 });
  delays.enable();
  if (!known || known.count === 0) return { mean: 0, p99: 0, max: 0 };
  const { mean, max } = known;
  const found = { mean: mean / NANOSECONDS, p99: known.percentile(99) / NANOSECONDS, max: max / NANOSECONDS };
  known.reset();
  return found;
}

interface BucketRow {
  labels: Labels;
  queue: number;
  /** Undefined where the bucket cannot be read. */
  found: BucketNumbers | undefined;
}

type Told = (found: BucketNumbers) => readonly Sample[];
const counts = (label: string, all: Readonly<Record<string, number>>) =>
  Object.entries(all).map(([name, count]): Sample => [count, { [label]: name }]);
const time = (text: string | null): Sample[] => (text === null ? [] : [[Date.parse(text) / 1000]]);

/** What is told of a bucket that can be read. */
const OF_BUCKET: readonly (readonly [name: string, help: string, told: Told])[] = [
  ["ops_bucket_runs_active", "Whether a run is active in the bucket", ({ is_active }) => [[is_active ? 1 : 0]]],
  ["ops_allocations", "Allocations by state", ({ states }) => counts("state", states)],
  ["ops_allocations_in_trouble", "Allocations by the outcome of the last action", ({ outcomes }) => counts("outcome", outcomes)],
  [
    "ops_drifted_allocations",
    "Allocations whose files the last drift run of all jobs and workers found changed, and nothing has put right since",
    ({ drifted }) => (drifted === null ? [] : [[drifted]]),
  ],
  [
    "ops_last_drift_timestamp_seconds",
    "When the last drift run of all jobs and workers began",
    ({ last_drift }) => time(last_drift),
  ],
  [
    "ops_last_deploy_success_timestamp_seconds",
    "When the last deploy that succeeded has ended",
    ({ last_deploy }) => time(last_deploy),
  ],
  [
    "ops_cert_not_after_seconds",
    "When a certificate ends",
    ({ certs }) => certs.map(({ not_after, ...labels }): Sample => [Date.parse(not_after) / 1000, labels]),
  ],
];

async function bucketMetrics(context: Context, signal: AbortSignal): Promise<string[]> {
  const rows: BucketRow[] = [];
  // One after the other: a scrape must not take the read thread from people.
  for (const id of await idsInReach(context)) {
    throwIfCancelled(signal);
    const row = await bucketRow(context, id);
    if (row) rows.push(row);
  }
  const all = (samples: (row: BucketRow) => readonly Sample[]) =>
    rows.flatMap((row) => samples(row).map(([value, labels]): Sample => [value, { ...row.labels, ...labels }]));
  const readable = all(({ found }) => [[found ? 1 : 0]]);
  const waiting = all(({ queue }) => [[queue]]);
  return [
    ...metric("ops_bucket_readable", "gauge", "Whether the bucket can be read", readable),
    ...metric("ops_starts_waiting", "gauge", "Starts that wait in line for the bucket", waiting),
    ...OF_BUCKET.flatMap(([name, help, told]) =>
      metric(
        name,
        "gauge",
        help,
        all(({ found }) => (found ? told(found) : [])),
      ),
    ),
  ];
}

/** The numbers of a bucket; undefined where the bucket was deleted meanwhile. */
async function bucketRow(services: Services, id: string): Promise<BucketRow | undefined> {
  const bucket = unlessGone(services, id);
  if (!bucket) return undefined;
  const found = await services.beside.ask("numbers", bucket.layout, undefined).catch((error: unknown) => {
    if (error instanceof Failure) return undefined;
    throw error;
  });
  const numbers = found && (JSON.parse(Buffer.from(found).toString()) as BucketNumbers);
  const labels = { bucket_id: id, project: bucket.project, bucket: bucket.name };
  return { labels, queue: services.lines.waiting(id).length, found: numbers };
}

function metric(name: string, kind: MetricKind, help: string, samples: readonly Sample[]): string[] {
  if (samples.length === 0) return [];
  const lines = samples.map(([value, labels = {}, suffix = ""]) => {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
    return `${name}${suffix}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${value}`;
  });
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`, ...lines];
}

function escaped(text: string): string {
  return text.replace(/[\\"]/g, "\\$&").replaceAll("\n", "\\n");
}
