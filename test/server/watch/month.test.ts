// A month of a scheduler whose clock is that of the test, in which the server is killed at any moment.
import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { type Schedule, storedSchedules } from "../../../lib/bucket/workspace/schedules.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { makePrivateFolder } from "../../../lib/core/files.ts";
import { calendarOf } from "../../../lib/plan/calendar.ts";
import type { RunStatus } from "../../../lib/run/protocol.ts";
import { jitterOf, type ScheduledRuns, Scheduler } from "../../../lib/server/watch/scheduler.ts";
import { seeded } from "../../helpers/random.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const LOOK_MS = 5 * SECOND_MS;
const IN_TIME_MS = MINUTE_MS;

const FILE = {
  schedules: [
    { name: "often", every: "3h", kind: "worker_uptime" },
    { name: "hourly", cron: "7 */4 * * *", timezone: "Europe/Berlin", kind: "health_check", catch_up: true },
    { name: "night", cron: "30 2 * * *", timezone: "Europe/Berlin", kind: "drift", catch_up: true },
    { name: "gap", cron: "15 2 * * *", timezone: "Europe/Berlin", kind: "snapshot_create" },
    { name: "weekly", cron: "0 4 * * mon", timezone: "America/New_York", kind: "gc", catch_up: true },
    { name: "york", cron: "30 1,2 * * *", timezone: "America/New_York", kind: "drift", catch_up: true, jitter: "10m" },
    { name: "impatient", cron: "*/20 * * * *", kind: "worker_facts", if_busy: "skip" },
    { name: "patient", cron: "10,40 * * * *", timezone: "America/New_York", kind: "build", if_busy: "20m", catch_up: true },
  ],
};
const { schedules: SCHEDULES } = storedSchedules(JSON.stringify(FILE));

interface Started {
  name: string;
  due: number;
  /** When it has ended, by the clock that only goes on. */
  until: number;
  id: string;
}

/** A start that waits in line. */
interface Waiting {
  /** Until when, by the clock that only goes on. */
  until: number;
  begin: () => void;
  giveUp: (error: Failure) => void;
}

/** What outlives a server: the disk, with its records. What the scheduler itself keeps lies in real files. */
class World {
  now: number;
  /** What a clock shows that only goes on. */
  elapsed = 0;
  /** Until when another run goes on in the bucket, by that clock. */
  #busyUntil = 0;
  readonly #random: () => number;
  readonly records: Started[] = [];
  readonly line = new Map<string, Waiting>();
  /** Whether the process dies at the next moment of this kind. */
  dies: "before" | "after" | undefined;
  isDead = false;
  /** The schedules that the dead process could not begin. */
  readonly unbegun = new Set<string>();

  constructor(now: number, random: () => number) {
    this.now = now;
    this.#random = random;
  }

  get isBusy(): boolean {
    return this.elapsed < this.#busyUntil;
  }

