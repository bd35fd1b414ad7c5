import { mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import path from "node:path";
import { auditFiles } from "../../lib/audit/files.ts";
import { type AuditEntry, type AuditLine, parseAuditLine } from "../../lib/audit/line.ts";
import { AuditLog } from "../../lib/audit/log.ts";
import { exclusively } from "../../lib/bucket/base/database.ts";

/** The audit below a root, with what it tells. */
export function auditBelow(root: string, now?: () => number): { log: AuditLog; told: string[] } {
  mkdirSync(root, { recursive: true });
  const told: string[] = [];
  const log = new AuditLog({ root, takeTurns: exclusively, tell: (line) => told.push(line), ...(now && { now }) });
  return { log, told };
}

/** Some entry. */
export function entryOf(index: number): AuditEntry {
  const params = { note: `entry ${index} – ünïcode`, jobs: ["a", "b"].slice(0, index % 3) };
  return { what: "change", who: `person-${index % 5}`, via: "bearer", from: "192.0.2.7", action: "PUT /api/x", params };
}

/** The paths of the files of the chain below a root. */
export async function chainFiles(root: string): Promise<string[]> {
  const folder = path.join(root, "audit");
  return (await auditFiles(folder)).map((name) => path.join(folder, name));
}

/** All lines of the audit below a root. */
export async function auditLines(root: string): Promise<AuditLine[]> {
  const texts = (await chainFiles(root)).flatMap((file) => readFileSync(file, "utf8").trimEnd().split("\n"));
  return texts.map((text) => parseAuditLine(Buffer.from(text)) as AuditLine);
}

/** Puts something in the way of the newest file, so that nothing can be written; the function takes it away again. */
export async function blockAudit(root: string): Promise<() => void> {
  const [file = ""] = (await chainFiles(root)).reverse();
  renameSync(file, `${file}.away`);
  mkdirSync(file);
  return () => {
    rmSync(file, { recursive: true });
    renameSync(`${file}.away`, file);
  };
}

const MONTH_MS = 31 * 24 * 3_600_000;

/** Writes `count` lines a month for some months from the time `begin` on, and answers the public key. */
export async function writeMonths(root: string, months: number, count: number, begin = Date.UTC(2026, 0, 15)): Promise<string> {
  let at = begin;
  const { log } = auditBelow(root, () => at);
  for (let month = 0; month < months; month++, at += MONTH_MS)
    await Promise.all(Array.from({ length: count }, (_, index) => log.append(entryOf(month * count + index))));
  await log.close();
  return (await log.key()).publicKey;
}
