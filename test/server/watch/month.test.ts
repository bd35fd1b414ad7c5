// A month of a scheduler whose clock is that of the test, in which the server is killed at any moment.
import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { storedSchedules } from "../../../lib/bucket/workspace/schedules.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { makePrivateFolder } from "../../../lib/core/files.ts";
import { calendarOf } from "../../../lib/plan/calendar.ts";
import type { RunStatus } from "../../../lib/run/protocol.ts";
import { type ScheduledRuns, Scheduler } from "../../../lib/server/watch/scheduler.ts";
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
  ],
};
const { schedules: SCHEDULES } = storedSchedules(JSON.stringify(FILE));

interface Started {
  name: string;
  due: number;
  /** When it was started, by the clock of the server. */
  at: number;
  /** When it has ended. */
  until: number;
  id: string;
}

/** What outlives a server: the disk, with its records. What the scheduler itself keeps lies in real files. */
class World {
  now: number;
  readonly #random: () => number;
  readonly records: Started[] = [];
  /** Whether the process dies at the next moment of this kind. */
  dies: "before" | "after" | undefined;
  isDead = false;
  /** The schedules that the dead process could not begin. */
  readonly unbegun = new Set<string>();

  constructor(now: number, random: () => number) {
    this.now = now;
    this.#random = random;
  }

  runs(life: { isOver: boolean }): ScheduledRuns {
    return {
      start: async (_, { name }, due) => {
        if (life.isOver) {
          this.unbegun.add(name);
          throw this.#death();
        }
        const before = this.records.findLast((run) => run.name === name);
        assert.ok(!before || before.until <= this.now, `two runs of ${name} at a time`);
        if (this.dies === "before") {
          life.isOver = true;
          this.unbegun.add(name);
          throw this.#death();
        }
        const id = `run ${this.records.length}`;
        this.records.push({ name, due, at: this.now, until: this.now + this.length(name), id });
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
        return run && (run.until > this.now ? "running" : "succeeded");
      },
    };
  }

  length(name: string): number {
    return name === "often" ? this.#random() * 4 * HOUR_MS : 20 * SECOND_MS;
  }

  /** Nothing that comes after this in the same server counts. */
  #death(): Failure {
    this.isDead = true;
    this.dies = undefined;
    return new Failure("cancelled", "killed");
  }
}

async function rootWithBucket(t: TestContext): Promise<string> {
  const root = path.join(temporaryFolder(t), "root");
  await makePrivateFolder(root);
  await createBucket(root, { project: "p", name: "n" }, async (dir) => makePrivateFolder(layoutOf(dir).internal));
  return root;
}

/** What the rules say about a month: for each schedule the due times that must have started, and those that must not. */
class Ruling {
  readonly expected = new Map<string, number[]>(SCHEDULES.map(({ name }) => [name, []]));
  readonly #decided = new Map<string, number>();

  /** The server looks at its clock. */
  look(now: number, running: ReadonlySet<string>, unbegun: ReadonlySet<string>): void {
    for (const { name, rhythm, catchUp } of SCHEDULES) {
      // The next server decides about what this one could not begin.
      if (unbegun.has(name)) continue;
      const decided = this.#decided.get(name) ?? now;
      const base = decided > now + HOUR_MS ? now : decided;
      this.#decided.set(name, base);
      const due = this.#last(rhythm, base, now);
      if (due === undefined) continue;
      this.#decided.set(name, due);
      if ((now - due <= IN_TIME_MS || catchUp) && !running.has(name)) this.expected.get(name)?.push(due);
    }
  }

  /** The last due time after one instant and by another, by going through all of them. */
  #last(rhythm: Parameters<typeof calendarOf>[0], after: number, by: number): number | undefined {
    const calendar = calendarOf(rhythm);
    let last: number | undefined;
    for (let due = calendar.after(after); due !== undefined && due <= by; due = calendar.after(due)) last = due;
    return last;
  }
}

for (const [month, begin] of [
  ["March, in which the clocks are put forward", "2026-03-05T00:00Z"],
  ["October, in which they are put back", "2026-10-05T00:00Z"],
] as const)
  test(`CP-963 CP-964 CP-965 CP-966 a simulated ${month}: every due run is started as ruled and once, with clock jumps and kills`, async (t) => {
    const random = seeded();
    const root = await rootWithBucket(t);
    const world = new World(Date.parse(begin), random);
    const ruling = new Ruling();
    const readers = { read: async () => ({ schedules: SCHEDULES, freeze: [] }) } as never;
    const end = world.now + 31 * DAY_MS;
    let kills = 0;
    for (let elapsed = 0; elapsed < end - Date.parse(begin); ) {
      const life = { isOver: false };
      world.isDead = false;
      const log = () => {};
      const scheduler = new Scheduler({
        root,
        labels: "bucket.json",
        readers,
        runs: world.runs(life),
        log,
        now: () => world.now,
      });
      // A server lives for some hours, then it is killed, or ends and is away for a while.
      const lives = random() * 30 * HOUR_MS;
      const diesAt = random() < 0.6 ? elapsed + random() * lives : Number.POSITIVE_INFINITY;
      const isRunning = (name: string) => (world.records.findLast((run) => run.name === name)?.until ?? 0) > world.now;
      for (const until = elapsed + lives; elapsed < until && !world.isDead; ) {
        if (elapsed >= diesAt) world.dies ??= random() < 0.5 ? "before" : "after";
        const running = new Set(SCHEDULES.map(({ name }) => name).filter(isRunning));
        const next = await scheduler.look();
        await scheduler.idle();
        ruling.look(world.now, running, world.unbegun);
        world.unbegun.clear();
        const step = Math.max(LOOK_MS, Math.min(next - world.now, 10 * MINUTE_MS) - (next - world.now > LOOK_MS ? LOOK_MS : 0));
        const late = random() * 2 * SECOND_MS;
        elapsed += step + late;
        world.now += step + late;
        if (random() < 0.0005) world.now += random() * 3 * HOUR_MS;
        if (random() < 0.0005) world.now -= random() * 3 * HOUR_MS;
      }
      if (world.isDead) kills++;
      const away = random() < 0.5 ? random() * 30 * SECOND_MS : random() * 9 * HOUR_MS;
      elapsed += away;
      world.now += away;
    }
    assert.ok(kills > 3, `the server was killed ${kills} times`);
    for (const [name, expected] of ruling.expected) {
      const found = world.records.filter((run) => run.name === name).map(({ due }) => due);
      const shown = (all: number[]) => all.map((due) => new Date(due).toISOString());
      assert.deepEqual(shown(found), shown(expected), name);
    }
  });
