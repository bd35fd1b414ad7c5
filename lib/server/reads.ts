// Reads that may take long: they run in a thread beside the event loop of the server, which has this file as its program
// (see beside.ts). An answer is JSON that is ready to be sent.
import { parentPort } from "node:worker_threads";
import { type Layout, layoutOf } from "../bucket/base/layout.ts";
import { knownFacts, validPlan } from "../bucket/catalog/info.ts";
import { jobMap, mapCell } from "../bucket/catalog/map.ts";
import { cursorOf, type PageOf } from "../bucket/catalog/pages.ts";
import { bucketNumbers, bucketSummary, fitting } from "../bucket/catalog/summary.ts";
import { catalogView, type ViewName, type ViewQuery, viewSources } from "../bucket/catalog/views.ts";
import { type HealthWanted, healthChanges, healthRecords, notWellNow } from "../bucket/health/health-history.ts";
import { begunKeyChanges, keyChanges } from "../bucket/keys/key-changes.ts";
import { listRevisions, type Revision } from "../bucket/source/revisions.ts";
import { builtSchedules } from "../bucket/workspace/schedules.ts";
import { Failure } from "../core/errors.ts";
import { freezesAhead } from "../plan/calendar.ts";
import { readEvidence, readFailures } from "../run/log/log-evidence.ts";
import type { LineFilter } from "../run/log/log-lines.ts";
import { type LogQuery, searchLog } from "../run/log/log-search.ts";
import { type LinesQuery, readLines, readMap } from "../run/log/log-view.ts";
import type { RunKind, RunParams } from "../run/protocol.ts";
import { readRecord, readRecordHead, runNotFound } from "../run/record.ts";
import { catalogBasis, requireNames } from "../run/request.ts";
import { Drifts, firstDrifted, recentRuns } from "./glance.ts";
import { openAtAGlance } from "./messages/state.ts";
import { databaseVersion, Readers } from "./reading.ts";
import { RunList, type RunQuery, shownRun } from "./run-list.ts";
import { shownFreeze } from "./watch/freeze.ts";

/** Of how many bytes of JSON these lists of a summary are at most. */
const SUMMARY_BYTES = { freezes: 2 * 1024, unwell: 8 * 1024 };

const readers = new Readers();
const runList = new RunList();
const drifts = new Drifts();

/** What the metrics of a bucket tell. Times are RFC 3339. */
export interface BucketNumbers extends ReturnType<typeof bucketNumbers> {
  is_active: boolean;
  /** What the last drift run of all jobs and workers found and still is; null where there was none. */
  drifted: number | null;
  last_drift: string | null;
  last_deploy: string | null;
}

interface PlanAnswer {
  valid: boolean;
  reason: string | null;
}

/** What was answered of plans, and of which version of the database: the check reads all that is promoted. */
const plans = new Map<string, { version: string; answer: PlanAnswer }>();
const MOST_PLANS = 100;