  runs(life: { isOver: boolean }): ScheduledRuns {
    return {
      start: async (_, { name, waitMs }, due) => {
        if (this.isBusy && waitMs === 0 && !life.isOver) throw BUSY;
        if (this.isBusy && !life.isOver) await this.#turn(name, this.elapsed + waitMs);
        if (life.isOver || this.dies === "before") {
          life.isOver = true;
          this.unbegun.add(name);
          throw this.#death();
        }
        const before = this.records.findLast((run) => run.name === name);
        assert.ok(!before || before.until <= this.elapsed, `two runs of ${name} at a time`);
        const id = `run ${this.records.length}`;
        this.records.push({ name, due, until: this.elapsed + this.#length(name), id });
        if (this.dies === "after") {
          life.isOver = true;
          throw this.#death();
        }
        return id;
      },
      recorded: async () => {
        const found = new Map<string, { due: number; runId: string }>();
        for (const { name, due, id } of this.records) if (due > (found.get(name)?.due ?? 0)) found.set(name, { due, runId: id });
        return found;
      },
      statusOf: (_, id): RunStatus | undefined => {
        const run = this.records.find((one) => one.id === id);
        return run && (run.until > this.elapsed ? "running" : "succeeded");
      },
    };
  }

  /** Time goes on, and another run may begin. Answers whose wait in line is over, and who of them may begin. */
  pass(ms: number): Map<string, boolean> {
    this.now += ms;
    this.elapsed += ms;
    if (!this.isBusy && this.#random() < 0.02) this.#busyUntil = this.elapsed + this.#random() * 40 * MINUTE_MS;
    const over = [...this.line].filter(([, { until }]) => !this.isBusy || this.elapsed >= until);
    for (const [name, { begin, giveUp }] of over) {
      this.line.delete(name);
      if (this.isBusy) giveUp(BUSY);
      else begin();
    }
    return new Map(over.map(([name]) => [name, !this.isBusy]));
  }

  /** The server is gone, and with it all who wait. */
  clear(): void {
    for (const { giveUp } of this.line.values()) giveUp(new Failure("cancelled", "killed"));
    this.line.clear();
  }

  #turn(name: string, until: number): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.line.set(name, { until, begin: resolve, giveUp: reject });
    return promise;
  }

  #length(name: string): number {
    return name === "often" ? this.#random() * 4 * HOUR_MS : 20 * SECOND_MS;
  }

  /** Nothing that comes after this in the same server counts. */
  #death(): Failure {
    this.isDead = true;
    this.dies = undefined;
    return new Failure("cancelled", "killed");
  }
}

const BUSY = new Failure("bucket_busy", "the bucket is busy");

/** Always the same, since delays follow from it. */
const ID = "6f1c2b1e-58c6-4a55-9d2e-0c3b8a4f7e10";

async function rootWithBucket(t: TestContext): Promise<string> {
  const root = path.join(temporaryFolder(t), "root");
  await makePrivateFolder(root);
  const init = async (dir: string) => makePrivateFolder(layoutOf(dir).internal);
  await createBucket(root, { id: ID, project: "p", name: "n" }, init);
  return root;
}

/** What the rules say about a month: for each schedule the due times that must have started, and those that must not. */
class Ruling {
  readonly expected = new Map<string, number[]>(SCHEDULES.map(({ name }) => [name, []]));
  readonly #decided = new Map<string, number>();
  /** The due times whose starts wait in line. */
  readonly #waiting = new Map<string, number>();

  /** A server starts: what has a run on record is dealt with, even if a clock that was set back comes to it again. */
  begin(records: readonly Started[]): void {
    for (const { name, due } of records) {
      const decided = this.#decided.get(name);
      if (decided !== undefined) this.#decided.set(name, Math.max(decided, due));
    }
  }

  /** The server looks at its clock. */
  look(now: number, { running, unbegun, isBusy }: { running: Set<string>; unbegun: Set<string>; isBusy: boolean }): void {
    for (const schedule of SCHEDULES) {
      const { name, catchUp, waitMs } = schedule;
      // The next server decides about what this one could not begin.
      if (unbegun.has(name)) continue;
      const known = this.#decided.get(name) ?? now;
      const decided = known > now + HOUR_MS ? now : known;
      this.#decided.set(name, decided);
      const due = this.#waiting.has(name) ? undefined : this.#last(schedule, decided, now);
      if (due === undefined) continue;
      const isStart = (now - due <= IN_TIME_MS || catchUp) && !running.has(name);
      if (isStart && isBusy && waitMs > 0) {
        this.#waiting.set(name, due);
        continue;
      }
      this.#decided.set(name, due);
      if (isStart && !isBusy) this.expected.get(name)?.push(due);
    }
  }

  /** The wait of some is over; where the server died in the start, nothing more is decided. */
  leave(over: Map<string, boolean>, now: number, { unbegun, isDead }: World): void {
    for (const [name, mayBegin] of over) {
      const due = this.#waiting.get(name) as number;
      this.#waiting.delete(name);
      if (unbegun.has(name)) continue;
      if (mayBegin) this.expected.get(name)?.push(due);
      const schedule = SCHEDULES.find((one) => one.name === name) as Schedule;
      const passed = isDead ? undefined : this.#last(schedule, due, now);
      this.#decided.set(name, Math.max(this.#decided.get(name) ?? 0, passed ?? due));
    }
  }

