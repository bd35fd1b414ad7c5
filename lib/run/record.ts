import path from "node:path";
import { setImmediate as nextRound } from "node:timers/promises";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { loadKvKey } from "../bucket/kv/kv-access.ts";
import { currentRevision } from "../bucket/source/revisions.ts";
import { idNamed, isUuid, timeOfUuid } from "../codec/uuid.ts";
import { Failure, hasErrno } from "../core/errors.ts";
import { flushFolder, makePrivateFolder, namesIn, readRegularSync, remove, writeAtomic } from "../core/files.ts";
import { Redactor } from "../core/redact.ts";
import { faultPoint } from "../core/self.ts";
import {
  anything,
  described,
  type Infer,
  integer,
  list,
  nullable,
  object,
  oneOf,
  optional,
  quote,
  type Shape,
  string,
} from "../core/shape.ts";
import { RUN_APPROVAL, type RunApproval } from "./approval/proposal.ts";
import { TIME } from "./progress.ts";
import { RUN_KINDS, RUN_STATUS, RUNS, type RunKind, type RunParams, secretsApart } from "./protocol.ts";

/** The id of a bucket, a run or a revision. */
export const ID: Shape<string> = {
  ...string(),
  schema: { type: "string", format: "uuid", examples: ["0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70"] },
};

/** Who asked for something. */
export interface Actor {
  /** The name of the token or of the schedule; undefined on the command line and in earlier records. */
  name?: string | undefined;
  address: string;
  via: "bearer" | "session" | "cli" | "schedule";
}

/** The shape of {@link Actor}. */
export const ACTOR: Shape<Actor> = object({
  name: described(optional(string()), "The name of the token; missing on the command line and in earlier records"),
  address: string(),
  via: oneOf("bearer", "session", "cli", "schedule"),
});

/** An action on a run: what, when and by whom. */
const AUDIT_ENTRY = object({
  at: TIME,
  action: oneOf("start", "cancel", "force_kill"),
  actor: ACTOR,
  request_id: nullable(string()),
});

/** The schedule that a run is of, and how the run compares with the one before. */
const OF_SCHEDULE = object({
  name: string(),
  due: TIME,
  sum: described(nullable(string()), "Equal for runs that ended the same way; null until the run has ended"),
  repeats: described(integer({ min: 0 }), "How many runs before it, one after the other, ended the same way"),
  since: described(TIME, "When the first of them began"),
});
/** The value of {@link OF_SCHEDULE}. */
export type OfSchedule = Infer<typeof OF_SCHEDULE>;

/** The kind of a run; `unknown` only where the record is damaged. */
export const RUN_KIND = described(oneOf(...RUN_KINDS, "unknown"), "`unknown` where the record is damaged");

/** The fields of `server-run.json` (control-plane.md, Runs 5), the durable truth about a run. */
export const RUN_FIELDS = {
  id: ID,
  bucket_id: ID,
  origin: described(oneOf("server", "cli", "schedule"), "schedule: the server began it by itself"),
  schedule: described(nullable(OF_SCHEDULE), "Of a run that a schedule began; null of all others"),
  kind: RUN_KIND,
  approval: described(nullable(RUN_APPROVAL), "The proposal that the run has used; null where it needed none"),
  break_glass: described(nullable(string()), "Why an admin went past an approval or a freeze; null where nobody did"),
  // Never holds a secret.
  params: described(anything({ type: "object" }) as Shape<RunParams>, "The parameters that were given"),
  revision: described(nullable(ID), "The source revision that the run works with; null where none is known"),
  status: RUN_STATUS,
  created_at: TIME,
  started_at: nullable(TIME),
  finished_at: nullable(TIME),
  exit_code: nullable(integer()),
  signal: nullable(string()),
  error: described(nullable(string()), "Why it failed, one sentence"),
  result: described(anything(), "The outcome a person asks for; its form depends on the kind"),
  audit: list(AUDIT_ENTRY),
};
/** The `Idempotency-Key` of a start, and the sum of what was asked for. */
export interface StartKey {
  key: string;
  sum: string;
}

/** Who asked for a run, in which request, with which key, who approved it, or why it goes past what holds it back. */
export interface AskedFor {
  actor: Actor;
  requestId: string | null;
  start_key?: StartKey;
  schedule?: Pick<OfSchedule, "name" | "due">;
  breakGlass?: string | undefined;
  approval?: RunApproval | undefined;
}

