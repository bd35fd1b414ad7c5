import type { Database } from "../bucket/base/database.ts";
import type { Layout } from "../bucket/base/layout.ts";
import { catalogAllocations, catalogJobs, catalogWorkers } from "../bucket/catalog/catalog.ts";
import { allocationsNamed, jobOfHook, jobsNamed, selectWorkers } from "../bucket/catalog/choices.ts";
import { validPlan } from "../bucket/catalog/info.ts";
import { isUuid } from "../codec/uuid.ts";
import { Failure } from "../core/errors.ts";
import { MASK } from "../core/redact.ts";
import { described, isObject, object, type Shape, string } from "../core/shape.ts";
import { APPROVED_KINDS, type ProposalBasis } from "./approval/proposal.ts";
import {
  type ControlKind,
  isRepeatable,
  JOB_CONTROL,
  parametersOf,
  type RepeatableKind,
  RUNS,
  type RunKind,
  type RunParams,
} from "./protocol.ts";
import { RECORD_DAMAGED, type RunRecord, readRecord } from "./record.ts";

type ObjectSchema = { properties: Record<string, unknown>; required?: string[]; allOf?: unknown[] };
/** The parameters for the rest of a run, by its parameters and its result; undefined where nothing is left to be done. */
type Remaining = (params: RunParams, result: Record<string, unknown>) => RunParams | undefined;

/** Outcomes that need no repetition. */
const WELL = {
  workers: new Set<unknown>(["ok", "trusted", "unchanged", "replaced", "not_needed"]),
  jobs: new Set<unknown>(["ok", "deployed", "changed", "skipped", "disabled"]),
};

/** By kind; job control and the readings of workers have one rule each, in {@link left}. */
const REMAINING: Record<Exclude<RepeatableKind, ControlKind | `worker_${string}`>, Remaining> = {
  run_command: remainingWorkers,
  health_check: (params, result) => {
    const jobs = notWell(result.jobs, WELL.jobs).map(({ job }) => job);
    if (jobs.length > 0) return { ...params, jobs };
    // A worker without a job is checked only in a run about all jobs.
    return notWell(result.workers, WELL.workers).length > 0 ? params : undefined;
  },
  deploy: remainingJobs,
  // A change of a key that has a result has come to its end.
  kv_rekey: () => undefined,
  ssh_key_rotate: (params, { old_kept }) => (old_kept === true && params.dry_run !== true ? params : undefined),
  // A step that could not be taken yet.
  ca_rotate: (params, { taken }) => (taken === false && params.dry_run !== true ? params : undefined),
};

const ANY_ID = string({ min: 36, max: 36, pattern: /^[0-9a-f-]+$/, means: "an id" });
const RETRY = described(
  ANY_ID,
  "Repeat this run, of the same kind, where it failed, was unreachable or never started; goes alone",
);
const PROPOSED_START = described(ANY_ID, "Start what this proposal says, once it is approved; goes alone");

/**
 * The body of a request that starts a run of this kind: its parameters or, alone, `retry_of` for a repeatable kind or
 * `proposal` for a kind that others may have to approve.
 */
export function startShape(kind: RunKind, parameters = RUNS[kind].parameters as Shape<RunParams>): Shape<RunParams> {
  const alone = {
    ...(isRepeatable(kind) && { retry_of: RETRY }),
    ...((APPROVED_KINDS as readonly RunKind[]).includes(kind) && { proposal: PROPOSED_START }),
  };
  const names = Object.keys(alone);
  if (names.length === 0) return parameters;
  const { required, properties, allOf = [], ...schema } = parameters.schema as ObjectSchema;
  const others = (index: number) => [...Object.keys(properties), ...names.slice(0, index)];
  const apart = names.flatMap((name, index) => others(index).map((other) => ({ not: { required: [other, name] } })));
  const shapes = Object.entries(alone).map(([name, shape]) => [name, object({ [name]: shape })] as const);
  return {
    schema: {
      ...schema,
      properties: { ...properties, ...Object.fromEntries(Object.entries(alone).map(([name, one]) => [name, one.schema])) },
      ...(required && { oneOf: [{ required }, ...names.map((name) => ({ required: [name] }))] }),
      allOf: [...allOf, ...apart],
    },
    check(value, path, report) {
      const [, other] = shapes.find(([name]) => isObject(value) && value[name] !== undefined) ?? [];
      return (other ?? parameters).check(value, path, report) as RunParams;
    },
  };
}

