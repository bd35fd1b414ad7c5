import { Failure } from "../../core/errors.ts";
import type { CatalogAllocation, CatalogJob, CatalogWorker } from "../base/model.ts";
import { requireKnown, unknownName } from "../base/problems.ts";

/**
 * The jobs that a command names, in small or capital letters, in the order of the catalog; all where it names none.
 * Throws `unknown_name` for those that are unknown.
 */
export function jobsNamed(jobs: readonly CatalogJob[], names: readonly string[] | undefined): CatalogJob[] {
  if (names === undefined) return [...jobs];
  const known = new Set(jobs.map(({ name }) => name));
  const wanted = requireKnown("in the catalog", { kind: "job", path: "jobs", names }, known);
  return jobs.filter(({ name }) => wanted.has(name));
}

/**
 * The allocations of some jobs that are not removed, or those of them on the given workers; `<job>@<worker>` is one of
 * them. Throws `unknown_name` for workers that none of these jobs is allocated to; `path` is where they are named.
 */
export function allocationsNamed(
  all: readonly CatalogAllocation[],
  jobs: readonly CatalogJob[],
  workers: readonly string[] | undefined,
  path: string,
): CatalogAllocation[] {
  const names = new Set(jobs.map(({ name }) => name));
  const own = all.filter(({ job, removed }) => names.has(job) && !removed);
  if (workers === undefined) return own;
  const namesOf = ({ job, worker }: CatalogAllocation) => [worker, `${job}@${worker}`].map((name) => name.toLowerCase());
  const asked = { kind: "allocation on worker", path, names: workers };
  const wanted = requireKnown(`of ${[...names].join(", ")}`, asked, new Set(own.flatMap(namesOf)));
  return own.filter((one) => namesOf(one).some((name) => wanted.has(name)));
}

/**
 * The workers that `workers` names, or that carry one of `labels`, in the order of the catalog; without either, all
 * workers that are still in workers.json. Throws `usage` where both are given, `unknown_name` for an unknown name.
 */
export function selectWorkers(
  all: readonly CatalogWorker[],
  { workers, labels }: { workers?: readonly string[] | undefined; labels?: readonly string[] | undefined },
): CatalogWorker[] {
  if (workers && labels) throw new Failure("usage", "give workers or labels, not both");
  const present = all.filter((worker) => !worker.removed);
  if (!workers && !labels) return present;
  const [kind, path, from] = workers ? ["worker", "workers", all] : ["label", "labels", present];
  const namesOf = (worker: CatalogWorker) => (workers ? [worker.host.toLowerCase()] : worker.labels);
  const known = new Set(from.flatMap(namesOf));
  const names = requireKnown("in the catalog", { kind, path, names: workers ?? labels ?? [] }, known);
  return from.filter((worker) => namesOf(worker).some((name) => names.has(name)));
}

/**
 * The job whose hook a command means: the given one, else the only one that has such a hook for `cli`. Names are in
 * small or capital letters. Throws `unknown_name` where there is none, and `invalid_request`, which lists the jobs,
 * where several have the hook.
 */
export function jobOfHook(jobs: readonly CatalogJob[], hook: string, job?: string): CatalogJob {
  const name = hook.toLowerCase();
  const having = jobs.filter((one) => one.hooks.some((own) => own.name === name && own.events.includes("cli")));
  const cannot = `Cannot run hook ${name}:`;
  const unknown = (path: string, why: string) =>
    new Failure("unknown_name", `${cannot} ${why}`, { details: [{ path, message: `${cannot} ${why}` }] });
  const wanted = jobs.find((one) => one.name === job?.toLowerCase());
  const known = jobs.map((one) => one.name);
  if (job !== undefined && !wanted) throw unknown("job", unknownName("job", job, known));
  if (wanted && !having.includes(wanted)) throw unknown("hook", `job ${wanted.name} has no such hook for cli`);
  const [only, ...others] = wanted ? [wanted] : having;
  if (!only) throw unknown("hook", "no job has such a hook for cli");
  const names = having.map((one) => one.name).join(", ");
  if (others.length > 0) throw new Failure("invalid_request", `${cannot} name one of the jobs that have it: ${names}`);
  return only;
}