/** `server-run.json`. The key stands in the record so that one write decides: no run without its key, no key without its run. */
export type RunRecord = { [K in keyof typeof RUN_FIELDS]: Infer<(typeof RUN_FIELDS)[K]> } & { start_key?: StartKey };

/** Who asked for a run, and who approved it, in words. Records of earlier versions have no approval. */
export function askedBy({ audit, approval }: Pick<RunRecord, "audit" | "approval">): string {
  const approved = approval?.by.length ? `, approved by ${approval.by.join(" and ")}` : "";
  return actorText(audit[0]?.actor ?? { address: "", via: "cli" }) + approved;
}

/** `ada, session from 192.0.2.7`, or `schedule:nightly`; in records of earlier programs without the name. */
export function actorText({ name, via, address }: Actor): string {
  if (via === "cli") return `${address} on the command line`;
  if (via === "schedule") return String(name);
  return `${name === undefined ? "" : `${name}, `}${via} from ${address}`;
}

/** control-plane.md, States and transitions: the error of a run that was active when its server stopped, verbatim. */
export const SERVER_RESTARTED = "server restarted before run completed";
/** The error of a command-line run whose process is gone. */
export const COMMAND_ENDED = "command ended before it completed";

/**
 * Makes the folder and the record of a run that begins now. Both are on the disk once this resolves; where this fails, the
 * folder is removed.
 */
export async function createRecord(
  layout: Layout,
  start: Pick<RunRecord, "id" | "bucket_id" | "origin" | "params"> & { kind: RunKind } & AskedFor,
): Promise<RunRecord & { kind: RunKind }> {
  const { actor, requestId, schedule, breakGlass, approval = null, ...given } = start;
  const now = new Date().toISOString();
  const { params } = secretsApart(given.kind, given.params);
  // People write secrets of the bucket into commands.
  if (given.kind === "run_command") params.command = await maskedText(layout, String(params.command));
  const record: RunRecord & { kind: RunKind } = {
    ...given,
    origin: schedule ? "schedule" : given.origin,
    schedule: schedule ? { ...schedule, sum: null, repeats: 0, since: now } : null,
    // These come before the result, like the key of the start: a reader of the head reads no further.
    approval,
    break_glass: breakGlass === undefined ? null : await maskedReason(layout, breakGlass),
    params,
    // The one that a push or a rollback has put in place, else the current one.
    revision: typeof params.revision === "string" ? params.revision : await currentRevision(layout),
    ...begun(now),
    audit: [{ at: now, action: "start", actor, request_id: requestId }],
  };
  const { folder } = runLayout(layout, record.id);
  try {
    await makePrivateFolder(folder);
    faultPoint("run: folder");
    await saveRecord(layout, record);
    await flushFolder(layout.runs);
    return record;
  } catch (error) {
    await remove(folder);
    throw error;
  }
}

function begun(at: string) {
  const open = { finished_at: null, exit_code: null, signal: null, error: null, result: null };
  return { status: "running", created_at: at, started_at: at, ...open } as const;
}

/** A text that people wrote, with the bucket's secrets masked. */
export async function maskedText(layout: Layout, text: string): Promise<string> {
  const { openForReading } = await import("../bucket/base/database.ts");
  const { KvStore } = await import("../bucket/kv/kv.ts");
  using db = openForReading(layout.database);
  const redactor = new Redactor();
  for (const { value } of new KvStore(db, await loadKvKey(layout)).secrets()) redactor.add(value);
  return redactor.apply(text);
}

/** The same for a reason; where the database is damaged, nobody can tell what its secrets are. */
async function maskedReason(layout: Layout, text: string): Promise<string> {
  return await maskedText(layout, text).catch((error: unknown) => {
    if (error instanceof Failure && error.code === "database_damaged") return text;
    throw error;
  });
}

/** Notes an action in the record; the caller saves it. */
export function addAudit(
  record: RunRecord,
  action: RunRecord["audit"][number]["action"],
  actor: Actor,
  requestId: string | null,
): void {
  record.audit.push({ at: new Date().toISOString(), action, actor, request_id: requestId });
}

/** True once a cancel was accepted: the run can only end `cancelled`. */
export function isCancelled(record: RunRecord): boolean {
  return record.audit.some((entry) => entry.action === "cancel");
}

/** How the process of a run ended, and the outcome that it reported. */
export interface RunEnd {
  exitCode: number | null;
  signal: string | null;
  outcome: { ok: boolean; error: { message: string } | null; result: unknown } | undefined;
}

