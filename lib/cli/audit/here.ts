import { copyFile, stat, truncate } from "node:fs/promises";
import path from "node:path";
import { auditFiles, auditPlace, auditTail } from "../../audit/files.ts";
import { publicKeyNamed } from "../../audit/key.ts";
import { AUDIT_KINDS, type AuditHead, type AuditLine } from "../../audit/line.ts";
import { AuditLog } from "../../audit/log.ts";
import { type AuditWanted, readAudit } from "../../audit/read.ts";
import { type AuditVerdict, verifyAudit } from "../../audit/verify.ts";
import { exclusively } from "../../bucket/base/database.ts";
import { Failure } from "../../core/errors.ts";
import { makePrivateFolder, realPlace, unlessMissing, writeAtomic } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import { quote } from "../../core/shape.ts";
import { knownSigningKey, signerFingerprint } from "../../core/signing-key.ts";
import { EXIT, flagList, flagNumber, type Parsed } from "../base/flags.ts";
import { factLines, printAnswer, printList, shortId, toStderr } from "../base/terminal.ts";

/** Where an audit ends, with the key that verifies it. */
export type ShownHead = AuditHead & { public_key: string; fingerprint: string };

const SHOWN_LINES = 50;

/** The lines that the flags of a command ask for, and how many. */
export function auditWanted(input: Parsed): { wanted: AuditWanted; limit: number } {
  const { values } = input;
  const { who, from, run, since, until } = Object.fromEntries(values);
  const what = flagList(input, "what");
  const known: readonly string[] = AUDIT_KINDS;
  const unknown = what?.find((one) => !known.includes(one));
  if (unknown !== undefined) throw new Failure("usage", `--what: ${quote(unknown)} is none of ${known.join(", ")}`);
  return { wanted: { what, who, from, run, since, until }, limit: flagNumber(input, "limit", 1) ?? SHOWN_LINES };
}

/** The root that a command names. Throws `usage` where it names none. */
function auditRoot({ values }: Parsed): string {
  const root = values.get("root");
  if (root !== undefined) return realPlace(root);
  throw new Failure("usage", "no audit is named: give --server, or --root with the folder of the buckets of a server here");
}

/** `ops audit show --root`. */
export async function showAuditHere(input: Parsed): Promise<number> {
  const { folder } = auditPlace(auditRoot(input));
  await filesAt(folder);
  const { wanted, limit } = auditWanted(input);
  const items: AuditLine[] = [];
  for (let cursor: string | undefined; items.length < limit; ) {
    const page = await readAudit(folder, wanted, limit - items.length, cursor);
    items.push(...page.items);
    if (page.next_cursor === null) break;
    cursor = page.next_cursor;
  }
  return printAudit(input, items);
}

/** Prints lines of an audit. */
export function printAudit(input: Parsed, items: readonly AuditLine[]): number {
  return printList(input, items, "the audit has no such line", {
    line: ({ n }) => n,
    at: ({ at }) => at,
    who: ({ who, via, from }) => who ?? (via === "server" ? "the server" : (from ?? "-")),
    what: ({ what, of }) => (of === undefined ? what : `${what} (of ${of})`),
    action: ({ action, kind, reason }) => (action ?? kind ?? "-") + (reason === undefined ? "" : ` BREAK GLASS: ${reason}`),
    bucket: ({ bucket }) => (bucket === undefined ? null : shortId(bucket)),
    run: ({ run }) => (run === undefined ? null : shortId(run)),
    outcome: ({ outcome, code, error, count }) => {
      const how = [outcome, code, error].filter((one) => one !== undefined).join(" ");
      return (count === undefined ? "" : `${count} x `) + how || null;
    },
  });
}

/** `ops audit head --root`. */
export async function showHeadHere(input: Parsed): Promise<number> {
  const root = auditRoot(input);
  const log = new AuditLog({ root, takeTurns: exclusively, tell: (line) => toStderr(`${line}\n`) });
  const { publicKey: public_key, fingerprint } = await requiredKey(root);
  return printHead(input, { ...(await log.head()), public_key, fingerprint });
}

/** Prints where an audit ends. */
export function printHead(input: Parsed, { n, at, hash, public_key, fingerprint }: ShownHead): number {
  return printAnswer(
    input,
    { n, at, hash, public_key, fingerprint },
    factLines([
      ["line", n],
      ["at", at],
      ["head", hash],
      ["public key", public_key],
      ["fingerprint", fingerprint],
    ]),
  );
}