/** The reads, by name: of the thread, and of commands in a bucket. */
export const READS = {
  /** A page of a view of the catalog. */
  async view(layout: Layout, { name, query, page }: { name: ViewName; query: ViewQuery; page: PageOf }) {
    const sources = await viewSources(layout, name);
    const view = await readers.read(layout, (db) => catalogView(db, name, query, { ...page, ...sources }));
    return { items: view.items, columns: view.columns, next_cursor: cursorOf(view.next) };
  },

  /** A page of the facts of the workers. */
  async facts(layout: Layout, page: PageOf) {
    const { items, next } = await readers.read(layout, (db) => knownFacts(db, page));
    return { items, next_cursor: cursorOf(next) };
  },

  /** A bucket at a glance. */
  async summary(layout: Layout, _: undefined) {
    const { found, freezes, unwell, drift, runs: shown } = await overviewOf(layout);
    const { last_run: _newest, ...runs } = shown;
    const { incidents, messages } = await openAtAGlance(layout);
    const begun = await begunKeyChanges(layout);
    // A list that is damaged is told where it is read.
    const revisions = await listRevisions(layout).catch((): Revision[] => []);
    const current = revisions.find((one) => one.current);
    const { snapshotNames } = await import("../bucket/snapshots/snapshots.ts");
    const totals = {
      runs: await runList.count(layout),
      revisions: revisions.length,
      snapshots: (await snapshotNames(layout)).length,
    };
    return {
      ...found,
      ...runs,
      totals: { ...found.totals, ...totals },
      freezes: fitting(freezes, freezes.length, SUMMARY_BYTES.freezes).items,
      unwell: fitting(unwell, unwell.length, SUMMARY_BYTES.unwell),
      incidents: fitting(incidents, incidents.length),
      key_changes: await readers.read(layout, (db) => keyChanges(db, begun)),
      messages,
      revision: current ? shownRevision(current) : null,
      drift: drift && {
        ...drift.run,
        workers: drift.found.workers,
        allocations: firstDrifted(drift.found),
        total: drift.found.allocations.length,
      },
    };
  },

  /** What the list of buckets shows of a bucket. */
  async glance(layout: Layout, _: undefined) {
    const { found, runs, freezes, unwell, drift } = await overviewOf(layout);
    return {
      freezes,
      workers: found.workers,
      jobs: found.jobs,
      counts: found.counts,
      problems: found.problems.items.slice(0, 3),
      problem_count: found.problems.total,
      unwell_count: unwell.length,
      incident_count: (await openAtAGlance(layout)).incidents.length,
      certs_soon: found.certs.total,
      next_cert: found.next_cert,
      drifted: drift?.found.allocations.length ?? 0,
      ...runs,
    };
  },

  /** The numbers of a bucket that its metrics are made of. */
  async numbers(layout: Layout, _: undefined): Promise<BucketNumbers> {
    const { active_run, last_drift, last_success } = await recentRuns(runList, layout);
    return {
      ...(await readers.read(layout, bucketNumbers)),
      is_active: active_run !== null,
      drifted: last_drift && (await driftedNow(layout, last_drift)).length,
      last_drift: last_drift?.created_at ?? null,
      last_deploy: last_success?.finished_at ?? null,
    };
  },

  /** The map of jobs and workers. */
  async map(layout: Layout, _: undefined) {
    const { last_deploy, last_drift } = await recentRuns(runList, layout);
    const drifted = await driftedNow(layout, last_drift);
    return await readers.read(layout, (db) => jobMap(db, last_deploy?.id ?? "", drifted));
  },

  /** One allocation of the map. */
  async cell(layout: Layout, { job, worker }: { job: string; worker: string }) {
    const { last_drift } = await recentRuns(runList, layout);
    const drifted = await driftedNow(layout, last_drift);
    const own = drifted.find((one) => one.job === job && one.worker === worker);
    return { ...(await readers.read(layout, (db) => mapCell(db, job, worker))), drift_files: own?.first ?? [] };
  },

  /** A page of how everything is and was. */
  async health(layout: Layout, { offset, limit, ...wanted }: HealthWanted & { offset: number; limit: number }) {
    const all = await readers.read(layout, (db) => healthRecords(db, wanted));
    const end = offset + limit;
    return { items: all.slice(offset, end), next_cursor: end < all.length ? String(end) : null };
  },

  /** A page of the changes of health. */
  async healthChanges(layout: Layout, { before, limit, ...wanted }: HealthWanted & { before: number; limit: number }) {
    const { items, next } = await readers.read(layout, (db) => healthChanges(db, wanted, { before, limit }));
    return { items, next_cursor: next === null ? null : String(next) };
  },

  /** A page of the runs of a bucket. */
  async runs(layout: Layout, query: RunQuery) {
    return await runList.page(layout, query);
  },

  /** A run, with how far it is. */
  async run(layout: Layout, { id, progress }: { id: string; progress: unknown }) {
    const record = readRecord(layout, id);
    if (!record) throw runNotFound(id);
    return { ...(await shownRun(layout, record)), progress };
  },

  /** Lines of the Activity of a run. */
  async lines(layout: Layout, { id, query }: { id: string; query: LinesQuery }) {
    return await readLines(layout, id, query);
  },

  /** Where in the Activity of a run the errors and the matches are. */
  async logMap(layout: Layout, { id, filter }: { id: string; filter: LineFilter }) {
    return await readMap(layout, id, filter);
  },

  /** Lines of the Activity of a run that match. */
  async search(layout: Layout, { id, query }: { id: string; query: LogQuery }) {
    return await searchLog(layout, id, query);
  },

  /** The last lines of a job on a worker in a run, or the failed allocations of the run. */
  async evidence(layout: Layout, { id, job, worker }: { id: string; job: string | undefined; worker: string | undefined }) {
    if (job === undefined || worker === undefined) return await readFailures(layout, id);
    return await readEvidence(layout, id, { job, worker });
  },

  /** Whether a deploy can still carry out the plan of a dry run. */
  async plan(layout: Layout, id: string) {
    if (!readRecordHead(layout, id)) throw runNotFound(id);
    const [key, version] = [`${layout.root} ${id}`, databaseVersion(layout)];
    const known = plans.get(key);
    if (known?.version === version) return known.answer;
    const answer = await planAnswer(layout, id);
    if (plans.size >= MOST_PLANS) plans.clear();
    plans.set(key, { version, answer });
    return answer;
  },

  /** The build and the workers that a run would work with. Throws what is wrong with its names or its plan. */
  async basis(layout: Layout, { kind, params }: { kind: RunKind; params: RunParams }) {
    return await readers.read(layout, (db) => catalogBasis(db, { layout, kind, params }));
  },

  /** Throws what is wrong with the names in the parameters of a run, or with the plan that they name. */
  async startable(layout: Layout, { kind, params }: { kind: RunKind; params: RunParams }) {
    await readers.read(layout, (db) => {
      requireNames(db, kind, params);
      if (typeof params.plan === "string") validPlan(layout, db, params.plan);
    });
    return null;
  },
};

