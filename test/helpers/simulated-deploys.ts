import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { setImmediate as turn } from "node:timers/promises";
import { runLayout } from "../../lib/bucket/base/layout.ts";
import type { CatalogJob } from "../../lib/bucket/base/model.ts";
import { catalogAllocations, catalogWorkers } from "../../lib/bucket/catalog/catalog.ts";
import { isUnsettled, type Promotion, promotionsOf } from "../../lib/bucket/catalog/promotions.ts";
import { Failure } from "../../lib/core/errors.ts";
import { Fleet } from "../../lib/operation/base/fleet.ts";
import { type ControlState, controlJob } from "../../lib/operation/control/job-batches.ts";
import { carryOutDeploy } from "../../lib/operation/deploy/deploy.ts";
import type { DeployResult } from "../../lib/operation/deploy/deploy-result.ts";
import { boundPlan, dryRun } from "../../lib/operation/deploy/dry-run.ts";
import { hasGate } from "../../lib/operation/health/gate.ts";
import { type HookPass, hooksOn, type ScriptResult } from "../../lib/operation/hooks/hooks.ts";
import { deployScope } from "../../lib/operation/plan/plan-job.ts";
import type { Effects } from "../../lib/operation/reach/effects.ts";
import { targetHash } from "../../lib/operation/reach/target.ts";
import type { Place } from "../../lib/operation/reach/tree-drift.ts";
import type { FileDigests } from "../../lib/plan/changes.ts";
import { type DeployPlan, type PlannedAllocation, plannedFiles } from "../../lib/plan/deploy-plan.ts";
import { PASSES } from "../../lib/plan/rollout.ts";
import { NO_DEPLOY } from "../../lib/run/progress.ts";
import type { TreeDrift } from "../../lib/transport/files/compare.ts";
import { seeded } from "./random.ts";
import { changeBucket, SHOWS_SEQUENCE, SIMULATED, simulatedBucket, startOver } from "./simulated-bucket.ts";
import { type Act, type CarriedOut, checkAsPlanned, checkWithinPlan, plannedPlaces } from "./simulated-plans.ts";
import type { TestBucket } from "./workspace.ts";

/** One effect that has begun and not ended. */
interface Pending {
  what: string;
  job: CatalogJob | undefined;
  /** Where it is at work. */
  worker: string | undefined;
  /** Ends it: well, or with what it is to throw; a worker that is down cannot be reached. */
  end(fails: boolean): void;
  /** What it does on a worker when it comes through, known to the run or not. */
  apply(): void;
  cancel(): void;
}

/** What runs for an allocation on its worker, and what bin/runner noted. */
interface Service {
  tree: string;
  files: FileDigests;
  running: string | undefined;
  /** What the last target was told. */
  version: string | undefined;
  last: { hash: string | undefined; target: string } | undefined;
  /** Job control has run a target since the last one of a deploy, whose note is lost with that. */
  hasLostNote: boolean;
  /** Of the last probe or script for health_check since a target came through. */
  isHealthy: boolean | undefined;
  /** Targets that came through for the tree and version. */
  starts: number;
  /** Why they may have been started once more: kills, cancels, failures, force, notes that were lost. */
  excuses: number;
}

/** How often what happened, so that a test can tell that it has met enough. */
export type Tally = Record<
  | "deploys"
  | "kills"
  | "cancels"
  | "failures"
  | "targets"
  | "lost"
  | "restored"
  | "tolerated"
  | "planned"
  | "controlled"
  | "settled"
  | "adopted",
  number
>;

/** What is to happen in a deploy. */
interface Course {
  force: boolean;
  /** Nothing is to be started or restarted. */
  syncOnly: boolean;
  /** What lies on the workers is taken over, and nothing else is done. */
  adopt: boolean;
  /** Without it: all. */
  jobs?: string[];
  /** After so many steps; -1: never. */
  killAt: number;
  cancelAt: number;
  /** From this step on these workers cannot be reached. */
  downAt: number;
  down: readonly string[];
}

const QUIET: Course = { force: false, syncOnly: false, adopt: false, killAt: -1, cancelAt: -1, downAt: -1, down: [] };
const VERBS = ["start ", "restart ", "reload "];

/**
 * Deploys to workers that exist in memory only: the real engine over the real catalog and database, its effects ending
 * one by one in an order that a seed decides, with failures, workers that are down, cancels and kills. Each is planned
 * by a dry run first. Checked at every step:
 * - gate: no batch of a job begins before every target of its earlier batches has ended well and their gate has passed;
 * - tolerance: but for workers that cannot be reached, as many as the manifest says;
 * - width: never more targets of a job at once than the manifest allows, also when a batch is put back;
 * - waves: nothing of a wave begins while something of a lower one is at work, nor the other way round;
 * - promotion: what is promoted is synced, and started with exactly these files;
 * - skip: a job is skipped only when all its allocations run what is wanted and were last found healthy;
 * - starts: a tree is started once, and once more at most for each kill, cancel, failure or force, and where a deploy
 *   goes on with an unfinished change after job control ran a target: only a deploy's own note tells that its target has
 *   succeeded, because a reload or start by hand need not do what a restart does;
 * - restore: only a batch whose gate has failed is put back, to what was promoted before, where the manifest says so;
 *   what the result says about it is so, and what waited for a later batch has the promoted files again;
 * - outcome: the last action on each allocation is noted with its outcome, which is `unknown` while the action goes on;
 * - job control: after any of these deploys, it starts, restarts and reloads only what a deploy has finished with;
 * - plan: files and targets are those of the plan, all of them where nothing went wrong;
 * - adoption: what an earlier system has put on workers is taken over where it is equal, and nothing there is changed;
 * - convergence: a deploy that nothing disturbs succeeds, and the next one has nothing to do.
 */
