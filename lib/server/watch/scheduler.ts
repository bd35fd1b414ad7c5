import { createHash } from "node:crypto";
import path from "node:path";
import { type LabelFile, layoutOf } from "../../bucket/base/layout.ts";
import { bucketIds, findBucket, type RootBucket } from "../../bucket/source/root.ts";
import { builtSchedules, NO_SCHEDULES, type Schedule, type Schedules } from "../../bucket/workspace/schedules.ts";
import { sleep } from "../../core/async.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { type Calendar, calendarOf, decidedBy, delayed, dueNow, nextDue } from "../../plan/calendar.ts";
import type { RunKind, RunParams, RunStatus } from "../../run/protocol.ts";
import { databaseVersion, type Readers } from "../reading.ts";
import { requireThawed } from "./freeze.ts";
import type { Pulse } from "./pulse.ts";
import { type LastDue, readStates, type ScheduleState, writeStates } from "./schedule-state.ts";

/** How often buckets are looked at for a push that has changed their schedules, and for a clock that was changed. */
const LOOK_MS = 5_000;

/** How a scheduler starts runs and learns of them. */
export interface ScheduledRuns {
  /**
   * Starts the run of a schedule that was due, after a wait in line where the schedule says so; answers its id. `check`
   * throws where nothing may start now. Throws why the run cannot start.
   */
  start(bucket: RootBucket, schedule: Schedule, due: number, check: () => Promise<void>): Promise<string>;
  /** The runs on record that schedules have started: of each schedule the one with the last due time. */
  recorded(bucket: RootBucket): Promise<Map<string, { due: number; runId: string }>>;
  /** Undefined for a run without a record. */
  statusOf(bucket: RootBucket, runId: string): RunStatus | undefined;
}

/** A bucket that is looked after. */
interface Watched {
  bucket: RootBucket;
  /** Of its database, when the schedules were read. */
  version: string;
  schedules: Schedules;
  states: Map<string, ScheduleState>;
  /** The schedules whose run is being started, or waits in line. */
  starting: Map<string, Promise<void>>;
  /** Writes of the states, one after the other. */
  saved: Promise<void>;
}

/** What became of a due time; without a run, that of an earlier one stays known while it goes on. */
type Became = Pick<LastDue, "outcome" | "reason"> & Partial<LastDue>;

/** What a scheduler works with. */
interface SchedulerMeans {
  root: string;
  labels: LabelFile;
  readers: Pick<Readers, "read">;
  runs: ScheduledRuns;
  log: (message: string) => void;
  /** The clock. */
  now: () => number;
}

/**
 * Starts the runs of schedules when they are due. What was decided about a due time is on the disk; a run's record names
 * its schedule and due time, and is written in one step, so that a server that is killed at any moment starts a due run
 * once.
 */
export class Scheduler {
  readonly #own: SchedulerMeans;
  readonly #watched = new Map<string, Watched>();
  /** What was told of each bucket that cannot be looked at. */
  readonly #told = new Map<string, string>();

  constructor(own: SchedulerMeans) {
    this.#own = own;
  }

