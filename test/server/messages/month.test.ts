// A month of a messenger whose clock, fleet and receiver are those of the test, and which is killed at any moment.
import assert from "node:assert/strict";
import { readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import type { HealthChange } from "../../../lib/bucket/health/health-history.ts";
import type { MessageFields } from "../../../lib/bucket/notify/body.ts";
import { storedNotify } from "../../../lib/bucket/notify/notify.ts";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { makePrivateFolder } from "../../../lib/core/files.ts";
import { isQuiet } from "../../../lib/plan/calendar.ts";
import type { RunRecord } from "../../../lib/run/record.ts";
import { Lines } from "../../../lib/server/line.ts";
import { Messenger } from "../../../lib/server/messages/messenger.ts";
import type { BucketSources, Look } from "../../../lib/server/messages/sources.ts";
import { seeded } from "../../helpers/random.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const STEP_MS = 20 * MINUTE_MS;
const BEGIN = Date.parse("2026-10-05T00:00Z");
/** A message is given up when its twelfth attempt fails. */
const MOST_FAILED = 11;
const HOSTS = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];

const NOTIFY = storedNotify(
  JSON.stringify({
    file: {
      targets: { hook: { webhook: "https://hook.example/" } },
      send: [{ to: ["hook"] }],
      quiet: [{ from: "22:00", to: "06:30", timezone: "Europe/Berlin" }],
    },
    templates: {},
  }),
);

/** What outlives a server: the fleet, its records, and what the receiver has got. What the messenger keeps lies in a real file. */
class World {
  now = BEGIN;
  readonly records: RunRecord[] = [];
  readonly changes: HealthChange[] = [];
  readonly bad = new Map<string, HealthChange>();
  isBuildBad = false;
  /** What must be told: by run, the places that it found bad. */
  readonly expected = new Map<string, string>();
  readonly got: (MessageFields & { at: number })[] = [];
  /** Until then the receiver takes nothing. */
  downUntil = 0;
  /** The attempts that failed, by message. */
  readonly failed = new Map<string, number>();
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  /** Something happens in the fleet, whether or not a server lives. */
  step(isCalm: boolean): void {
    const run = `run ${String(this.records.length).padStart(6, "0")}`;
    const isBuild = this.#random() < 0.2;
    const isBad = !isCalm && this.#random() < (this.isBuildBad && isBuild ? 0.5 : 0.1);
    if (isBuild) this.#build(run, isBad);
    else this.#check(run, isCalm);
    const record = { id: run, kind: isBuild ? "build" : "health_check", status: isBuild && isBad ? "failed" : "succeeded" };
    const rest = { params: {}, error: isBad ? "no" : null, result: null, audit: [], schedule: null, break_glass: null };
    this.records.push({ ...record, ...rest, finished_at: new Date(this.now).toISOString() } as unknown as RunRecord);
  }

  #build(run: string, isBad: boolean): void {
    if (isBad && !this.isBuildBad) this.expected.set(run, "build");
    this.isBuildBad = isBad;
  }

  #check(run: string, isCalm: boolean): void {
    const turned: string[] = [];
    for (const worker of HOSTS) {
      const wasBad = this.bad.has(worker);
      const isBad = !isCalm && this.#random() < (wasBad ? 0.8 : 0.03);
      if (isBad === wasBad) continue;
      const state = isBad ? "unhealthy" : "healthy";
      const at = new Date(this.now).toISOString();
      const change: HealthChange = { job: "web", worker, aspect: "health", state, reason: "", at, run_id: run };
      this.changes.push(change);
      if (isBad) this.bad.set(worker, change);
      else this.bad.delete(worker);
      if (isBad) turned.push(`web@${worker}`);
    }
    if (turned.length > 0) this.expected.set(run, turned.join());
  }

  readonly sources: Pick<BucketSources, "version" | "look"> = {
    version: () => `${this.now}`,
    look: async (_, state): Promise<Look> => {
      const known = new Set(state?.runs);
      const first = state?.runs[0] ?? "";
      return {
        ended: this.records.filter(({ id }) => !known.has(id) && id > first),
        forced: [],
        health: { changes: this.changes.slice(state?.change ?? 0), unwell: [...this.bad.values()] },
        certs: [],
        due: new Map(),
        wanted: [],
        notify: NOTIFY,
        runs: this.records.map(({ id }) => id).slice(-200),
        change: this.changes.length,
        isActive: false,
      };
    },
  };
}

/** What a killed process was writing. */
const LEFT = ".state.json.abcdef.tmp";