  /** The server is gone. */
  clear(): void {
    this.#waiting.clear();
  }

  /** The last due time after one instant and by another, by going through all of them. */
  #last({ name, rhythm, jitterMs }: Schedule, after: number, by: number): number | undefined {
    const delay = jitterOf(ID, name, jitterMs);
    const calendar = calendarOf(rhythm);
    let last: number | undefined;
    for (let due = calendar.after(after - delay); due !== undefined && due + delay <= by; due = calendar.after(due))
      last = due + delay;
    return last;
  }
}

for (const [month, begin] of [
  ["March, in which the clocks are put forward", "2026-03-05T00:00Z"],
  ["October, in which they are put back", "2026-10-05T00:00Z"],
] as const)
  test(`CP-963 CP-964 CP-965 CP-966 CP-969 a simulated ${month}: every due run is started as ruled and once, with clock jumps, kills and a busy bucket`, async (t) => {
    const random = seeded();
    const root = await rootWithBucket(t);
    const world = new World(Date.parse(begin), random);
    const ruling = new Ruling();
    const readers = { read: async () => ({ schedules: SCHEDULES, freeze: [] }) } as never;
    const counts = { kills: 0, waits: 0, skips: 0 };
    while (world.elapsed < 31 * DAY_MS) {
      const life = { isOver: false };
      world.isDead = false;
      const log = (line: string) => {
        if (line.includes(BUSY.message)) counts.skips++;
      };
      const own = { root, labels: "bucket.json", readers, runs: world.runs(life), log, now: () => world.now } as const;
      const scheduler = new Scheduler(own);
      ruling.begin(world.records);
      const settled = () => scheduler.idle(world.line);
      // A server lives for some hours, then it is killed, or ends and is away for a while.
      const until = world.elapsed + random() * 30 * HOUR_MS;
      const diesAt = random() < 0.6 ? world.elapsed + random() * (until - world.elapsed) : Number.POSITIVE_INFINITY;
      const isRunning = (name: string) => (world.records.findLast((run) => run.name === name)?.until ?? 0) > world.elapsed;
      while (world.elapsed < until && !world.isDead) {
        if (world.elapsed >= diesAt) world.dies ??= random() < 0.5 ? "before" : "after";
        const running = new Set(SCHEDULES.map(({ name }) => name).filter(isRunning));
        const next = await scheduler.look();
        await settled();
        ruling.look(world.now, { running, unbegun: world.unbegun, isBusy: world.isBusy });
        world.unbegun.clear();
        if (world.isDead) break;
        if (random() < 0.0005) world.now += random() * 3 * HOUR_MS;
        if (random() < 0.0005) world.now -= random() * 3 * HOUR_MS;
        const step = Math.max(LOOK_MS, Math.min(next - world.now, 10 * MINUTE_MS) - (next - world.now > LOOK_MS ? LOOK_MS : 0));
        const over = world.pass(step + random() * 2 * SECOND_MS);
        await settled();
        ruling.leave(over, world.now, world);
        world.unbegun.clear();
        counts.waits += over.size;
      }
      if (world.isDead) counts.kills++;
      world.clear();
      ruling.clear();
      await scheduler.idle();
      world.pass(random() < 0.5 ? random() * 30 * SECOND_MS : random() * 9 * HOUR_MS);
    }
    for (const [what, count] of Object.entries(counts)) assert.ok(count > 3, `${count} ${what}`);
    for (const [name, expected] of ruling.expected) {
      const found = world.records.filter((run) => run.name === name).map(({ due }) => due);
      const shown = (all: number[]) => all.map((due) => new Date(due).toISOString());
      assert.deepEqual(shown(found), shown(expected), name);
    }
  });
