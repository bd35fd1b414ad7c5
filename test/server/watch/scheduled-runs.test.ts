import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../../lib/bucket/base/layout.ts";
import type { RootBucket } from "../../../lib/bucket/source/root.ts";
import type { Schedule } from "../../../lib/bucket/workspace/schedules.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { Lines } from "../../../lib/server/line.ts";
import { LockedRuns } from "../../../lib/server/watch/scheduled-runs.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const DUE = Date.UTC(2026, 10, 27, 12);
const RUN = uuidV7();
const ACTOR = { name: "schedule:nightly", address: "", via: "schedule" };
const OTHER = { key: "other", kind: "build", by: { address: "", via: "cli" }, since: "" } as const;
const busy = () => new Failure("bucket_busy", "busy");

interface Given {
  schedule?: Partial<Schedule>;
  /** What each try to reserve the bucket throws first. */
  tries?: (() => Error)[];
  approvals?: number;
  startable?: () => unknown;
  check?: () => unknown;
}

/** The runs of a schedule in a bucket that nothing else uses. */
function locked(t: TestContext, { schedule, tries = [], approvals = 0, startable, check }: Given = {}) {
  const bucket = { id: "b", layout: layoutOf(temporaryFolder(t)) } as RootBucket;
  const lines = new Lines();
  const asked: unknown[] = [];
  const supervisor = {
    async reserve(layout: unknown, id: string, kind: string) {
      const fail = tries.shift();
      if (fail) throw fail();
      assert.equal(layout, bucket.layout);
      asked.push(["reserve", id, kind, lines.waiting("b").map(({ key }) => key)]);
      const start = async (...given: unknown[]) => asked.push(["start", ...given]);
      return { runId: RUN, start, release: async () => asked.push(["release"]) };
    },
    activeRun: (id: string) => (id === "b" ? RUN : null),
  };
  const beside = {
    async ask(name: string, _: unknown, of: unknown) {
      asked.push([name, of]);
      return startable?.();
    },
  };
  const audit = {
    async started(about: unknown, work: () => Promise<void>) {
      asked.push(["audit", about]);
      await work();
    },
  };
  const stop = new AbortController();
  const own = { supervisor, lines, beside, audit, access: { approvalsOf: () => approvals }, signal: stop.signal };
  const runs = new LockedRuns(own as never);
  const whole = { name: "nightly", kind: "gc", parameters: {}, waitMs: 0, ...schedule } as Schedule;
  const start = () => runs.start(bucket, whole, DUE, async () => void check?.());
  const steps = () => asked.map((one) => (one as [string])[0]);
  return { runs, bucket, lines, asked, steps, start, stop };
}

test("CP-962 the run of a schedule is started under the lock, with its audit line before, as the schedule", async (t) => {
  const { start, asked } = locked(t);
  assert.equal(await start(), RUN);
  const [reserve, startable, audit, started] = asked as [string, { params: object }][];
  assert.deepEqual(reserve, ["reserve", "b", "gc", []]);
  const params = startable?.[1].params;
  assert.deepEqual(startable, ["startable", { kind: "gc", params }]);
  assert.deepEqual(audit, ["audit", { bucket: "b", run: RUN, kind: "gc", params, actor: ACTOR }]);
  const schedule = { name: "nightly", due: new Date(DUE).toISOString() };
  assert.deepEqual(started, ["start", params, { actor: ACTOR, requestId: null, schedule }]);
  assert.equal(asked.length, 4);
});

test("CP-971 a run that cannot be started leaves the bucket free and the line empty", async (t) => {
  const unknown = () => {
    throw new Failure("unknown_name", "no such job");
  };
  for (const waitMs of [0, 60_000]) {
    const one = locked(t, { schedule: { waitMs }, startable: unknown });
    await assert.rejects(one.start(), { code: "unknown_name" });
    assert.deepEqual([one.steps(), one.lines.waiting("b")], [["reserve", "startable", "release"], []]);
    const frozen = locked(t, { schedule: { waitMs }, check: unknown });
    await assert.rejects(frozen.start(), { code: "unknown_name" });
    assert.deepEqual([frozen.steps(), frozen.lines.waiting("b")], [[], []]);
  }
});

test("CP-969 a busy bucket is waited for in line where the schedule says so, and only as long", async (t) => {
  const waiting = locked(t, { schedule: { waitMs: 60_000 }, tries: [busy] });
  const started = waiting.start();
  const [{ key, kind, by } = assert.fail()] = waiting.lines.waiting("b");
  assert.deepEqual([key, kind, by], ["schedule@nightly", "gc", ACTOR]);
  assert.equal(await started, RUN);
  assert.deepEqual([waiting.asked[0], waiting.lines.waiting("b")], [["reserve", "b", "gc", ["schedule@nightly"]], []]);
  const never = locked(t, { tries: [busy] });
  await assert.rejects(never.start(), { code: "bucket_busy" });
  const short = locked(t, { schedule: { waitMs: 1 }, tries: [busy, busy, busy] });
  await assert.rejects(short.start(), { code: "bucket_busy" });
  assert.deepEqual([short.steps(), short.lines.waiting("b")], [[], []]);
  const ended = locked(t, { schedule: { waitMs: 60_000 }, tries: [busy, busy] });
  const ending = ended.start();
  ended.stop.abort();
  await assert.rejects(ending, { code: "cancelled" });
});

test("CP-969 who waits in line comes first, and a place that was given up starts nothing", async (t) => {
  const behind = locked(t);
  using _ = behind.lines.enter("b", OTHER);
  await assert.rejects(behind.start(), { code: "bucket_busy" });
  assert.deepEqual(behind.steps(), []);
  const second = locked(t, { schedule: { waitMs: 60_000 } });
  const first = second.lines.enter("b", OTHER);
  const started = second.start();
  assert.deepEqual(
    second.lines.waiting("b").map((one) => one.key),
    ["other", "schedule@nightly"],
  );
  first.leave();
  assert.equal(await started, RUN);
  const given = locked(t, { schedule: { waitMs: 60_000 }, tries: [busy, busy] });
  const lost = given.start();
  given.lines.leave("b", "schedule@nightly");
  await assert.rejects(lost, { code: "bucket_busy" });
  assert.deepEqual(given.steps(), []);
  const late = locked(t, { schedule: { waitMs: 60_000 }, check: () => late.lines.leave("b", "schedule@nightly") });
  await assert.rejects(late.start(), { code: "bucket_busy" });
});

test("CP-978 in a bucket that needs approvals no schedule starts what needs one", async (t) => {
  const start = (kind: Schedule["kind"], parameters: object, approvals: number) =>
    locked(t, { schedule: { kind, parameters: parameters as never }, approvals }).start();
  await assert.rejects(start("deploy", {}, 1), {
    code: "failed",
    message: "Cannot start deploy: the bucket needs approvals, and no schedule has one; propose it by hand",
  });
  assert.equal(await start("deploy", {}, 0), RUN);
  assert.equal(await start("deploy", { dry_run: true }, 1), RUN);
});

test("the status of a schedule's run is that of its record, or running while the server has it", async (t) => {
  const { runs, bucket } = locked(t);
  assert.equal(runs.statusOf(bucket, RUN), "running");
  const id = uuidV7();
  assert.equal(runs.statusOf(bucket, id), undefined);
  mkdirSync(runLayout(bucket.layout, id).folder, { recursive: true });
  writeFileSync(runLayout(bucket.layout, id).record, JSON.stringify({ id, status: "failed", audit: [] }));
  assert.equal(runs.statusOf(bucket, id), "failed");
});
