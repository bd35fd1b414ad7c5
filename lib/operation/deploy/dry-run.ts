import { runLayout } from "../../bucket/base/layout.ts";
import type { CatalogAllocation, CatalogJob, HookEvent } from "../../bucket/base/model.ts";
import { planBasis, validPlan } from "../../bucket/catalog/info.ts";
import { promotionsOf } from "../../bucket/catalog/promotions.ts";
import { builtSchedules } from "../../bucket/workspace/schedules.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { writeAtomic } from "../../core/files.ts";
import { toldFreezes } from "../../plan/calendar.ts";
import type { ChangeOptions, FileDigests } from "../../plan/changes.ts";
import {
  abridged,
  type DeployPlan,
  type PlanDifference,
  type PlannedAllocation,
  type PlannedJob,
  planDifferences,
  plannedPhases,
} from "../../plan/deploy-plan.ts";
import { PASSES } from "../../plan/rollout.ts";
import type { FileDrift } from "../../transport/files/compare.ts";
import type { OperationContext } from "../base/context.ts";
import { causesOf, concluded, masked, type Trouble } from "../base/outcome.ts";
import { upstreamOf } from "../hooks/hook-script.ts";
import { hooksOn } from "../hooks/hooks.ts";
import { addDrift } from "../plan/drift.ts";
import { type AllocationPlan, type Due, type JobPlan, plannedFrom } from "../plan/plan-job.ts";
import { describePlan, planDiffs, reasonFor } from "../plan/plan-text.ts";
import type { Effects } from "../reach/effects.ts";
import type { DriftEffects, Promoted } from "../reach/tree-drift.ts";
import { lookAtWorkers } from "./adoption.ts";
import { type DeployStart, deploySteps } from "./engine.ts";
import { putPairs } from "./found-pairs.ts";
import { type Driver, drive } from "./steps.ts";

/** The options of a dry run. */
interface DryRunOptions extends ChangeOptions {
  /** Runs the hooks for pre_deploy, with `DRY_RUN=1`, and drops what they store. */
  withHooks: boolean;
  /** `forced` as it was given; the plan repeats it. */
  forceOnly?: string[] | undefined;
}

/** The most files that the result of the run names; plan.json names all. */
const MOST_FILES = 2_000;
/** The most files of an allocation that an error names. */
const MOST_PATHS = 20;
/** The events whose hooks a plan names, in this order. */
const EVENTS = ["pre_deploy", "job_control", "after_allocation_started", "health_check", "post_deploy"] as const;

/** A deploy that is to be planned. */
interface DryRunOrder extends DeployStart {
  /** Looks at files, and runs pre_deploy where that is asked for. */
  effects: Pick<Effects, "hooks"> & DriftEffects;
  options: DryRunOptions;
}

/**
 * Plans a deploy as the deploy itself would, and carries out none of it: nothing is written on a worker, nothing is
 * stored, and no hook runs, except those for pre_deploy where that is asked for. Each worker is asked once how the
 * files of its jobs are there. The plan is told in Activity between two banners and left as `plan.json` in the run's
 * folder. The answer has the first 2,000 of its files. Throws `failed`, with the plan in the details, where the deploy
 * could not do a part of it. A worker that gives no answer is told, and is no reason to fail.
 */
export async function dryRun(order: DryRunOrder): Promise<DeployPlan> {
  const { db, log, layout, run, kv } = order.context;
  log.info("PLAN: a dry run, no worker is changed");
  try {
    const { plan, silent } = await recordPlan(order);
    const text = `${JSON.stringify(masked(plan, log.redactor), null, 2)}\n`;
    await writeAtomic(runLayout(layout, run.id).plan, text);
    for (const line of describePlan(plan)) log.info(line);
    for (const sentence of causesOf(silent)) log.warn(`nothing could be done there now: ${sentence}`);
    for (const sentence of toldFreezes(builtSchedules(db).freeze, Date.now())) log.warn(`freeze: ${sentence}`);
    const failed = plan.waves.flatMap(({ jobs }) => jobs).filter(({ outcome }) => outcome === "failed");
    const reasons = failed.map(({ job, reason }) => `${job}: ${reason}`);
    return concluded(abridged(plan, MOST_FILES), "the deploy would not be complete", reasons);
  } finally {
    kv.discard();
    log.info("PLAN: the end of a dry run, no worker was changed");
  }
}

/** A plan that is being made. */
interface Recording extends DryRunOrder {
  due: Due[];
  waves: DeployPlan["waves"];
  updateSeq: number;
  addDiffs: ReturnType<typeof planDiffs>;
  /** By job, the events that hooks were to run for. */
  events: Map<string, Set<HookEvent>>;
  /** What is planned for the jobs of this wave. */
  planned: Map<string, PlannedJob>;
  /** What the engine decided, with the rendered files; kept no longer than the wave. */
  decided: Map<string, JobPlan>;
  /** What is to be put on workers, by allocation. */
  wanted: Map<string, FileDigests>;
  /** In an adoption, by worker: why there was no answer. */
  silent: Map<string, Trouble>;
}

