import path from "node:path";
import { setImmediate as nextRound } from "node:timers/promises";
import { unsealedLength } from "../../codec/crypto/seal.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { namesIn, remove } from "../../core/files.ts";
import {
  isSetAside,
  LARGEST_ROW_BYTES,
  type LargeContent,
  sealedName,
  sealedPieces,
  setAside,
  setAsidePieces,
} from "../base/contents.ts";
import { type Database, largeContents } from "../base/database.ts";
import type { CatalogFile } from "../base/model.ts";
import type { KvStore } from "../kv/kv.ts";
import { SEALED_CONTENTS } from "../kv/kv-access.ts";
import type { StagedFile } from "./staging.ts";

/** A large content as it lies beside the database, not sealed. */
export function contentBeside(db: Database, sha256: string, length: number): LargeContent {
  return { length, pieces: (buffer) => setAsidePieces(db.contents, sha256, length, buffer) };
}

/**
 * Puts the large contents of jobs beside the database, as far as they are not there. To be called before their rows are
 * written. Throws `failed` where a file was changed since it was found, `cancelled`.
 */
export async function storeLargeContents(
  db: Database,
  jobs: readonly { name: string; files: readonly CatalogFile[] }[],
  signal: AbortSignal,
): Promise<void> {
  for (const { name, files } of jobs)
    for (const { path, sha256, content } of files) {
      if (Buffer.isBuffer(content) || isSetAside(db.contents, sha256, content.length)) continue;
      throwIfCancelled(signal);
      try {
        setAside(db.contents, sha256, content.pieces);
      } catch (cause) {
        throw new Failure("failed", `Cannot store ${path} of job ${name}: ${messageOf(cause)}`, { cause });
      }
      // So that a cancel is heard.
      await nextRound();
    }
}

/** Removes the contents beside the database that no row names, or names any more. To be called under the bucket's lock. */
export async function removeUnnamedContents(db: Database): Promise<void> {
  const found = await namesIn(db.contents);
  const named = found.length > 0 ? largeContents(db) : new Set();
  for (const name of found) if (!named.has(name)) await remove(path.join(db.contents, name));
}

/**
 * Keeps the contents of promoted files, equal contents once (decisions: Rulings, what is promoted is kept). A content
 * that was rendered with secrets is sealed with the bucket's key, together with these secrets: they tell later what
 * must not be shown of the content. A large one is sealed without: nothing is ever shown of it.
 */
export function keepContents(db: Database, kv: KvStore, files: readonly StagedFile[]): void {
  const sql = "INSERT INTO contents (sha256, sealed, size_bytes, content) VALUES (?, ?, ?, ?)";
  for (const file of files) {
    const { sha256, isSecret } = file;
    if (db.get("SELECT 1 FROM contents WHERE sha256 = ?", sha256)) continue;
    const { length, row } = storedContent(db, kv, file);
    db.run(sql, sha256, isSecret ? 1 : 0, length, row);
  }
}

/** The content as it is stored in its row, or null where it is stored beside the database. */
function storedContent(
  db: Database,
  kv: KvStore,
  { sha256, content, isSecret, secrets = [] }: StagedFile,
): { length: number; row: Buffer | null } {
  // One that is not in memory comes from the catalog, which has it there.
  if (!Buffer.isBuffer(content)) return { length: content.length, row: null };
  if (content.length <= LARGEST_ROW_BYTES) {
    const row = isSecret ? Buffer.from(kv.seal(SEALED_CONTENTS, sha256, packed([content, ...secrets]))) : content;
    return { length: row.length, row };
  }
  const pieces = () => (isSecret ? kv.sealPieces(SEALED_CONTENTS, sha256, content) : [content]);
  return { length: setAside(db.contents, isSecret ? sealedName(sha256) : sha256, pieces), row: null };
}

/** The content of a promoted file, from the last two trees of each allocation. Throws `failed` where it is gone. */
export function keptContent(db: Database, kv: KvStore, sha256: string): Pick<StagedFile, "content" | "isSecret" | "secrets"> {
  const sql = "SELECT sealed, size_bytes, content FROM contents WHERE sha256 = ?";
  const row = db.get<{ sealed: number; size_bytes: number; content: Uint8Array | null }>(sql, sha256);
  if (!row) throw new Failure("failed", `the content ${sha256} of a promoted file is not kept any more`);
  const isSecret = row.sealed === 1;
  if (row.content === null) {
    const content = isSecret ? unsealedBeside(db, kv, sha256, row.size_bytes) : contentBeside(db, sha256, row.size_bytes);
    return { content, isSecret, ...(isSecret && { secrets: [] }) };
  }
  const bytes = Buffer.from(row.content);
  if (!isSecret) return { content: bytes, isSecret };
  const [content, ...secrets] = unpacked(kv.unseal(SEALED_CONTENTS, sha256, bytes.toString()));
  return { content: content as Buffer, isSecret, secrets: secrets.map(String) };
}

function unsealedBeside(db: Database, kv: KvStore, sha256: string, sealedBytes: number): LargeContent {
  const length = unsealedLength(sealedBytes);
  const sealed = () => sealedPieces(db.contents, sha256, sealedBytes);
  return { length, pieces: () => kv.unsealPieces(SEALED_CONTENTS, sha256, sealed(), length) };
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
