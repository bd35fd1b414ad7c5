import path from "node:path";
import { loadKvKey } from "../bucket/base/kv-key.ts";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { currentRevision } from "../bucket/source/revisions.ts";
import { Failure, hasErrno } from "../core/errors.ts";
import { flushFolder, makePrivateFolder, readRegularSync, remove, writeAtomic } from "../core/files.ts";
import { Redactor } from "../core/redact.ts";
import { quote } from "../core/shape.ts";
import { RUNS, type RunKind, type RunStatus } from "./protocol.ts";

/** Who asked for something. */
export interface Actor {
  address: string;
  via: "bearer" | "session" | "cli";
}

/** What was done to a run, when and by whom. */
export interface AuditEntry {
  at: string;
  action: "start" | "cancel" | "force_kill";
  actor: Actor;
  request_id: string | null;
}

/** `server-run.json` (control-plane.md, Runs 5): the durable truth about a run. Times are RFC 3339 UTC. */
export interface RunRecord {
  id: string;
  bucket_id: string;
  origin: "server" | "cli";
  /** `unknown` only where the record is damaged. */
  kind: RunKind | "unknown";
  /** What was asked for; never holds a secret. */
  params: Record<string, unknown>;
  /** The source that it works with; null where that is not known. */
  revision: string | null;
  status: RunStatus;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  exit_code: number | null;
  signal: string | null;
  error: string | null;
  result: unknown;
  audit: AuditEntry[];
}

/** Who asked for a run, in words: `bearer from 192.0.2.7`. */
export function askedBy({ audit }: RunRecord): string {
  const { via = "cli", address = "" } = audit[0]?.actor ?? {};
  return via === "cli" ? `${address} on the command line` : `${via} from ${address}`;
}

/** control-plane.md, States: the error of a run that was active when its server stopped, verbatim. */
export const SERVER_RESTARTED = "server restarted before run completed";
/** The error of a command-line run whose process is gone. */
export const COMMAND_ENDED = "command ended before it completed";

/**
 * Makes the record of a run that begins now. Its folder is flushed to the disk once this resolves, and removed where
 * this fails.
 */
export async function createRecord(
  layout: Layout,
  start: Pick<RunRecord, "id" | "bucket_id" | "origin" | "params"> & {
    kind: RunKind;
    actor: Actor;
    requestId: string | null;
  },
): Promise<RunRecord & { kind: RunKind }> {
  const { actor, requestId, ...given } = start;
  const now = new Date().toISOString();
  const record: RunRecord & { kind: RunKind } = {
    ...given,
    params: await withoutSecrets(layout, given.kind, given.params),
    revision: await revisionOf(layout, given.params),
    status: "running",
    created_at: now,
    started_at: now,
    finished_at: null,
    exit_code: null,
    signal: null,
    error: null,
    result: null,
    audit: [{ at: now, action: "start", actor, request_id: requestId }],
  };
  const { folder } = runLayout(layout, record.id);
  try {
    await makePrivateFolder(folder);
    await saveRecord(layout, record);
    await flushFolder(layout.runs);
    return record;
  } catch (error) {
    await remove(folder);
    throw error;
  }
}

/** A push and a rollback name the one that they put in place. */
async function revisionOf(layout: Layout, { revision }: Record<string, unknown>): Promise<string | null> {
  return typeof revision === "string" ? revision : await currentRevision(layout);
}

/** What may be stored of a run's parameters: a command is free text, in which people write secrets of the bucket. */
async function withoutSecrets(
  layout: Layout,
  kind: RunKind,
  params: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  if (kind !== "run_command") return params;
  const { openForReading } = await import("../bucket/base/database.ts");
  const { KvStore } = await import("../bucket/kv/kv.ts");
  using db = openForReading(layout.database);
  const redactor = new Redactor();
  for (const { value } of new KvStore(db, await loadKvKey(layout)).secrets()) redactor.add(value);
  return { ...params, command: redactor.apply(String(params.command)) };
}