/**
 * The parameters that repeat an earlier run where it failed, was unreachable or never started. A run that left no result,
 * because it was cancelled or killed, is repeated as a whole. With `jobs`, only the part about them is repeated. The
 * answer holds `retry_of`, the id of the earlier run. Throws `run_not_found`, or `retry_impossible`: the run is of another
 * kind or has not ended, nothing is left to be done, or its command was stored without the secrets in it.
 */
export async function repeated(layout: Layout, kind: RunKind, id: string, jobs?: readonly string[]): Promise<RunParams> {
  const record = isUuid(id) ? readRecord(layout, id) : undefined;
  if (!record) throw new Failure("run_not_found", `Cannot repeat run ${id}: this bucket has no such run`);
  const impossible = (why: string) => new Failure("retry_impossible", `Cannot repeat run ${id} as ${kind}: ${why}`);
  if (record.error === RECORD_DAMAGED) throw impossible(RECORD_DAMAGED);
  if (record.kind !== kind) throw impossible(`it is a run of the kind ${record.kind}`);
  if (record.status === "running") throw impossible("it has not ended");
  if (String(record.params.command ?? "").includes(MASK))
    throw impossible("its command was stored without the secrets in it: give the command again");
  const params = left(jobs === undefined ? record : onlyOf(record, jobs));
  if (!params) throw impossible("nothing of it is left to be done");
  return { retry_of: id, ...parametersOf(kind, params) };
}

/** The part of a run of job control that was about some of its jobs. */
function onlyOf(record: RunRecord, wanted: readonly string[]): RunRecord {
  const nameOf = (name: unknown) => String(name).trim().toLowerCase();
  const isOurs = (name: unknown) => wanted.includes(nameOf(name));
  const jobs = (record.params.jobs as unknown[]).filter(isOurs).map(nameOf);
  const result = record.result as { jobs?: Graded[] } | null;
  const own = result?.jobs?.filter((one) => isOurs(one.job)) ?? [];
  // A run without one of these jobs has nothing left, with or without a result.
  if (jobs.length === 0 || result !== null) return { ...record, result: { jobs: own } };
  const { allocations, ...params } = record.params as { allocations?: string[] };
  const named = allocations?.filter((name) => !name.includes("@") || isOurs(name.split("@")[0]));
  return { ...record, params: { ...params, jobs, ...(named && { allocations: named }) } };
}

function left({ kind, params, status, result }: RunRecord): RunParams | undefined {
  const { retry_of: _, ...asked } = params;
  const ofClass = kind in JOB_CONTROL ? remainingAllocations : kind.startsWith("worker_") && remainingWorkers;
  if (isObject(result)) return (ofClass || REMAINING[kind as keyof typeof REMAINING])?.(asked, result);
  return status === "succeeded" ? undefined : asked;
}

interface Graded {
  job?: string;
  worker?: string;
  outcome?: unknown;
  allocations?: unknown;
}

function notWell(graded: unknown, well: ReadonlySet<unknown>): Graded[] {
  const all = Array.isArray(graded) ? (graded as Graded[]) : [];
  return all.filter(({ outcome }) => !well.has(outcome));
}

function remainingWorkers(params: RunParams, result: Record<string, unknown>): RunParams | undefined {
  const { labels: _, ...others } = params;
  const workers = notWell(result.workers, WELL.workers).map(({ worker }) => worker);
  return workers.length > 0 ? { ...others, workers } : undefined;
}

function remainingAllocations(params: RunParams, result: Record<string, unknown>): RunParams | undefined {
  const places = notWell(result.jobs, WELL.jobs).flatMap(({ job, allocations }) =>
    notWell(allocations, WELL.jobs).map(({ worker }) => ({ job, worker })),
  );
  if (places.length === 0) return undefined;
  const jobs = [...new Set(places.map(({ job }) => job))];
  // Several jobs may have failed on different workers.
  const allocations = places.map(({ job, worker }) => (jobs.length === 1 ? worker : `${job}@${worker}`));
  return { ...params, jobs, allocations };
}

/** The allocations of a job that were not well; all of them where only the job itself failed. */
function unforced({ job, allocations }: Graded): string[] {
  const bad = notWell(allocations, WELL.jobs);
  const all = bad.length > 0 ? bad : notWell(allocations, new Set());
  return all.map(({ worker }) => `${job}@${worker}`);
}

