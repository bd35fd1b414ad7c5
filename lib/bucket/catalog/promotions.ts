import { Failure } from "../../core/errors.ts";
import type { Database } from "../base/database.ts";
import type { KvStore } from "../kv/kv.ts";
import { SEALED_CONTENTS } from "../kv/kv-seal.ts";
import type { StagedFile } from "./staging.ts";

/**
 * What is known about an allocation on its worker (table `hash`, namespace `<job>_allocation`, key = allocation id).
 * Its `previous_hash` is the tree that was promoted last, `current_hash` the tree that was synced last.
 */
export interface Promotion {
  /** The promoted tree; empty before the first promotion. */
  hash: string;
  /** The hash of the tree that was synced last; empty from the moment a sync may begin until its end is recorded. */
  synced: string;
  /** The running version: `0.0.0` before the first promotion. */
  version: string;
  /** The promoted files, path to a digest of mode and content. */
  files: Record<string, string>;
  /** The tree and version that were promoted before these; their contents are kept, too. */
  before: { hash: string; version: string; files: Record<string, string> };
  /** The outcome of the last gate. */
  gate: "" | "pending" | "passed" | "failed";
  /** A change began and has not been promoted. */
  unfinished: boolean;
  /** Its service was stopped, because the allocation was disabled or removed, or a stop of it has begun. */
  stopped: boolean;
  /** The stop, with all that belongs to it, has not come to its end. */
  stopping: boolean;
  /** The update sequence its files were rendered with when they were synced last; 0 before. */
  updateSeq: number;
}

interface HashRow {
  key: string;
  current_hash: string;
  previous_hash: string;
  previous_files: string;
  before_hash: string;
  before_files: string;
  before_version: string;
  current_version: string;
  gate: Promotion["gate"];
  unfinished: number;
  stopped: number;
  update_seq: number;
}

/** The version of an allocation that was never promoted (hook-runtime.md, Versioning 1). */
export const NEVER_PROMOTED = "0.0.0";

/** The values of the column `stopped`. */
const STOPPED = { no: 0, done: 1, begun: 2 };

const NOTHING: Promotion = {
  hash: "",
  synced: "",
  version: NEVER_PROMOTED,
  files: {},
  before: { hash: "", version: NEVER_PROMOTED, files: {} },
  gate: "",
  unfinished: false,
  stopped: false,
  stopping: false,
  updateSeq: 0,
};

/** What is promoted of a job, by allocation id. */
export function promotionsOf(db: Database, job: string): (allocationId: string) => Promotion {
  const rows = db.all<HashRow>("SELECT * FROM hash WHERE namespace = ?", namespaceOf(job));
  const known = new Map(rows.map((row) => [row.key, fromRow(row)]));
  return (id) => known.get(id) ?? NOTHING;
}

/** The files of the last sync of an allocation that has come to its end. */
export function syncedFiles(db: Database, job: string, allocationId: string): Record<string, string> {
  const sql = "SELECT current_files FROM hash WHERE namespace = ? AND key = ?";
  const row = db.get<{ current_files: string }>(sql, namespaceOf(job), allocationId);
  return filesIn(row?.current_files ?? "");
}

function fromRow(row: HashRow): Promotion {
  return {
    hash: row.previous_hash,
    synced: row.current_hash,
    version: row.current_version || NEVER_PROMOTED,
    files: filesIn(row.previous_files),
    before: { hash: row.before_hash, version: row.before_version || NEVER_PROMOTED, files: filesIn(row.before_files) },
    gate: row.gate,
    unfinished: row.unfinished !== 0,
    stopped: row.stopped !== 0,
    stopping: row.stopped === STOPPED.begun,
    updateSeq: row.update_seq,
  };
}

function filesIn(column: string): Record<string, string> {
  return column === "" ? {} : (JSON.parse(column) as Record<string, string>);
}

