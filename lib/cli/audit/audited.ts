import { readFileSync } from "node:fs";
import { hostname, userInfo } from "node:os";
import path from "node:path";
import { auditPlace } from "../../audit/files.ts";
import { fingerprintKey } from "../../audit/key.ts";
import type { AuditEntry, AuditKind } from "../../audit/line.ts";
import { AuditLog } from "../../audit/log.ts";
import { fingerprintOf, toldParams } from "../../audit/told.ts";
import { exclusively } from "../../bucket/base/database.ts";
import { layoutOf } from "../../bucket/base/layout.ts";
import { serverLock } from "../../bucket/source/root.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure, hasErrno } from "../../core/errors.ts";
import { exists, realPlace } from "../../core/files.ts";
import { isObject } from "../../core/shape.ts";
import { maskedText, readRecord, runIds } from "../../run/record.ts";
import { BREAK_GLASS_FLAG, bucketDir, type Command, EXIT, type Parsed } from "../base/flags.ts";
import { breakGlassOf } from "../base/start-flags.ts";
import { toStderr } from "../base/terminal.ts";

/** What a command is about, by its name; the first that fits. */
const COMMAND_KINDS: readonly [RegExp, AuditKind][] = [
  [/restore/, "restore"],
  [/delete$|^kv delete/, "delete"],
  [/^(?:ssh-key|kv|ca|worker trust)\b/, "key"],
  [/^tokens\b/, "token"],
  [/^(?:init|fmt|migrate|job create|metrics init)\b/, "change"],
];

/** Where a command changes something of a server. */
interface ServedPlace {
  root: string;
  /** The folder of a bucket below the root; undefined for what is of the server itself. */
  folder?: string;
}

/**
 * Carries out a command that changes a bucket here. Below the root of a server it is written into the server's audit before it
 * does anything, and again with its outcome; where the root has named people it also needs `--break-glass` with a reason.
 * Throws `forbidden` and `audit_unavailable`.
 */
export async function carriedOutAudited(
  command: Command,
  input: Parsed,
  run: (input: Parsed) => Promise<number>,
): Promise<number> {
  const [given] = input.operands;
  // This one takes its folder by its place.
  const isPlaced = command.name === "migrate" && given !== undefined;
  const served = await servedBucket(isPlaced ? realPlace(given) : bucketDir(input));
  if (!served) return await run(input);
  const reason = breakGlassOf(input);
  if (reason === undefined && hasPeople(served.root)) throw glassNeeded(command, served);
  return await betweenLines(served, command, { input, reason }, () => run(input));
}

/** Does a work between two lines of the audit of a root: what is asked for, and how it went. Throws `audit_unavailable`. */
export async function betweenLines(
  place: ServedPlace,
  { name }: Pick<Command, "name">,
  asked: { input: Parsed; reason?: string | undefined },
  work: () => Promise<number>,
): Promise<number> {
  const audit = new AuditLog({ root: place.root, takeTurns: exclusively, tell: (line) => toStderr(`ops: ${line}\n`) });
  const entry = await entryOf(name, asked, place, audit);
  const { n } = await audit.append(entry);
  try {
    const code = await work();
    await tellEnd(audit, entry, {
      of: n,
      outcome: code === EXIT.done ? "done" : code === EXIT.cancelled ? "cancelled" : "failed",
      code,
    });
    return code;
  } catch (error) {
    const told = error instanceof Failure ? error.code : "internal";
    await tellEnd(audit, entry, { of: n, outcome: "failed", code: EXIT.failed, error: told });
    throw error;
  }
}

async function servedBucket(folder: string): Promise<ServedPlace | undefined> {
  const root = path.dirname(folder);
  const isServed = (await exists(serverLock(root).data)) || (await exists(auditPlace(root).key));
  return isServed ? { root, folder } : undefined;
}

/** True where the root has tokens beside the server's own, and where nobody can tell. */
function hasPeople(root: string): boolean {
  try {
    const access: unknown = JSON.parse(readFileSync(path.join(root, "access.json"), "utf8"));
    return !isObject(access) || !Array.isArray(access.tokens) || access.tokens.length > 0;
  } catch (error) {
    return !hasErrno(error, "ENOENT", "ENOTDIR");
  }
}

function glassNeeded({ name, remote }: Command, { root }: ServedPlace): Failure {
  const onServer = remote ? "give --server to do it as one of them, or " : "";
  const message = `ops ${name} would change a bucket of the server of ${root}, which has named people: ${onServer}give --${BREAK_GLASS_FLAG.name} with a reason`;
  return new Failure("forbidden", message);
}

async function entryOf(
  name: string,
  { input: { operands, values, switches }, reason }: { input: Parsed; reason?: string | undefined },
  { folder }: ServedPlace,
  audit: AuditLog,
): Promise<AuditEntry> {
  const key = fingerprintKey(await audit.key());
  const masked = async (_: string, text: string) =>
    folder === undefined ? text : await maskedText(layoutOf(folder), text).catch(() => fingerprintOf(text, key));
  const flags = Object.fromEntries([...values].filter(([flag]) => flag !== BREAK_GLASS_FLAG.name));
  const given = { ...(operands.length > 0 && { operands }), ...flags, ...(switches.size > 0 && { switches: [...switches] }) };
  const bucket = path.basename(folder ?? "").toLowerCase();
  return {
    what: COMMAND_KINDS.find(([pattern]) => pattern.test(name))?.[1] ?? "start",
    via: "cli",
    from: `${userInfo().username}@${hostname()} (process ${process.pid})`,
    action: `ops ${name}`,
    bucket: isUuid(bucket) ? bucket : undefined,
    params: Object.keys(given).length > 0 ? await toldParams(given, { key, masked }) : undefined,
    reason: reason === undefined ? undefined : await masked("reason", reason),
  };
}

type End = Pick<AuditEntry, "of" | "outcome" | "code" | "error">;

/** The line about the end, with the run that the command has made. What was done is done, where it cannot be written. */
async function tellEnd(audit: AuditLog, { what: _, params: __, reason: ___, ...asked }: AuditEntry, end: End): Promise<void> {
  const told: AuditEntry = { ...asked, ...end, ...(await ownRun(path.dirname(audit.folder), asked)), what: "outcome" };
  await audit.append(told).catch((error: unknown) => toStderr(`ops: ${error instanceof Error ? error.message : error}\n`));
}

/** The newest run of the bucket, where this process has made it. */
async function ownRun(root: string, { bucket, from }: Pick<AuditEntry, "bucket" | "from">): Promise<Partial<AuditEntry>> {
  if (bucket === undefined) return {};
  const layout = layoutOf(path.join(root, bucket));
  const newest = (await runIds(layout)).at(-1);
  const record = newest === undefined ? undefined : readRecord(layout, newest);
  if (record?.audit[0]?.actor.address !== from) return {};
  return { run: record?.id, kind: record?.kind, outcome: record?.status };
}
