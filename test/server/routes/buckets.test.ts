import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { type TestContext, test } from "node:test";
import type { Identity } from "../../../lib/auth/guard.ts";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { Failure } from "../../../lib/core/errors.ts";
import type { Answer, HttpRequest } from "../../../lib/http/message.ts";
import type { Context, ServerRoute, Services } from "../../../lib/server/context.ts";
import { BUCKET_ROUTES, idsInReach, unlessGone } from "../../../lib/server/routes/buckets.ts";
import { METRIC_ROUTES } from "../../../lib/server/routes/metrics.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const ID = (digit: number) => `0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e7${digit}`;
const [LIST, GLANCES, , SHOW, CHANGE] = BUCKET_ROUTES as [ServerRoute, ServerRoute, ServerRoute, ServerRoute, ServerRoute];
const [METRICS] = METRIC_ROUTES as [ServerRoute];
const RUN = { id: "r", kind: "build", status: "failed", created_at: "2026-01-01", finished_at: null, more: 1 };

/** Buckets 1 to 3 below a root, and services that answer what `told` says. */
async function setUp(t: TestContext, labels: { project: string; name: string } = { project: "shop", name: "live" }) {
  const root = temporaryFolder(t);
  for (const digit of [1, 2, 3]) await createBucket(root, { id: ID(digit), ...labels }, async () => {});
  const told = {
    database: { initialized: true, schema_version: 9, failed_allocations: 2 } as object | Error,
    beside: {} as object | Error,
    newest: undefined as object | undefined,
    approvals: 0,
  };
  const given = <T extends object>(value: T | Error): T => {
    if (value instanceof Error) throw value;
    return value;
  };
  const context = {
    root,
    labels: "bucket.json",
    identity: { name: "ada", role: "admin" } as Identity,
    readers: { read: async () => given(told.database) },
    beside: { ask: async () => Buffer.from(JSON.stringify(given(told.beside))) },
    runList: { newest: async () => told.newest },
    supervisor: {
      activeRun: (id: string) => (id === ID(1) ? "r" : null),
      load: () => ({ active: 4, queued: 3 }),
      events: { ended: new Map() },
    },
    lines: { waiting: (id: string) => (id === ID(2) ? [1, 2] : []) },
    access: {
      approvalsOf: () => told.approvals,
      async setApprovals(_: string, count: number) {
        told.approvals = count;
      },
    },
    load: () => ({ connections: 7, requests: 6, waiting: 5 }),
  };
  const ask = async (route: ServerRoute, call: object = {}, more: object = {}) => {
    const request = { id: "r", signal: new AbortController().signal } as HttpRequest;
    const handle = route.handle as (call: object, context: Context) => Promise<Answer>;
    const { status, body } = await handle({ request, params: {}, query: {}, body: {}, ...call }, {
      ...context,
      ...more,
    } as never);
    return { status, text: String(body), ...(String(body).startsWith("{") && { value: JSON.parse(String(body)) }) };
  };
  return { root, told, context, ask };
}

test("buckets are listed page by page, those in reach alone, and what is no id is no cursor", async (t) => {
  const { ask, context } = await setUp(t);
  const page = async (query: object, identity?: object) => {
    const { value } = await ask(LIST, { query }, identity && { identity });
    return [value.items.map(({ id }: { id: string }) => Number(id.at(-1))), value.next_cursor];
  };
  assert.deepEqual(await page({ limit: 3 }), [[1, 2, 3], null]);
  assert.deepEqual(await page({ limit: 2 }), [[1, 2], ID(2)]);
  assert.deepEqual(await page({ limit: 2, cursor: ID(1) }), [[2, 3], null]);
  assert.deepEqual(await page({ limit: 2, cursor: ID(3) }), [[], null]);
  assert.deepEqual(await page({ limit: 9 }, { role: "read", buckets: [ID(2), ID(9)] }), [[2], null]);
  await assert.rejects(ask(LIST, { query: { limit: 1, cursor: "x" } }), { code: "invalid_request" });
  assert.deepEqual(await idsInReach({ ...context, identity: { buckets: [ID(3)] } } as never), [ID(3)]);
  const services = context as unknown as Services;
  assert.deepEqual(
    [unlessGone(services, ID(1))?.id, unlessGone(services, ID(9)), unlessGone(services, "x")],
    [ID(1), undefined, undefined],
  );
});

