import assert from "node:assert/strict";
import type { Promotion } from "../../lib/bucket/catalog/promotions.ts";
import type { DeployResult } from "../../lib/operation/deploy/deploy-result.ts";
import type { FileDigests } from "../../lib/plan/changes.ts";
import { type DeployPlan, type PlannedAllocation, type PlannedFile, plannedFiles } from "../../lib/plan/deploy-plan.ts";
import { runsTarget } from "../../lib/plan/rollout.ts";

/** Something that was done to a job on a worker: files brought there, or a target (`job_control`: by its own hooks). */
export interface Act {
  place: string;
  what: string;
  hash: string;
  /** Of a sync: what it changed; never empty. */
  files?: PlannedFile[];
}

/** What a deploy began with and what it has done. */
export interface CarriedOut {
  /** By place: what was promoted before. */
  before: ReadonlyMap<string, Promotion>;
  acts: readonly Act[];
  /** Places whose batch was put back. */
  restored: ReadonlySet<string>;
  /** Places where the worker knew that the target of an earlier deploy had come to its end. */
  resumed: ReadonlySet<string>;
  /** By place: the files that are there now. */
  files: ReadonlyMap<string, FileDigests>;
  /** The hooks that ran, as `<event> <job>`. */
  passes: ReadonlySet<string>;
  /** Jobs with hooks for job_control. */
  controlled: ReadonlySet<string>;
  result: DeployResult | undefined;
}

/** What is planned for each place, `<job>@<worker>`. */
export function plannedPlaces(plan: DeployPlan): Map<string, PlannedAllocation> {
  const jobs = plan.waves.flatMap(({ jobs }) => jobs);
  return new Map(jobs.flatMap(({ job, allocations }) => allocations.map((one) => [`${job}@${one.worker}`, one] as const)));
}

/**
 * Throws where a deploy that nothing disturbed has done anything else than its plan says: file for file, action for
 * action. Answers how many of both there were.
 */
export function checkAsPlanned(plan: DeployPlan, done: CarriedOut): number {
  const wanted: Act[] = plan.reconcile.map(({ job, worker }) => ({ place: `${job}@${worker}`, what: "stop", hash: "" }));
  for (const { job, worker, action } of plan.reconcile)
    if (action === "remove") assert.deepEqual(done.files.get(`${job}@${worker}`), {}, `${job}@${worker} has no files any more`);
  for (const [place, planned] of plannedPlaces(plan)) {
    const before = done.before.get(place)?.files ?? {};
    const after = { ...before };
    for (const { path, to } of planned.files) {
      if (to === null) delete after[path];
      else after[path] = to;
    }
    const target = targetOf(place, planned, done);
    const hash = planned.to.hash ?? "";
    if (target !== undefined && !done.resumed.has(place)) wanted.push({ place, what: target, hash });
    if (planned.action === "skip") continue;
    assert.deepEqual(sorted(done.files.get(place)), sorted(after), `the files of ${place} are the planned ones`);
    if (isSettled(done, place))
      assert.deepEqual(
        done.acts.filter((act) => act.place === place && act.what === "sync").flatMap((act) => act.files ?? []),
        planned.files.map(({ path, change, from, to }) => ({ path, change, from, to })),
        `the files that were changed on ${place} are the planned ones`,
      );
  }
  const targets = done.acts.filter(({ what }) => what !== "sync");
  assert.deepEqual(lines(targets), lines(wanted), "what was done is what was planned");
  assert.equal(done.result?.update_seq, plan.waves.at(-1)?.update_seq, "the update sequence is the planned one");
  const hooks = plan.waves.flatMap(({ jobs }) => jobs.flatMap(({ job, hooks }) => hooks.map(({ event }) => `${event} ${job}`)));
  for (const { job, hooks: after } of plan.reconcile) if (after.length > 0) hooks.push(`after_allocation_stopped ${job}`);
  assert.deepEqual([...done.passes].sort(), [...new Set(hooks)].sort(), "the hooks that ran are the planned ones");
  const outcomes = { roll_out: "deployed", skip: "skipped", failed: "failed", not_started: "not_started" };
  for (const { job, outcome } of plan.waves.flatMap(({ jobs }) => jobs))
    assert.equal(done.result?.jobs.find((one) => one.job === job)?.outcome, outcomes[outcome], job);
  return targets.length + done.acts.flatMap(({ files = [] }) => files).length;
}

/**
 * Throws where a deploy that went wrong somewhere, or was cut off, has done anything that its plan does not say, but to
 * put a batch back; or where it says of a place that it changed and it has not what was planned.
 */
export function checkWithinPlan(plan: DeployPlan, done: CarriedOut, isSequenceShown: (job: string) => boolean): void {
  const planned = plannedPlaces(plan);
  const stops = new Set(plan.reconcile.map(({ job, worker }) => `${job}@${worker}`));
  for (const { place, what, hash } of done.acts) {
    const one = planned.get(place);
    if (stops.has(place) && (what === "stop" || hash === "")) continue;
    const said = `${what} ${place} ${hash}`;
    assert.ok(one && one.action !== "skip", `not planned: ${said}`);
    const isPlanned = hash === one.to.hash || isSequenceShown(place.split("@")[0] as string);
    if (isPlanned && (what === "sync" || what === targetOf(place, one, done))) continue;
    const isBack = done.restored.has(place) && hash === one.from.hash;
    assert.ok(isBack && ["sync", "restart", "reload", "job_control"].includes(what), `not planned: ${said}`);
  }
  for (const { job, allocations } of done.result?.jobs ?? [])
    for (const { worker, outcome } of allocations) {
      const place = `${job}@${worker}`;
      const own = done.acts.filter((act) => act.place === place);
      const one = planned.get(place) as PlannedAllocation;
      if (outcome === "changed" && !isSequenceShown(job))
        assert.deepEqual(
          plannedFiles(done.files.get(place) ?? {}, done.before.get(place)?.files ?? {}).map(({ path }) => path),
          one.files.map(({ path }) => path),
          `${place} counts as changed and has the planned files`,
        );
      if (outcome === "not_started")
        assert.deepEqual(
          own.filter(({ what }) => what !== "sync" && what !== "stop"),
          [],
          `${place} was not started`,
        );
    }
}

function targetOf(place: string, { action }: PlannedAllocation, { controlled }: CarriedOut): string | undefined {
  if (action === "unknown" || action === "leave" || !runsTarget(action)) return undefined;
  return controlled.has(place.split("@")[0] as string) ? "job_control" : action;
}

/** True where what was promoted before is what was there: else the plan does not know what it will find. */
function isSettled({ before }: CarriedOut, place: string): boolean {
  const known = before.get(place);
  return known !== undefined && known.hash !== "" && !known.unfinished;
}

function lines(acts: readonly Act[]): string[] {
  return acts.map(({ place, what, hash }) => `${what} ${place} ${what === "stop" ? "" : hash}`).sort();
}

function sorted(files: FileDigests = {}): [string, string][] {
  return Object.entries(files).sort();
}
