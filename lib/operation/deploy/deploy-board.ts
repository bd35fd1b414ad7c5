import type { CatalogJob } from "../../bucket/base/model.ts";
import type { Redactor } from "../../core/redact.ts";
import type { AllocationCounts, JobProgress, NO_DEPLOY, Progress, WaveProgress } from "../../run/progress.ts";
import type { Grade } from "../base/outcome.ts";
import { type DeployScope, wavesOf } from "../plan/plan-job.ts";
import { allocationGrade, type Rollout, rolloutProgress } from "../plan/rollout-state.ts";
import { type JobResult, leftOut } from "./deploy-result.ts";

/** Progress names no more jobs, and no more characters of a reason: it goes to the server often. */
const MOST_JOBS = 1_000;
const SHORT_REASON = 200;

const NO_ALLOCATIONS: AllocationCounts = {
  failed: 0,
  unreachable: 0,
  running: 0,
  changed: 0,
  waiting: 0,
  skipped: 0,
  cancelled: 0,
  disabled: 0,
};
/** What an allocation of each grade counts as. */
const COUNTED: Record<Grade, keyof AllocationCounts> = {
  failed: "failed",
  unreachable: "unreachable",
  cancelled: "cancelled",
  not_started: "waiting",
  changed: "changed",
  ok: "skipped",
  skipped: "skipped",
  disabled: "disabled",
};

/** How far the jobs of a deploy are. */
export class DeployBoard {
  /** The jobs by wave. */
  readonly #jobs: CatalogJob[];
  readonly #scope: DeployScope;
  readonly #redactor: Redactor;
  readonly #results = new Map<string, JobResult & { shortReason: string }>();
  /** Of the jobs that have ended. */
  #settled = NO_ALLOCATIONS;
  /** The rollouts that go on, and when they began. */
  readonly #rollouts = new Map<Rollout, number>();

  constructor(scope: DeployScope, redactor: Redactor) {
    this.#scope = scope;
    this.#redactor = redactor;
    this.#jobs = wavesOf(scope.jobs).flatMap(([, jobs]) => jobs);
  }

  /** The number of jobs that have ended. */
  get done(): number {
    return this.#results.size;
  }

  begin(rollout: Rollout): void {
    this.#rollouts.set(rollout, performance.now());
  }

  /** Ends a rollout, and answers how long it took. */
  end(rollout: Rollout): number {
    const startedMs = this.#rollouts.get(rollout) ?? performance.now();
    this.#rollouts.delete(rollout);
    return Math.round(performance.now() - startedMs);
  }

  /** Notes how a job has ended. */
  settle({ name: job, deploymentSeq: wave }: CatalogJob, how: Omit<JobResult, "job" | "wave">): void {
    const isPlain = how.outcome === "deployed" || how.outcome === "skipped";
    const shortReason = isPlain ? "" : this.#redactor.sentence(how.reason).slice(0, SHORT_REASON).toWellFormed();
    this.#results.set(job, { job, wave, ...how, shortReason });
    const counts = { ...this.#settled };
    for (const { outcome } of how.allocations) counts[COUNTED[outcome]]++;
    this.#settled = counts;
  }

  /** How it went for all jobs, by wave. Jobs that the deploy did not come to were not started. */
  results(): JobResult[] {
    const reason = "not started: the deploy ended before";
    for (const job of this.#jobs) {
      if (this.#results.has(job.name)) continue;
      const allocations = leftOut(this.#scope.present.get(job.name) ?? []);
      this.settle(job, { outcome: "not_started", reason, duration_ms: 0, allocations });
    }
    const results = this.#jobs.flatMap(({ name }) => this.#results.get(name) ?? []);
    return results.map(({ shortReason: _, ...result }) => result);
  }

  /** What progress tells of the deploy at this moment. */
  progress(): Pick<Progress, keyof typeof NO_DEPLOY> {
    const rollouts = [...this.#rollouts.keys()];
    const begun = new Map([...this.#rollouts].map(([{ plan }, startedMs]) => [plan.job.name, startedMs]));
    const jobs = this.#jobs.map((job) => this.#jobProgress(job, begun.get(job.name)));
    const counts = this.#counts(rollouts, begun);
    return { rollouts: rollouts.map(rolloutProgress), waves: wavesIn(jobs), jobs: jobs.slice(0, MOST_JOBS), counts };
  }

  #jobProgress({ name: job, deploymentSeq: wave }: CatalogJob, startedMs: number | undefined): JobProgress {
    const result = this.#results.get(job);
    if (result) return { job, wave, state: stateOf(result), reason: result.shortReason, duration_ms: result.duration_ms };
    if (startedMs === undefined) return { job, wave, state: "waiting", reason: "", duration_ms: null };
    return { job, wave, state: "running", reason: "", duration_ms: Math.round(performance.now() - startedMs) };
  }

  #counts(rollouts: readonly Rollout[], begun: ReadonlyMap<string, number>): AllocationCounts {
    const counts = { ...this.#settled };
    for (const { states } of rollouts)
      for (const state of states) counts[state.now ? "running" : COUNTED[allocationGrade(state)]]++;
    for (const { name } of this.#jobs)
      if (!this.#results.has(name) && !begun.has(name))
        for (const { disabled } of this.#scope.present.get(name) ?? []) counts[disabled ? "disabled" : "waiting"]++;
    return counts;
  }
}

/** The state of a job that has ended. */
function stateOf({ outcome, allocations }: JobResult): JobProgress["state"] {
  if (outcome === "skipped") return "ok";
  if (outcome !== "deployed") return outcome;
  return allocations.some((one) => one.outcome === "changed") ? "changed" : "ok";
}

/** How many jobs of each wave are at which point. */
function wavesIn(jobs: readonly Pick<JobProgress, "wave" | "state">[]): WaveProgress[] {
  return [...Map.groupBy(jobs, ({ wave }) => wave)].map(([wave, own]) => {
    const count = (...states: JobProgress["state"][]) => own.filter(({ state }) => states.includes(state)).length;
    const ended = { done: count("changed", "ok"), failed: count("failed"), cancelled: count("cancelled") };
    return { wave, jobs: own.length, ...ended, running: count("running"), not_started: count("waiting", "not_started") };
  });
}

/** The waves of a deploy that has ended. */
export function wavesOfResults(jobs: readonly JobResult[]): WaveProgress[] {
  return wavesIn(jobs.map((job) => ({ wave: job.wave, state: stateOf(job) })));
}
