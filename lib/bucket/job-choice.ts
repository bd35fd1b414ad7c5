import { Failure } from "../core/errors.ts";
import type { CatalogAllocation, CatalogJob } from "./catalog.ts";
import { unknownName } from "./problems.ts";

/**
 * The jobs that a command names, in small or capital letters, in the order of the catalog; all where it names none.
 * Throws `invalid_request` for a name that is unknown.
 */
export function jobsNamed(jobs: readonly CatalogJob[], names: readonly string[] | undefined): CatalogJob[] {
  const wanted = new Set((names ?? jobs.map(({ name }) => name)).map((name) => name.trim().toLowerCase()));
  const known = new Set(jobs.map(({ name }) => name));
  for (const name of wanted)
    if (!known.has(name))
      throw new Failure("invalid_request", `in the catalog ${unknownName("job", name, known)}`);
  return jobs.filter(({ name }) => wanted.has(name));
}

/**
 * The allocations of some jobs that are not removed, or those of them on the given workers; `<job>@<worker>` is one of
 * them. Throws `invalid_request` for a worker that none of these jobs is allocated to.
 */
export function allocationsNamed(
  all: readonly CatalogAllocation[],
  jobs: readonly CatalogJob[],
  workers: readonly string[] | undefined,
): CatalogAllocation[] {
  const names = new Set(jobs.map(({ name }) => name));
  const own = all.filter(({ job, removed }) => names.has(job) && !removed);
  if (workers === undefined) return own;
  const wanted = new Set(workers.map((worker) => worker.trim().toLowerCase()));
  const namesOf = ({ job, worker }: CatalogAllocation) =>
    [worker, `${job}@${worker}`].map((name) => name.toLowerCase());
  const known = new Set(own.flatMap(namesOf));
  for (const worker of wanted)
    if (!known.has(worker))
      throw new Failure(
        "invalid_request",
        `of ${[...names].join(", ")} ${unknownName("allocation on worker", worker, known)}`,
      );
  return own.filter((one) => namesOf(one).some((name) => wanted.has(name)));
}