/** What the summary of a bucket and the list of buckets both tell. */
async function overviewOf(layout: Layout) {
  const { last_drift, last_success: _, ...runs } = await recentRuns(runList, layout);
  const found = await readers.read(layout, (db) => bucketSummary(db, runs.active_run?.id ?? null));
  const { freeze } = await readers.read(layout, builtSchedules);
  const unwell = await readers.read(layout, notWellNow);
  const drift = last_drift && { run: last_drift, found: drifts.of(layout, last_drift.id, unwell) };
  return { found, runs, unwell, drift, freezes: freezesAhead(freeze, Date.now()).map(shownFreeze) };
}

/** The allocations that the last drift run of all jobs and workers found changed, and whose files nothing has put right since. */
async function driftedNow(layout: Layout, lastDrift: { id: string } | null) {
  if (!lastDrift) return [];
  return drifts.of(layout, lastDrift.id, await readers.read(layout, notWellNow)).allocations;
}

function shownRevision({ id, created_at, build_status, last_successful }: Revision) {
  return { id, created_at, build_status, last_successful };
}

async function planAnswer(layout: Layout, id: string): Promise<PlanAnswer> {
  try {
    await readers.read(layout, (db) => validPlan(layout, db, id));
    return { valid: true, reason: null };
  } catch (error) {
    if (error instanceof Failure && error.code === "plan_stale") return { valid: false, reason: error.message };
    throw error;
  }
}

/** The type of {@link READS}. */
export type Reads = typeof READS;

/** A read that is asked for: its number, its name, the folder of the bucket, and what it takes. */
export interface ReadOrder {
  id: number;
  name: keyof Reads;
  root: string;
  input: unknown;
}

/** How a read ended: with JSON, with a failure that was thrown on purpose, or with the stack of a defect. */
export type ReadEnd = { id: number } & (
  | { json: Uint8Array<ArrayBuffer> }
  | { failure: { code: Failure["code"]; message: string; details: unknown } }
  | { defect: string }
);

async function carryOut({ id, name, root, input }: ReadOrder): Promise<ReadEnd> {
  try {
    const read = READS[name] as (layout: Layout, input: unknown) => Promise<unknown>;
    return { id, json: new TextEncoder().encode(JSON.stringify(await read(layoutOf(root), input))) };
  } catch (error) {
    if (!(error instanceof Failure)) return { id, defect: String((error as Error | undefined)?.stack ?? error) };
    const { code, message, details } = error;
    return { id, failure: { code, message, details } };
  }
}

parentPort?.on("message", async (order: ReadOrder) => {
  const end = await carryOut(order);
  parentPort?.postMessage(end, "json" in end ? [end.json.buffer] : []);
});
