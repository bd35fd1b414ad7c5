import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import type { Promotion } from "../../bucket/catalog/promotions.ts";
import type { Batch, Phase } from "../../plan/rollout.ts";
import type { Trouble } from "../base/outcome.ts";
import type { Gated } from "../health/gate.ts";
import type { HookPass } from "../hooks/hooks.ts";
import type { Due, JobPlan } from "../plan/plan-job.ts";
import type { AllocationState, Rollout } from "../plan/rollout-state.ts";
import type { Looked } from "./adoption.ts";
import type { FoundPair } from "./found-pairs.ts";

/** Some allocations of a rollout. What goes wrong at one of them becomes its trouble, and the others go on. */
export interface RolloutPart {
  rollout: Rollout;
  states: readonly AllocationState[];
}

/** Answers the steps of a deploy (see engine.ts): each step by its name, with its subject. */
export interface Driver {
  /** The named part of the deploy begins; the part before has ended. */
  phase(name: string): Awaitable<void>;
  /**
   * Comes once, before anything is touched: the workers that are to be touched are asked whether they can be. `due` names
   * those of reconcile, `jobs` answers the jobs of this and later waves that need work, as far as that is known. Throws
   * where none of them is of use.
   */
  preflight(of: { due: string[]; jobs: () => CatalogJob[] }): Awaitable<void>;
  /** Stops removed and disabled allocations; a failure stays with its allocation (Deploy order 1). */
  reconcile(of: { due: Due[]; neverDeployed: CatalogAllocation[] }): Awaitable<void>;
  /** Drives each of these to its end, several at a time. */
  sideBySide(branches: Steps[]): Awaitable<void>;
  /** Runs the hooks for pre_deploy and stores what they wrote. Throws where one fails; then nothing is stored. */
  preDeploy(job: CatalogJob): Awaitable<void>;
  /** A job does not start, because a job before it failed. */
  notStarted(of: { job: CatalogJob; upstream: string }): Awaitable<void>;
  /** pre_deploy or the planning of a job failed. Answers true where its rollout is to be assumed all the same. */
  leftOut(of: { job: CatalogJob; error: unknown }): Awaitable<boolean>;
  /** The plan of a job that counts: the job rolls out by this plan, or is skipped. */
  decided(plan: JobPlan): Awaitable<void>;
  /** Raises the update sequence for the jobs of a wave that need work; answers the new one (Deploy order 3). */
  raiseSequence(of: { seq: number; jobs: string[] }): Awaitable<number>;
  /** Brings the workers' own files up to date. Answers what went wrong, by worker: nothing may run there. */
  workerFiles(of: { hosts: string[]; updateSeq: number }): Awaitable<ReadonlyMap<string, Trouble>>;
  /** In an adoption: how the files of allocations that may be adopted lie on their workers. */
  look(plans: readonly JobPlan[]): Awaitable<Looked>;
  /** In an adoption: makes these pairs the bucket's own. */
  takePairs(pairs: readonly FoundPair[]): Awaitable<void>;
  /** The rollout of a job begins. */
  begin(rollout: Rollout): Awaitable<void>;
  /** The rollout of a job has ended: well where there is no error. */
  end(of: { rollout: Rollout; error: unknown }): Awaitable<void>;
  /** All jobs of a wave have ended. */
  waveOver(of: { seq: number; jobs: CatalogJob[] }): Awaitable<void>;

  /** Throws where a bound plan is carried out and files were changed by hand since it was made. */
  checkDrift(part: RolloutPart): Awaitable<void>;
  /** Takes over the files that lie there as the promoted ones. */
  adopt(part: RolloutPart): Awaitable<void>;
  /** Stages and syncs the files. */
  sync(part: RolloutPart): Awaitable<void>;
  /** Tells something in Activity. */
  say(line: string): Awaitable<void>;
  /** A batch begins. */
  batch(part: RolloutPart & { phase: Phase; batch: Batch }): Awaitable<void>;
  /** Runs start, restart or reload on each of them. */
  lifecycle(part: RolloutPart): Awaitable<void>;
  /** Runs hooks, which progress shows at these allocations; the values that they wrote are stored, however they end. */
  hooks(part: RolloutPart & { pass: HookPass }): Awaitable<void>;
  /** Makes the synced files the promoted ones, together with what hooks wrote; `gate`: see {@link Promotion}. */
  promote(part: RolloutPart & { gate?: Promotion["gate"] }): Awaitable<void>;
  /** Checks the health of workers and stores the outcome for the allocations. Throws where it is bad. */
  gate(part: RolloutPart & { gated: Gated }): Awaitable<void>;
  /** Puts back what was promoted before a batch that failed its gate. Answers the failure of the job. */
  restore(part: RolloutPart & { waiting: readonly AllocationState[]; failure: unknown }): Awaitable<Error>;
  /** Notes the outcomes so far (`last_outcome`). */
  note(rollout: Rollout): Awaitable<void>;
  /** Tells in the log how it went for the allocations (post_deploy_status). */
  status(rollout: Rollout): Awaitable<void>;
  /** The final sync: puts back what the lifecycle changed in files that sync owns. */
  syncAgain(part: RolloutPart): Awaitable<void>;
}

/** The name of a step. */
type Kind = keyof Driver;
/** What a step is about. */
export type About<K extends Kind> = Parameters<Driver[K]>[0];
type Awaitable<T> = T | Promise<T>;
type Answered<K extends Kind> = Awaited<ReturnType<Driver[K]>>;
/** A step that the engine asks for. */
type AskedStep = { [K in Kind]: { kind: K; of: About<K> } }[Kind];
/** Steps, one after the other, that end with a value. */
export type Steps<R = void> = Generator<AskedStep, R, unknown>;

/** One step, and the driver's answer to it. */
export function* ask<K extends Kind>(kind: K, of: About<K>): Steps<Answered<K>> {
  return (yield { kind, of } as AskedStep) as Answered<K>;
}

/** Has a driver answer steps up to their end, and answers what they end with. Throws what the steps throw. */
export async function drive<R>(steps: Steps<R>, driver: Driver): Promise<R> {
  let next = steps.next();
  while (!next.done) {
    const { kind, of } = next.value;
    let answer: unknown;
    try {
      answer = await (driver[kind] as (of: unknown) => unknown)(of);
    } catch (error) {
      next = steps.throw(error);
      continue;
    }
    next = steps.next(answer);
  }
  return next.value;
}
