import { Failure } from "../../core/errors.ts";
import type { CatalogJob } from "../base/model.ts";
import { unknownName } from "../base/problems.ts";

/**
 * The job whose hook a command means: the given one, else the only one that has such a hook for `cli`. Names are in
 * small or capital letters. Throws `unknown_name` where there is none, and `invalid_request`, which lists the jobs,
 * where several have the hook.
 */
export function jobOfHook(jobs: readonly CatalogJob[], hook: string, job?: string): CatalogJob {
  const name = hook.toLowerCase();
  const having = jobs.filter((one) => one.hooks.some((own) => own.name === name && own.events.includes("cli")));
  const unknown = (path: string, why: string) => {
    const message = `Cannot run hook ${name}: ${why}`;
    return new Failure("unknown_name", message, { details: [{ path, message }] });
  };
  if (job !== undefined) {
    const wanted = jobs.find((one) => one.name === job.toLowerCase());
    if (!wanted) throw unknown("job", unknownName("job", job, new Set(jobs.map((one) => one.name))));
    if (!having.includes(wanted)) throw unknown("hook", `job ${wanted.name} has no such hook for cli`);
    return wanted;
  }
  const [only, ...others] = having;
  if (!only) throw unknown("hook", "no job has such a hook for cli");
  if (others.length > 0)
    throw new Failure(
      "invalid_request",
      `Cannot run hook ${name}: name one of the jobs that have it: ${having.map((one) => one.name).join(", ")}`,
    );
  return only;
}
