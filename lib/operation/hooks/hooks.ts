import type { CatalogAllocation, CatalogJob, HookEvent } from "../../bucket/base/model.ts";
import { catalogAllocations, catalogFiles, catalogJobs, catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { jobOfHook } from "../../bucket/catalog/choices.ts";
import { promotionsOf } from "../../bucket/catalog/promotions.ts";
import { loadOpsConf, type OpsConf } from "../../bucket/workspace/settings.ts";
import { mapAll, sleep } from "../../core/async.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { counted, inOneLine } from "../../core/plain-text.ts";
import type { EventVariables } from "../../hook/environment.ts";
import { type Batch, PASSES, type PassKind, passBatches, passWorkers } from "../../plan/rollout.ts";
import { parametersOf } from "../../run/protocol.ts";
import { RUNNER_PATH } from "../../transport/ask/runner.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { Fleet } from "../base/fleet.ts";
import type { Script, ScriptHost } from "./hook-script.ts";

/** A request to run the hooks that a job has for an event. */
export interface HookPass {
  kind: PassKind;
  job: CatalogJob;
  /** Only this one of its hooks. */
  hook?: string;
  /** Only these workers of the pass. */
  workers?: readonly string[];
  /** The batch of a rollout that the hooks are for; without it the pass makes its own batches. */
  batch?: Batch;
  variables?: EventVariables;
  /** By worker: the version to bring there (`NEW_VERSION`), where it is not that of the catalog. */
  versions?: ReadonlyMap<string, string>;
  /** A script that fails is tried again, as a probe is. */
  wait?: { attempts: number; intervalSeconds: number };
  /** Tells in Activity how each script has ended. */
  verbose?: boolean;
}

/** How one script ended. */
export interface ScriptResult {
  hook: string;
  worker: string;
  error: string | null;
  duration_ms: number;
}

/**
 * Runs the hooks of a run (hook-runtime.md, Execution model). The runtime API starts with the first script and answers
 * until the session is closed. Values that scripts write are pending in the run's KV store: the caller of a pass has to
 * store or to drop them.
 */
export class HookSession {
  readonly #context: OperationContext;
  readonly #fleet: Fleet;
  readonly #jobs: readonly CatalogJob[];
  readonly #allocations: readonly CatalogAllocation[];
  readonly #peers: ReadonlyMap<string, CatalogAllocation[]>;
  /** The ids of the allocations that a script has run for. */
  readonly #visited = new Set<string>();
  #host: Promise<ScriptHost> | undefined;

  /** For the workers of the fleet and the catalog as it is now. */
  constructor(context: OperationContext, fleet: Fleet) {
    this.#context = context;
    this.#fleet = fleet;
    this.#jobs = catalogJobs(context.db);
    this.#allocations = catalogAllocations(context.db);
    this.#peers = Map.groupBy(this.#allocations, ({ job }) => job);
  }

  /**
   * Runs every hook that the job has for the pass, by name; of each, batch after batch, and in a batch all scripts at
   * once and to their end. Answers how the scripts ended. When one failed, no further script is started, and
   * `ErrHookFailed` is thrown: it names every worker with its error, and its details are the results so far.
   */
  async run(pass: HookPass): Promise<ScriptResult[]> {
    const results: ScriptResult[] = [];
    const hooks = hooksOn(pass.job, PASSES[pass.kind].event);
    for (const hook of hooks.filter((name) => name === (pass.hook ?? name)))
      for (const batch of this.#batchesOf(pass)) {
        const ended = await this.#runBatch(pass, hook, batch);
        results.push(...ended);
        if (ended.some(({ error }) => error !== null)) throw hookFailure(pass, hook, ended, results);
      }
    return results;
  }

  /** Ends the runtime API, and what only the scripts needed. */
  async [Symbol.asyncDispose](): Promise<void> {
    const host = await this.#host?.catch(() => undefined);
    await host?.runtime.close();
    await host?.place.close();
  }

  #batchesOf({ kind, job, workers, batch }: HookPass): Batch[] {
    if (batch) return [batch];
    const order = this.#context.kv.get(`ops/job/${job.name}`, "rollout_order");
    return passBatches({ kind, chosen: workers }, job, this.#peersOf(job), order);
  }

  #peersOf(job: CatalogJob): CatalogAllocation[] {
    return this.#peers.get(job.name) ?? [];
  }

  async #runBatch(pass: HookPass, hook: string, batch: Batch): Promise<ScriptResult[]> {
    const { db, log, signal } = this.#context;
    throwIfCancelled(signal);
    const { kind, job, variables = {}, versions } = pass;
    const place = `${PASSES[kind].event}, batch ${batch.index + 1} of ${batch.count}`;
    log.info(`${job.name}: hook ${hook} (${place}) for ${batch.workers.join(", ")}`, { job: job.name });
    this.#host ??= this.#open();
    const host = await this.#host;
    const peers = this.#peersOf(job);
    const allocations = peers.filter(({ worker }) => batch.workers.includes(worker));
    const shared = { kind, job, hook, batch, variables, peers, files: catalogFiles(db, job.name) };
    const promotionOf = promotionsOf(db, job.name);
    for (const { id } of allocations) this.#visited.add(id);
    const work = (one: CatalogAllocation) => {
      const allocation = { ...one, newVersion: versions?.get(one.worker) ?? one.newVersion };
      return this.#runScript(host, { ...shared, allocation, promoted: promotionOf(one.id) }, pass);
    };
    return await mapAll(allocations, allocations.length, work, signal);
  }

  /** Runs a script until it succeeds or has had all its attempts. */
  async #runScript(host: ScriptHost, script: Script, pass: HookPass): Promise<ScriptResult> {
    const { log, progress, signal } = this.#context;
    const { attemptScript } = await import("./hook-script.ts");
    const { attempts, intervalSeconds } = pass.wait ?? { attempts: 1, intervalSeconds: 0 };
    const { hook } = script;
    const { job, worker } = script.allocation;
    const started = performance.now();
    for (let attempt = 1; ; attempt++) {
      // A script has no limit of its own (decisions: Hook runtime API).
      const wait = { reason: "hook", job, worker, detail: `hook ${hook}` } as const;
      const error = await progress.during(wait, null, attemptScript(host, script));
      const duration_ms = Math.round(performance.now() - started);
      if (pass.verbose)
        log.info(`${job}@${worker}: hook ${hook} ${error === null ? "succeeded" : "failed"} after ${duration_ms} ms`, {
          job,
          worker,
        });
      if (error === null || attempt >= attempts) return { hook, worker, error, duration_ms };
      const pauseMs = intervalSeconds * 1000;
      const detail = `to try hook ${hook} again (attempt ${attempt} of ${attempts} failed)`;
      await progress.during({ ...wait, detail }, pauseMs, sleep(pauseMs, signal));
    }
  }

  /** Loads what scripts need: most health checks have none. */
  async #open(): Promise<ScriptHost> {
    const { hookUser, kv, layout, log, signal } = this.#context;
    const { settings } = await loadOpsConf(layout);
    const { startHookRuntime } = await import("../../hook/runtime.ts");
    const { openPlace, runHookCommand, upstreamOf } = await import("./hook-script.ts");
    const host = { context: this.#context, fleet: this.#fleet, outputLimit: settings.runOutputLimit };
    const jobs = new Map(this.#jobs.map((job) => [job.name, job]));
    const allocations = new Map(this.#allocations.map((allocation) => [allocation.id, allocation]));
    const workers = this.#workersFile(settings);
    const place = hookUser
      ? await (await import("./apart.ts")).openApart({ ...this.#context, hookUser }, this.#fleet, workers)
      : await openPlace(this.#context, this.#fleet, workers);
    const runtime = await startHookRuntime({
      kv,
      user: place.user?.uid,
      allocation: (id) => this.#known(allocations.get(id)),
      upstreams: (name) => new Set(upstreamOf(jobs.get(name) as CatalogJob)),
      hasHook: (name, hook) => jobs.get(name)?.hooks.some((one) => one.name === hook) ?? false,
      workers: (name, kind) => passWorkers(kind, this.#peers.get(name) ?? []),
      dependents: (job, hook) => dependentsOf(this.#jobs, job, hook),
      command: (script, order, ending) => runHookCommand(host, script, order, ending),
      signal,
      onSecret: (value) => log.redactor.add(value),
      waiting: (place, limitMs, work) => this.#context.progress.during({ reason: "semaphore", ...place }, limitMs, work),
      warn({ job, worker, phase, hook }, sentence) {
        log.remark(job, worker, `warning: ${sentence}`, { phase, action: hook, stream: "stderr" });
      },
    });
    return { context: this.#context, fleet: this.#fleet, runtime, place };
  }

  /** A removed allocation is known once the scripts that follow its stop run for it. */
  #known(allocation: CatalogAllocation | undefined): CatalogAllocation | undefined {
    return allocation?.removed && !this.#visited.has(allocation.id) ? undefined : allocation;
  }

  /** Tells scripts how each worker is reached (`OPS_WORKERS_FILE`). */
  #workersFile(settings: OpsConf): string {
    const { run } = this.#context;
    const workers = this.#fleet.workers.map(({ host, connection, root, sshUser }) => {
      const folder = `${root}/${run.bucketId}`;
      if (connection === "local") return [host, { connection, root, folder, use_sudo: false }];
      return [host, { connection, root, folder, use_sudo: settings.useSudo, ssh_user: sshUser ?? settings.sshUser }];
    });
    const file = { bucket_id: run.bucketId, workers: Object.fromEntries(workers), runner: RUNNER_PATH };
    return `${JSON.stringify(file)}\n`;
  }
}

/** The names of the hooks that a job has for an event, sorted. */
export function hooksOn(job: CatalogJob, event: HookEvent): string[] {
  return job.hooks.filter((hook) => hook.events.includes(event)).map((hook) => hook.name);
}

/** The scripts that ran in a pass, where an error is that one of them failed. */
export function scriptsIn(error: unknown): ScriptResult[] {
  const isOurs = error instanceof Failure && error.code === "ErrHookFailed";
  return isOurs ? (error.details as { scripts: ScriptResult[] }).scripts : [];
}

/** The errors of scripts by worker, if the error is about scripts. */
export function scriptErrors(error: unknown): Map<string, string> {
  const failed = scriptsIn(error).filter(({ error }) => error !== null);
  return new Map(failed.map(({ hook, worker, error }) => [worker, `hook ${hook}: ${error}`]));
}

/** Gives work a session and the workers of the catalog. */
export async function withHooks<T>(
  context: OperationContext,
  work: (hooks: HookSession, fleet: Fleet) => Promise<T>,
): Promise<T> {
  await using fleet = new Fleet(context, catalogWorkers(context.db));
  await using hooks = new HookSession(context, fleet);
  return await work(hooks, fleet);
}

function dependentsOf(jobs: readonly CatalogJob[], job: string, hook: string) {
  return jobs.flatMap((one) =>
    one.hooks
      .filter(({ demandJob, demandHook }) => demandJob === job && demandHook === hook)
      .map(({ name, demandConfig }) => ({ job: one.name, hook: name, demand_config: demandConfig })),
  );
}

function hookFailure(pass: HookPass, hook: string, batch: readonly ScriptResult[], scripts: ScriptResult[]): Failure {
  const failed = batch.filter(({ error }) => error !== null);
  const errors = failed.map(({ worker, error }) => `${worker}: ${inOneLine(error ?? "")}`);
  const where = `hook ${hook} (${PASSES[pass.kind].event}) of job ${pass.job.name}`;
  const message = `${where} failed on ${counted(failed.length, "worker")}: ${errors.join("; ")}`;
  return new Failure("ErrHookFailed", message, { details: { scripts } });
}

/**
 * Runs one hook of one job for the event `cli`. What its scripts wrote is stored when all of them succeeded, else
 * nothing of it is (decisions: Rulings). Throws `unknown_name`, `invalid_request` where several jobs have the hook,
 * `ErrHookFailed` with the scripts' results in the details, or `cancelled`.
 */
export const runHooks: Operation = async (context, params) => {
  const { kv, db, log } = context;
  const { hook: given, job: wanted, verbose } = parametersOf("hooks", params);
  const job = jobOfHook(catalogJobs(db), given, wanted);
  const hook = given.toLowerCase();
  const scripts = await withHooks(context, (hooks) => hooks.run({ kind: "cli", job, hook, verbose }));
  kv.flush();
  if (scripts.length === 0) log.info(`${job.name} has no allocation to run the hook for`, { job: job.name });
  return { job: job.name, hook, scripts };
};
