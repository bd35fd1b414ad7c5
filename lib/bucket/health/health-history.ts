import { DAY_IN_MS } from "../../codec/calendar/zone.ts";
import type { Database, SqlValue } from "../base/database.ts";

/** What is watched, and the states that it may have; the first one is the good one. */
export const ASPECTS = {
  health: ["healthy", "unhealthy", "unreachable"],
  files: ["in_sync", "drifted"],
  reach: ["reachable", "unreachable"],
  load: ["normal", "high"],
} as const;
/** One of {@link ASPECTS}: `health` and `files` are of an allocation, `reach` and `load` of a worker. */
export type Aspect = keyof typeof ASPECTS;

/** How something was found. */
export interface Observation {
  /** Empty for a worker. */
  job: string;
  worker: string;
  aspect: Aspect;
  state: string;
  /** Why, where the state is not the good one; its first 500 characters are kept. */
  reason: string;
}

/** How long changes are kept. The last one of each place stays, and the one that was in force at the beginning. */
const KEPT_MS = 90 * DAY_IN_MS;
const KEPT_REASON = 500;

const LAST = "SELECT state FROM health_change WHERE job = ? AND worker_ip = ? AND aspect = ? ORDER BY id DESC LIMIT 1";
const ADD = "INSERT INTO health_change (at, job, worker_ip, aspect, state, reason, run_id) VALUES (?, ?, ?, ?, ?, ?, ?)";
const PRUNE = `DELETE FROM health_change AS old WHERE at < ? AND EXISTS (SELECT 1 FROM health_change AS next
  WHERE next.job = old.job AND next.worker_ip = old.worker_ip AND next.aspect = old.aspect AND next.id > old.id AND next.at < ?)`;
/** What is not in the catalog any more has no state now, and no history. */
const FORGET = `DELETE FROM health_change WHERE iif(job = '', worker_ip NOT IN (SELECT worker_ip FROM worker),
  NOT EXISTS (SELECT 1 FROM allocations a WHERE a.job = health_change.job AND a.worker_ip = health_change.worker_ip))`;

/** Keeps what a run found, where it differs from what was found before. `now` is the time in milliseconds. */
export function noteHealth(db: Database, runId: string, observations: readonly Observation[], now = Date.now()): void {
  const isNew = ({ job, worker, aspect, state }: Observation) =>
    db.get<{ state: string }>(LAST, job, worker, aspect)?.state !== state;
  const changed = observations.filter(isNew);
  if (changed.length > 0) db.transaction(() => addChanges(db, runId, changed, now));
}

/**
 * Notes that a job's files are as promoted again, on those of these workers where the history calls them drifted. To be
 * called in the transaction that promotes them.
 */
export function noteInSync(db: Database, runId: string, job: string, workers: readonly string[]): void {
  const mended = workers.filter((worker) => db.get<{ state: string }>(LAST, job, worker, "files")?.state === "drifted");
  const inSync = mended.map((worker): Observation => ({ job, worker, aspect: "files", state: "in_sync", reason: "" }));
  if (inSync.length > 0) addChanges(db, runId, inSync, Date.now());
}

function addChanges(db: Database, runId: string, changed: readonly Observation[], now: number): void {
  for (const { job, worker, aspect, state, reason } of changed)
    db.run(ADD, now, job, worker, aspect, state, reason.slice(0, KEPT_REASON).toWellFormed(), runId);
  db.run(PRUNE, now - KEPT_MS, now - KEPT_MS);
  db.run(FORGET);
}

/** One change. */
export type HealthChange = ReturnType<typeof changeOf>;

/** How something is now, and how it was in the last 90 days. */
export type HealthRecord = ReturnType<typeof recordOf>;

type Stored = [at: number, job: string, worker: string, aspect: Aspect, state: string, reason: string, run: string];

const COLUMNS = "at, job, worker_ip, aspect, state, reason, run_id";

/** Which part of the history is wanted. */
export interface HealthWanted {
  job?: string | undefined;
  worker?: string | undefined;
}

/** A deploy that did not come to its end has changed these files itself, which is told as a problem and as no drift. */
const IS_CUT_OFF = `aspect = 'files' AND (job, worker_ip) IN (SELECT a.job, a.worker_ip FROM allocations a
  JOIN hash h ON h.namespace = a.job || '_allocation' AND h.key = a.alloc_id WHERE h.unfinished)`;