/** The plan, and by worker why there was no answer. */
async function recordPlan(order: DryRunOrder): Promise<{ plan: DeployPlan; silent: ReadonlyMap<string, Trouble> }> {
  const { context, effects, options, scope } = order;
  const basis = planBasis(context.db);
  const { build_seq, update_seq } = basis;
  const maps = { events: new Map(), planned: new Map(), decided: new Map(), wanted: new Map(), silent: new Map() };
  const recording: Recording = { ...order, ...maps, due: [], waves: [], updateSeq: update_seq, addDiffs: planDiffs(context) };
  await drive(deploySteps(order), recordingDriver(recording));
  const { due, waves } = recording;
  const jobs = waves.flatMap((wave) => wave.jobs);
  const { adopt = false, force, forceOnly, syncOnly, withHooks } = options;
  const silent = adopt ? recording.silent : await addDrift(context, effects, jobs, promotedOf(recording, jobs));
  const plan = {
    basis,
    build_seq,
    update_seq,
    options: { force, ...(forceOnly && { force_only: forceOnly }), sync_only: syncOnly, with_hooks: withHooks, adopt },
    reconcile: due.map(({ allocation: { job, worker }, action }) => {
      const own = scope.all.filter(({ name }) => name === job);
      return { job, worker, action, hooks: own.flatMap((one) => hooksOn(one, "after_allocation_stopped")) };
    }),
    waves,
    unreachable: [...silent].map(([worker, { grade, message }]) => ({ worker, outcome: grade, error: message })),
  };
  return { plan, silent };
}

/** Does no step, answers each step as if it had succeeded, and records the step. */
function recordingDriver(recording: Recording): Driver {
  const { context, effects, options, planned } = recording;
  const asked = (job: CatalogJob, event: HookEvent) => {
    const events = recording.events.get(job.name) ?? new Set();
    recording.events.set(job.name, events.add(event));
  };
  const nothing = () => {};
  const told = { phase: nothing, say: nothing, begin: nothing, batch: nothing, note: nothing, status: nothing };
  const done = { adopt: nothing, checkDrift: nothing, sync: nothing, lifecycle: nothing, promote: nothing, syncAgain: nothing };
  const driver: Driver = {
    ...told,
    ...done,
    preflight: nothing,
    reconcile({ due }) {
      recording.due = due;
    },
    async sideBySide(branches) {
      for (const steps of branches) await drive(steps, driver);
    },
    async preDeploy(job) {
      asked(job, "pre_deploy");
      if (!options.withHooks) return;
      // What the hooks write is seen by the plan, and dropped with it.
      await effects.hooks({ kind: "pre_deploy", job, variables: { DRY_RUN: "1" } });
    },
    notStarted({ job, upstream }) {
      addJob(recording, job, { outcome: "not_started", reason: `job ${upstream}, which comes before it, would fail` });
    },
    leftOut({ job, error }) {
      const isUnknown = !options.adopt && error instanceof Failure && error.code === "ErrKeyMissing";
      const unknown = `unknown until pre_deploy: ${messageOf(error)}${warning(recording, job)}`;
      if (isUnknown) addJob(recording, job, { outcome: "roll_out", reason: unknown });
      else addJob(recording, job, { outcome: "failed", reason: messageOf(error) });
      return isUnknown;
    },
    decided(plan) {
      recording.decided.set(plan.job.name, plan);
      const outcome = plan.needsWork ? "roll_out" : "skip";
      addJob(recording, plan.job, { outcome, reason: reasonFor(plan, options) }, plan);
    },
    async look(plans) {
      const looked = await lookAtWorkers(context, effects, plans);
      for (const [worker, trouble] of looked.troubles) recording.silent.set(worker, trouble);
      return looked;
    },
    // They are seen by the plan, and dropped with it.
    takePairs: (pairs) => void putPairs(context, pairs),
    raiseSequence: () => ++recording.updateSeq,
    workerFiles: () => new Map(),
    hooks: ({ pass }) => asked(pass.job, PASSES[pass.kind].event),
    gate: ({ rollout }) => asked(rollout.plan.job, "health_check"),
    restore: ({ failure }) => failure as Failure,
    end({ rollout, error }) {
      if (error === undefined) return;
      const refused = { outcome: "failed", reason: messageOf(error) };
      Object.assign(planned.get(rollout.plan.job.name) as PlannedJob, refused);
    },
    waveOver: ({ seq, jobs }) => endWave(recording, seq, jobs),
  };
  return driver;
}

/** Adds the wave to the plan, with hooks and diffs. */
function endWave(recording: Recording, seq: number, jobs: readonly CatalogJob[]): void {
  const { addDiffs, decided, events, planned, updateSeq, wanted } = recording;
  const wave = jobs.map((job) => {
    const one = planned.get(job.name) as PlannedJob;
    for (const [index, plan] of decided.get(job.name)?.allocations.entries() ?? []) {
      if (!recording.options.adopt) addDiffs(plan, one.allocations[index]?.files ?? []);
      wanted.set(plan.allocation.id, plan.tree.digests);
    }
    const asked = EVENTS.filter((event) => events.get(job.name)?.has(event));
    const hooks = asked.map((event) => ({ event, names: hooksOn(job, event) }));
    return { ...one, hooks: hooks.filter(({ names }) => names.length > 0) };
  });
  recording.waves.push({ seq, update_seq: updateSeq, jobs: wave });
  planned.clear();
  decided.clear();
}

