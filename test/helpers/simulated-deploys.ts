import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { setImmediate as turn } from "node:timers/promises";
import { type CatalogJob, catalogAllocations, catalogWorkers } from "../../lib/bucket/catalog.ts";
import { runLayout } from "../../lib/bucket/layout.ts";
import { promotionsOf } from "../../lib/bucket/promotions.ts";
import { Failure } from "../../lib/core/errors.ts";
import { BoundPlan } from "../../lib/operation/bound-plan.ts";
import { build } from "../../lib/operation/build.ts";
import { carryOutDeploy } from "../../lib/operation/deploy.ts";
import type { DeployResult } from "../../lib/operation/deploy-result.ts";
import { deployScope } from "../../lib/operation/deploy-scope.ts";
import { dryRun } from "../../lib/operation/dry-run.ts";
import type { Effects, Place } from "../../lib/operation/effects.ts";
import { Fleet } from "../../lib/operation/fleet.ts";
import { hasGate } from "../../lib/operation/gate.ts";
import { type HookPass, hooksOn } from "../../lib/operation/hooks.ts";
import { PASSES } from "../../lib/plan/rollout.ts";
import { seeded } from "./kill-rounds.ts";
import { makeBucket, makeWorkspace, type TestBucket } from "./workspace.ts";

const WORKERS = ["a", "b", "c", "d", "e"];
const CHECK = {
  health_check: { checks: [{ type: "ssh", command: "true" }], wait: { attempts: 1, interval_seconds: 1 } },
};
const demands = (job: string) => ({ executed_on: ["cli"], demands: { job, hook: "up" } });
const up = { executed_on: ["cli"] };

/** Jobs of every kind: with and without gate, hooks and demands, wide and narrow. */
const JOBS: Record<string, Record<string, unknown>> = {
  base: { ...CHECK, max_concurrent_starts: 2, max_concurrent_upgrades: 2, hooks: { up } },
  plain: { max_concurrent_starts: 0, max_concurrent_upgrades: 3 },
  store: { ...CHECK, max_concurrent_starts: 1, hooks: { need: demands("base"), up } },
  hooked: {
    max_concurrent_starts: 3,
    max_concurrent_upgrades: 2,
    hooks: {
      need: demands("base"),
      go: {
        executed_on: [
          "pre_deploy",
          "after_allocation_started",
          "health_check",
          "post_deploy",
          "after_allocation_stopped",
        ],
      },
    },
  },
  last: { restart_policy: "reload", max_concurrent_starts: 2, hooks: { need: demands("store") } },
};

/** One effect that has begun and not ended. */
interface Pending {
  what: string;
  job: CatalogJob | undefined;
  /** Ends it: well, or with what it is to throw. */
  end(fails: boolean): void;
  /** What it does on a worker when it comes through, known to the run or not. */
  apply(): void;
  cancel(): void;
}

/** What runs for an allocation on its worker, and what bin/runner noted. */
interface Service {
  tree: string;
  running: string | undefined;
  last: { hash: string | undefined; target: string } | undefined;
  /** Of the last probe since a target came through. */
  isHealthy: boolean | undefined;
  /** Targets that came through for the tree. */
  starts: number;
  /** Why the tree may have been started once more: kills, cancels, failures, force. */
  excuses: number;
}

/** How often what happened, so that a test can tell that it has met enough. */
export type Tally = Record<"deploys" | "kills" | "cancels" | "failures" | "targets", number>;

/**
 * Deploys to workers that exist in memory only: the real engine over the real catalog and database, its effects ending
 * one by one in an order that a seed decides, with failures, cancels and kills. Checked at every step:
 * - gate: no batch of a job begins before every target of its earlier batches has ended well and their gate has passed;
 * - width: never more targets of a job at once than the manifest allows;
 * - waves: nothing of a wave begins while something of a lower one is at work, nor the other way round;
 * - promotion: what is promoted is synced, and started with exactly these files;
 * - skip: a job is skipped only when all its allocations run what is wanted and were last found healthy;
 * - starts: a tree is started once, and once more at most for each kill, cancel, failure or force;
 * - convergence: a deploy that nothing disturbs succeeds, and the next one has nothing to do.
 */
