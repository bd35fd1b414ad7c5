import { catalogJobs } from "../../bucket/catalog/catalog.ts";
import { jobOfHook } from "../../bucket/catalog/hook-choice.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation } from "../base/context.ts";
import { withHooks } from "./hooks.ts";

/**
 * Runs one hook of one job for the event `cli`. What its scripts wrote is stored when all of them succeeded, else
 * nothing of it is (decisions: Rulings). Throws `unknown_name`, `invalid_request` where several jobs have the hook,
 * `ErrHookFailed` with the scripts' results in the details, or `cancelled`.
 */
export const runHooks: Operation = async (context, params) => {
  const { kv, db, log } = context;
  const { hook: given, job: wanted, verbose } = parametersOf("hooks", params);
  const job = jobOfHook(catalogJobs(db), given, wanted);
  const hook = given.toLowerCase();
  const scripts = await withHooks(context, (hooks) => hooks.run({ kind: "cli", job, hook, verbose }));
  kv.flush();
  if (scripts.length === 0) log.info(`${job.name} has no allocation to run the hook for`);
  return { job: job.name, hook, scripts };
};
