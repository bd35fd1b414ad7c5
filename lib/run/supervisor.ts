import { closeSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { type Layout, runLayout } from "../bucket/base/layout.ts";
import { acquireLock, type BucketLock } from "../bucket/base/lock.ts";
import { uuidV7 } from "../codec/uuid.ts";
import { sleep, within } from "../core/async.ts";
import { cancelledFailure, Failure, messageOf } from "../core/errors.ts";
import { APPEND, exists, openRegularSync, PRIVATE_FOLDER } from "../core/files.ts";
import { endGroup, endGroups, type GroupIdentity, identify, signalProcess } from "../core/process.ts";
import { faultPoint, selfArguments } from "../core/self.ts";
import type { Channel, Launcher } from "../core/spawn.ts";
import { lackingApproval, needsApproval } from "./approval/proposal.ts";
import { EventLog } from "./events.ts";
import { ordersOf } from "./orders.ts";
import { type Progress, queuedSince } from "./progress.ts";
import { CANCEL_WAIT_MS, type FromWorker, type OutcomeMessage, type RunKind, type RunParams, type Task } from "./protocol.ts";
import {
  type Actor,
  type AskedFor,
  addAudit,
  createRecord,
  isCancelled,
  type RunRecord,
  SERVER_RESTARTED,
  saveRecord,
  settle,
} from "./record.ts";
import { finishRun, notActive, recoverBucket, takeBucket } from "./recovery.ts";
import { saveEnd } from "./repeats.ts";

const CRASH_GRACE_MS = 2_000;
const TASK_LIMIT_MS = 80_000;
const TASK_FAILURES = [
  "invalid_bucket_id",
  "schema_too_new",
  "database_damaged",
  "database_busy",
  "unknown_name",
  "not_found",
] as const;
const SAVE_AGAIN_MS = 1_000;
/** Run processes that work at once: one for each core computes, while another one waits for its workers. */
const SLOTS = 2 * availableParallelism();

/** A bucket that is taken for a run which has not begun yet. Either `start` or `release` must be called. */
export type Reservation = Awaited<ReturnType<Supervisor["reserve"]>>;

interface SupervisorOptions extends Pick<Task, "hookUser"> {
  launcher: Launcher;
  log: (message: string) => void;
  /** The number of run processes that work at once: by default two for each core. */
  slots?: number;
  /** How many others must approve a run in a bucket. Whoever asks for the run has looked; this is the last look. */
  approvals?: (bucketId: string) => number;
}

interface ActiveRun {
  layout: Layout;
  record: RunRecord;
  lock: BucketLock;
  groups: Map<number, GroupIdentity>;
  channel: Channel | undefined;
  outcome: OutcomeMessage | undefined;
  progress: Progress | null;
  /** True from the start of the process until the process is gone. */
  hasSlot: boolean;
  /** True once the process is gone: from then on no cancel is accepted. */
  exited: boolean;
  /** Why the run was ended from outside, where that was no cancel. The first reason wins. */
  stopped: string | undefined;
  /** Saves of the record, one after the other. */
  saved: Promise<void>;
  /** Resolves when the end state is stored. */
  ended: Promise<void>;
  hasEnded: () => void;
}

/**
 * Runs from the server's side: at most one in a bucket, each in a child process of its own (control-plane.md, Runs). The
 * supervisor alone decides how a run ended, once, after the process of the run has exited.
 */
export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #active = new Map<string, ActiveRun>();
  /** The active runs that wait for a free slot, with their parameters; they begin in this order. */
  readonly #queue = new Map<ActiveRun, RunParams>();
  /** What happens to the runs. */
  readonly events = new EventLog();
  #stopping = false;

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  /** Settles what an earlier server left behind in these buckets; called before the server listens. */
  async recover(layouts: readonly Layout[]): Promise<void> {
    for (const layout of layouts) {
      try {
        for (const record of await recoverBucket(layout)) this.#settled(record);
      } catch (error) {
        this.#options.log(`Cannot recover bucket ${layout.root}: ${messageOf(error)}`);
      }
    }
  }

  /** Takes a bucket. Throws `bucket_busy` while a run is active there or a command holds its lock. */
  async reserve(layout: Layout, bucketId: string, kind: RunKind) {
    const id = uuidV7();
    const lock = await this.#take(layout, id, kind);
    return {
      runId: id,
      /** Starts the run's process, or has the run wait for a free slot; from then on the run ends by itself. */
      start: (params: RunParams, by: AskedFor): Promise<void> =>
        this.#start(layout, lock, { id, bucket_id: bucketId, origin: "server", kind, params, ...by }),
      /** Frees the bucket again; nothing of the run remains. */
      release: () => lock.release(),
    };
  }

  /** Makes a short change in a bucket under its lock, without a run. Throws `bucket_busy` like {@link reserve}. */
  async exclusively<T>(layout: Layout, command: string, work: () => Promise<T>): Promise<T> {
    await using _ = await this.#take(layout, uuidV7(), command);
    return await work();
  }

  /** The same for the end of a bucket: what a killed process left there needs no settling any more. */
  async discard(layout: Layout, work: () => Promise<void>): Promise<void> {
    await using _ = await this.#take(layout, uuidV7(), "delete", acquireLock);
    await work();
  }

  /** The id of the run that is active in a bucket, or null. */
  activeRun(bucketId: string): string | null {
    for (const run of this.#active.values()) if (run.record.bucket_id === bucketId) return run.record.id;
    return null;
  }

  /** How many runs are active, and how many of them wait for a free slot. */
  load(): { active: number; queued: number } {
    return { active: this.#active.size, queued: this.#queue.size };
  }

  /** How far an active run is. */
  progress(runId: string): Progress | null {
    return this.#active.get(runId)?.progress ?? null;
  }

  /**
   * Asks a run to stop (control-plane.md, Runs 4). Once this has resolved the run can only end `cancelled`: the accepted
   * cancel is on the disk before it is answered. A second cancel changes nothing. Where the disk cannot take the cancel,
   * the run is stopped all the same and this throws `failed`. Throws `run_not_found` and `run_not_active`.
   */
  async cancel(layout: Layout, runId: string, actor: Actor, requestId: string): Promise<RunRecord> {
    const run = this.#active.get(runId);
    if (!run || run.exited || run.stopped !== undefined) throw notActive(layout, runId);
    const isFirst = !isCancelled(run.record);
    if (isFirst) {
      addAudit(run.record, "cancel", actor, requestId);
      void this.#attempt(run, () => this.#end(run, actor));
    }
    try {
      await this.#save(run);
      if (isFirst) this.events.add("cancelling", run.record);
    } catch (cause) {
      const message = `run ${runId} is being stopped, but this could not be recorded: ${messageOf(cause)}`;
      throw new Failure("failed", message, { cause });
    }
    // A copy: the run may end before its caller has shown the record.
    return { ...run.record };
  }

  /**
   * Does a task in a short child process, which the caller waits for, and answers its result. Throws its failure where that
   * is one of {@link TASK_FAILURES}, else `failed`; `what` says what cannot be done then.
   */
  async task(task: Omit<Task, "type">, what: string): Promise<unknown> {
    let outcome: OutcomeMessage | undefined;
    const channel = await this.#options.launcher.channel(selfArguments("worker", "run"), "ignore", (message) => {
      const received = message as FromWorker;
      if (received.type === "outcome") outcome = received;
    });
    channel.send({ type: "task", ...task, hookUser: this.#options.hookUser });
    if (!(await within(channel.ended, TASK_LIMIT_MS))) await endGroup(channel.pid, 0);
    if (outcome?.ok) return outcome.result;
    const code = TASK_FAILURES.find((one) => one === outcome?.error?.code) ?? "failed";
    const why = outcome?.error?.message ?? "its process failed";
    throw new Failure(code, `Cannot ${what}: ${why}`);
  }

  /** Ends every run: each is asked to stop, waited for and, after the bounded wait, killed. New starts are refused. */
  async stop(): Promise<void> {
    this.#stopping = true;
    const end = async (run: ActiveRun) => {
      run.stopped ??= SERVER_RESTARTED;
      await this.#attempt(run, () => this.#end(run, undefined));
      await run.ended;
    };
    await Promise.all([...this.#active.values()].map(end));
  }

  #settled(record: RunRecord): void {
    this.#options.log(`run ${record.id} (${record.kind}) of bucket ${record.bucket_id} is settled: ${record.status}`);
    this.events.onChange("ended", record);
  }

  async #take(layout: Layout, runId: string, command: string, take = takeBucket): Promise<BucketLock> {
    if (this.#stopping) throw new Failure("shutting_down", "the server is shutting down");
    // A bucket that was never initialised may lack the folder of the lock.
    if (!(await exists(layout.data))) await mkdir(layout.data, PRIVATE_FOLDER);
    return take(layout, runId, command);
  }

  async #start(layout: Layout, lock: BucketLock, start: Parameters<typeof createRecord>[1]): Promise<void> {
    const required = needsApproval(start.kind, start.params) ? (this.#options.approvals?.(start.bucket_id) ?? 0) : 0;
    if (required > 0 && !start.approval && start.breakGlass === undefined) throw lackingApproval(start.kind, required);
    const record = await createRecord(layout, start);
    const { promise: ended, resolve: hasEnded } = Promise.withResolvers<void>();
    const run: ActiveRun = {
      layout,
      record,
      lock,
      groups: new Map(),
      channel: undefined,
      outcome: undefined,
      progress: null,
      hasSlot: false,
      exited: false,
      stopped: this.#stopping ? SERVER_RESTARTED : undefined,
      saved: Promise.resolve(),
      ended,
      hasEnded,
    };
    this.#active.set(record.id, run);
    faultPoint("run: recorded");
    this.events.add("started", record);
    this.#queue.set(run, start.params);
    await this.#beginNext();
    if (this.#queue.has(run)) run.progress = queuedSince(record.created_at);
  }

  /** Begins the run that has waited longest, if there is one and a slot is free. */
  async #beginNext(): Promise<void> {
    const [next] = this.#queue;
    const taken = [...this.#active.values()].filter(({ hasSlot }) => hasSlot).length;
    if (!next || taken >= (this.#options.slots ?? SLOTS)) return;
    const [run, params] = next;
    this.#queue.delete(run);
    run.hasSlot = true;
    run.progress = null;
    try {
      await this.#launch(run, params);
    } catch (error) {
      run.stopped ??= messageOf(error);
      if (run.channel) signalProcess(-run.channel.pid, "SIGKILL");
      else await this.#finish(run, { exitCode: null, signal: null });
    }
  }

  async #launch(run: ActiveRun, params: RunParams): Promise<void> {
    const { layout, record, lock } = run;
    const output = openRegularSync(runLayout(layout, record.id).activity, APPEND);
    try {
      run.channel = await this.#options.launcher.channel(selfArguments("worker", "run"), output, (message) =>
        this.#receive(run, message as FromWorker),
      );
    } finally {
      closeSync(output);
    }
    void run.channel.ended.then((exit) => this.#finish(run, exit));
    faultPoint("run: launched");
    const identity = identify(run.channel.pid);
    // The orders are sent only once the lock names the process, so that a recovery finds every process in the bucket.
    if (identity) await lock.addHolder(identity);
    // A request to stop that came before there was a process could not reach it.
    if (isCancelled(record) || run.stopped !== undefined) throw cancelledFailure();
    run.channel.send({ type: "orders", ...ordersOf(layout, record, params), hookUser: this.#options.hookUser });
    faultPoint("run: ordered");
  }

  #receive(run: ActiveRun, message: FromWorker): void {
    if (message.type === "outcome") run.outcome = message;
    else if (message.type === "progress") run.progress = message.progress;
    else if (message.type === "group_open" || message.type === "group_close") {
      const change = message.type === "group_open" ? "open" : "close";
      if (change === "open") run.groups.set(message.group.pgid, message.group);
      else run.groups.delete(message.group.pgid);
      run.lock.changeGroup(change, message.group).catch((error: unknown) => this.#options.log(messageOf(error)));
    }
  }

  /** Asks the process to stop and, after the bounded wait, kills the reported groups first and the process last. */
  async #end(run: ActiveRun, actor: Actor | undefined): Promise<void> {
    if (this.#queue.delete(run)) return this.#finish(run, { exitCode: null, signal: null });
    const { channel } = run;
    if (!channel || run.exited) return;
    run.lock.tellEnding().catch((error: unknown) => this.#options.log(messageOf(error)));
    channel.send({ type: "cancel" });
    signalProcess(channel.pid, "SIGTERM");
    if (await within(channel.ended, CANCEL_WAIT_MS)) return;
    addAudit(run.record, "force_kill", actor ?? { address: "server", via: "cli" }, null);
    for (const group of run.groups.values()) signalProcess(-group.pgid, "SIGKILL");
    signalProcess(-channel.pid, "SIGKILL");
  }

  /**
   * The order of a run's end (decisions: Runs): first every process is gone, then the lock is free, then the end state is
   * visible. A step that fails is logged, and the next one is done.
   */
  async #finish(run: ActiveRun, exit: { exitCode: number | null; signal: string | null }): Promise<void> {
    run.exited = true;
    const { layout, record, lock } = run;
    const wereEnding = isCancelled(record) || run.stopped !== undefined;
    await this.#attempt(run, () => endGroups(run.groups.values(), CRASH_GRACE_MS, wereEnding));
    run.hasSlot = false;
    void this.#beginNext();
    await run.saved.catch(() => {});
    settle(record, { ...exit, outcome: run.outcome }, run.stopped);
    faultPoint("run: exited");
    await this.#attempt(run, () => finishRun(layout, record));
    await this.#attempt(run, () => lock.release());
    faultPoint("run: unlocked");
    this.#active.delete(record.id);
    // On a full disk the record would stay `running` for good: it is saved again until there is room or the server stops.
    while (!(await this.#attempt(run, () => saveEnd(layout, record))) && !this.#stopping) await sleep(SAVE_AGAIN_MS);
    this.events.add("ended", record);
    run.hasEnded();
  }

  /** Does a step; a failure is logged. Answers whether the step went well. */
  async #attempt({ record }: ActiveRun, work: () => Promise<unknown>): Promise<boolean> {
    try {
      await work();
      return true;
    } catch (error) {
      this.#options.log(`Cannot finish run ${record.id} of bucket ${record.bucket_id}: ${messageOf(error)}`);
      return false;
    }
  }

  #save(run: ActiveRun): Promise<void> {
    run.saved = run.saved.catch(() => {}).then(() => saveRecord(run.layout, run.record));
    return run.saved;
  }
}