export class SimulatedDeploys {
  readonly #bucket: TestBucket;
  readonly #random: () => number;
  readonly #services = new Map<string, Service>();
  readonly #pending = new Set<Pending>();
  readonly tally: Tally = { deploys: 0, kills: 0, cancels: 0, failures: 0, targets: 0 };
  #jobs: CatalogJob[] = [];
  #wave = -1;
  /** Where each job is by its progress: action and batch. */
  readonly #steps = new Map<string, string>();
  /** The batch of every target that began in this deploy, and whether it ended well. */
  readonly #targets = new Map<string, { step: string; isDone: boolean }>();
  /** What was synced, run and stopped, with the tree it was about. */
  readonly #done = new Set<string>();
  #ended: DeployResult | undefined;
  #failureRate = 0;
  #effects = 0;
  #violation: string | undefined;

  private constructor(bucket: TestBucket, seed: number) {
    this.#bucket = bucket;
    this.#random = seeded(seed);
  }

  /** A built bucket that any number of simulations use one after the other. */
  static async bucket(t: Parameters<typeof makeBucket>[0]): Promise<TestBucket> {
    const bucket = await makeBucket(t);
    makeWorkspace(bucket.dir, {
      jobs: Object.fromEntries(
        Object.entries(JOBS).map(([name, manifest]) => [
          ...[name, { version: "1.0.0", selectors: ["worker"], ...manifest }],
        ]),
      ),
      workers: WORKERS.map((host) => ({ host, connection: "local" })),
      files: Object.fromEntries(Object.keys(JOBS).map((job) => [`workspace/jobs/${job}/conf`, "0"])),
    });
    await build(bucket.context("build"), {});
    return bucket;
  }

  /** So many simulations from this seed on; answers what they met in all. */
  static async runAll(bucket: TestBucket, first: number, count: number): Promise<Tally> {
    const total: Tally = { deploys: 0, kills: 0, cancels: 0, failures: 0, targets: 0 };
    for (let seed = first; seed < first + count; seed++) {
      const tally = await SimulatedDeploys.run(bucket, seed);
      for (const what of Object.keys(total) as (keyof Tally)[]) total[what] += tally[what];
    }
    return total;
  }

  /** Several disturbed deploys with changes between them, then one that nothing disturbs. Throws with the seed. */
  static async run(bucket: TestBucket, seed: number): Promise<Tally> {
    bucket.db.script(
      "DELETE FROM hash; UPDATE bucket SET update_seq = 0; UPDATE allocations SET disabled = 0",
    );
    const simulation = new SimulatedDeploys(bucket, seed);
    try {
      for (let round = 0; round < 6; round++) {
        if (round > 0) simulation.#change(seed, round);
        await simulation.#disturbed();
      }
      await simulation.#settles();
      return simulation.tally;
    } catch (error) {
      throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
    }
  }

  /**
   * So many simulations from this seed on of a plan that is carried out with nothing changed in between, after disturbed
   * deploys: what is synced, run and stopped is what the plan says, file for file and action for action.
   */
  static async planAll(bucket: TestBucket, first: number, count: number): Promise<number> {
    let actions = 0;
    for (let seed = first; seed < first + count; seed++) {
      bucket.db.script(
        "DELETE FROM hash; UPDATE bucket SET update_seq = 0; UPDATE allocations SET disabled = 0",
      );
      const simulation = new SimulatedDeploys(bucket, seed);
      try {
        for (let round = 0; round < 3; round++) {
          await simulation.#disturbed();
          simulation.#change(seed, round);
        }
        actions += await simulation.#asPlanned();
      } catch (error) {
        throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
      }
    }
    return actions;
  }