test("a bucket tells its labels, its database, its approvals and its runs", async (t) => {
  const { ask, told } = await setUp(t);
  told.newest = RUN;
  const show = async (digit: number) => (await ask(SHOW, { params: { bucket_id: ID(digit) } })).value;
  const { created_at, ...shown } = await show(1);
  assert.match(created_at, /^\d{4}-/);
  const last_run = { id: "r", kind: "build", status: "failed", created_at: "2026-01-01", finished_at: null };
  const known = { initialized: true, schema_version: 9, failed_allocations: 2 };
  const own = { project: "shop", name: "live", approvals: 0, last_run };
  assert.deepEqual(shown, { id: ID(1), ...own, ...known, active_run: "r" });
  told.newest = undefined;
  const other = await show(2);
  assert.deepEqual([other.active_run, other.last_run], [null, null]);
  const database = async (error: Error) => {
    told.database = error;
    const { initialized, schema_version, failed_allocations } = await show(1);
    return [initialized, schema_version, failed_allocations];
  };
  for (const code of ["bucket_not_initialized", "database_damaged"] as const)
    assert.deepEqual(await database(new Failure(code, "x")), [false, null, null], code);
  for (const code of ["schema_upgrade_required", "schema_too_new"] as const)
    assert.deepEqual(await database(new Failure(code, "x", { details: { schema_version: 3 } })), [true, 3, null], code);
  for (const error of [new Failure("database_busy", "busy"), new Error("odd")]) await assert.rejects(database(error), error);
});

test("a bucket gets the labels and the number of approvals that are given, and keeps the others", async (t) => {
  const { ask } = await setUp(t);
  const change = async (body: object) => {
    const { value } = await ask(CHANGE, { params: { bucket_id: ID(1) }, body });
    return [value.project, value.name, value.approvals];
  };
  assert.deepEqual(await change({}), ["shop", "live", 0]);
  assert.deepEqual(await change({ approvals: 2 }), ["shop", "live", 2]);
  assert.deepEqual(await change({ name: "next" }), ["shop", "next", 2]);
  assert.deepEqual(await change({ project: "p", approvals: 0 }), ["p", "next", 0]);
});

test("all buckets at a glance: one that cannot be read says why, and the others are shown", async (t) => {
  const { ask, told } = await setUp(t);
  told.beside = { workers: 5 };
  const first = async () => (await ask(GLANCES)).value.items[0];
  const { value } = await ask(GLANCES);
  assert.deepEqual([value.cut, value.items.length], [0, 3]);
  const own = { id: ID(1), project: "shop", name: "live" };
  assert.deepEqual(await first(), { ...own, initialized: true, unavailable: null, workers: 5 });
  const nothing = {
    ...{ workers: 0, jobs: 0, problem_count: 0, unwell_count: 0, incident_count: 0, certs_soon: 0, drifted: 0 },
    ...{ active_run: null, last_run: null, last_deploy: null, recent: [], mean_deploy_ms: null },
    ...{ counts: null, problems: [], next_cert: null, freezes: [] },
  };
  for (const [error, initialized, unavailable] of [
    [new Failure("bucket_not_initialized", "no database"), false, "no database"],
    [new Failure("database_damaged", "it is damaged"), false, "it is damaged"],
    [new Failure("schema_too_new", "newer"), true, "newer"],
    [new Error("odd"), true, "an internal error; open the bucket to learn more"],
  ] as const) {
    told.beside = error;
    assert.deepEqual(await first(), { ...own, initialized, unavailable, ...nothing });
  }
});