export class SimulatedDeploys {
  readonly #bucket: TestBucket;
  readonly #random: () => number;
  readonly #services = new Map<string, Service>();
  readonly #pending = new Set<Pending>();
  readonly tally: Tally = emptyTally();
  #jobs: CatalogJob[] = [];
  #wave = -1;
  #phase = "";
  /** Where each job is by its progress: action and batch. */
  readonly #steps = new Map<string, string>();
  /** The batch of every target that began in this deploy, and whether it ended well. */
  readonly #targets = new Map<string, { step: string; isDone: boolean }>();
  #acts: Act[] = [];
  #plan: DeployPlan = { waves: [] } as unknown as DeployPlan;
  #planned = new Map<string, PlannedAllocation>();
  #before = new Map<string, Promotion>();
  readonly #passes = new Set<string>();
  readonly #restored = new Set<string>();
  readonly #resumed = new Set<string>();
  /** Jobs of which something was not healthy in this deploy. */
  readonly #unhealthy = new Set<string>();
  readonly #down = new Set<string>();
  /** By job: workers that could not be reached in this deploy. */
  readonly #lost = new Map<string, Set<string>>();
  /** The same when its batch began. */
  readonly #lostBefore = new Map<string, Set<string>>();
  /** Workers whose own files could not be brought up to date in this wave. */
  readonly #unready = new Set<string>();
  /** What is not healthy with the new files: a job, on one worker or on all. */
  #sick: { job: string; worker: string | undefined } | undefined;
  #ended: DeployResult | undefined;
  #isSyncOnly = false;
  /** By place: the files that the last look was for. */
  readonly #asked = new Map<string, FileDigests>();
  #failureRate = 0;
  #effects = 0;
  #violation: string | undefined;

  private constructor(bucket: TestBucket, seed: number) {
    this.#bucket = bucket;
    this.#random = seeded(seed);
  }

  /** A built bucket that any number of simulations use one after the other. */
  static bucket = simulatedBucket;

