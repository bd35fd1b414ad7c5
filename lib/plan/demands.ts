import { compareVersions, parseVersion, type Version } from "../codec/version.ts";
import { type FailureCode, messageOf } from "../core/errors.ts";
import { join, quote } from "../core/shape.ts";

/** The parts of a job that demands are about. */
export interface DemandJob {
  name: string;
  /** As in the manifest; empty where the manifest has none. */
  version: string;
  hooks: readonly DemandHook[];
  /** The jobs that `after` in the manifest names. */
  after: readonly string[];
}

/** A hook and the upstream hook that it demands; both names are empty where it demands nothing. */
interface DemandHook {
  name: string;
  demandJob: string;
  demandHook: string;
  demandConfig: Readonly<Record<string, unknown>>;
}

/** One broken demand or name in `after`: the job whose manifest is wrong and the place in it. */
interface DemandProblem {
  code: FailureCode;
  job: string;
  path: string;
  message: string;
}

/** Jobs by name, each with the names of the jobs that come before it. */
export type DemandGraph = ReadonlyMap<string, ReadonlySet<string>>;

const MISSING_VERSION = "is missing: a job that demands another or is demanded needs a version";

/**
 * Checks every version, every demand and every `after` of a bucket, after all jobs are read: a job may demand a job that
 * is read later (hook-runtime.md, Command demands). Demands on the jobs in `unreadable` are not judged: the problems of
 * those jobs are reported elsewhere. {@link deploymentSequence} finds cycles.
 */
export function checkDemands(jobs: readonly DemandJob[], unreadable: ReadonlySet<string> = new Set()): DemandProblem[] {
  const known = new Map(jobs.map((job) => [job.name, job]));
  const problems: DemandProblem[] = [];
  for (const job of jobs) {
    for (const hook of job.hooks) if (!unreadable.has(hook.demandJob)) problems.push(...checkHook(job, hook, known));
    const isThere = (name: string) => known.has(name) || unreadable.has(name);
    problems.push(...checkAfter(job, isThere));
  }
  return [...checkVersions(jobs), ...problems];
}

/** The graph of `after` and of the demands between different, known jobs: an edge leads from the dependent to its upstream. */
export function demandGraph(jobs: readonly DemandJob[]): DemandGraph {
  const names = new Set(jobs.map((job) => job.name));
  const upstream = ({ name, hooks, after }: DemandJob) =>
    [...hooks.map((hook) => hook.demandJob), ...after].filter((one) => one !== name && names.has(one));
  return new Map(jobs.map((job) => [job.name, new Set(upstream(job))]));
}

function checkVersions(jobs: readonly DemandJob[]): DemandProblem[] {
  const taking = new Set(
    jobs.flatMap(({ name, hooks }) => hooks.flatMap(({ demandJob }) => (demandJob === "" ? [] : [name, demandJob]))),
  );
  return jobs.flatMap(({ name, version }) => {
    const missing = taking.has(name) ? MISSING_VERSION : undefined;
    const message = version === "" ? missing : wrongVersion(version);
    return message === undefined ? [] : [{ code: "ErrInvalidJobVersion", job: name, path: "version", message }];
  });
}

function checkAfter({ name: job, after }: DemandJob, isThere: (name: string) => boolean): DemandProblem[] {
  return after.flatMap((name, index) => {
    if (name !== job && isThere(name)) return [];
    const message = name === job ? "a job cannot come after itself" : `there is no job ${quote(name)}`;
    return [{ code: "ErrInvalidHookDemand", job, path: join("after", String(index)), message }];
  });
}

function checkHook(job: DemandJob, hook: DemandHook, known: ReadonlyMap<string, DemandJob>): DemandProblem[] {
  const path = join(join("hooks", hook.name), "demands");
  const problem = (code: FailureCode, below: string, message: string): DemandProblem[] => [
    { code, job: job.name, path: join(path, below), message },
  ];
  const { demandJob, demandHook } = hook;
  if (demandJob === "" && demandHook === "") return [];
  if (demandJob === "") return problem("ErrInvalidHookDemand", "job", "is missing: job and hook belong together");
  if (demandHook === "") return problem("ErrInvalidHookDemand", "hook", "is missing: job and hook belong together");
  if (demandJob === job.name) return problem("ErrInvalidHookDemand", "job", "a job cannot demand itself");
  const upstream = known.get(demandJob);
  if (!upstream) return problem("ErrInvalidHookDemand", "job", `there is no job ${quote(demandJob)}`);
  if (!upstream.hooks.some((one) => one.name === demandHook))
    return problem("ErrInvalidHookDemand", "hook", `job ${demandJob} has no hook ${quote(demandHook)}`);
  try {
    const mismatch = versionMismatch(upstream, hook.demandConfig);
    return mismatch === undefined ? [] : problem("ErrHookDemandVersionMismatch", "config", mismatch);
  } catch (error) {
    return problem("ErrInvalidHookConfiguration", "config", messageOf(error));
  }
}

