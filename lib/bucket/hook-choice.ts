import { Failure } from "../core/errors.ts";
import type { CatalogJob } from "./catalog.ts";
import { unknownName } from "./problems.ts";

/**
 * The job whose hook a command means: the given one, else the only one that has such a hook for `cli`. Names are in
 * small or capital letters. Throws `invalid_request`, which lists the jobs where there are several.
 */
export function jobOfHook(jobs: readonly CatalogJob[], hook: string, job?: string): CatalogJob {
  const name = hook.toLowerCase();
  const having = jobs.filter((one) =>
    one.hooks.some((own) => own.name === name && own.events.includes("cli")),
  );
  const refused = (why: string) => new Failure("invalid_request", `Cannot run hook ${name}: ${why}`);
  if (job !== undefined) {
    const wanted = jobs.find((one) => one.name === job.toLowerCase());
    if (!wanted) throw refused(unknownName("job", job, new Set(jobs.map((one) => one.name))));
    if (!having.includes(wanted)) throw refused(`job ${wanted.name} has no such hook for cli`);
    return wanted;
  }
  const [only, ...others] = having;
  if (!only) throw refused("no job has such a hook for cli");
  if (others.length > 0)
    throw refused(`name one of the jobs that have it: ${having.map((one) => one.name).join(", ")}`);
  return only;
}
