import type { EndingCert } from "../../bucket/catalog/summary.ts";
import type { HealthChange } from "../../bucket/health/health-history.ts";
import type { MessageEvent } from "../../bucket/notify/notify.ts";
import { isObject } from "../../core/shape.ts";
import type { Proposal } from "../../run/approval/proposal.ts";
import { actorText, type RunRecord } from "../../run/record.ts";
import type { LastDue } from "../watch/schedule-state.ts";
import type { Sighting, Sightings } from "./incidents.ts";

/** What the sources know at a look. */
export interface KnownNow {
  /** The runs that have ended since the last look, oldest first. */
  ended: readonly RunRecord[];
  /** Those that went past what held them back, also while they go on. */
  forced: readonly RunRecord[];
  /** The changes of health since the last look, and what is not well now; undefined while a run may find more. */
  health: { changes: readonly HealthChange[]; unwell: readonly HealthChange[] } | undefined;
  /** The certificates near their end; undefined where the database could not be read. */
  certs: readonly EndingCert[] | undefined;
  /** What became of the last due time of each schedule. */
  due: ReadonlyMap<string, LastDue>;
  /** The proposals that lack an approval. */
  wanted: readonly Proposal[];
}

/** What is told of a kind of runs by what they have found. */
const LOOKING = ["health_check", "drift", "worker_facts", "worker_uptime", "worker_sysstat"];
/** The kinds of runs whose failure is over once a run of the kind succeeds. All others but deploys are told once. */
const LASTING = [...LOOKING, "build", "snapshot_create", "gc", "kv_rekey", "ca_rotate", "ssh_key_rotate"];
/** A build is also what ends a push and a rollback. */
const BUILDS = ["push", "rollback"];
const WHOLE_CA = "certificate authority";

/** What the sources say, as findings. `left` are the places of open incidents. */
export function findingsOf(known: KnownNow, left: readonly string[]): Sightings {
  const { ended, forced, health, certs, due, wanted } = known;
  const late = [...due].filter(([, { outcome }]) => outcome === "missed" || outcome === "refused");
  const notStarted = [...due].filter(([, { outcome }]) => outcome !== "started").map(([name]) => name);
  const unwell = health && [...health.changes, ...health.unwell].flatMap(healthFinding);
  const complete: Sightings["complete"][number][] = [
    { events: ["schedule_missed"], bad: new Set(notStarted) },
    { events: ["approval_wanted"], bad: new Set(wanted.map(namedById)) },
  ];
  if (health) complete.push(...(["health", "reach", "files"] as const).map((aspect) => stillUnwell(health.unwell, aspect)));
  if (certs) complete.push({ events: ["certificate_ends"], bad: new Set(certs.map(certPlace)) });
  return {
    found: [
      ...(unwell ?? []),
      ...ended.flatMap((record) => runFindings(record, left)),
      ...forced.map(forcedFinding),
      ...late.map(lateFinding),
      ...wanted.map(wantedFinding),
      ...(certs ?? []).map(certFinding),
    ],
    complete,
    checks: ended.flatMap(checksOf),
  };
}

const HEALTH_EVENTS = { health: "allocation_unhealthy", reach: "worker_unreachable", files: "drift" } as const;
type Watched = keyof typeof HEALTH_EVENTS;

function placeName({ job, worker }: { job: string; worker: string }): string {
  return job === "" ? worker : `${job}@${worker}`;
}

/** An allocation whose worker gives no answer is neither healthy nor unhealthy; the load of a worker is not told. */
function healthFinding(change: HealthChange): Sighting[] {
  const { job, aspect, state, reason, run_id, at } = change;
  if (aspect === "load" || (aspect === "health" && state === "unreachable")) return [];
  const isBad = ["unhealthy", "unreachable", "drifted"].includes(state);
  const place = placeName(change);
  const group = `${run_id} ${aspect === "health" ? job : ""}`;
  const about = { job: job === "" ? null : job, reason: reason === "" ? "" : `${place}: ${reason}` };
  return [{ event: HEALTH_EVENTS[aspect as Watched], place, isBad, group, ...about, run: run_id, at }];
}

/** What has no name of its own, by its kind and the end of its id. */
function namedById({ kind, id }: { kind: string; id: string }): string {
  return `${kind} ${id.slice(-8)}`;
}

function stillUnwell(unwell: readonly HealthChange[], aspect: Watched): Sightings["complete"][number] {
  const own = unwell.filter((one) => one.aspect === aspect);
  return { events: [HEALTH_EVENTS[aspect]], bad: new Set(own.map(placeName)) };
}

interface Looked {
  worker: string;
  job: string;
  outcome: string;
  allocations: Looked[];
  gate_failed?: boolean;
  reason?: string;
}

function partsOfResult({ result }: RunRecord, name: "jobs" | "workers"): Looked[] {
  const parts = isObject(result) ? result[name] : undefined;
  return Array.isArray(parts) ? (parts as Looked[]) : [];
}

