import type { CatalogJob } from "../../bucket/base/model.ts";
import { mapAll } from "../../core/async.ts";
import { Failure } from "../../core/errors.ts";
import { WORKERS_AT_ONCE } from "../base/fleet.ts";
import { causesOf, type Trouble, troubleOf } from "../base/outcome.ts";
import { hooksOn } from "../hooks/hooks.ts";
import type { Work } from "./carry-out.ts";
import type { DeployBoard } from "./deploy-board.ts";
import type { About } from "./steps.ts";

/**
 * Asks all workers that a deploy is about to touch, before it touches anything, over the connections that it needs in any
 * case (docs/deploy.md, Preflight). Each cause is told in one sentence, and the deploy goes on with the other workers; a
 * worker that only a later wave needs is asked again then. Where no worker is of use to any job, and only a person can
 * change that, these jobs have failed: then it throws `failed`.
 */
export async function preflight(work: Work & { board: DeployBoard }, { due, jobs }: About<"preflight">): Promise<void> {
  const { board, context, effects, fleet, scope } = work;
  const working = jobs();
  const hostsOf = ({ name }: CatalogJob) => (scope.present.get(name) ?? []).map(({ worker }) => worker);
  const hosts = [...new Set([...due, ...working.flatMap(hostsOf)])];
  const found = new Map<string, Trouble>();
  const ask = (host: string) => effects.reach(host).catch((error: unknown) => void found.set(host, troubleOf(error)));
  await mapAll(hosts, WORKERS_AT_ONCE, ask, context.signal);
  const troublesOn = (some: readonly string[]) =>
    new Map(some.flatMap((host): [string, Trouble][] => (found.has(host) ? [[host, found.get(host) as Trouble]] : [])));
  const causes = causesOf(troublesOn(hosts));
  // A hook may find work for other workers.
  const isOther = (job: CatalogJob) => !working.includes(job) && hooksOn(job, "pre_deploy").length > 0;
  if (working.length > 0 && hosts.every((host) => isLasting(found.get(host))) && !scope.jobs.some(isOther)) {
    for (const job of working) {
      const own = troublesOn(hostsOf(job));
      const allocations = [...own].map(([worker, { grade, message }]) => ({
        worker,
        action: null,
        outcome: grade,
        error: message,
      }));
      board.settle(job, { outcome: "failed", reason: causesOf(own).join("; "), duration_ms: 0, allocations });
    }
    throw new Failure("failed", `no worker was touched: ${causes.join("; ")}`);
  }
  for (const cause of causes) context.log.warn(cause);
  const first = Math.min(...working.map(({ deploymentSeq }) => deploymentSeq));
  const soon = new Set([...due, ...working.filter(({ deploymentSeq }) => deploymentSeq === first).flatMap(hostsOf)]);
  for (const host of found.keys()) if (!soon.has(host)) fleet.forget(host);
}

/** True for a trouble that goes away only when a person changes something. */
function isLasting(trouble: Trouble | undefined): boolean {
  return trouble?.failure?.lasts ?? trouble !== undefined;
}