async function requiredKey(root: string) {
  const file = auditPlace(root).key;
  const key = await knownSigningKey(file);
  if (key) return key;
  throw new Failure("failed", `there is no audit below ${root}: ${file} is missing`);
}

/** `ops audit export --root`. */
export async function exportAuditHere(input: Parsed): Promise<number> {
  const root = auditRoot(input);
  const { folder } = auditPlace(root);
  const { publicKey } = await requiredKey(root);
  const to = await exportFolder(input);
  const names = await auditFiles(folder);
  for (const name of names) {
    const copy = path.join(to, name);
    await copyFile(path.join(folder, name), copy);
    // A line that was just being written is not in the copy.
    await truncate(copy, (await auditTail(copy)).size);
  }
  return await printExport(input, { to, names, publicKey });
}

/** The folder of an export, which is made where it is missing. */
export async function exportFolder({ operands: [given = ""] }: Parsed): Promise<string> {
  const to = realPlace(given);
  await makePrivateFolder(to);
  return to;
}

/** Puts the public key beside the files of an export, and prints how they are verified. */
export async function printExport(
  input: Parsed,
  { to, names, publicKey }: { to: string; names: readonly string[]; publicKey: string },
): Promise<number> {
  await writeAtomic(path.join(to, "audit.pub"), `${publicKey}\n`);
  return printAnswer(
    input,
    { folder: to, files: names, public_key: publicKey },
    `${counted(names.length, "file")} in ${to}\nverify them, at best with a key that was noted elsewhere:\n` +
      `  ops audit verify ${to} --public-key ${publicKey}\n`,
  );
}

/** `ops audit verify`: exits with 1 where something was found. */
export async function verifyAuditCommand(input: Parsed): Promise<number> {
  const { values, operands } = input;
  const root = values.has("root") ? auditRoot(input) : undefined;
  const place = operands[0] ?? (root && auditPlace(root).folder);
  if (place === undefined) throw new Failure("usage", "no files are named: give a folder of them, or --root");
  const given = values.get("public-key");
  if (given === undefined && root === undefined) throw new Failure("usage", "no key is named: give --public-key, or --root");
  const publicKey = given === undefined ? (await requiredKey(root as string)).publicKey : publicKeyNamed(given);
  const [head, from] = ["head", "from"].map((name) => hashOf(input, name));
  const files = await filesAt(place);
  const verdict = await verifyAudit(files, { publicKey, head, from });
  const text = verdictText(verdict, { files: files.length, publicKey, hasHead: head !== undefined });
  printAnswer(input, { ...verdict, files: files.length, public_key: publicKey }, text);
  return verdict.ok ? EXIT.done : EXIT.failed;
}

function hashOf({ values }: Parsed, name: string): string | undefined {
  const hash = values.get(name);
  if (hash === undefined || /^[0-9a-f]{64}$/.test(hash)) return hash;
  throw new Failure("usage", `--${name}: expected a hash of 64 digits from 0 to f`);
}

async function filesAt(given: string): Promise<string[]> {
  const place = realPlace(given);
  if ((await unlessMissing(stat(place)))?.isDirectory() === false) return [place];
  const files = await auditFiles(place);
  if (files.length > 0) return files.map((name) => path.join(place, name));
  throw new Failure("usage", `${place} has no file of an audit, such as 2026-11.jsonl`);
}

function verdictText(
  { ok, first, last, finding }: AuditVerdict,
  { files, publicKey, hasHead }: { files: number; publicKey: string; hasHead: boolean },
): string {
  const key = signerFingerprint(publicKey);
  const vouched = last
    ? `the key ${key} vouches for the lines ${first} to ${last.n}, until ${last.at}\nhead ${last.hash}\n`
    : `the key ${key} vouches for no line\n`;
  if (!finding) {
    const end = hasHead ? "" : "an end that was cut off shows only against --head with a hash that was noted elsewhere\n";
    return `${ok ? "nothing was changed" : "not verified"}: ${counted(files, "file")}\n${vouched}${end}`;
  }
  const place = finding.file === null ? "" : `${finding.file}:${finding.line}: `;
  return `FOUND: ${place}${finding.fault}, where line ${finding.n} should be: ${finding.why}\n${vouched}`;
}