  /** So many simulations from this seed on; answers what they met in all. Throws with the seed. */
  static async runAll(bucket: TestBucket, first: number, count: number): Promise<Tally> {
    return await SimulatedDeploys.each(bucket, first, count, (one, seed) => one.#converge(seed));
  }

  /**
   * So many simulations from this seed on of a plan that is carried out with nothing changed in between, after disturbed
   * deploys: every third one meets failures, and the others do just what the plan says.
   */
  static async planAll(bucket: TestBucket, first: number, count: number): Promise<Tally> {
    return await SimulatedDeploys.each(bucket, first, count, (one, seed) => one.#carryOutPlan(seed));
  }

  private static async each(
    bucket: TestBucket,
    first: number,
    count: number,
    work: (one: SimulatedDeploys, seed: number) => Promise<void>,
  ): Promise<Tally> {
    const total = emptyTally();
    for (let seed = first; seed < first + count; seed++) {
      startOver(bucket);
      const simulation = new SimulatedDeploys(bucket, seed);
      try {
        await work(simulation, seed);
      } catch (error) {
        const message = `seed ${seed} (again: OPS_TEST_SEED=${seed}): ${(error as Error).message}`;
        throw new Error(message, { cause: error });
      }
      for (const what of Object.keys(total) as (keyof Tally)[]) total[what] += simulation.tally[what];
    }
    return total;
  }

  /** Several disturbed deploys with changes between them, then one that nothing disturbs. */
  async #converge(seed: number): Promise<void> {
    if (this.#chance(0.5)) await this.#adopts();
    for (let round = 0; round < 6; round++) {
      if (round > 0) changeBucket(this.#bucket, this.#random, `${seed}.${round}`);
      await this.#deploy(this.#disturbance());
      for (const job of this.#jobs) if (this.#chance(0.3)) await this.#controlJob(job);
    }
    await this.#settles();
  }

  /** Adopts what an earlier system has put on some workers, first with failures, cancels and kills; some of it differs. */
  async #adopts(): Promise<void> {
    await this.#begins({ ...QUIET, adopt: true });
    const equal = new Set<string>();
    for (const [place, files] of this.#asked) {
      const [job = "", worker = ""] = place.split("@");
      const { to } = this.#planned.get(place) as PlannedAllocation;
      const [isThere, isOther] = [this.#chance(0.8), this.#chance(0.2)];
      if (!isThere) continue;
      const tree = isOther ? "other" : (to.hash ?? "");
      const there = { files: isOther ? { ...files, conf: "644:other" } : files, version: to.version };
      Object.assign(this.#service({ job, worker }), { ...there, tree, running: tree, isHealthy: true, starts: 1 });
      // What shows the sequence differs once that was raised.
      if (!isOther && job !== SHOWS_SEQUENCE) equal.add(place);
    }
    const before = structuredClone(this.#services);
    await this.#deploy({ ...this.#disturbance(), force: false, adopt: true });
    this.#calm();
    assert.equal(await this.#deploy({ ...QUIET, adopt: true }), "succeeded");
    const touched = ({ excuses: _, ...service }: Service) => service;
    for (const [place, service] of before)
      assert.deepEqual(touched(this.#services.get(place) as Service), touched(service), `adoption: ${place} has changed`);
    for (const place of equal) assert.equal(this.#promotionOf(place).hash, this.#planned.get(place)?.to.hash, place);
    this.tally.adopted += equal.size;
    assert.equal(await this.#deploy(QUIET), "succeeded");
    assert.deepEqual(
      this.#acts.filter((act) => equal.has(act.place)),
      [],
      "adoption: a deploy finds nothing to do there",
    );
  }

  /** Starts, restarts or reloads a job, with failures, cancels and kills. */
  async #controlJob(job: CatalogJob): Promise<void> {
    const stop = new AbortController();
    const context = this.#bucket.context("job_restart", stop.signal);
    const target = this.#pick(["start", "restart", "reload"]);
    const present = catalogAllocations(context.db).filter(({ removed }) => !removed);
    const promotionOf = promotionsOf(context.db, job.name);
    const own = present.filter((one) => one.job === job.name);
    const states = own.map((allocation): ControlState => {
      const outcome = allocation.disabled ? "skipped" : "not_started";
      return { allocation, promoted: promotionOf(allocation.id), outcome, error: null, duration_ms: 0 };
    });
    const fleet = new Fleet(context, catalogWorkers(context.db));
    const options = { target, healthCheck: false, forget: false };
    const control = { context, fleet, effects: this.#controlEffects(target), present, ...options };
    const [killAt, cancelAt] = [this.#pick([-1, -1, 1, 2, 5]), this.#pick([-1, -1, -1, 3])];
    this.#wave = -1;
    let hasEnded = false;
    void controlJob({ ...control, job, states }).then(
      () => {
        hasEnded = true;
      },
      (error: unknown) => {
        hasEnded = true;
        if (!(error instanceof Failure)) throw error;
      },
    );
    for (let step = 0; !hasEnded; step++) {
      await turn();
      this.#checkPromotions();
      if (this.#violation !== undefined) throw new Error(this.#violation);
      if (step === killAt) this.#dropPending();
      if (step === killAt) return context.log.close();
      if (step === cancelAt) this.#cancel(stop);
      else if (this.#pending.size > 0) this.#endOne();
    }
    context.log.close();
    this.tally.controlled += states.filter(({ outcome }) => outcome === "ok").length;
    this.tally.settled += states.filter((state) => state.put_back).length;
  }

  #controlEffects(target: string): Effects {
    const begins = (place: Place, version: string) => {
      const { hash, synced, version: running, ...promotion } = this.#promotionOf(keyOf(place));
      const service = this.#service(place);
      const what = `job control: ${target} of ${keyOf(place)}`;
      this.#must(!isUnsettled({ ...promotion, version, hash, synced }), `${what} although it is unsettled`);
      this.#must(service.tree === (hash || synced), `${what} with files that no deploy has finished with`);
      this.#must(version === running, `${what} with version ${version}, not ${running}`);
      if (service.last?.hash !== undefined) service.hasLostNote = true;
      service.last = undefined;
    };
    const ends = (place: Place, version: string) => {
      const service = this.#service(place);
      if (target === "reload" && service.running === undefined) return;
      Object.assign(service, { running: service.tree, version, last: { hash: undefined, target } });
    };
    return {
      ...this.#effectsOf(),
      sync: (place, tree) => {
        const apply = () => this.#applySync(place, tree?.hash ?? "", tree?.digests ?? {});
        const result = () => ({ changed: [], removed: [], sentBytes: 0 });
        return this.#begin({ ...this.#at("sync", place), apply, result });
      },
      run: (wanted) => {
        const version = wanted.env?.NEW_VERSION ?? "";
        begins(wanted, version);
        const apply = () => ends(wanted, version);
        return this.#begin({ ...this.#at(target, wanted), apply, result: () => undefined });
      },
      hooks: ({ job, batch }) => {
        const workers = batch?.workers ?? [];
        const versionOn = (worker: string) => this.#promotionOf(`${job.name}@${worker}`).version;
        for (const worker of workers) begins({ job: job.name, worker }, versionOn(worker));
        const apply = () => {
          for (const worker of workers) ends({ job: job.name, worker }, versionOn(worker));
        };
        const scripts = workers.map((worker) => ({ hook: "act", worker, error: null, duration_ms: 0 }));
        const failed = () => {
          const details = { scripts: scripts.map((one) => ({ ...one, error: "made to fail" })) };
          return new Failure("ErrHookFailed", "hook act was made to fail", { details });
        };
        const effect = { what: `hook job_control of ${job.name}`, job, apply, failure: failed };
        return this.#begin({ ...effect, result: () => scripts });
      },
    };
  }

  async #carryOutPlan(seed: number): Promise<void> {
    for (let round = 0; round < 3; round++) {
      await this.#deploy(this.#disturbance());
      changeBucket(this.#bucket, this.#random, `${seed}.${round}`);
    }
    if (this.#chance(0.33)) {
      const course = this.#disturbance();
      await this.#deploy({ ...course, killAt: -1, cancelAt: -1 }, true);
      return;
    }
    this.#calm();
    const force = this.#chance(0.2);
    if (force) this.#excuseAll();
    const some = this.#jobs.map(({ name }) => name).filter(() => this.#chance(0.5));
    const jobs = some.length > 0 && this.#chance(0.3) ? some : undefined;
    const course = { ...QUIET, force, ...(jobs && { jobs }), syncOnly: this.#chance(0.2) };
    const outcome = await this.#deploy(course, true);
    assert.equal(outcome, this.#isRefused() ? "failed" : "succeeded");
    if (this.#isRefused()) return;
    this.tally.planned += checkAsPlanned(this.#plan, this.#carriedOut());
  }

  /** What is checked while the engine waits for an effect: it would take the error for a failure of that. */
  #must(holds: boolean, what: string): void {
    if (!holds) this.#violation ??= what;
  }

  #chance(share: number): boolean {
    return this.#random() < share;
  }

  #pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.#random() * from.length)] as T;
  }

  #calm(): void {
    this.#failureRate = 0;
    this.#sick = undefined;
  }

  #disturbance(): Course {
    this.#calm();
    this.#failureRate = this.#pick([0, 0, 0.01, 0.05]);
    if (this.#chance(0.3))
      this.#sick = {
        job: this.#pick(["base", "store", "hooked", "controlled"]),
        worker: this.#chance(0.7) ? this.#pick(SIMULATED) : undefined,
      };
    const force = this.#chance(0.1);
    if (force) this.#excuseAll();
    const end = this.#pick(["none", "none", "kill", "kill", "cancel"]);
    const at = Math.floor(this.#random() * 160);
    const count = this.#pick([0, 0, 0, 1, 1, 2, 3]);
    const down = Array.from({ length: count }, () => this.#pick(SIMULATED));
    const downAt = this.#pick([0, Math.floor(this.#random() * 80)]);
    return { ...QUIET, force, killAt: end === "kill" ? at : -1, cancelAt: end === "cancel" ? at : -1, downAt, down };
  }

  async #settles(): Promise<void> {
    this.#calm();
    const { db } = this.#bucket;
    assert.equal(await this.#deploy(QUIET), "succeeded", "an undisturbed deploy succeeds");
    for (const { job, worker, id, disabled, removed, newVersion } of catalogAllocations(db)) {
      const { hash, unfinished, version, gate, stopped } = promotionsOf(db, job)(id);
      const service = this.#service({ job, worker });
      const what = `${job}@${worker}`;
      if (disabled || removed) assert.equal(service.running, undefined, `${what} is stopped`);
      if (removed) assert.deepEqual(service.files, {}, `${what} has no files any more`);
      else if (!disabled) {
        assert.deepEqual([unfinished, stopped, version], [false, false, newVersion], `${what} is promoted`);
        assert.ok(gate === "" || gate === "passed", `${what} has no open gate`);
        assert.equal(service.running, this.#runs(job) ? hash : service.running, `${what} runs what is promoted`);
      }
    }
    this.#effects = 0;
    assert.equal(await this.#deploy(QUIET), "succeeded");
    assert.equal(this.#effects, 0, "a deploy with nothing to do does nothing");
  }

  /** False for a job that is only brought its files once it was started. */
  #runs(job: string): boolean {
    return this.#job(job).restartPolicy !== "never";
  }

  /** Plans a deploy and carries it out to its end; a kill leaves everything as it is at that moment. */
  async #deploy(course: Course, isBound = false): Promise<string> {
    this.tally.deploys++;
    await this.#begins(course);
    const stop = new AbortController();
    const context = this.#bucket.context("deploy", stop.signal);
    context.progress.report = ({ phase, deploy = () => NO_DEPLOY }) => {
      if (phase.split(":")[0] !== this.#phase.split(":")[0]) this.#unready.clear();
      this.#phase = phase;
      for (const { job, action, batch } of deploy().rollouts) this.#enter(job, `${action} ${batch}`);
    };
    const scope = deployScope(context, course.jobs);
    const fleet = new Fleet(context, catalogWorkers(context.db));
    let ended: { outcome: string; result: DeployResult } | undefined;
    const options = { force: course.force, syncOnly: course.syncOnly, adopt: course.adopt };
    const bound = isBound ? boundPlan(context.log, this.#plan) : undefined;
    void carryOutDeploy({ context, fleet, effects: this.#effectsOf(), scope, options, bound }).then(
      (result) => {
        ended = { outcome: "succeeded", result };
      },
      (error: Failure) => {
        ended = { outcome: error.code ?? String(error), result: error.details as DeployResult };
        if (!(error instanceof Failure)) throw error;
      },
    );
    try {
      for (let step = 0; ended === undefined; step++) {
        // Everything that can go on without an effect does so first.
        await turn();
        this.#checkPromotions();
        if (this.#violation !== undefined) throw new Error(this.#violation);
        if (step === course.downAt) for (const host of course.down) this.#down.add(host);
        if (step === course.killAt) return this.#kill();
        if (step === course.cancelAt) this.#cancel(stop);
        else if (this.#pending.size > 0) this.#endOne();
      }
    } finally {
      context.log.close();
      this.#down.clear();
    }
    this.#ended = ended.result;
    if (!course.adopt) this.#checkResult(ended.result, ended.outcome === "cancelled");
    return ended.outcome;
  }

  #enter(job: string, step: string): void {
    if (this.#steps.get(job) !== step) this.#lostBefore.set(job, this.#lostOf(job));
    this.#steps.set(job, step);
  }

  /** True where the plan says that something could not be done. */
  #isRefused(): boolean {
    return this.#plan.waves.some(({ jobs }) => jobs.some(({ outcome }) => outcome === "failed"));
  }

  async #begins({ force, syncOnly, adopt, jobs }: Course): Promise<void> {
    for (const one of [this.#pending, this.#steps, this.#targets, this.#restored, this.#resumed]) one.clear();
    for (const one of [this.#passes, this.#lostBefore, this.#unhealthy, this.#lost, this.#unready]) one.clear();
    this.#acts = [];
    this.#wave = -1;
    this.#phase = "";
    this.#ended = undefined;
    const context = this.#bucket.context("deploy");
    const scope = deployScope(context, jobs);
    this.#isSyncOnly = syncOnly;
    this.#jobs = scope.all;
    const { db, layout, run } = context;
    await mkdir(runLayout(layout, run.id).folder, { recursive: true });
    const fleet = new Fleet(context, catalogWorkers(db));
    const options = { force, syncOnly, adopt, withHooks: false };
    const effects = {
      hooks: async () => [],
      drift: async (worker: string, wanted: ReadonlyMap<string, FileDigests>) => this.#driftOn(worker, wanted),
      text: async () => undefined,
    };
    this.#plan = await dryRun({ context, fleet, effects, scope, options }).catch((error: Failure) => {
      if (error.code !== "failed") throw error;
      return error.details as DeployPlan;
    });
    context.log.close();
    this.#planned = plannedPlaces(this.#plan);
    this.#before = new Map(catalogAllocations(db).map(({ id, job, worker }) => [`${job}@${worker}`, promotionsOf(db, job)(id)]));
  }

  #carriedOut(): CarriedOut {
    const controlled = this.#jobs.filter((job) => hooksOn(job, "job_control").length > 0);
    return {
      before: this.#before,
      acts: this.#acts,
      restored: this.#restored,
      resumed: this.#resumed,
      files: new Map([...this.#services].map(([place, { files }]) => [place, files])),
      controlled: new Set(controlled.map(({ name }) => name)),
      passes: this.#passes,
      result: this.#ended,
    };
  }

  #endOne(): void {
    const one = this.#pick([...this.#pending]);
    this.#pending.delete(one);
    const fails = this.#chance(this.#failureRate);
    if (fails) this.tally.failures++;
    if ((!fails && !this.#isDown(one)) || this.#chance(0.3)) one.apply();
    one.end(fails);
  }

  #isDown({ worker }: Pending): boolean {
    return worker !== undefined && this.#down.has(worker);
  }

  #cancel(stop: AbortController): void {
    this.tally.cancels++;
    this.#excuseAll();
    stop.abort();
    for (const one of this.#pending) {
      if (this.#chance(0.3)) one.apply();
      one.cancel();
    }
    this.#pending.clear();
  }

  #kill(): string {
    for (const { what, job, worker } of this.#pending)
      if (VERBS.some((verb) => what.startsWith(verb)))
        assert.equal(this.#lastOf(`${job?.name}@${worker}`)?.outcome, "unknown", `outcome: ${what} is killed`);
    this.#dropPending();
    checkWithinPlan(this.#plan, this.#carriedOut(), (job) => job === SHOWS_SEQUENCE);
    return "killed";
  }

  /** The run is killed: each action that is at work on a worker comes to its end there, or does not. */
  #dropPending(): void {
    this.tally.kills++;
    this.#excuseAll();
    for (const one of this.#pending) if (this.#chance(0.5)) one.apply();
    this.#pending.clear();
  }

  #excuseAll(): void {
    for (const service of this.#services.values()) service.excuses++;
  }

  #service({ job, worker }: Place): Service {
    const key = `${job}@${worker}`;
    const known = this.#services.get(key);
    if (known) return known;
    const service: Service = {
      tree: "",
      files: {},
      running: undefined,
      version: undefined,
      last: undefined,
      hasLostNote: false,
      isHealthy: undefined,
      starts: 0,
      excuses: 0,
    };
    this.#services.set(key, service);
    return service;
  }

  #effectsOf(): Effects {
    return {
      reach: async () => {},
      syncWorker: (worker) => this.#begin({ what: `worker files of ${worker}`, worker, result: () => undefined }),
      stage: async () => {},
      adopt: (place) => this.#begin({ ...this.#at("adopt", place), result: () => undefined }),
      drift: (worker, wanted) => {
        const [job = ""] = wanted.keys();
        return this.#begin({ ...this.#at("drift of", { job, worker }), result: () => this.#driftOn(worker, wanted) });
      },
      text: async () => undefined,
      evidence: async () => ({ logs: [], status: null, errors: [] }),
      sync: (place, tree) => {
        const files = tree?.digests ?? {};
        const hash = tree?.hash ?? "";
        this.#checkSync(place, hash);
        const result = () => ({ changed: [], removed: [], sentBytes: 0 });
        const apply = () => this.#applySync(place, hash, files);
        return this.#begin({ ...this.#at("sync", place), ...(!tree && { job: undefined }), apply, result });
      },
      lastTarget: (place) => {
        const result = () => {
          const { last } = this.#service(place);
          const { to } = this.#planned.get(keyOf(place)) as PlannedAllocation;
          if (last?.hash !== targetHash(to.hash ?? "", to.version)) return last;
          this.#resumed.add(keyOf(place));
          this.#reaches(place, true);
          return last;
        };
        return this.#begin({ ...this.#at("last of", place), result });
      },
      run: (target) => {
        const service = this.#service(target);
        const hash = target.target === "stop" ? "" : service.tree;
        const version = target.env?.NEW_VERSION ?? "";
        if (target.phase !== "reconcile") {
          this.#must(target.hash === targetHash(hash, version), `${target.target} is noted with other files`);
          this.#checkTarget(target, target.target, hash, version);
        }
        if (service.hasLostNote && this.#before.get(keyOf(target))?.unfinished) service.excuses++;
        Object.assign(service, { hasLostNote: false, last: undefined });
        return this.#begin({
          ...this.#at(target.target, target),
          ...(target.phase === "reconcile" && { job: undefined }),
          apply: () => this.#applyTarget(target.target, target, hash, version),
          result: () => this.#notesDone(target),
          onFailure: () => service.excuses++,
        });
      },
      probe: (job, worker) => {
        const service = this.#service({ job: job.name, worker });
        const isHealthy = !this.#chance(this.#failureRate) && !this.#isSick(job.name, worker);
        const result = () => {
          service.isHealthy = isHealthy;
          if (!isHealthy) this.#unhealthy.add(job.name);
          return [{ ok: isHealthy, evidence: "simulated", durationMs: 0 }];
        };
        const onFailure = () => this.#unhealthy.add(job.name);
        return this.#begin({ ...this.#at("probe", { job: job.name, worker }), result, onFailure });
      },
      hooks: async (pass) => await this.#hooks(pass),
    };
  }

  #driftOn(worker: string, wanted: ReadonlyMap<string, FileDigests>): Map<string, TreeDrift> {
    const states = { added: "extra", changed: "changed", removed: "missing" } as const;
    const drift = ([job, files]: [string, FileDigests]): [string, TreeDrift] => {
      this.#asked.set(`${job}@${worker}`, files);
      const found = plannedFiles(files, this.#service({ job, worker }).files).map(({ path, change, to }) => ({
        path,
        state: states[change],
        mode: null,
        hasOtherContent: false,
        sha256: change === "changed" ? (to?.split(":")[1] ?? null) : null,
      }));
      return [job, { files: found, isUnsettled: false }];
    };
    return new Map([...wanted].map(drift));
  }

  #at(verb: string, { job, worker }: Place) {
    return { what: `${verb} ${job}@${worker}`, job: this.#job(job), worker };
  }

  /** New files are sick where that was drawn. */
  #isSick(job: string, worker: string): boolean {
    const key = keyOf({ job, worker });
    const isThere = this.#sick?.job === job && (this.#sick.worker ?? worker) === worker;
    return isThere && this.#services.get(key)?.tree !== this.#before.get(key)?.hash;
  }

  async #hooks(pass: HookPass): Promise<ScriptResult[]> {
    const { event } = PASSES[pass.kind];
    const [hook] = hooksOn(pass.job, event);
    if (hook === undefined) return [];
    const name = pass.job.name;
    this.#passes.add(`${event} ${name}`);
    const present = catalogAllocations(this.#bucket.db).filter((one) => one.job === name && !one.removed);
    const workers = pass.batch?.workers ?? pass.workers ?? present.map(({ worker }) => worker);
    const script = (worker: string, error: string | null) => ({ hook, worker, error, duration_ms: 0 });
    const sick = event === "health_check" ? workers.filter((worker) => this.#isSick(name, worker)) : [];
    const isHealth = event === "health_check";
    const failure = (bad: readonly string[]) => {
      if (isHealth) this.#unhealthy.add(name);
      for (const worker of isHealth ? bad : []) this.#service({ job: name, worker }).isHealthy = false;
      const scripts = workers.map((worker) => script(worker, bad.includes(worker) ? "made to fail" : null));
      return new Failure("ErrHookFailed", `hook of ${name} was made to fail`, { details: { scripts } });
    };
    if (event === "job_control") return await this.#control(pass, workers, () => failure([this.#pick(workers)]));
    return await this.#begin({
      what: `hook ${event} of ${name}`,
      job: pass.kind === "stopped" ? undefined : pass.job,
      result: () => {
        if (sick.length > 0) throw failure(sick);
        for (const worker of isHealth ? workers : []) this.#service({ job: name, worker }).isHealthy = true;
        return workers.map((worker) => script(worker, null));
      },
      failure: () => failure([this.#pick(workers)]),
    });
  }

  /** The scripts that stand for targets: each does on its worker what the variables say. */
  #control(pass: HookPass, workers: readonly string[], failure: () => Failure): Promise<ScriptResult[]> {
    const job = pass.job.name;
    const { NEW_ALLOCATIONS = "", UPDATED_ALLOCATIONS = "" } = pass.variables ?? {};
    const named = [...NEW_ALLOCATIONS.split(","), ...UPDATED_ALLOCATIONS.split(",")];
    const places = workers.filter((worker) => named.includes(worker)).map((worker) => ({ job, worker }));
    const hashes = places.map((place) => this.#service(place).tree);
    const versionOn = (worker: string) =>
      pass.versions?.get(worker) ?? this.#planned.get(keyOf({ job, worker }))?.to.version ?? "";
    for (const [index, place] of places.entries()) {
      this.#checkTarget(place, "job_control", hashes[index] as string, versionOn(place.worker));
      // Nobody notes on the worker that a script has come to its end.
      if (this.#before.get(keyOf(place))?.unfinished) this.#service(place).excuses++;
    }
    return this.#begin({
      what: `hook job_control of ${job}`,
      job: pass.job,
      apply: () => {
        for (const [index, place] of places.entries())
          this.#applyTarget("job_control", place, hashes[index] as string, versionOn(place.worker));
      },
      result: () => {
        for (const place of places) this.#notesDone(place);
        return workers.map((worker) => ({ hook: "act", worker, error: null, duration_ms: 0 }));
      },
      onFailure: () => {
        for (const place of places) this.#service(place).excuses++;
      },
      failure,
    });
  }

  #checkSync(place: Place, hash: string): void {
    const planned = this.#planned.get(keyOf(place));
    if (hash === "" || place.job === SHOWS_SEQUENCE || hash === planned?.to.hash) return;
    this.#checkRestore(place, hash);
  }

  /** Other files than the planned ones are those that were promoted before, in a batch that is put back. */
  #checkRestore(place: Place, hash: string, version?: string): void {
    const key = keyOf(place);
    const { from } = this.#planned.get(key) ?? {};
    const isMeant = this.#job(place.job).onFailure === "restore" && this.#unhealthy.has(place.job);
    this.#must(isMeant, `restore: ${key} gets other files although nothing is to be put back`);
    this.#must(hash === from?.hash, `restore: ${key} gets files that were not promoted before`);
    this.#must(version === undefined || version === from?.version, `restore: ${key} gets another version`);
    const step = this.#targets.get(key)?.step ?? this.#steps.get(place.job);
    this.#must(step === this.#steps.get(place.job), `restore: ${key} is not of the batch that failed`);
    this.#restored.add(key);
  }

  #applySync(place: Place, hash: string, digests: FileDigests): void {
    const service = this.#service(place);
    if (service.tree !== hash) Object.assign(service, { starts: 0, excuses: 0 });
    const files = plannedFiles(service.files, digests);
    if (files.length > 0) this.#acts.push({ place: keyOf(place), what: "sync", hash, files });
    service.tree = hash;
    service.files = digests;
  }

  #applyTarget(target: string, place: Place, hash: string, version: string): void {
    const service = this.#service(place);
    const isOther = service.running !== hash || service.version !== version;
    if (isOther || target === "stop") Object.assign(service, { starts: 0, excuses: 0 });
    service.version = version;
    this.tally.targets++;
    this.#acts.push({ place: keyOf(place), what: target, hash });
    // Killed between the target's end and the note about it.
    const isNoted = !this.#chance(0.05) || this.#failureRate === 0;
    if (!isNoted) service.excuses++;
    service.last = isNoted && target !== "job_control" ? { hash: targetHash(hash, version), target } : undefined;
    service.isHealthy = undefined;
    service.running = target === "stop" ? undefined : hash;
    if (target !== "stop") service.starts++;
    this.#must(
      service.starts <= 1 + service.excuses,
      `starts: ${keyOf(place)} was started ${service.starts} times with the same files`,
    );
  }

  #notesDone(place: Place): void {
    const noted = this.#targets.get(keyOf(place));
    if (noted) noted.isDone = true;
  }

  /** What it throws when it fails is `failure`'s, or `failed`, or `unreachable`. */
  #begin<T>(effect: {
    what: string;
    job?: CatalogJob | undefined;
    worker?: string;
    result: () => T;
    apply?: () => void;
    onFailure?: () => void;
    failure?: () => Failure;
  }): Promise<T> {
    const { what, job, worker, result, apply = () => {}, onFailure = () => {}, failure } = effect;
    // pre_deploy comes before anybody knows whether there is work.
    if (!what.startsWith("hook pre_deploy")) this.#effects++;
    this.#checkWave(what, job);
    const wasDown = worker !== undefined && this.#down.has(worker);
    return new Promise<T>((resolve, reject) => {
      const fail = (isLost: boolean) => {
        onFailure();
        if (failure) return reject(failure());
        const isCut = isLost || (worker !== undefined && this.#chance(0.5));
        if (isCut) this.#lose(worker as string, job);
        reject(new Failure(isCut ? "unreachable" : "failed", `${what} was made to fail`));
      };
      const succeed = () => {
        try {
          resolve(result());
        } catch (error) {
          reject(error);
        }
      };
      const one: Pending = {
        what,
        job,
        worker,
        cancel: () => reject(new Failure("cancelled", "cancelled")),
        apply: () => (wasDown ? undefined : apply()),
        end: (fails) => (fails || this.#isDown(one) ? fail(this.#isDown(one)) : succeed()),
      };
      this.#pending.add(one);
    });
  }

  #lose(worker: string, job: CatalogJob | undefined): void {
    this.tally.lost++;
    if (job) this.#lost.set(job.name, (this.#lost.get(job.name) ?? new Set()).add(worker));
    else if (this.#phase.startsWith("wave")) this.#unready.add(worker);
  }

  /** The workers of a job that could not be reached so far. */
  #lostOf(job: string): Set<string> {
    const changes = (worker: string) => (this.#planned.get(`${job}@${worker}`)?.action ?? "skip") !== "skip";
    return new Set([...(this.#lost.get(job) ?? []), ...[...this.#unready].filter(changes)]);
  }

  #isTolerable(job: CatalogJob, lost: number): boolean {
    const present = this.#plan.waves.flatMap(({ jobs }) => jobs).find((one) => one.job === job.name)?.allocations;
    return (100 * lost) / (present?.length ?? 1) <= job.tolerateUnreachable;
  }

  #job(name: string): CatalogJob {
    return this.#jobs.find((job) => job.name === name) as CatalogJob;
  }

  #checkWave(what: string, job: CatalogJob | undefined): void {
    if (!job) return;
    this.#must(job.deploymentSeq >= this.#wave, `waves: ${what} begins after the wave above it`);
    this.#wave = job.deploymentSeq;
    for (const other of this.#pending)
      this.#must(
        other.job === undefined || other.job.deploymentSeq === this.#wave,
        `waves: ${what} begins while ${other.what} is at work`,
      );
  }

  #checkTarget(place: Place, target: string, hash: string, version: string): void {
    const job = this.#job(place.job);
    const step = this.#steps.get(job.name) as string;
    const key = keyOf(place);
    const planned = this.#planned.get(key);
    this.#reaches(place, false);
    const isOther = hash !== planned?.to.hash || version !== planned.to.version;
    if (isOther && job.name !== SHOWS_SEQUENCE) this.#checkRestore(place, hash, version);
    // Put back or not: after a failed gate it is done once more.
    if (this.#unhealthy.has(job.name)) this.#service(place).excuses++;
    const [action, batch] = step.split(" ") as [string, string];
    const phases = this.#plan.waves.flatMap(({ jobs }) => jobs).find((one) => one.job === job.name)?.phases;
    const own = phases?.find((phase) => phase.action === action)?.batches[Number(batch) - 1];
    this.#must(own?.includes(place.worker) === true, `plan: ${key} is changed in ${step}, where it is not planned`);
    const width = action === "start" ? job.maxConcurrentStarts || SIMULATED.length : job.maxConcurrentUpgrades;
    const atWork = [...this.#pending].filter(
      (one) => one.job?.name === job.name && VERBS.some((verb) => one.what.startsWith(verb)),
    );
    this.#must(atWork.length < width, `width: ${target} on ${key} beside ${atWork.length} others`);
  }

  /** The batch of a place is under way: a target begins there, or is found to have succeeded before. */
  #reaches(place: Place, isDone: boolean): void {
    const job = this.#job(place.job);
    const step = this.#steps.get(job.name) as string;
    const isFirst = ![...this.#targets].some(([other, one]) => other.split("@")[0] === job.name && one.step === step);
    if (isFirst) this.#checkEarlier(job, step);
    this.#targets.set(keyOf(place), { step, isDone });
  }

  #checkEarlier(job: CatalogJob, step: string): void {
    const { db } = this.#bucket;
    const promotionOf = promotionsOf(db, job.name);
    const lost = this.#lostBefore.get(job.name) ?? new Set();
    for (const [key, earlier] of this.#targets) {
      const [other, host = ""] = key.split("@");
      if (other !== job.name) continue;
      const allocation = catalogAllocations(db).find((one) => one.job === other && one.worker === host);
      const { gate, unfinished } = promotionOf(allocation?.id ?? "");
      const isPassed = !unfinished && gate === (hasGate(job) ? "passed" : "");
      const isTolerated = lost.has(host) && this.#isTolerable(job, lost.size);
      const what = `${step} of ${job.name} begins before ${earlier.step} has passed on ${host}`;
      this.#must((earlier.isDone && isPassed) || isTolerated, `gate: ${what}`);
    }
  }

  #checkPromotions(): void {
    const { db } = this.#bucket;
    for (const [job, own] of Map.groupBy(catalogAllocations(db), (one) => one.job)) {
      const promotionOf = promotionsOf(db, job);
      for (const { id, worker, disabled, removed } of own) {
        const { hash, unfinished, stopped, version } = promotionOf(id);
        const service = this.#service({ job, worker });
        // While a change is on its way, the tree on the worker may be the next one.
        if (hash === "" || unfinished || removed) continue;
        const what = `promotion: ${job}@${worker} is promoted`;
        this.#must(service.tree === hash, `${what} with other files than it has`);
        if (this.#isSyncOnly || disabled || stopped || service.last?.target === "stop") continue;
        if (this.#runs(job))
          this.#must(service.running === hash && service.version === version, `${what} with ${version} but was not started so`);
      }
    }
  }

  #checkResult(result: DeployResult, isCancelled: boolean): void {
    checkWithinPlan(this.#plan, this.#carriedOut(), (job) => job === SHOWS_SEQUENCE);
    this.#checkSkipped(result);
    const unchanged = this.#bucket.db.get("SELECT * FROM last_outcome WHERE action = 'skip'");
    assert.equal(unchanged, undefined, "outcome: an allocation that was left as it is is noted");
    for (const { job: name, outcome, reason, allocations } of result.jobs) {
      const job = this.#job(name);
      const graded = (grade: string) => allocations.filter((one) => one.outcome === grade).length;
      if (outcome === "deployed") {
        assert.equal(graded("failed"), 0, `tolerance: ${name} is deployed although a worker failed`);
        const lost = graded("unreachable");
        assert.ok(this.#isTolerable(job, lost), `tolerance: ${name} is deployed without ${lost} workers`);
        if (lost > 0) this.tally.tolerated++;
      }
      for (const one of allocations) {
        if (one.action === null || ["skipped", "not_started", "disabled"].includes(one.outcome)) continue;
        const last = this.#lastOf(`${name}@${one.worker}`);
        const isNoted = last?.outcome === one.outcome || last?.action.startsWith("restore");
        assert.ok(isNoted, `outcome: ${name}@${one.worker} is ${one.outcome}, ${last?.outcome} is noted`);
      }
      if (outcome === "failed" && !isCancelled) this.#checkRestored(job, reason, allocations);
    }
  }

  /** What a failed job says about the batch that was put back. */
  #checkRestored(job: CatalogJob, reason: string, allocations: DeployResult["jobs"][number]["allocations"]): void {
    const told = / put back on ([^;:]*?)( and is healthy there|, but is not healthy there: |: |$)/.exec(reason);
    const isBack = told?.[2] === " and is healthy there";
    for (const worker of told?.[1]?.split(", ") ?? []) {
      const key = `${job.name}@${worker}`;
      const { gate, hash, version, unfinished } = this.#promotionOf(key);
      const before = this.#planned.get(key)?.from;
      if (!isBack) assert.ok(unfinished || gate === "failed", `restore: the gate of ${key} is ${gate}`);
      if (!isBack) continue;
      this.tally.restored++;
      const found = { gate, hash, version, unfinished };
      const wanted = { gate: "passed", ...before, unfinished: false };
      assert.deepEqual(found, wanted, `restore: ${key} has back what was promoted before`);
      const { running, isHealthy } = this.#service({ job: job.name, worker });
      assert.deepEqual([running, isHealthy], [before?.hash, true], `restore: ${key} runs what it has back`);
    }
    if (told !== null || reason.includes("nothing was promoted there before"))
      for (const { worker, outcome, action } of allocations) {
        const key = `${job.name}@${worker}`;
        const before = this.#planned.get(key)?.from.hash ?? "";
        if (outcome !== "not_started" || action === "skip" || before === "") continue;
        const isSettled = !isUnsettled(this.#promotionOf(key)) && this.#service({ job: job.name, worker }).tree === before;
        assert.ok(isSettled, `restore: ${key} waited for its batch and has not the promoted files`);
      }
    // A gate that an earlier deploy left open is not that of a batch.
    const isOfBatch = !(this.#steps.get(job.name) ?? "sync").startsWith("sync");
    const isGate = reason.startsWith("the health check of job");
    const isExpected = job.onFailure === "restore" && isOfBatch && isGate;
    const isTold = told !== null || reason.includes("nothing was promoted there before");
    assert.equal(isTold, isExpected, `restore: ${job.name}: ${reason}`);
  }

  #lastOf(key: string): { action: string; outcome: string } | undefined {
    const { db } = this.#bucket;
    const one = catalogAllocations(db).find(({ job, worker }) => `${job}@${worker}` === key);
    return db.get("SELECT action, outcome FROM last_outcome WHERE alloc_id = ?", one?.id ?? "");
  }

  #promotionOf(key: string): Promotion {
    const { db } = this.#bucket;
    const one = catalogAllocations(db).find(({ job, worker }) => `${job}@${worker}` === key);
    return promotionsOf(db, one?.job ?? "")(one?.id ?? "");
  }

  #checkSkipped({ jobs }: DeployResult): void {
    const { db } = this.#bucket;
    for (const { job: name } of jobs.filter(({ outcome }) => outcome === "skipped")) {
      const job = this.#job(name);
      const active = catalogAllocations(db).filter((one) => one.job === name && !one.disabled && !one.removed);
      for (const { id, worker } of active) {
        const service = this.#service({ job: name, worker });
        const { hash } = promotionsOf(db, name)(id);
        if (this.#runs(name) && !this.#isSyncOnly)
          assert.equal(service.running, hash, `skip: ${name}@${worker} does not run what is promoted`);
        if (hasGate(job)) assert.equal(service.isHealthy, true, `skip: ${name} is skipped while ${worker} is not healthy`);
      }
    }
  }
}

function keyOf({ job, worker }: Place): string {
  return `${job}@${worker}`;
}

function emptyTally(): Tally {
  const counts = { deploys: 0, kills: 0, cancels: 0, failures: 0, targets: 0, lost: 0 };
  return { ...counts, restored: 0, tolerated: 0, planned: 0, controlled: 0, settled: 0, adopted: 0 };
}
