import type { DeployPlan, PlannedAllocation, PlannedFile, PlannedJob } from "../../plan/deploy-plan.ts";
import { describeDrift, isForceable } from "../reach/tree-drift.ts";

/** So many files of an allocation are named, and so many workers of a file. */
const MOST_NAMED = 20;
/** So many lines of diffs are shown; plan.json has more. */
const MOST_DIFF_LINES = 2_000;
const MARKS = { added: "+", changed: "~", removed: "-" };
const OUTCOMES = { roll_out: "deploy required", skip: "skip", failed: "would fail", not_started: "would not start" };

/**
 * A plan in lines for people: what would be done, to which allocation and why, what was changed by hand there, and the
 * files that would change as `diff -u` shows them.
 */
export function describePlan({ reconcile, waves }: DeployPlan): string[] {
  const jobs = waves.flatMap((wave) => wave.jobs);
  const working = jobs.filter(({ outcome }) => outcome === "roll_out").length;
  const room = { lines: MOST_DIFF_LINES };
  return [
    ...reconcile.map(
      ({ job, worker, action, hooks }) =>
        `reconcile: ${action} ${job} on ${worker}${hooks.length > 0 ? `, then ${hooks.join(", ")}` : ""}`,
    ),
    ...waves.flatMap((wave) => [
      `wave ${wave.seq}`,
      ...wave.jobs.flatMap((job) => [...describeJob(job), ...describeFiles(job, room)]),
    ]),
    ...(room.lines > 0 ? [] : ["more diffs are in plan.json"]),
    `${working} of ${jobs.length} jobs need work`,
  ];
}

function describeJob(job: PlannedJob): string[] {
  const hooks = job.hooks.map(({ event, names }) => `  ${job.job}: hooks for ${event}: ${names.join(", ")}`);
  const batches = job.phases.flatMap(({ action, batches }) =>
    batches.map(
      (workers, index) => `  ${job.job}: ${action}, batch ${index + 1} of ${batches.length}: ${workers.join(", ")}`,
    ),
  );
  return [
    `  ${job.job} ${job.version}: ${OUTCOMES[job.outcome]}, ${job.reason}`,
    ...(job.outcome === "roll_out" ? [...hooks, ...batches] : []),
    ...job.allocations.flatMap(describeAllocation),
  ];
}

function describeAllocation(one: PlannedAllocation): string[] {
  const { worker, action, reason, is_gate_open, files, drift } = one;
  const gate = is_gate_open ? ", its health check comes first" : "";
  const names = files.map(({ path, change }) => `${MARKS[change]}${path}`);
  const list = files.length === 0 ? "" : `: ${named(names, " ")}`;
  const changes = action === "skip" && !is_gate_open ? [] : [`    ${worker}: ${action}, ${reason}${gate}${list}`];
  const isLeft = action === "skip" && drift?.outcome === "drifted";
  const force = drift?.files.every(isForceable) ? ": only --force puts it back" : "";
  const kept = isLeft ? `, and stays so${force}` : "";
  const found = drift?.files.length ? [`    ${worker}: changed by hand${kept}`, ...describeDrift(drift)] : [];
  return [...changes, ...found.map((line, index) => (index === 0 ? line : `    ${line}`))];
}

/** Each change of a file once, with all workers that it is for. */
function describeFiles({ job, allocations }: PlannedJob, room: { lines: number }): string[] {
  const changes = allocations.flatMap(({ worker, files }) => files.map((file) => ({ worker, file })));
  const same = Map.groupBy(changes, ({ file: { path, from, to } }) => JSON.stringify([path, from, to]));
  return [...same.values()].flatMap((all) => {
    const { file } = all[0] as { file: PlannedFile };
    const lines = fileLines(
      job,
      file,
      named(
        all.map(({ worker }) => worker),
        ", ",
      ),
    );
    if (room.lines <= 0) return [];
    room.lines -= lines.length;
    return lines;
  });
}

function fileLines(job: string, { path, from, to, diff, note }: PlannedFile, workers: string): string[] {
  const about = `    ${job}/${path} on ${workers}`;
  if (diff === undefined) return note === undefined ? [] : [`${about}: ${note}`];
  const side = (digest: string | null, which: string) =>
    digest === null ? "/dev/null" : `jobs/${job}/${path}\t${which}`;
  return [
    ...[`${about}:`, `--- ${side(from, "promoted")}`, `+++ ${side(to, "planned")}`],
    ...diff.replace(/\n$/, "").split("\n"),
  ];
}

function named(names: readonly string[], separator: string): string {
  const more = names.length > MOST_NAMED ? [`and ${names.length - MOST_NAMED} more`] : [];
  return [...names.slice(0, MOST_NAMED), ...more].join(separator);
}