test("the metrics of the buckets are told one by one, and those of the server to whoever may see all of it", async (t) => {
  const { ask, told, root, context } = await setUp(t, { project: 'a"b', name: "c\\d" });
  told.beside = {
    is_active: true,
    states: { promoted: 2, new: 0 },
    outcomes: { failed: 1 },
    drifted: 3,
    last_drift: "1970-01-01T00:00:05.000Z",
    last_deploy: null,
    certs: [{ job: "web", not_after: "1970-01-01T00:00:07.000Z" }],
  };
  rmSync(`${root}/${ID(3)}`, { recursive: true });
  const mine = { identity: { name: "ada", role: "read", buckets: [ID(1), ID(2)] } };
  const { text } = await ask(METRICS, {}, mine);
  const of = (digit: number, more = "") => `{bucket_id="${ID(digit)}",project="a\\"b",bucket="c\\\\d"${more}}`;
  const head = (name: string, help: string) => [`# HELP ${name} ${help}`, `# TYPE ${name} gauge`];
  const both = (name: string, samples: [more: string, value: number][]) =>
    [1, 2].flatMap((digit) => samples.map(([more, value]) => `${name}${of(digit, more)} ${value}`));
  assert.deepEqual(text.split("\n"), [
    ...head("ops_bucket_readable", "Whether the bucket can be read"),
    ...both("ops_bucket_readable", [["", 1]]),
    ...head("ops_starts_waiting", "Starts that wait in line for the bucket"),
    ...[`ops_starts_waiting${of(1)} 0`, `ops_starts_waiting${of(2)} 2`],
    ...head("ops_bucket_runs_active", "Whether a run is active in the bucket"),
    ...both("ops_bucket_runs_active", [["", 1]]),
    ...head("ops_allocations", "Allocations by state"),
    ...both("ops_allocations", [
      [',state="promoted"', 2],
      [',state="new"', 0],
    ]),
    ...head("ops_allocations_in_trouble", "Allocations by the outcome of the last action"),
    ...both("ops_allocations_in_trouble", [[',outcome="failed"', 1]]),
    ...head(
      "ops_drifted_allocations",
      "Allocations whose files the last drift run of all jobs and workers found changed, and nothing has put right since",
    ),
    ...both("ops_drifted_allocations", [["", 3]]),
    ...head("ops_last_drift_timestamp_seconds", "When the last drift run of all jobs and workers began"),
    ...both("ops_last_drift_timestamp_seconds", [["", 5]]),
    ...head("ops_cert_not_after_seconds", "When a certificate ends"),
    ...both("ops_cert_not_after_seconds", [[',job="web"', 7]]),
    "",
  ]);
  told.beside = { ...told.beside, is_active: false, drifted: null, last_drift: null, last_deploy: "1970-01-01T00:00:09.000Z" };
  const later = (await ask(METRICS, {}, mine)).text;
  assert.match(later, /^ops_bucket_runs_active\{.*\} 0$/m);
  assert.match(later, /^ops_last_deploy_success_timestamp_seconds\{.*\} 9$/m);
  assert.doesNotMatch(later, /drift/);
  told.beside = new Failure("database_damaged", "x");
  const unreadable = (await ask(METRICS, {}, mine)).text;
  assert.match(unreadable, /^ops_bucket_readable\{.*\} 0$/m);
  assert.doesNotMatch(unreadable, /ops_allocations|runs_active/);
  context.supervisor.events.ended.set("x", { kind: "build", status: "failed", count: 2, seconds: 1.5 });
  const all = (await ask(METRICS)).text;
  for (const line of [
    ...["ops_runs_active 4", "ops_runs_queued 3", "ops_http_connections 7", "ops_http_requests_open 6", "ops_http_long_polls 5"],
    ...['ops_runs_total{kind="build",status="failed"} 2', 'ops_run_duration_seconds_sum{kind="build",status="failed"} 1.5'],
    ...['ops_run_duration_seconds_count{kind="build",status="failed"} 2', "# TYPE ops_runs_total counter"],
    ...["# TYPE ops_run_duration_seconds summary", `process_start_time_seconds ${performance.timeOrigin / 1000}`],
  ])
    assert.ok(all.split("\n").includes(line), `${line}\n${all}`);
  assert.match(all, /^ops_info\{version="[^"]+"\} 1$/m);
  for (const what of ["mean", "p99", "max"])
    assert.match(all, new RegExp(`^ops_event_loop_delay_seconds\\{of="${what}"\\} [\\d.e-]+$`, "m"));
  told.beside = new Error("odd");
  await assert.rejects(ask(METRICS, {}, mine), /odd/);
  const gone = AbortSignal.abort();
  await assert.rejects(ask(METRICS, { request: { signal: gone } }, mine), { code: "cancelled" });
});

test("a bucket that is deleted while the metrics are made is left out of them", async (t) => {
  const { ask, root } = await setUp(t);
  const beside = {
    async ask() {
      rmSync(`${root}/${ID(2)}`, { recursive: true, force: true });
      throw new Failure("database_damaged", "x");
    },
  };
  const { text } = await ask(METRICS, {}, { beside });
  const readable = text.split("\n").filter((line) => line.startsWith("ops_bucket_readable"));
  assert.deepEqual(
    readable.map((line) => [1, 2, 3].find((digit) => line.includes(ID(digit)))),
    [1, 3],
  );
});

test("the delay of the event loop is told in seconds since the last scrape, and is 0 where none was measured", async (t) => {
  const { ask, told } = await setUp(t);
  told.beside = new Failure("database_damaged", "x");
  const loop = async () => {
    const { text } = await ask(METRICS);
    return ["mean", "p99", "max"].map((of) => Number(text.split(`ops_event_loop_delay_seconds{of="${of}"} `)[1]?.split("\n")[0]));
  };
  await loop();
  const histogram = Object.getPrototypeOf(Object.getPrototypeOf(monitorEventLoopDelay()));
  const measured = { count: 1 };
  t.mock.getter(histogram, "count", () => measured.count);
  t.mock.getter(histogram, "mean", () => 2e9);
  t.mock.getter(histogram, "max", () => 4e9);
  t.mock.method(histogram, "percentile", (part: number) => part * 1e9);
  const { mock } = t.mock.method(histogram, "reset", () => {
    measured.count = 0;
  });
  assert.deepEqual([await loop(), mock.callCount()], [[2, 99, 4], 1]);
  assert.deepEqual([await loop(), mock.callCount()], [[0, 0, 0], 1]);
});
