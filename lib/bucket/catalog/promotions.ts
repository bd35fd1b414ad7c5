import type { Database, SqlValue } from "../base/database.ts";
import { type Column, column, type RecordOf, readRecords } from "../base/table.ts";

/** The version of an allocation that was never promoted (hook-runtime.md, Versioning 1). */
export const NEVER_PROMOTED = "0.0.0";

/** The values of the column `stopped`. */
const STOPPED = { no: 0, done: 1, begun: 2 };

/** Path to a digest of mode and content. */
type Digests = Record<string, string>;

/**
 * Table `hash`, namespace `<job>_allocation`, key = allocation id. The columns `previous_…` are the tree that was
 * promoted last, `before_…` the tree before that one, and `current_hash` the tree that was synced last.
 */
const HASH = {
  name: "hash",
  columns: {
    id: column.plain<string>("key"),
    /** The promoted tree; empty before the first promotion. */
    hash: column.plain<string>("previous_hash"),
    /** The tree that was synced last; empty from the moment a sync may begin until its end is recorded. */
    synced: column.plain<string>("current_hash"),
    /** The running version: `0.0.0` before the first promotion. */
    version: versionColumn("current_version"),
    /** The promoted files. */
    files: filesColumn("previous_files"),
    beforeHash: column.plain<string>("before_hash"),
    beforeVersion: versionColumn("before_version"),
    beforeFiles: filesColumn("before_files"),
    /** The outcome of the last gate. */
    gate: column.plain<"" | "pending" | "passed" | "failed">("gate"),
    /** A change began and has not been promoted. */
    unfinished: column.flag("unfinished"),
    stop: column.plain<number>("stopped"),
    /** The update sequence that the files of the last sync were rendered with; 0 before. */
    updateSeq: column.plain<number>("update_seq"),
  },
};

type HashRecord = RecordOf<typeof HASH>;

/** What is known about an allocation on its worker. */
export type Promotion = ReturnType<typeof promotionOf>;

const EMPTY = { hash: "", version: NEVER_PROMOTED, files: {} };
const NOT_KNOWN = { ...EMPTY, id: "", synced: "", gate: "", unfinished: false, stop: STOPPED.no, updateSeq: 0 } as const;
const NO_PROMOTION = promotionOf({ ...NOT_KNOWN, beforeHash: "", beforeVersion: NEVER_PROMOTED, beforeFiles: {} });

function versionColumn(name: string): Column<string> {
  return { ...column.plain(name), read: (stored) => String(stored) || NEVER_PROMOTED };
}

function filesColumn(name: string): Column<Digests> {
  return { ...column.json(name), read: filesIn };
}

function filesIn(stored: SqlValue | undefined): Digests {
  return stored ? JSON.parse(String(stored)) : {};
}

function promotionOf({ id: _, stop, beforeHash, beforeVersion, beforeFiles, ...known }: HashRecord) {
  return {
    ...known,
    /** The tree and version that were promoted before these. Their contents are kept too. */
    before: { hash: beforeHash, version: beforeVersion, files: beforeFiles },
    /** The service was stopped, or a stop of the service has begun, because the allocation was disabled or removed. */
    stopped: stop !== STOPPED.no,
    /** The stop has not come to its end. */
    stopping: stop === STOPPED.begun,
  };
}

function namespaceOf(job: string): string {
  return `${job}_allocation`;
}

/** What is promoted of a job, by allocation id. */
export function promotionsOf(db: Database, job: string): (allocationId: string) => Promotion {
  const records = readRecords(db, HASH, "WHERE namespace = ?", namespaceOf(job));
  const known = new Map(records.map((record) => [record.id, promotionOf(record)]));
  return (id) => known.get(id) ?? NO_PROMOTION;
}

/** The files of the last sync of an allocation that has come to its end. */
export function syncedFiles(db: Database, job: string, allocationId: string): Digests {
  const sql = "SELECT current_files FROM hash WHERE namespace = ? AND key = ?";
  return filesIn(db.get(sql, namespaceOf(job), allocationId)?.current_files);
}

/** True where the files on the worker may differ from those that the last finished deploy left there. */
export function isUnsettled({ hash, synced, unfinished }: Promotion): boolean {
  return hash === "" ? unfinished || synced === "" : unfinished && synced !== hash;
}