test("CP-861 CP-863 CP-864 CP-865 a simulated month: each incident is told, once and under one id, with kills at any moment and a receiver that fails", async (t) => {
  const random = seeded();
  const root = path.join(temporaryFolder(t), "root");
  await makePrivateFolder(root);
  const bucketId = await createBucket(root, { project: "p", name: "n" }, async (dir) => {
    await makePrivateFolder(layoutOf(dir).internal);
    await makePrivateFolder(layoutOf(dir).data);
    writeFileSync(layoutOf(dir).database, "");
  });
  const { messages } = layoutOf(path.join(root, bucketId.id));
  const world = new World(random);
  const failures: string[] = [];
  let kills = 0;
  const live = async (endsAt: number, isCalm: boolean) => {
    const life = { isOver: false };
    const send = async ({ fields }: { fields: MessageFields }): Promise<void> => {
      if (life.isOver) return new Promise(() => {});
      assert.ok(!isQuiet(NOTIFY.quiet, world.now), "a message in quiet hours");
      // The receiver is never away so long that a message is given up.
      const failed = world.failed.get(fields.ID) ?? 0;
      const isLast = failed === MOST_FAILED;
      const isDown = world.now < world.downUntil;
      const arrives = isLast || (!isDown && (isCalm || random() < 0.8));
      if (arrives) world.got.push({ ...fields, at: world.now });
      // Killed before or after the receiver has the message, and before the outcome is noted.
      if (!isCalm && random() < 0.05) {
        life.isOver = true;
        return new Promise(() => {});
      }
      // The answer may be lost on its way.
      if (arrives && (isCalm || isLast || random() >= 0.1)) return;
      world.failed.set(fields.ID, failed + 1);
      throw new Error("no answer");
    };
    // What a killed process had begun goes on here for a moment; nobody hears of its failures.
    const log = (line: string) => void (life.isOver || failures.push(line));
    const own = { root, labels: "bucket.json" as const, lines: new Lines(), log };
    const messenger = new Messenger({ ...own, sources: world.sources, courier: { send }, now: () => world.now });
    while (world.now < endsAt && !life.isOver) {
      await messenger.round();
      if (!life.isOver) await Promise.race([messenger.idle(), new Promise<void>((go) => setImmediate(go))]);
      for (let waited = 0; waited < 50 && !life.isOver; waited++) await new Promise<void>((go) => setImmediate(go));
      world.step(isCalm);
      world.now += STEP_MS;
      if (world.now >= world.downUntil && random() < 0.01) world.downUntil = world.now + random() * 6 * HOUR_MS;
    }
    if (life.isOver) kills++;
    life.isOver = true;
    const isWriting = () => readdirSync(messages).some((name) => name.endsWith(".tmp") && name !== LEFT);
    await until("the end of what was being written", () => !isWriting());
  };
  const end = BEGIN + 31 * DAY_MS;
  await live(BEGIN + HOUR_MS, false);
  while (world.now < end) {
    await live(Math.min(end, world.now + random() * 2 * DAY_MS), false);
    writeFileSync(path.join(messages, LEFT), "{");
    for (let away = random() * 10; away > 1 && world.now < end; away--) {
      world.step(false);
      world.now += STEP_MS;
    }
  }
  world.downUntil = 0;
  await live(world.now + 3 * DAY_MS, true);
  assert.deepEqual(failures, []);
  assert.ok(kills > 3, `the server was killed ${kills} times`);
  assertTold(world);
});

function assertTold({ got, expected }: World): void {
  const byRun = Map.groupBy(got, ({ Run }) => Run);
  const others = [...byRun.keys()].filter((run) => !expected.has(run));
  assert.deepEqual(
    others.map((run) => byRun.get(run)),
    [],
    "what was no incident was told",
  );
  const untold = [...expected.keys()].filter((run) => !byRun.has(run));
  assert.deepEqual(untold, [], "an incident was not told");
  for (const [run, messages] of byRun) {
    const places = expected.get(run) ?? "";
    for (const { Places } of messages) assert.deepEqual([...Places].sort().join(), places, run);
    assert.equal(new Set(messages.map(({ IncidentID }) => IncidentID)).size, 1, `${run} is one incident`);
    for (const same of Map.groupBy(messages, ({ Event }) => Event).values())
      assert.equal(new Set(same.map(({ ID }) => ID)).size, 1, `${run} was told twice`);
    assert.ok(
      messages.some(({ Event }) => Event === "recovered"),
      `${run}: its end was not told`,
    );
    const first = messages.findIndex(({ Event }) => Event === "recovered");
    assert.ok(
      messages.slice(first).every(({ Event }) => Event === "recovered"),
      `${run}: the beginning came after the end`,
    );
  }
}
