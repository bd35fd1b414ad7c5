import type { CatalogAllocation, CatalogJob } from "../base/model.ts";
import { requireKnown } from "../base/problems.ts";

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
  const namesOf = ({ job, worker }: CatalogAllocation) =>
    [worker, `${job}@${worker}`].map((name) => name.toLowerCase());
  const asked = { kind: "allocation on worker", path, names: workers };
  const wanted = requireKnown(`of ${[...names].join(", ")}`, asked, new Set(own.flatMap(namesOf)));
  return own.filter((one) => namesOf(one).some((name) => wanted.has(name)));
}