/**
 * Records that allocations of a job are about to change, before any of their files is touched. Until a sync has ended,
 * the files on the worker are unknown; until an allocation is promoted, it does not count as complete.
 */
export function beginChange(db: Database, job: string, allocationIds: readonly string[]): void {
  db.transaction(() => {
    for (const id of allocationIds)
      db.run(
        `INSERT INTO hash (namespace, key, current_hash, previous_hash, current_files, previous_files, current_version, unfinished)
         VALUES (?, ?, '', '', '', '', '', 1) ON CONFLICT DO UPDATE SET unfinished = 1, current_hash = ''`,
        namespaceOf(job),
        id,
      );
  });
}

/** Changes the row of an allocation; values are ?3 and up. */
function change(db: Database, { job, id }: { job: string; id: string }, set: string, ...values: SqlValue[]): void {
  db.run(`UPDATE hash SET ${set} WHERE namespace = ?1 AND key = ?2`, namespaceOf(job), id, ...values);
}

/** The files that a sync put on the worker of an allocation. */
export interface SyncedTree {
  id: string;
  hash: string;
  files: Digests;
  /** The update sequence that the files were rendered with. */
  updateSeq: number;
}

/** Records what syncs put on the workers of a job (hook-runtime.md, Deploy order 4), in one transaction. */
export function recordSynced(db: Database, job: string, synced: readonly SyncedTree[]): void {
  const set = "current_hash = ?3, current_files = ?4, update_seq = ?5";
  db.transaction(() => {
    for (const { id, hash, files, updateSeq } of synced) change(db, { job, id }, set, hash, JSON.stringify(files), updateSeq);
  });
}

/**
 * Records a tree that ops has not brought, for an allocation that nothing is known of, as one that was synced. To be
 * called in the transaction that promotes it: until then the allocation stays unknown.
 */
export function recordFound(db: Database, job: string, { id, hash, files, updateSeq }: SyncedTree): void {
  db.run(
    `INSERT INTO hash (namespace, key, current_hash, previous_hash, current_files, previous_files, current_version, update_seq)
     VALUES (?, ?, ?, '', ?, '', '', ?)`,
    ...[namespaceOf(job), id, hash, JSON.stringify(files), updateSeq],
  );
}

/**
 * Makes the synced tree and the given version the promoted ones. Where they differ from what was promoted before, that
 * stays known. `pending` means that a gate has to follow; without a gate the outcome of the last one stays.
 */
export function promote(
  db: Database,
  allocation: { job: string; id: string },
  version: string,
  gate: Promotion["gate"] | null = null,
): void {
  const isOther = "(previous_hash <> current_hash OR current_version <> ?3)";
  const kept = (before: string, now: string) => `${before} = CASE WHEN ${isOther} THEN ${now} ELSE ${before} END`;
  const set = `${kept("before_hash", "previous_hash")}, ${kept("before_files", "previous_files")},
    ${kept("before_version", "current_version")}, previous_hash = current_hash, previous_files = current_files,
    current_version = ?3, gate = COALESCE(?4, gate), unfinished = 0`;
  change(db, allocation, set, version, gate);
}

/** Stores the outcome of a gate for allocations of a job, all or none. */
export function setGate(db: Database, job: string, allocationIds: readonly string[], gate: Promotion["gate"]): void {
  db.transaction(() => {
    for (const id of allocationIds) change(db, { job, id }, "gate = ?3", gate);
  });
}

/** Records how far the stop of an allocation is that was disabled or removed. */
export function setStopped(db: Database, job: string, id: string, stopped: keyof typeof STOPPED): void {
  change(db, { job, id }, "stopped = ?3", STOPPED[stopped]);
}

/**
 * Makes the next deploy start allocations as new ones: their promoted trees do not count any more. The version that ran
 * there stays known.
 */
export function startAnew(db: Database, allocations: readonly { job: string; id: string }[]): void {
  const set = "previous_hash = '', previous_files = '', gate = '', stopped = 0";
  for (const allocation of allocations) change(db, allocation, set);
}

/** Forgets a removed allocation. */
export function forgetPromotion(db: Database, job: string, allocationId: string): void {
  db.run("DELETE FROM hash WHERE namespace = ? AND key = ?", namespaceOf(job), allocationId);
}
