// Reads that may take long: they run in a thread beside the event loop of the server, which has this file as its program
// (see beside.ts). An answer is JSON that is ready to be sent.

import { parentPort } from "node:worker_threads";
import { type Layout, layoutOf } from "../bucket/base/layout.ts";
import { knownFacts, validPlan } from "../bucket/catalog/info.ts";
import { cursorOf, type PageOf } from "../bucket/catalog/pages.ts";
import { bucketSummary } from "../bucket/catalog/summary.ts";
import { catalogView, type ViewName, type ViewQuery } from "../bucket/catalog/views.ts";
import { fingerprintsOf } from "../bucket/kv/kv-access.ts";
import { Failure } from "../core/errors.ts";
import { isObject } from "../core/shape.ts";
import { type LinesQuery, readLines } from "../run/log-view.ts";
import type { RunKind, RunParams } from "../run/protocol.ts";
import { type RunRecord, readRecord, runNotFound } from "../run/record.ts";
import { requireNames } from "../run/request.ts";
import { Readers } from "./reading.ts";
import { RunList, type RunQuery, shownRun } from "./run-list.ts";

const readers = new Readers();
const runList = new RunList();

const READS = {
  /** A page of a view of the catalog. */
  async view(layout: Layout, { name, query, page }: { name: ViewName; query: ViewQuery; page: PageOf }) {
    const fingerprintOf = name === "kv" ? await fingerprintsOf(layout) : undefined;
    const view = await readers.read(layout, (db) => catalogView(db, name, query, { ...page, fingerprintOf }));
    return { items: view.items, columns: view.columns, next_cursor: cursorOf(view.next) };
  },

  /** A page of the facts of the workers. */
  async facts(layout: Layout, page: PageOf) {
    const { items, next } = await readers.read(layout, (db) => knownFacts(db, page));
    return { items, next_cursor: cursorOf(next) };
  },

  /** A bucket at a glance. */
  async summary(layout: Layout, _: undefined) {
    const [found, newest, drift] = [
      await readers.read(layout, bucketSummary),
      await runList.newest(layout),
      await runList.page(layout, { kind: "drift", limit: 1 }),
    ];
    const [lastDrift] = drift.items;
    return {
      ...found,
      active_run: newest?.status === "running" ? inShort(newest) : null,
      drift: lastDrift ? { ...inShort(lastDrift), workers: outcomesIn(lastDrift) } : null,
    };
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

  /** Throws what is wrong with the names in the parameters of a run, or with the plan that they name. */
  async startable(layout: Layout, { kind, params }: { kind: RunKind; params: RunParams }) {
    await readers.read(layout, (db) => {
      requireNames(db, kind, params);
      if (typeof params.plan === "string") validPlan(layout, db, params.plan);
    });
    return null;
  },
};

function inShort({ id, kind, status, created_at, finished_at }: RunRecord) {
  return { id, kind, status, created_at, finished_at };
}

/** How many workers had each outcome in a run. */
function outcomesIn({ result }: RunRecord): Record<string, number> {
  const workers = isObject(result) && Array.isArray(result.workers) ? (result.workers as { outcome?: unknown }[]) : [];
  const outcomes = Map.groupBy(workers, ({ outcome }) => String(outcome));
  return Object.fromEntries([...outcomes].map(([outcome, own]) => [outcome, own.length]));
}

/** The reads, by name. */
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