  /** Plans and carries the plan out; answers how many actions that took. */
  async #asPlanned(): Promise<number> {
    this.#failureRate = 0;
    const force = this.#chance(0.2);
    if (force) this.#excuseAll();
    const context = this.#bucket.context("deploy");
    const scope = deployScope(context, undefined);
    const fleet = new Fleet(context, catalogWorkers(context.db));
    const options = { force, syncOnly: false, withHooks: false };
    await mkdir(runLayout(context.layout, context.run.id).folder, { recursive: true });
    const plan = await dryRun(
      context,
      fleet,
      { ...this.#effectsOf(), hooks: async () => [] },
      scope,
      options,
    );
    context.log.close();
    const lastTargets = new Map([...this.#services].map(([key, { last }]) => [key, last]));
    const promoted = this.#promotions();
    this.#done.clear();
    assert.equal(
      await this.#deploy({ force, killAt: -1, cancelAt: -1 }, new BoundPlan(context.log, plan)),
      "succeeded",
    );
    assert.deepEqual(this.#ended?.plan?.differences, []);
    const wanted = new Set(plan.reconcile.map(({ job, worker }) => `stop ${job}@${worker}`));
    for (const { job, allocations } of plan.waves.flatMap(({ jobs }) => jobs))
      for (const { worker, action, to } of allocations) {
        const place = `${job}@${worker}`;
        if (action === "skip") continue;
        wanted.add(`sync ${place} ${to.hash}`);
        const isThere =
          !force && promoted.get(place)?.unfinished === true && lastTargets.get(place)?.hash === to.hash;
        if (action === "start" || action === "restart" || action === "reload")
          if (!isThere) wanted.add(`${action} ${place} ${to.hash}`);
      }
    assert.deepEqual([...this.#done].sort(), [...wanted].sort(), "what was done is what was planned");
    return wanted.size;
  }

  #promotions() {
    const { db } = this.#bucket;
    return new Map(
      catalogAllocations(db).map(({ id, job, worker }) => [`${job}@${worker}`, promotionsOf(db, job)(id)]),
    );
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

  /** Other files for some jobs, another allocation disabled or enabled. */
  #change(seed: number, round: number): void {
    const { db } = this.#bucket;
    for (const job of Object.keys(JOBS))
      if (this.#chance(0.4))
        db.run(
          "UPDATE job_files SET content = ?, sha256 = ? WHERE job = ? AND path = 'conf'",
          Buffer.from(`${seed}.${round}`),
          `${seed}.${round}`,
          job,
        );
    if (!this.#chance(0.4)) return;
    const one = this.#pick(catalogAllocations(db));
    db.run("UPDATE allocations SET disabled = ? WHERE alloc_id = ?", one.disabled ? 0 : 1, one.id);
  }

  async #disturbed(): Promise<void> {
    this.#failureRate = this.#pick([0, 0, 0.01, 0.05]);
    const force = this.#chance(0.1);
    if (force) this.#excuseAll();
    const end = this.#pick(["none", "kill", "kill", "cancel"]);
    const at = Math.floor(this.#random() * 160);
    await this.#deploy({ force, killAt: end === "kill" ? at : -1, cancelAt: end === "cancel" ? at : -1 });
  }

  async #settles(): Promise<void> {
    this.#failureRate = 0;
    const { db } = this.#bucket;
    const quiet = { force: false, killAt: -1, cancelAt: -1 };
    assert.equal(await this.#deploy(quiet), "succeeded", "an undisturbed deploy succeeds");
    for (const { job, worker, id, disabled, newVersion } of catalogAllocations(db)) {
      const { hash, unfinished, version, gate, stopped } = promotionsOf(db, job)(id);
      const service = this.#service({ job, worker });
      const what = `${job}@${worker}`;
      if (disabled) assert.equal(service.running, undefined, `${what} is stopped`);
      else {
        assert.deepEqual([unfinished, stopped, version], [false, false, newVersion], `${what} is promoted`);
        assert.ok(gate === "" || gate === "passed", `${what} has no open gate`);
        assert.equal(service.running, hash, `${what} runs what is promoted`);
      }
    }
    this.#effects = 0;
    assert.equal(await this.#deploy(quiet), "succeeded");
    assert.equal(this.#effects, 0, "a deploy with nothing to do does nothing");
  }

  /** One deploy to its end; a kill leaves everything as it is at that moment. */
  async #deploy(
    how: { force: boolean; killAt: number; cancelAt: number },
    plan?: BoundPlan,
  ): Promise<string> {
    this.tally.deploys++;
    this.#pending.clear();
    this.#steps.clear();
    this.#targets.clear();
    this.#wave = -1;
    const stop = new AbortController();
    const context = this.#bucket.context("deploy", stop.signal);
    context.progress.report = ({ rollouts = [] }) => {
      for (const { job, action, batch } of rollouts) this.#steps.set(job, `${action} ${batch}`);
    };
    const scope = deployScope(context, undefined);
    this.#jobs = scope.all;
    const fleet = new Fleet(context, catalogWorkers(context.db));
    let ended: { outcome: string; result: DeployResult } | undefined;
    const options = { force: how.force, syncOnly: false };
    void carryOutDeploy(context, fleet, this.#effectsOf(), scope, options, plan).then(
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
        if (step === how.killAt) return this.#kill();
        if (step === how.cancelAt) {
          this.tally.cancels++;
          this.#excuseAll();
          stop.abort();
          for (const one of this.#pending) {
            if (this.#chance(0.3)) one.apply();
            one.cancel();
          }
          this.#pending.clear();
        } else if (this.#pending.size > 0) this.#endOne();
      }
    } finally {
      context.log.close();
    }
    this.#checkSkipped(ended.result);
    this.#ended = ended.result;
    return ended.outcome;
  }

  #endOne(): void {
    const one = this.#pick([...this.#pending]);
    this.#pending.delete(one);
    const fails = this.#chance(this.#failureRate);
    if (fails) this.tally.failures++;
    if (!fails || this.#chance(0.3)) one.apply();
    one.end(fails);
  }

  #kill(): string {
    this.tally.kills++;
    this.#excuseAll();
    // What was at work on a worker comes through there, or it does not.
    for (const one of this.#pending) if (this.#chance(0.5)) one.apply();
    this.#pending.clear();
    return "killed";
  }

  #excuseAll(): void {
    for (const service of this.#services.values()) service.excuses++;
  }

  #service({ job, worker }: Place): Service {
    const key = `${job}@${worker}`;
    const known = this.#services.get(key);
    if (known) return known;
    const service = {
      tree: "",
      running: undefined,
      last: undefined,
      isHealthy: undefined,
      starts: 0,
      excuses: 0,
    };
    this.#services.set(key, service);
    return service;
  }

  #effectsOf(): Effects {
    return {
      syncWorker: (host) =>
        this.#begin(
          `worker files of ${host}`,
          undefined,
          () => {},
          () => undefined,
        ),
      stage: async () => {},
      drift: async () => new Map(),
      text: async () => undefined,
      evidence: async () => ({ logs: [], status: null, errors: [] }),
      sync: (place, tree) => {
        const apply = () => {
          const service = this.#service(place);
          const hash = tree?.hash ?? "";
          if (service.tree !== hash) Object.assign(service, { starts: 0, excuses: 0 });
          service.tree = hash;
          this.#done.add(`sync ${place.job}@${place.worker} ${hash}`);
        };
        const result = { changed: [], removed: [], unchanged: 0, sentBytes: 0 };
        return this.#begin(`sync ${place.job}@${place.worker}`, this.#job(place.job), apply, () => result);
      },
      lastTarget: (place) =>
        this.#begin(
          `last of ${place.job}@${place.worker}`,
          this.#job(place.job),
          () => {},
          () => this.#service(place).last,
        ),
      run: (target) => {
        this.#checkTarget(target);
        const key = `${target.job}@${target.worker}`;
        const service = this.#service(target);
        service.last = undefined;
        const apply = () => this.#applyTarget(target, service);
        const ok = () => {
          const noted = this.#targets.get(key);
          if (noted) noted.isDone = true;
        };
        const job = target.phase === "reconcile" ? undefined : this.#job(target.job);
        return this.#begin(`${target.target} ${key}`, job, apply, ok, () => service.excuses++);
      },
      probe: (job, worker) => {
        const service = this.#service({ job: job.name, worker });
        const isHealthy = !this.#chance(this.#failureRate);
        const seen = () => {
          service.isHealthy = isHealthy;
          return [{ ok: isHealthy, evidence: "simulated", durationMs: 0 }];
        };
        return this.#begin(`probe ${job.name}@${worker}`, job, () => {}, seen);
      },
      hooks: async (pass) => this.#hooks(pass),
    };
  }

  #hooks(pass: HookPass) {
    const { event } = PASSES[pass.kind];
    if (hooksOn(pass.job, event).length === 0) return [];
    const job = pass.kind === "stopped" ? undefined : pass.job;
    return this.#begin(
      `hook ${event} of ${pass.job.name}`,
      job,
      () => {},
      () => [],
      () => {},
      "ErrHookFailed",
    );
  }

  #applyTarget(
    { target, job, worker, hash }: { target: string; job: string; worker: string; hash?: string },
    service: Service,
  ): void {
    this.tally.targets++;
    this.#done.add(`${target} ${job}@${worker}${target === "stop" ? "" : ` ${hash}`}`);
    // Killed between the target's end and the note about it.
    const isNoted = !this.#chance(0.05) || this.#failureRate === 0;
    if (!isNoted) service.excuses++;
    service.last = isNoted ? { hash, target } : undefined;
    service.isHealthy = undefined;
    service.running = target === "stop" ? undefined : hash;
    if (target === "stop") Object.assign(service, { starts: 0, excuses: 0 });
    else service.starts++;
    this.#must(
      service.starts <= 1 + service.excuses,
      `starts: ${job}@${worker} was started ${service.starts} times with the same files`,
    );
  }

