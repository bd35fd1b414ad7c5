import { rename, stat } from "node:fs/promises";
import { setImmediate as nextRound } from "node:timers/promises";
import { resealPieces, type SealKey, seal, sealingKey, unsealedLength, unsealPieces } from "../../codec/crypto/seal.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { createExclusive, exists, flushFolder, remove, unlessMissing } from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import { sealedName, sealedPieces, setAside } from "../base/contents.ts";
import type { Database, SqlValue } from "../base/database.ts";
import type { Layout } from "../base/layout.ts";
import { createKvKey, loadKvKey, SEALED_CONTENTS, tryUnseal } from "./kv-access.ts";

// A change of kv.key. The next key is made beside it (`kv.key.new`). The present one is copied (`kv.key.old`), and the next
// one takes its name: from there on the new key seals and both open. Then everything that is sealed is sealed anew, and when
// nothing is left that the new key does not open, the old one is removed. The files tell how far a change is, so that it
// goes on wherever it was killed.

/** How far a change of the key is; undefined where none was begun. */
export async function rekeyingSince(layout: Layout): Promise<{ isNext: boolean; since: Date } | undefined> {
  const made = await unlessMissing(stat(layout.kvKeyNew));
  const kept = made ?? (await unlessMissing(stat(layout.kvKeyOld)));
  return kept && { isNext: made !== undefined, since: kept.mtime };
}

/** Makes the next key and lets it seal, or does what an earlier call had not done. */
export async function switchKvKey(layout: Layout): Promise<void> {
  const { secrets, kvKey, kvKeyNew, kvKeyOld } = layout;
  if ((await exists(kvKeyOld)) && !(await exists(kvKeyNew))) return;
  await createKvKey(kvKeyNew);
  await flushFolder(secrets);
  faultPoint("rekey: key made");
  // Until the rename below both names stand for the same key.
  await createExclusive(kvKeyOld, sealingKey(await loadKvKey(layout)));
  await flushFolder(secrets);
  faultPoint("rekey: key kept");
  await rename(kvKeyNew, kvKey);
  await flushFolder(secrets);
  faultPoint("rekey: key switched");
}

/** Removes the key before, which nothing is sealed with any more. */
export async function dropOldKvKey(layout: Layout): Promise<void> {
  await remove(layout.kvKeyOld);
  await flushFolder(layout.secrets);
}

/** What was found sealed: values of the KV store in all their versions, and kept contents of files. */
export type SealedCounts = Awaited<ReturnType<typeof walkSealed>>;

/** How {@link walkSealed} goes over what is sealed. */
interface Walk {
  db: Database;
  key: SealKey;
  signal: AbortSignal;
  /** Seal anew what the first key does not open; else only count it. */
  isReseal: boolean;
  /** Called after each part, with how many values and contents were looked at. */
  onProgress?: (looked: number) => void;
}

/** Which values are sealed: those that `isSealed` names. Lists of hosts are none. */
const IS_SEALED = `list IS NULL AND value <> '' AND (namespace GLOB 'secrets/*' OR (namespace GLOB 'ops/job/*' AND key GLOB 'certs/*.key'))`;
const VALUES_AT_ONCE = 500;
const CONTENTS_AT_ONCE = 16;
const VALUES = `SELECT namespace, key, version, value FROM kv_version
  WHERE ${IS_SEALED} AND (namespace, key, version) > (?, ?, ?) ORDER BY namespace, key, version LIMIT ${VALUES_AT_ONCE}`;
const CONTENTS = `SELECT sha256, size_bytes, content FROM contents
  WHERE sealed = 1 AND sha256 > ? ORDER BY sha256 LIMIT ${CONTENTS_AT_ONCE}`;

type ValueRow = [namespace: string, key: string, version: number, value: string];
type ContentRow = [sha256: string, bytes: number, content: Uint8Array | null];
/** `present`: the first key opens it. `due`: another one does. */
type HowSealed = "present" | "due" | "unreadable";

/** How many values and contents are sealed. */
export function countSealed(db: Database): number {
  const sql = `SELECT (SELECT COUNT(*) FROM kv_version WHERE ${IS_SEALED}) + (SELECT COUNT(*) FROM contents WHERE sealed = 1) AS n`;
  return db.get<{ n: number }>(sql)?.n ?? 0;
}

