import type { Database } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import { catalogAllocations, catalogJobs, catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { jobOfHook, jobsNamed, selectWorkers } from "../../bucket/catalog/choices.ts";
import { validPlan } from "../../bucket/catalog/info.ts";
import type { RunKind, RunParams } from "../protocol.ts";
import { requireNames } from "../request.ts";
import type { ProposalBasis } from "./proposal.ts";

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