/** What a run has looked at and found bad, by event. */
function checksOf(record: RunRecord): Sightings["checks"][number][] {
  if (!LOOKING.includes(record.kind)) return [];
  const jobs = partsOfResult(record, "jobs");
  const workers = partsOfResult(record, "workers");
  const unhealthy = jobs.flatMap(({ job, allocations }) =>
    allocations.filter(({ outcome }) => outcome === "failed").map(({ worker }) => placeName({ job, worker })),
  );
  const drifted = workers.flatMap(({ worker, allocations = [] }) =>
    allocations.filter(({ outcome }) => outcome === "drifted").map(({ job }) => placeName({ job, worker })),
  );
  const unreachable = workers.filter(({ outcome }) => outcome === "unreachable").map(({ worker }) => worker);
  const found = { allocation_unhealthy: unhealthy, drift: drifted, worker_unreachable: unreachable };
  return Object.entries(found).map(([event, bad]) => ({ run: record.id, event: event as MessageEvent, bad: new Set(bad) }));
}

/** How a run ended: one that was cancelled tells nothing. */
function runFindings(record: RunRecord, left: readonly string[]): Sighting[] {
  const { id, kind, status, params, schedule, finished_at } = record;
  if (status === "cancelled") return [];
  const isDry = kind === "deploy" && params.dry_run === true;
  const isLasting = LASTING.includes(kind) || BUILDS.includes(kind);
  const own = schedule && !isLasting ? `${kind} of schedule ${schedule.name}` : isDry ? "dry run of deploy" : kind;
  const isMoment = !isLasting && !schedule;
  const named = isMoment ? namedById(record) : own;
  const place = BUILDS.includes(kind) ? "build" : named;
  const about = { group: id, run: id, at: finished_at ?? undefined } as const;
  if (kind === "deploy" && !isDry) return deployFindings(record, left);
  const event = kind === "snapshot_create" ? "snapshot_failed" : "run_failed";
  const isBad = status === "failed" && !isTold(record);
  if (isMoment && !isBad) return [];
  const shown = schedule && isLasting ? `${kind} of schedule ${schedule.name}` : own;
  return [{ event, place, shown, isBad, isMoment, reason: record.error ?? "", ...about }];
}

/** A deploy fails job by job, and a later one makes good what it deploys. */
function deployFindings(record: RunRecord, left: readonly string[]): Sighting[] {
  const { id: run, status, params, finished_at } = record;
  const jobs = partsOfResult(record, "jobs");
  const failed = jobs.filter(({ outcome }) => outcome === "failed");
  const isGate = failed.some(({ gate_failed }) => gate_failed === true);
  const about = { group: run, run, at: finished_at ?? undefined };
  const finding = (place: string, isBad: boolean, more: Partial<Sighting> = {}): Sighting => {
    return { event: isGate ? "gate_failed" : "run_failed", place, isBad, ...more, ...about };
  };
  const isAll = status === "succeeded" && params.jobs === undefined;
  const good = jobs.filter(({ outcome }) => outcome === "deployed" || outcome === "skipped").map(({ job }) => `deploy of ${job}`);
  const open = left.filter((place) => place.startsWith("deploy of "));
  const goods = [...(status === "succeeded" ? ["deploy"] : []), ...(isAll ? open : good)];
  const bads = failed.map(({ job, reason = "" }) => finding(`deploy of ${job}`, true, { job, reason: `${job}: ${reason}` }));
  const isWhole = status === "failed" && bads.length === 0;
  const whole = isWhole ? [finding("deploy", true, { reason: record.error ?? "" })] : [];
  return [...goods.map((place) => finding(place, false)), ...bads, ...whole];
}

/** True where what the run has found is told as such: it did its work. */
function isTold(record: RunRecord): boolean {
  if (!LOOKING.includes(record.kind)) return false;
  if (record.kind === "health_check") return partsOfResult(record, "jobs").length + partsOfResult(record, "workers").length > 0;
  const outcomes = partsOfResult(record, "workers").map(({ outcome }) => outcome);
  return outcomes.some((one) => one === "drifted" || one === "unreachable") && !outcomes.includes("failed");
}

function forcedFinding({ id, kind, audit, break_glass, created_at: at }: RunRecord): Sighting {
  const [start] = audit;
  const shown = `${kind} by ${start ? actorText(start.actor) : "somebody"}`;
  const about = { isMoment: true, shown, reason: break_glass ?? "", at };
  return { event: "break_glass_used", place: namedById({ kind, id }), isBad: true, group: id, run: id, ...about };
}

function lateFinding([name, { due, outcome, reason }]: [string, LastDue]): Sighting {
  const shown = outcome === "missed" ? name : `${name} (refused)`;
  const why = `${name}, due ${due}: ${reason ?? outcome}`;
  return { event: "schedule_missed", place: name, shown, isBad: true, group: "", reason: why, run: null };
}

function wantedFinding({ id, kind, reason, proposed: { at, by } }: Proposal): Sighting {
  const why = `${reason === null ? "" : `${reason}\n`}Look at it, then type: ops approve ${id.slice(-8)}`;
  const about = { shown: `${kind} by ${by.name}`, reason: why, at };
  return { event: "approval_wanted", place: namedById({ kind, id }), isBad: true, group: id, run: null, ...about };
}

function certPlace({ job, worker, cert }: EndingCert): string {
  return job === "" ? WHOLE_CA : `${job}@${worker} ${cert}`;
}

function certFinding(one: EndingCert): Sighting {
  const ends = new Date(one.ends).toISOString();
  const place = certPlace(one);
  const about = { job: one.job === "" ? null : one.job, reason: `${place} ends ${ends}`, endsAt: one.ends };
  return { event: "certificate_ends", place, isBad: true, group: "", ...about, run: null };
}