/**
 * The only place where a run gets its end state; the caller saves the record. An accepted cancel decides, whatever the
 * process has reported (control-plane.md, States and transitions). Next comes `stopped`, the reason why the run was ended
 * from outside, and then the outcome.
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

/** The ids of all stored runs, oldest first (a run id is a UUIDv7, so this is their order in time). */
export async function runIds(layout: Layout): Promise<string[]> {
  return (await namesIn(layout.runs)).filter(isUuid).sort();
}

/** How long the key of a start is remembered. */
const KEY_MS = 3_600_000;
/** Of how many runs of a bucket, the newest ones, the keys are remembered. */
export const MOST_KEYS = 1_000;
/** How many records are read before other work gets its turn. */
export const READ_AT_ONCE = 100;

/** Where the records of removed runs are whose keys are still remembered, as those of others below `runs`. */
export const removedRuns = (layout: Layout): Layout => ({ ...layout, runs: layout.startKeys });

/** Whether a run was started with a key that is still remembered. */
export function hasFreshKey(record: RunRecord | undefined): record is RunRecord {
  return record?.start_key !== undefined && Date.parse(record.created_at) > Date.now() - KEY_MS;
}

/** The run of the last hour that was started with this key; undefined where there is none. */
export async function runOfKey(layout: Layout, key: string): Promise<RunRecord | undefined> {
  const removed = removedRuns(layout);
  // In this order: a run that is removed meanwhile is found among the removed ones.
  const ids = [...(await runIds(layout)), ...(await runIds(removed))].sort().reverse();
  for (const [index, id] of ids.slice(0, MOST_KEYS).entries()) {
    // A bucket with many runs must not keep all other requests waiting.
    if (index % READ_AT_ONCE === READ_AT_ONCE - 1) await nextRound();
    const record = readRecordHead(layout, id) ?? readRecordHead(removed, id);
    // The runs of a bucket begin one after the other: all that follow are older still.
    if (record && Date.parse(record.created_at) <= Date.now() - KEY_MS) return undefined;
    if (record?.start_key?.key === key) return record;
  }
  return undefined;
}

/** Writes the record atomically: a reader sees the old or the new one, also after a power loss. */
export async function saveRecord(layout: Layout, record: RunRecord): Promise<void> {
  await writeAtomic(runLayout(layout, record.id).record, `${JSON.stringify(record, null, 2)}\n`);
}

/** The failure for a run that does not exist. */
export function runNotFound(id: string): Failure {
  return new Failure("run_not_found", `run ${quote(id)} does not exist`);
}

/** The error of a run whose record cannot be read. */
export const RECORD_DAMAGED =
  "server-run.json of this run is damaged: its parameters and result are lost; activity.log tells what the run did";

/** The record shown for a run whose own record is damaged: `failed`, with the time when the run began. */
function damagedRecord(layout: Layout, id: string, text: string): RunRecord {
  const at = new Date(timeOfUuid(id)).toISOString();
  const kind = /"kind": "(\w+)"/.exec(text)?.[1] ?? "";
  return {
    id,
    bucket_id: path.basename(layout.root),
    origin: "server",
    approval: null,
    schedule: null,
    break_glass: null,
    params: {},
    revision: null,
    kind: Object.hasOwn(RUNS, kind) ? (kind as RunKind) : "unknown",
    ...begun(at),
    status: "failed",
    finished_at: at,
    error: RECORD_DAMAGED,
    audit: [],
  };
}

/**
 * The record of a run, or undefined where there is none. A damaged record is shown as that of a failed run. `id` must be a
 * UUID.
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

/** The id of the run that a whole id, or its beginning or end, names ({@link idNamed}). */
export async function runNamed(layout: Layout, given: string): Promise<string> {
  return idNamed(given, await runIds(layout), "run");
}

/** Large enough for the record of nearly every run up to its result, which may have megabytes. */
const HEAD_BYTES = 16 * 1024;

/** {@link readRecord} without result and audit, which costs little also where the result is large. */
export function readRecordHead(layout: Layout, id: string): RunRecord | undefined {
  try {
    const head = readRegularSync(runLayout(layout, id).record, HEAD_BYTES);
    const value = JSON.parse(`${head.slice(0, head.indexOf('\n  "result": '))} "result": null}`) as RunRecord;
    if (value.id === id) return { ...value, audit: [] };
  } catch {
    // Missing, damaged or longer: told below.
  }
  return readRecord(layout, id);
}

/** How many milliseconds a run took, or has taken until now. */
export function durationOf({ created_at, finished_at }: RunRecord): number {
  return Math.max(0, (finished_at === null ? Date.now() : Date.parse(finished_at)) - Date.parse(created_at));
}
