import type { DeployPlan, PlannedAllocation, PlannedJob } from "../plan/deploy-plan.ts";

/** So many files of an allocation are named. */
const MOST_FILES = 20;

/** A plan in lines for people: what would be done, to which allocation and why. */
export function describePlan({ reconcile, waves }: DeployPlan): string[] {
  const jobs = waves.flatMap((wave) => wave.jobs);
  const working = jobs.filter(({ outcome }) => outcome === "roll_out").length;
  return [
    ...reconcile.map(({ job, worker, action }) => `reconcile: ${action} ${job} on ${worker}`),
    ...waves.flatMap((wave) => [`wave ${wave.seq}`, ...wave.jobs.flatMap(describeJob)]),
    `${working} of ${jobs.length} jobs need work`,
  ];
}

function describeJob(job: PlannedJob): string[] {
  const outcome = {
    roll_out: "deploy required",
    skip: "skip",
    failed: "would fail",
    not_started: "would not start",
  };
  const hooks =
    job.pre_deploy.length === 0 ? [] : [`  ${job.job}: first pre_deploy: ${job.pre_deploy.join(", ")}`];
  const batches = job.phases.flatMap(({ action, batches }) =>
    batches.map(
      (workers, index) =>
        `  ${job.job}: ${action}, batch ${index + 1} of ${batches.length}: ${workers.join(", ")}`,
    ),
  );
  const changing = job.allocations.filter((one) => one.action !== "skip" || one.is_gate_open);
  return [
    `  ${job.job} ${job.version}: ${outcome[job.outcome]}, ${job.reason}`,
    ...(job.outcome === "roll_out" ? [...hooks, ...batches] : []),
    ...changing.map((one) => `    ${describeAllocation(one)}`),
  ];
}

function describeAllocation({ worker, action, reason, is_gate_open, files }: PlannedAllocation): string {
  const marks = { added: "+", changed: "~", removed: "-" };
  const named = files.slice(0, MOST_FILES).map(({ path, change }) => `${marks[change]}${path}`);
  const more = files.length > named.length ? [`and ${files.length - named.length} more`] : [];
  const gate = is_gate_open ? ", its health check comes first" : "";
  const list = files.length === 0 ? "" : `: ${[...named, ...more].join(" ")}`;
  return `${worker}: ${action}, ${reason}${gate}${list}`;
}