/** How the upstream's version breaks the bounds, which are inclusive. Throws where the bounds themselves are wrong. */
function versionMismatch(upstream: DemandJob, config: DemandHook["demandConfig"]): string | undefined {
  const min = versionBound(config, "min_version");
  const max = versionBound(config, "max_version");
  if (min && max && compareVersions(min.version, max.version) > 0)
    throw new Error(`min_version ${min.text} is above max_version ${max.text}`);
  if (wrongVersion(upstream.version) !== undefined) return undefined;
  const version = parseVersion(upstream.version);
  if (min && compareVersions(version, min.version) < 0)
    return `job ${upstream.name} has version ${upstream.version}, below min_version ${min.text}`;
  if (max && compareVersions(version, max.version) > 0)
    return `job ${upstream.name} has version ${upstream.version}, above max_version ${max.text}`;
  return undefined;
}

function versionBound(config: DemandHook["demandConfig"], key: string): { text: string; version: Version } | undefined {
  const value = config[key];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "string" && !Number.isSafeInteger(value))
    throw new Error(`${key} must be a version in quotes or a whole number`);
  const text = String(value);
  const wrong = wrongVersion(text);
  if (wrong !== undefined) throw new Error(`${key}: ${wrong}`);
  return { text, version: parseVersion(text) };
}

function wrongVersion(text: string): string | undefined {
  try {
    parseVersion(text);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** The order of deployment: a level for every job, or the jobs of one cycle, in order. */
type DeploymentSequence =
  | { levels: ReadonlyMap<string, number>; cycle: undefined }
  | { levels: undefined; cycle: readonly string[] };

/**
 * Gives every job its `deployment_seq`: the length of the longest path below it, so 0 for a job that comes after no
 * other (hook-runtime.md, deployment_seq). Takes time in proportion to jobs and edges, and no recursion.
 */
export function deploymentSequence(graph: DemandGraph): DeploymentSequence {
  const levels = new Map<string, number>();
  const open = new Map([...graph].map(([job, upstreams]) => [job, upstreams.size]));
  const edges = [...graph].flatMap(([job, upstreams]) => [...upstreams].map((upstream) => ({ upstream, job })));
  const dependents = Map.groupBy(edges, ({ upstream }) => upstream);
  const ready = [...open].filter(([, count]) => count === 0).map(([job]) => job);
  // A job becomes ready when its last upstream has a level: by then every path below the job has been seen.
  for (let job = ready.pop(); job !== undefined; job = ready.pop()) {
    levels.set(job, levelAbove(graph, levels, job));
    for (const { job: dependent } of dependents.get(job) ?? []) {
      const left = (open.get(dependent) as number) - 1;
      open.set(dependent, left);
      if (left === 0) ready.push(dependent);
    }
  }
  return levels.size === graph.size ? { levels, cycle: undefined } : { levels: undefined, cycle: findCycle(graph, levels) };
}

function levelAbove(graph: DemandGraph, levels: ReadonlyMap<string, number>, job: string): number {
  let level = 0;
  for (const upstream of graph.get(job) ?? []) level = Math.max(level, (levels.get(upstream) as number) + 1);
  return level;
}

/**
 * Follows the edges among the jobs without a level: each has an upstream without a level, so a job must come up again.
 */
function findCycle(graph: DemandGraph, levels: ReadonlyMap<string, number>): string[] {
  const next = (jobs: Iterable<string>) => [...jobs].filter((job) => !levels.has(job)).sort()[0] as string;
  const seen = new Set<string>();
  let job = next(graph.keys());
  while (!seen.has(job)) {
    seen.add(job);
    job = next(graph.get(job) ?? []);
  }
  const path = [...seen];
  return path.slice(path.indexOf(job));
}