function namespaceOf(job: string): string {
  return `${job}_allocation`;
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

/** Notes what a sync put on the worker (hook-runtime.md, Deploy order 4). */
export function recordSynced(
  db: Database,
  job: string,
  allocationId: string,
  tree: { hash: string; files: Record<string, string>; updateSeq: number },
): void {
  db.run(
    "UPDATE hash SET current_hash = ?, current_files = ?, update_seq = ? WHERE namespace = ? AND key = ?",
    tree.hash,
    JSON.stringify(tree.files),
    tree.updateSeq,
    namespaceOf(job),
    allocationId,
  );
}

/**
 * Makes the synced tree and the given version the promoted ones; what was promoted before stays known where it was
 * another. `pending` means that a gate has to follow; without a gate the outcome of the last one stays.
 */
export function promote(
  db: Database,
  job: string,
  allocationId: string,
  version: string,
  gate?: Promotion["gate"],
): void {
  const isOther = "(previous_hash <> current_hash OR current_version <> ?1)";
  const kept = (before: string, now: string) => `${before} = CASE WHEN ${isOther} THEN ${now} ELSE ${before} END`;
  db.run(
    `UPDATE hash SET ${kept("before_hash", "previous_hash")}, ${kept("before_files", "previous_files")},
     ${kept("before_version", "current_version")}, previous_hash = current_hash, previous_files = current_files,
     current_version = ?1, gate = COALESCE(?2, gate), unfinished = 0 WHERE namespace = ?3 AND key = ?4`,
    version,
    gate ?? null,
    namespaceOf(job),
    allocationId,
  );
}

/** Stores the outcome of a gate for allocations of a job, all or none. */
export function setGate(db: Database, job: string, allocationIds: readonly string[], gate: Promotion["gate"]): void {
  db.transaction(() => {
    for (const id of allocationIds)
      db.run("UPDATE hash SET gate = ? WHERE namespace = ? AND key = ?", gate, namespaceOf(job), id);
  });
}

/** Notes how far the stop of an allocation is that was disabled or removed. */
export function setStopped(db: Database, job: string, allocationId: string, stopped: keyof typeof STOPPED): void {
  db.run(
    "UPDATE hash SET stopped = ? WHERE namespace = ? AND key = ?",
    STOPPED[stopped],
    namespaceOf(job),
    allocationId,
  );
}

/**
 * Makes the next deploy start allocations as new ones: what was promoted of them does not count any more. The version
 * that ran there stays known.
 */
export function startAnew(db: Database, allocations: readonly { job: string; id: string }[]): void {
  for (const { job, id } of allocations)
    db.run(
      "UPDATE hash SET previous_hash = '', previous_files = '', gate = '', stopped = 0 WHERE namespace = ? AND key = ?",
      namespaceOf(job),
      id,
    );
}

/** Forgets a removed allocation. */
export function forgetPromotion(db: Database, job: string, allocationId: string): void {
  db.run("DELETE FROM hash WHERE namespace = ? AND key = ?", namespaceOf(job), allocationId);
}

/**
 * Keeps the contents of promoted files, each once whatever it is called and wherever it is (decisions: Rulings, what is
 * promoted is kept). What was rendered with a secret is sealed with the bucket's key, and the secrets with it: without
 * them nobody could tell later what must not be shown of it.
 */
export function keepContents(db: Database, kv: KvStore, files: readonly StagedFile[]): void {
  for (const { sha256, content, isSecret, secrets = [] } of files) {
    if (db.get("SELECT 1 FROM contents WHERE sha256 = ?", sha256)) continue;
    const stored = isSecret ? Buffer.from(kv.seal(SEALED_CONTENTS, sha256, packed([content, ...secrets]))) : content;
    db.run("INSERT INTO contents (sha256, sealed, content) VALUES (?, ?, ?)", sha256, isSecret ? 1 : 0, stored);
  }
}

/** The content of a file that was promoted: of the last two trees of each allocation. Throws `failed` where it is gone. */
export function keptContent(
  db: Database,
  kv: KvStore,
  sha256: string,
): Pick<StagedFile, "content" | "isSecret" | "secrets"> {
  const row = db.get<{ sealed: number; content: Uint8Array }>(
    "SELECT sealed, content FROM contents WHERE sha256 = ?",
    sha256,
  );
  if (!row) throw new Failure("failed", `the content ${sha256} of a promoted file is not kept any more`);
  const stored = Buffer.from(row.content);
  if (row.sealed !== 1) return { content: stored, isSecret: false };
  const [content, ...secrets] = unpacked(kv.unseal(SEALED_CONTENTS, sha256, stored.toString()));
  return { content: content as Buffer, isSecret: true, secrets: secrets.map(String) };
}

function packed(parts: readonly (Buffer | string)[]): string {
  return parts.map((part) => Buffer.from(part as string).toString("base64")).join(" ");
}

function unpacked(text: string): Buffer[] {
  return text.split(" ").map((part) => Buffer.from(part, "base64"));
}

/** Drops the contents that none of the last two trees of an allocation has; answers how many. */
export function dropUnusedContents(db: Database): number {
  const used = (column: string) =>
    `SELECT substr(value, instr(value, ':') + 1) FROM hash,
     json_each(CASE ${column} WHEN '' THEN '{}' ELSE ${column} END)`;
  return db.run(`DELETE FROM contents WHERE sha256 NOT IN (${used("previous_files")} UNION ${used("before_files")})`);
}