/** Notes an action in the record; the caller saves it. */
export function addAudit(
  record: RunRecord,
  action: AuditEntry["action"],
  actor: Actor,
  requestId: string | null,
): void {
  record.audit.push({ at: new Date().toISOString(), action, actor, request_id: requestId });
}

/** True once a cancel was accepted: the run can only end `cancelled`. */
export function isCancelled(record: RunRecord): boolean {
  return record.audit.some((entry) => entry.action === "cancel");
}

/** How the process of a run ended, and what it said about itself. */
export interface RunEnd {
  exitCode: number | null;
  signal: string | null;
  outcome: { ok: boolean; error: { message: string } | null; result: unknown } | undefined;
}

/**
 * The only place where a run gets its end state; the caller saves it. A cancel that was accepted decides, whatever
 * the process said (control-plane.md, States); then `stopped`, the reason why it was ended from outside.
 */
export function settle(record: RunRecord, end: RunEnd, stopped?: string): void {
  const succeeded = end.outcome?.ok === true && end.exitCode === 0 && stopped === undefined;
  record.status = isCancelled(record) ? "cancelled" : succeeded ? "succeeded" : "failed";
  record.error = record.status === "failed" ? (stopped ?? errorOf(end)) : null;
  record.result = end.outcome?.result ?? null;
  record.exit_code = end.exitCode;
  record.signal = end.signal;
  record.finished_at = new Date().toISOString();
}

function errorOf(end: RunEnd): string {
  if (end.outcome?.error) return end.outcome.error.message;
  const how = end.signal === null ? `with exit code ${end.exitCode}` : `by signal ${end.signal}`;
  return `the run's process ended ${how} before it reported a result`;
}

/** Writes the record so that a reader sees the old or the new one, also after a power loss. */
export async function saveRecord(layout: Layout, record: RunRecord): Promise<void> {
  await writeAtomic(runLayout(layout, record.id).record, `${JSON.stringify(record, null, 2)}\n`);
}

/** The failure for a run that is not there. */
export function runNotFound(id: string): Failure {
  return new Failure("run_not_found", `run ${quote(id)} does not exist`);
}

/** The error of a run whose record cannot be read. */
export const RECORD_DAMAGED =
  "server-run.json of this run is damaged: its parameters and result are lost; activity.log tells what the run did";

/**
 * The record shown for a run whose own record is half written or damaged: `failed`, with the time when the run began.
 */
function damagedRecord(layout: Layout, id: string, text: string): RunRecord {
  const at = new Date(timeOfRun(id)).toISOString();
  const kind = /"kind": "(\w+)"/.exec(text)?.[1] ?? "";
  return {
    id,
    bucket_id: path.basename(layout.root),
    origin: "server",
    params: {},
    revision: null,
    kind: Object.hasOwn(RUNS, kind) ? (kind as RunKind) : "unknown",
    status: "failed",
    created_at: at,
    started_at: at,
    finished_at: at,
    exit_code: null,
    signal: null,
    error: RECORD_DAMAGED,
    result: null,
    audit: [],
  };
}

/** The time when a run began, in milliseconds, taken from its id. */
export function timeOfRun(id: string): number {
  return Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16);
}

/**
 * The record of a run, or undefined where there is none. A record that cannot be read is shown as that of a failed run.
 * `id` must be a UUID.
 */
export function readRecord(layout: Layout, id: string): RunRecord | undefined {
  let text = "";
  try {
    // Synchronous: a server that starts looks at every record, and a promise for each call costs ten times the call.
    text = readRegularSync(runLayout(layout, id).record);
    const value = JSON.parse(text) as RunRecord;
    if (value?.id === id && Array.isArray(value.audit)) return value;
  } catch (error) {
    if (error instanceof Failure || hasErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    if (!(error instanceof SyntaxError)) throw error;
  }
  return damagedRecord(layout, id, text);
}