function remainingJobs(params: RunParams, result: Record<string, unknown>): RunParams | undefined {
  // A repeated dry run would tell the same again.
  if (!Array.isArray(result.jobs)) return undefined;
  const left = (result.jobs as Graded[]).filter(
    (one) => notWell([one], WELL.jobs).length + notWell(one.allocations, WELL.jobs).length > 0,
  );
  const jobs = left.map(({ job }) => job);
  // The rest of a plan that was carried out in part is done with the options of that plan.
  const { plan: _, force_only: __, ...others } = params;
  const { adopt, force, sync_only } = { ...others, ...(result.plan as RunParams | undefined) };
  const asked = { ...others, adopt, force, sync_only, build: false };
  // Allocations that are complete by now are not forced again.
  const places = force === true ? left.flatMap(unforced) : [];
  if (jobs.length > 0) return { ...asked, jobs, ...(places.length > 0 && { force_only: places }) };
  // A removed allocation belongs to no job that could be named.
  return notWell(result.reconciled, WELL.jobs).length > 0 ? asked : undefined;
}

/** The parameters of runs that hold names. */
interface Named {
  jobs?: string[];
  job?: string;
  hook?: string;
  workers?: string[];
  labels?: string[];
  allocations?: string[];
  force_only?: string[];
  build?: boolean;
}

/**
 * Checks the parameters of a run before the run is made. Throws `unknown_name` for jobs, hooks, workers, labels and
 * allocations that are not in the catalog, and `invalid_request` for a hook that several jobs have. A run that builds
 * first is not checked here: it checks against its own catalog.
 */
export function requireNames(db: Database, kind: RunKind, params: RunParams): void {
  const { jobs, job, hook, workers, labels, allocations, force_only, build } = params as Named;
  if (build === true) return;
  if (hook !== undefined) jobOfHook(catalogJobs(db), hook, job);
  // In a drift run `workers` are allocations of its jobs, elsewhere any workers.
  const places = kind === "drift" ? { workers } : { force_only, allocations };
  const [path, names] = Object.entries(places).find(([, given]) => given !== undefined) ?? [];
  if (jobs !== undefined || path !== undefined) {
    const meant = jobsNamed(catalogJobs(db), jobs);
    if (path !== undefined) allocationsNamed(catalogAllocations(db), meant, names, path);
  }
  if (kind !== "drift" && (workers ?? labels) !== undefined) selectWorkers(catalogWorkers(db), { workers, labels });
}

/** Whether the parameters of a run can hold names that {@link requireNames} looks for. */
export function canName(kind: RunKind): boolean {
  const { properties } = RUNS[kind].parameters.schema as { properties: Record<string, unknown> };
  return ["jobs", "job", "workers"].some((name) => Object.hasOwn(properties, name));
}

/** What a plan of a deploy tells of workers. */
interface PlannedHosts {
  reconcile: { worker: string }[];
  waves: { jobs: { allocations: { worker: string }[] }[] }[];
}

/**
 * The build and the workers that a run with these parameters would work with now. Throws like {@link requireNames}, and
 * `plan_stale` or `run_not_found` for the plan that the parameters name.
 */
export function catalogBasis(
  db: Database,
  { layout, kind, params }: { layout: Layout; kind: RunKind; params: RunParams },
): Pick<ProposalBasis, "build_seq" | "hosts"> {
  requireNames(db, kind, params);
  const build_seq = db.get<{ build_seq: number }>("SELECT build_seq FROM bucket")?.build_seq ?? 0;
  return { build_seq, hosts: [...new Set(hostsAtWork(db, layout, kind, params))] };
}

function hostsAtWork(db: Database, layout: Layout, kind: RunKind, params: RunParams): string[] {
  const { plan, workers, labels, jobs, job, hook } = params as Partial<Record<string, string & string[]>>;
  if (kind === "rollback") return [];
  if (kind === "run_command") return selectWorkers(catalogWorkers(db), { workers, labels }).map(({ host }) => host);
  if (plan !== undefined) return plannedHosts(validPlan(layout, db, plan) as unknown as PlannedHosts);
  const wanted = hook === undefined ? jobsNamed(catalogJobs(db), jobs) : [jobOfHook(catalogJobs(db), hook, job)];
  const names = new Set(wanted.map(({ name }) => name));
  return catalogAllocations(db).flatMap((one) => (names.has(one.job) && !one.removed ? one.worker : []));
}

function plannedHosts({ reconcile, waves }: PlannedHosts): string[] {
  const planned = waves.flatMap((wave) => wave.jobs).flatMap((job) => job.allocations);
  return [...reconcile, ...planned].map(({ worker }) => worker);
}
