import { Failure } from "../../core/errors.ts";
import type { Database } from "../base/database.ts";
import type { KvStore } from "../kv/kv.ts";
import type { StagedFile } from "./staging.ts";

/** The place that the contents of secret files are sealed for; the name is their SHA-256. */
export const SEALED_CONTENTS = "contents";

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