  /** Looks at all buckets again and again, until the signal is aborted; where it `isIdle`, it starts nothing. */
  async run(signal: AbortSignal, { pulse, isIdle }: { pulse: Pulse; isIdle: boolean }): Promise<void> {
    while (!signal.aborted) {
      const next = isIdle ? Number.POSITIVE_INFINITY : await this.#tryLook();
      if (next !== undefined) pulse.looked();
      await sleep(Math.max(0, Math.min(LOOK_MS, (next ?? Number.POSITIVE_INFINITY) - this.#own.now())), signal).catch(() => {});
    }
    await this.idle();
  }

  /** Undefined where the root cannot be read. */
  async #tryLook(): Promise<number | undefined> {
    try {
      const next = await this.look();
      this.#told.delete("");
      return next;
    } catch (error) {
      this.#tell("", error);
      return undefined;
    }
  }

  /** Begins what is due in all buckets now, and answers when the next schedule is due. */
  async look(): Promise<number> {
    const ids = await bucketIds(this.#own.root, this.#own.labels);
    for (const id of this.#watched.keys()) if (!ids.includes(id)) this.#watched.delete(id);
    let next = Number.POSITIVE_INFINITY;
    for (const id of ids) {
      try {
        const watched = await this.#open(id);
        for (const schedule of watched.schedules.schedules) next = Math.min(next, this.#lookAt(watched, schedule));
        this.#told.delete(id);
      } catch (error) {
        this.#tell(id, error);
      }
    }
    return next;
  }

  /** Waits until no run is being started and all that was decided is written. Starts of the `waiting` schedules may go on. */
  async idle(waiting: ReadonlyMap<string, unknown> = new Map()): Promise<void> {
    for (const { starting } of this.#watched.values())
      await Promise.all([...starting].filter(([name]) => !waiting.has(name)).map(([, started]) => started));
    for (const { saved } of this.#watched.values()) await saved;
  }

  /** The schedules of a bucket, with what is kept of each and when each is due next; `null` while it is paused. */
  async list(bucket: RootBucket) {
    const watched = await this.#open(bucket.id);
    return watched.schedules.schedules.map((schedule) => {
      const state = this.#stateOf(watched, schedule);
      const next = nextDue(calendarIn(watched, schedule), Date.parse(state.decided), this.#own.now());
      return { schedule, state, next: state.paused || next === undefined ? null : new Date(next).toISOString() };
    });
  }

  /** The schedule of a name. Throws `not_found`. */
  async find(bucket: RootBucket, name: string): Promise<Schedule> {
    return scheduleNamed((await this.#open(bucket.id)).schedules, name);
  }

  /** Throws `frozen` where a freeze of the bucket holds such a run back now. A database that is damaged freezes nothing. */
  async requireThawed(bucket: RootBucket, run: { kind: RunKind; params: RunParams }): Promise<void> {
    const { schedules } = await this.#open(bucket.id).catch((error: unknown) => {
      if (error instanceof Failure && error.code === "database_damaged") return { schedules: NO_SCHEDULES };
      throw error;
    });
    requireThawed(schedules.freeze, run, this.#own.now());
  }

  /** Keeps a schedule from starting, or lets it go on with its next due time. Throws `not_found`. */
  async pause(bucket: RootBucket, name: string, by: string | null): Promise<void> {
    const watched = await this.#open(bucket.id);
    const schedule = scheduleNamed(watched.schedules, name);
    const now = new Date(this.#own.now()).toISOString();
    const { paused } = this.#stateOf(watched, schedule);
    if (by === null) this.#note(watched, schedule, { decided: now, paused: null });
    else this.#note(watched, schedule, { paused: paused ?? { at: now, by } });
    await watched.saved;
  }

  async #open(id: string): Promise<Watched> {
    const known = this.#watched.get(id);
    const layout = known?.bucket.layout ?? layoutOf(path.join(this.#own.root, id), this.#own.labels);
    const version = databaseVersion(layout);
    if (known?.version === version) return known;
    const schedules = await this.#own.readers.read(layout, builtSchedules).catch((error: unknown) => {
      if (error instanceof Failure && error.code === "bucket_not_initialized") return NO_SCHEDULES;
      throw error;
    });
    if (known) return Object.assign(known, { version, schedules });
    const bucket = findBucket(this.#own.root, id, this.#own.labels);
    const states = readStates(layout);
    await this.#adopt({ bucket, states });
    // Another call may have been faster.
    const watched = this.#watched.get(id) ?? {
      bucket,
      version,
      schedules,
      states,
      starting: new Map(),
      saved: Promise.resolve(),
    };
    this.#watched.set(id, watched);
    return watched;
  }

  /** Takes over the runs whose start a killed server could not note any more. */
  async #adopt({ bucket, states }: Pick<Watched, "bucket" | "states">): Promise<void> {
    if (states.size === 0) return;
    for (const [name, { due, runId }] of await this.#own.runs.recorded(bucket)) {
      const state = states.get(name);
      if (!state || due <= Date.parse(state.decided)) continue;
      const at = new Date(due).toISOString();
      states.set(name, { ...state, decided: at, last: { ...STARTED, due: at, run_id: runId } });
    }
  }

  /** Decides about a schedule, and answers when it is due next. */
  #lookAt(watched: Watched, schedule: Schedule): number {
    const now = this.#own.now();
    const state = this.#withStatus(watched, schedule);
    const before = Date.parse(state.decided);
    const decided = decidedBy(before, now);
    if (decided !== before) this.#note(watched, schedule, { decided: new Date(decided).toISOString() });
    if (state.paused || watched.starting.has(schedule.name)) return Number.POSITIVE_INFINITY;
    const calendar = calendarIn(watched, schedule);
    const found = dueNow(calendar, schedule.catchUp, { decided, now });
    if (found?.verdict === "missed") this.#decide(watched, schedule, found.due, { outcome: "missed", reason: MISSED });
    else if (found && state.last?.status === "running") {
      this.#decide(watched, schedule, found.due, { outcome: "skipped", reason: "its last run has not ended" });
    } else if (found) this.#begin(watched, schedule, found.due);
    return nextDue(calendar, decided, now) ?? Number.POSITIVE_INFINITY;
  }

  #begin(watched: Watched, schedule: Schedule, due: number): void {
    const started = this.#start(watched, schedule, due).finally(() => watched.starting.delete(schedule.name));
    watched.starting.set(schedule.name, started);
  }

  async #start(watched: Watched, schedule: Schedule, due: number): Promise<void> {
    try {
      const { kind, parameters: params } = schedule;
      const check = () => this.requireThawed(watched.bucket, { kind, params });
      const runId = await this.#own.runs.start(watched.bucket, schedule, due, check);
      this.#decide(watched, schedule, due, { ...STARTED, run_id: runId });
    } catch (error) {
      const code = error instanceof Failure ? error.code : "internal";
      // The next server decides.
      if (code === "shutting_down" || code === "cancelled") return;
      const outcome = ["bucket_busy", "busy", "frozen"].includes(code) ? "skipped" : "refused";
      this.#decide(watched, schedule, due, { outcome, reason: whyNot(error) });
    }
    this.#skipPassed(watched, schedule, due);
    await watched.saved;
  }

  /** What was due while the start of an earlier due time waited in line is skipped. */
  #skipPassed(watched: Watched, schedule: Schedule, due: number): void {
    const passed = calendarIn(watched, schedule).by(this.#own.now()) ?? due;
    if (passed <= due) return;
    const reason = `its start of ${new Date(due).toISOString()} waited in line`;
    this.#decide(watched, schedule, passed, { outcome: "skipped", reason });
  }

  /** Notes what became of a due time. */
  #decide(watched: Watched, schedule: Schedule, due: number, became: Became): void {
    const at = new Date(due).toISOString();
    const { decided, last } = this.#stateOf(watched, schedule);
    const { run_id, status } = last?.status === "running" ? last : NOT_STARTED;
    // A schedule that was resumed while its run waited in line has dealt with later times.
    const until = at > decided ? at : decided;
    this.#note(watched, schedule, { decided: until, last: { run_id, status, ...became, due: at } });
    const { outcome, reason } = became;
    if (outcome !== "started")
      this.#own.log(`bucket ${watched.bucket.id}: schedule ${schedule.name} of ${at} is ${outcome}: ${reason}`);
  }

  #stateOf({ states }: Watched, { name, rhythm, jitterMs }: Schedule): ScheduleState {
    const key = JSON.stringify([rhythm, jitterMs]);
    const known = states.get(name);
    if (known?.rhythm === key) return known;
    return { last: null, paused: null, ...known, rhythm: key, decided: new Date(this.#own.now()).toISOString() };
  }

  /** What is kept of a schedule, with how its last run is by now. A schedule that is new begins with its next due time. */
  #withStatus(watched: Watched, schedule: Schedule): ScheduleState {
    const state = this.#stateOf(watched, schedule);
    const { last } = state;
    if (last?.status === "running" && last.run_id !== null) {
      const status = this.#own.runs.statusOf(watched.bucket, last.run_id) ?? null;
      if (status !== "running") return this.#note(watched, schedule, { last: { ...last, status } });
    }
    return watched.states.get(schedule.name) === state ? state : this.#note(watched, schedule, {});
  }

  #note(watched: Watched, schedule: Schedule, change: Partial<ScheduleState>): ScheduleState {
    const state = { ...this.#stateOf(watched, schedule), ...change };
    watched.states.set(schedule.name, state);
    const names = new Set(watched.schedules.schedules.map(({ name }) => name));
    // A schedule that comes back is still paused.
    for (const [name, { paused }] of watched.states) if (!names.has(name) && paused === null) watched.states.delete(name);
    watched.saved = watched.saved
      .then(() => writeStates(watched.bucket.layout, watched.states))
      .catch((error: unknown) => {
        this.#own.log(`Cannot write ${watched.bucket.layout.scheduleStates}: ${messageOf(error)}`);
      });
    return state;
  }

  #tell(id: string, error: unknown): void {
    const message = messageOf(error);
    if (this.#told.get(id) !== message)
      this.#own.log(`Cannot look at the schedules of ${id === "" ? this.#own.root : `bucket ${id}`}: ${message}`);
    this.#told.set(id, message);
  }
}

const NOT_STARTED: LastDue = { due: "", outcome: "started", reason: null, run_id: null, status: null };
const STARTED = { ...NOT_STARTED, status: "running" } as const;
const MISSED = "the server was away, or its clock was put forward";

/** Made once for each schedule: a timezone takes long to be looked up. */
const calendars = new WeakMap<Schedule, Calendar>();

function calendarIn({ bucket }: Watched, schedule: Schedule): Calendar {
  const { rhythm, name, jitterMs } = schedule;
  const calendar = calendars.get(schedule) ?? delayed(calendarOf(rhythm), jitterOf(bucket.id, name, jitterMs));
  calendars.set(schedule, calendar);
  return calendar;
}

/**
 * How much later than its calendar a schedule starts: always the same number of whole seconds, from 0 to `mostMs`, which
 * follows from the bucket and the name, so that schedules of many buckets do not start at once.
 */
export function jitterOf(bucketId: string, name: string, mostMs: number): number {
  const random = createHash("sha256").update(`${bucketId} ${name}`).digest().readUInt32BE();
  return Math.floor((random / 2 ** 32) * (mostMs / 1_000 + 1)) * 1_000;
}

function scheduleNamed({ schedules }: Schedules, name: string): Schedule {
  const found = schedules.find((one) => one.name === name.toLowerCase());
  if (!found) throw new Failure("not_found", `there is no schedule ${quote(name)}`);
  return found;
}

function whyNot(error: unknown): string {
  const { holder } = ((error instanceof Failure && error.details) || {}) as { holder?: string };
  return holder === undefined ? messageOf(error) : `${messageOf(error)}; ${holder}`;
}