/** Adds a job to the wave. Without a plan, what is to be done to its allocations is unknown. */
function addJob(
  { context, planned, scope }: Recording,
  { name, version }: CatalogJob,
  { outcome, reason }: Pick<PlannedJob, "outcome" | "reason">,
  plan?: JobPlan,
): void {
  const promotionOf = promotionsOf(context.db, name);
  const why = outcome === "roll_out" ? "unknown until pre_deploy" : "not planned";
  const unknown = ({ id, worker, newVersion }: CatalogAllocation): PlannedAllocation => {
    const { hash, version } = promotionOf(id);
    const sides = { from: { hash, version }, to: { hash: null, version: newVersion } };
    return { worker, action: "unknown", reason: why, is_gate_open: false, ...sides, files: [], drift: null };
  };
  const allocations = plan?.allocations.map(plannedFrom) ?? (scope.present.get(name) ?? []).map(unknown);
  const phases = plannedPhases(plan?.phases ?? []);
  planned.set(name, { job: name, version, hooks: [], outcome, reason, phases, allocations });
}

/** In a deploy only hooks write keys. */
function warning({ scope }: Recording, job: CatalogJob): string {
  const names = new Set([job.name, ...upstreamOf(job)]);
  const writers = scope.all.filter((one) => names.has(one.name) && hooksOn(one, "pre_deploy").length > 0);
  return writers.length > 0 ? "" : "; neither it nor what it demands has a hook that could write the key";
}

/** The promotions of all allocations of the plan, and of those that reconcile is to stop. */
function promotedOf({ context, due, scope, wanted }: Recording, jobs: readonly PlannedJob[]): Promoted[] {
  const about = jobs.flatMap(({ job }) => scope.present.get(job) ?? []);
  const all = new Set([...about, ...due.map(({ allocation }) => allocation)]);
  return [...Map.groupBy(all, ({ job }) => job)].flatMap(([job, own]) => {
    const promotionOf = promotionsOf(context.db, job);
    return own.map((allocation) => {
      const files = wanted.get(allocation.id);
      return { allocation, promotion: promotionOf(allocation.id), ...(files && { wanted: files }) };
    });
  });
}

/** The plan of a dry run that a deploy carries out. */
export type BoundPlan = ReturnType<typeof boundPlan>;

/** The plan of a run. Throws `run_not_found`, or `plan_stale` where anything it was made from has moved. */
export function boundPlanOf({ layout, db, log }: OperationContext, runId: string): BoundPlan {
  return boundPlan(log, validPlan(layout, db, runId) as DeployPlan);
}

/** This plan, to be carried out. */
export function boundPlan(log: Pick<OperationContext["log"], "warn">, plan: DeployPlan) {
  const jobs = plan.waves.flatMap((wave) => wave.jobs);
  const differences: PlanDifference[] = [];
  return {
    jobs: jobs.map(({ job }) => job),
    options: plan.options,
    /**
     * Says which files of an allocation were changed by hand since the plan was made: promoted files, and files in the
     * way of new ones. A worker that gave no answer to the dry run is compared with what was promoted.
     */
    async movedOn(effects: DriftEffects, { allocation, promoted, tree }: AllocationPlan): Promise<string | undefined> {
      const { job, worker } = allocation;
      const found = await effects.drift(worker, new Map([[job, promoted.files]]));
      const known = jobs.find((one) => one.job === job)?.allocations.find((one) => one.worker === worker);
      const told = known?.drift?.files ?? [];
      const isOurs = ({ state, path }: FileDrift) => state !== "extra" || tree.digests[path] !== undefined;
      const isNew = ({ path, state, sha256 }: FileDrift) =>
        !told.some((one) => one.path === path && one.state === state && one.sha256 === sha256);
      const moved = (found.get(job)?.files ?? []).filter((file) => isOurs(file) && isNew(file));
      const paths = moved.slice(0, MOST_PATHS).map(({ path }) => path);
      return moved.length === 0 ? undefined : `changed by hand: ${paths.join(", ")}`;
    },
    /** Tells where a job is not as planned. That is due to the hooks of this deploy, and no reason to stop. */
    compare({ job, allocations }: JobPlan): void {
      const found = planDifferences(plan, job.name, allocations.map(plannedFrom));
      for (const { worker, files } of found)
        log.warn(`${job.name}@${worker}: not as planned: ${files.join(", ")}`, { job: job.name, worker });
      differences.push(...found);
    },
    /** What the result of the deploy tells about its plan. */
    result() {
      const { adopt = false, force, sync_only } = plan.options;
      return { force, sync_only, adopt, differences };
    },
  };
}

/** What ends a job whose files were changed by hand since the plan was made; each file is named with its worker. */
export function staleFiles(drifted: readonly string[]): Failure {
  const message = `the plan does not hold any more, nothing was done: ${drifted.join("; ")}`;
  return new Failure("plan_stale", message);
}