/** How everything that was ever looked at is now, in the order of names: workers first. */
export function healthRecords(db: Database, wanted: HealthWanted = {}, now = Date.now()): HealthRecord[] {
  const sql = `SELECT ${COLUMNS} FROM health_change WHERE NOT (${IS_CUT_OFF}) ${andOf(wanted)} ORDER BY job, worker_ip, aspect, id`;
  const rows = db.tuples<Stored>(sql, ...wantedValues(wanted));
  const places = Map.groupBy(rows, ([, job, worker, aspect]) => `${job}\0${worker}\0${aspect}`);
  return [...places.values()].map((own) => recordOf(own, now));
}

/** The changes, newest first, from behind the number `before` on, at most `limit`; `next` is null at the end. */
export function healthChanges(db: Database, wanted: HealthWanted, { before, limit }: { before: number; limit: number }) {
  const sql = `SELECT ${COLUMNS}, id FROM health_change WHERE id < ? ${andOf(wanted)} ORDER BY id DESC LIMIT ?`;
  const rows = db.tuples<[...Stored, id: number]>(sql, before, ...wantedValues(wanted), limit + 1);
  const shown = rows.slice(0, limit);
  return { items: shown.map(changeOf), next: rows.length > limit ? (shown.at(-1)?.[7] ?? null) : null };
}

/** What is in no good state now, the longest first. */
export function notWellNow(db: Database): HealthChange[] {
  const newest = "SELECT MAX(id) FROM health_change GROUP BY job, worker_ip, aspect";
  const good = Object.values(ASPECTS).map(([state]) => `'${state}'`);
  const isNotWell = `id IN (${newest}) AND state NOT IN (${good}) AND NOT (${IS_CUT_OFF})`;
  const sql = `SELECT ${COLUMNS} FROM health_change WHERE ${isNotWell} ORDER BY at, id`;
  return db.tuples<Stored>(sql).map(changeOf);
}

/** The number of the last change, and the changes behind a number, oldest first, at most 10,000. */
export function healthChangesAfter(db: Database, after: number): { last: number; changes: HealthChange[] } {
  const sql = `SELECT ${COLUMNS} FROM health_change WHERE id > ? ORDER BY id LIMIT 10000`;
  const last = db.get<{ last: number | null }>("SELECT MAX(id) AS last FROM health_change")?.last ?? 0;
  return { last, changes: db.tuples<Stored>(sql, after).map(changeOf) };
}

function andOf({ job, worker }: HealthWanted): string {
  return `${job === undefined ? "" : "AND job = ?"} ${worker === undefined ? "" : "AND worker_ip = ?"}`;
}

function wantedValues({ job, worker }: HealthWanted): SqlValue[] {
  return [job, worker].filter((value) => value !== undefined);
}

function changeOf([at, job, worker, aspect, state, reason, run_id]: readonly [...Stored, ...unknown[]]) {
  return { job, worker, aspect, state, reason, at: new Date(at).toISOString(), run_id };
}

function recordOf(own: readonly Stored[], now: number) {
  const from = now - KEPT_MS;
  const last = own.at(-1) as Stored;
  const knownSince = Math.max((own[0] as Stored)[0], from);
  let goodMs = 0;
  for (const [index, [at, , , aspect, state]] of own.entries()) {
    const until = own[index + 1]?.[0] ?? now;
    if (state === ASPECTS[aspect][0]) goodMs += Math.max(0, until - Math.max(at, from));
  }
  const knownMs = now - knownSince;
  const share = knownMs > 0 ? goodMs / knownMs : Number(last[4] === ASPECTS[last[3]][0]);
  return {
    ...changeOf(last),
    /** How often it changed, without the first time that it was found. */
    changes: own.filter(([at]) => at >= from).length - ((own[0] as Stored)[0] >= from ? 1 : 0),
    /** Since when it is known, within the last 90 days. */
    known_since: new Date(knownSince).toISOString(),
    /** How much of that time it was in the good state, with one decimal. */
    good_percent: Math.round(Math.min(1, share) * 1_000) / 10,
  };
}