/**
 * Goes over everything that is sealed with the bucket's key, and seals anew, or counts, what the first key does not open. It
 * stores a part at a time, so that a cancel or a kill loses nothing: what is done opens with the first key, the rest with the
 * other. To be called under the bucket's lock. Throws `cancelled`.
 */
export async function walkSealed(walk: Walk) {
  // What no key opens, as `<namespace> <key>`, stays as it is.
  const counts = { values: 0, contents: 0, unreadable: [] as string[] };
  let looked = 0;
  const parts = [eachPart<ValueRow>(walk, VALUES, ["", "", 0], 3), eachPart<ContentRow>(walk, CONTENTS, [""], 1)] as const;
  const look = (found: HowSealed, what: "values" | "contents", name: string) => {
    looked++;
    if (found === "due") counts[what]++;
    else if (found === "unreadable") counts.unreadable.push(name);
  };
  for await (const rows of parts[0]) {
    const work = () => {
      for (const row of rows) look(valueFound(walk, row), "values", `${row[0]} ${row[1]}`);
    };
    if (walk.isReseal) walk.db.transaction(work);
    else work();
    faultPoint("rekey: values sealed");
    walk.onProgress?.(looked);
  }
  for await (const rows of parts[1]) {
    for (const row of rows) look(contentFound(walk, row), "contents", `${SEALED_CONTENTS} ${row[0]}`);
    faultPoint("rekey: contents sealed");
    walk.onProgress?.(looked);
  }
  return counts;
}

/** The rows of a query part by part, by the columns that order them; others may run between two parts. */
async function* eachPart<R extends SqlValue[]>({ db, signal }: Walk, sql: string, from: SqlValue[], columns: number) {
  let after: SqlValue[] | undefined = from;
  while (after) {
    throwIfCancelled(signal);
    const rows: R[] = db.tuples<R>(sql, ...after);
    if (rows.length > 0) yield rows;
    after = rows.at(-1)?.slice(0, columns);
    await nextRound();
  }
}

function valueFound({ db, key, isReseal }: Walk, [namespace, name, version, value]: ValueRow): HowSealed {
  if (tryUnseal(sealingKey(key), namespace, name, value) !== undefined) return "present";
  const text = tryUnseal(key, namespace, name, value);
  if (text === undefined) return "unreadable";
  const sql = "UPDATE kv_version SET value = ? WHERE namespace = ? AND key = ? AND version = ?";
  if (isReseal) db.run(sql, seal(key, namespace, name, text), namespace, name, version);
  return "due";
}

function contentFound(walk: Walk, [sha256, bytes, content]: ContentRow): HowSealed {
  const { db, key, isReseal } = walk;
  if (content === null) return largeContentFound(walk, sha256, bytes);
  const sealed = Buffer.from(content).toString();
  if (tryUnseal(sealingKey(key), SEALED_CONTENTS, sha256, sealed) !== undefined) return "present";
  const text = tryUnseal(key, SEALED_CONTENTS, sha256, sealed);
  if (text === undefined) return "unreadable";
  if (isReseal) {
    const row = Buffer.from(seal(key, SEALED_CONTENTS, sha256, text));
    db.run("UPDATE contents SET size_bytes = ?, content = ? WHERE sha256 = ?", row.length, row, sha256);
  }
  return "due";
}

/** A content beside the database takes the place of the one before whole, with as many bytes. */
function largeContentFound({ db, key, isReseal }: Walk, sha256: string, bytes: number): HowSealed {
  const place = [SEALED_CONTENTS, sha256] as const;
  const length = unsealedLength(bytes);
  const sealed = () => sealedPieces(db.contents, sha256, bytes);
  try {
    if (beginsWith(() => unsealPieces(sealingKey(key), place, sealed(), length))) return "present";
    if (!beginsWith(() => unsealPieces(key, place, sealed(), length))) return "unreadable";
    if (isReseal) setAside(db.contents, sealedName(sha256), () => resealPieces(key, place, sealed(), length));
    return "due";
  } catch (error) {
    if (error instanceof Failure) return "unreadable";
    throw error;
  }
}

/** True where the first piece can be opened. */
function beginsWith(pieces: () => Iterable<Buffer>): boolean {
  try {
    for (const _ of pieces()) return true;
    return false;
  } catch (error) {
    if (error instanceof Failure) return false;
    throw error;
  }
}