  #begin<T>(
    what: string,
    job: CatalogJob | undefined,
    apply: () => void,
    result: () => T,
    onFailure: () => void = () => {},
    code: Failure["code"] = "failed",
  ): Promise<T> {
    // pre_deploy comes before anybody knows whether there is work.
    if (!what.startsWith("hook pre_deploy")) this.#effects++;
    this.#checkWave(what, job);
    return new Promise<T>((resolve, reject) => {
      const fail = () => {
        onFailure();
        const isCut = code === "failed" && this.#chance(0.5);
        const details = code === "ErrHookFailed" ? { scripts: [] } : undefined;
        reject(new Failure(isCut ? "unreachable" : code, `${what} was made to fail`, { details }));
      };
      this.#pending.add({
        ...{ what, job, apply, cancel: () => reject(new Failure("cancelled", "cancelled")) },
        end: (fails) => (fails ? fail() : resolve(result())),
      });
    });
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

  #checkTarget({
    job: name,
    worker,
    target,
    phase,
  }: {
    job: string;
    worker: string;
    target: string;
    phase: string;
  }): void {
    if (phase === "reconcile") return;
    const job = this.#job(name);
    const step = this.#steps.get(name) as string;
    const { db } = this.#bucket;
    const promotionOf = promotionsOf(db, name);
    for (const [key, earlier] of this.#targets) {
      const [other, host] = key.split("@");
      if (other !== name || earlier.step === step) continue;
      const allocation = catalogAllocations(db).find((one) => one.job === name && one.worker === host);
      const { gate, unfinished } = promotionOf(allocation?.id ?? "");
      const isPassed = !unfinished && gate === (hasGate(job) ? "passed" : "");
      this.#must(
        earlier.isDone && isPassed,
        `gate: ${step} of ${name} begins before ${earlier.step} has passed on ${host}`,
      );
    }
    this.#targets.set(`${name}@${worker}`, { step, isDone: false });
    const width = target === "start" ? job.maxConcurrentStarts || WORKERS.length : job.maxConcurrentUpgrades;
    const verbs = ["start ", "restart ", "reload "];
    const atWork = [...this.#pending].filter(
      (one) => one.job === job && verbs.some((verb) => one.what.startsWith(verb)),
    );
    this.#must(
      atWork.length < width,
      `width: ${target} of ${name} on ${worker} beside ${atWork.length} others`,
    );
  }

  #checkPromotions(): void {
    const { db } = this.#bucket;
    for (const [job, own] of Map.groupBy(catalogAllocations(db), (one) => one.job)) {
      const promotionOf = promotionsOf(db, job);
      for (const { id, worker, disabled } of own) {
        const { hash, unfinished, stopped } = promotionOf(id);
        const service = this.#service({ job, worker });
        // While a change is on its way, the tree on the worker may be the next one.
        if (hash === "" || unfinished) continue;
        assert.equal(
          service.tree,
          hash,
          `promotion: ${job}@${worker} is promoted with other files than it has`,
        );
        if (!disabled && !stopped && service.last?.target !== "stop")
          assert.equal(service.running, hash, `promotion: ${job}@${worker} is promoted but was not started`);
      }
    }
  }

  #checkSkipped({ jobs }: DeployResult): void {
    const { db } = this.#bucket;
    for (const { job: name } of jobs.filter(({ outcome }) => outcome === "skipped")) {
      const job = this.#job(name);
      for (const { id, worker, disabled } of catalogAllocations(db).filter(
        (one) => one.job === name && !one.disabled,
      )) {
        const service = this.#service({ job: name, worker });
        const { hash } = promotionsOf(db, name)(id);
        assert.equal(service.running, hash, `skip: ${name}@${worker} does not run what is promoted`);
        if (job.healthCheck && !disabled)
          assert.equal(service.isHealthy, true, `skip: ${name} is skipped while ${worker} is not healthy`);
      }
    }
  }
}
