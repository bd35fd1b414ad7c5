import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Database } from "../../../lib/bucket/base/database.ts";
import type { CatalogJob } from "../../../lib/bucket/base/model.ts";
import { catalogAllocations, catalogJobs } from "../../../lib/bucket/catalog/catalog.ts";
import { beginChange, type Promotion, promotionsOf, setStopped } from "../../../lib/bucket/catalog/promotions.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { build } from "../../../lib/operation/build/build.ts";
import {
  blameStates,
  type Control,
  type ControlState,
  controlJob,
  type JobWork,
  noteControl,
} from "../../../lib/operation/control/job-batches.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const HOSTS = ["a", "b", "c"];
const HELD: Partial<Promotion> = { hash: "h", synced: "h", version: "1", unfinished: false, files: {}, updateSeq: 4 };

interface Given extends Partial<Pick<JobWork, "target" | "healthCheck" | "forget">> {
  job?: Partial<CatalogJob>;
  /** Of each worker; the others are promoted and settled. */
  promoted?: Record<string, Partial<Promotion>>;
  /** What an allocation is before the run. */
  states?: Record<string, Partial<ControlState>>;
  disabled?: string[];
  signal?: AbortSignal;
  effects?: Partial<Record<"run" | "hooks" | "probe" | "sync", (of: never, more: never) => unknown>>;
  order?: string;
}

/** Runs a target for a job on three workers that are not there, two at a time. */
async function control(t: TestContext, given: Given = {}) {
  const disabled = { "workspace/disabled.json": JSON.stringify({ jobs: { web: { allocations: given.disabled ?? [] } } }) };
  const jobs = { web: { version: "2", selectors: ["worker"], max_concurrent_upgrades: 2 } };
  const bucket = await makeBucket(t, { workers: HOSTS, jobs, files: given.disabled ? disabled : {} });
  await build(bucket.context("build"), {});
  const { db } = bucket;
  bucket.activity.length = 0;
  const context = bucket.context("job_restart", given.signal);
  if (given.order) context.kv.put("ops/job/web", "rollout_order", given.order);
  const present = catalogAllocations(db);
  const states = present.map((allocation): ControlState => {
    const promoted = { ...HELD, ...given.promoted?.[allocation.worker] } as Promotion;
    const first = { allocation, promoted, outcome: "not_started" as const, error: null, duration_ms: 0 };
    return { ...first, ...given.states?.[allocation.worker] };
  });
  const asked: Record<string, unknown[]> = { run: [], hooks: [], probe: [], stage: [], sync: [] };
  const ask =
    (name: "run" | "hooks" | "probe" | "sync" | "stage", usual?: unknown) =>
    async (of: unknown, more: unknown, last: unknown) => {
      const worker = (of as { worker?: string }).worker;
      asked[name]?.push(name === "probe" ? more : name === "sync" ? [worker, last] : name === "stage" ? worker : of);
      const answer = name === "stage" ? undefined : given.effects?.[name];
      return answer ? await answer(of as never, (more ?? db) as never) : usual;
    };
  const effects = {
    ...{ run: ask("run"), hooks: ask("hooks", []), probe: ask("probe", []), stage: ask("stage"), sync: ask("sync") },
    evidence: async (_: unknown, worker: string) => `of ${worker}`,
  };
  const { job: changed, target = "restart", healthCheck = false, forget = false } = given;
  const job = { ...(catalogJobs(db)[0] as CatalogJob), ...changed };
  const work = { context, fleet: {}, effects, present, target, healthCheck, forget, job, states } as unknown as JobWork;
  const error = await controlJob(work).then(
    () => undefined,
    (thrown: Error) => thrown.message,
  );
  const outcomes = states.map(({ outcome, error: why }) => (why === null ? outcome : `${outcome}: ${why}`));
  const noted = db
    .all<Record<string, string>>(
      "SELECT worker_ip AS worker, action, o.outcome AS outcome, reason FROM last_outcome o JOIN allocations USING (alloc_id) ORDER BY 1",
    )
    .map(({ worker, action, outcome, reason }) => [worker, action, outcome, reason].filter((word) => word !== "").join(" "));
  const said = bucket.activity.map((line) => line.trimEnd());
  return { bucket, states, asked, error, outcomes, noted, said, job };
}

const fails =
  (...workers: string[]) =>
  async ({ worker }: { worker: string }) => {
    if (workers.includes(worker)) throw new Failure("failed", `no disk on ${worker}`);
  };

test("a target runs on two workers at a time with the version that is promoted, and each outcome is noted", async (t) => {
  const { asked, outcomes, noted, said, error } = await control(t, { promoted: { b: { version: "3" } } });
  const how = { job: "web", target: "restart", phase: "job_control", limitSeconds: 300 };
  const version = (text: string) => ({ CURRENT_VERSION: text, NEW_VERSION: text });
  const run = asked.run as { limitSeconds: number }[];
  assert.ok((run[0]?.limitSeconds ?? 0) > 0);
  assert.deepEqual(
    run.map((one) => ({ ...one, limitSeconds: 300 })),
    [
      { ...how, worker: "a", env: version("1") },
      { ...how, worker: "b", env: version("3") },
      { ...how, worker: "c", env: version("1") },
    ],
  );
  assert.deepEqual([error, outcomes], [undefined, ["ok", "ok", "ok"]]);
  assert.deepEqual(noted, ["a restart ok", "b restart ok", "c restart ok"]);
  assert.deepEqual(said, ["web: batch 1 of 2: restart on a, b", "web: batch 2 of 2: restart on c"]);
  const { said: others } = await control(t, { target: "dump", order: "c,b,a" });
  assert.deepEqual(others, ["web: batch 1 of 2: dump on c, b", "web: batch 2 of 2: dump on a"]);
});

test("where the target fails on a worker its batch is finished, and the next does not start", async (t) => {
  const { outcomes, noted, said, states } = await control(t, { effects: { run: fails("a") } });
  assert.deepEqual(outcomes, ["failed: no disk on a", "ok", "not_started"]);
  assert.deepEqual(noted, ["a restart failed no disk on a", "b restart ok"]);
  assert.deepEqual(said.slice(1), ["error: web@a: no disk on a"]);
  assert.ok(states.every(({ duration_ms }) => duration_ms >= 0));
  const skipped = await control(t, { states: { a: { outcome: "skipped" }, b: { outcome: "unreachable", error: "gone" } } });
  assert.deepEqual([skipped.outcomes, skipped.noted], [["skipped", "unreachable: gone", "ok"], ["c restart ok"]]);
});

test("while a target runs its outcome is unknown; a cancel is told of what had not ended, and begins no further batch", async (t) => {
  const stop = new AbortController();
  const run = ({ worker }: { worker: string }) => {
    if (worker === "a") return;
    stop.abort();
    throw new Failure("cancelled", "cancelled");
  };
  const cut = await control(t, { signal: stop.signal, effects: { run } });
  assert.equal(cut.error, "cancelled");
  assert.deepEqual(cut.outcomes, ["ok", "cancelled: cancelled", "not_started"]);
  assert.deepEqual(cut.noted, ["a restart ok", "b restart cancelled cancelled"]);
  let during: unknown;
  const look = (_: unknown, db: Database) => {
    during ??= db.all<{ outcome: string }>("SELECT outcome FROM last_outcome").map(({ outcome }) => outcome);
  };
  await control(t, { effects: { run: look as never } });
  assert.deepEqual(during, ["unknown", "unknown"]);
  const never = await control(t, { signal: AbortSignal.abort() });
  assert.deepEqual([never.error, never.asked.run, never.noted], ["cancelled", [], []]);
});

for (const [target, forget, stopped, hash] of [
  ["start", false, false, "h"],
  ["restart", false, false, "h"],
  ["reload", false, true, "h"],
  ["stop", false, true, "h"],
  ["stop", true, false, ""],
  ["start", true, false, "h"],
] as const)
  test(`after ${target}${forget ? " with forget" : ""} a service ${stopped ? "stays" : "is not any more"} noted as stopped`, async (t) => {
    const run = ({ worker }: { worker: string }) => {
      if (worker !== "a") throw new Failure("failed", "no");
    };
    const bucket = await makeBucket(t, { workers: ["a", "b"], jobs: { web: { selectors: ["worker"] } } });
    await build(bucket.context("build"), {});
    const { db } = bucket;
    const present = catalogAllocations(db);
    for (const { id } of present) {
      beginChange(db, "web", [id]);
      db.run("UPDATE hash SET previous_hash = 'h' WHERE key = ?", id);
      setStopped(db, "web", id, "done");
    }
    const states = present.map((allocation) => {
      return { allocation, promoted: HELD as Promotion, outcome: "not_started" as const, error: null, duration_ms: 0 };
    });
    const context = bucket.context("job_stop");
    const effects = { run: async (of: { worker: string }) => run(of) };
    const job = { ...(catalogJobs(db)[0] as CatalogJob), maxConcurrentUpgrades: 2 };
    await controlJob({ context, effects, present, target, healthCheck: false, forget, job, states } as unknown as JobWork);
    const [first, second] = present.map(({ id }) => promotionsOf(db, "web")(id));
    assert.deepEqual([first?.stopped, first?.hash], [stopped, hash]);
    assert.deepEqual([second?.stopped, second?.hash], [true, "h"], "where it failed nothing is noted");
  });

const HOOKED = { hooks: ["one", "two"].map((name) => ({ name, events: ["job_control"] })) as never };

test("hooks for job_control run instead of the target; a worker that a later hook did not come to has failed, too", async (t) => {
  const well = await control(t, { job: HOOKED });
  const [first] = well.asked.hooks as { kind: string; job: unknown; batch: { workers: string[] }; variables: object }[];
  assert.deepEqual([first?.kind, first?.batch.workers, first?.variables], ["command_control", ["a", "b"], { TARGET: "restart" }]);
  assert.deepEqual([first?.job, well.asked.run, well.outcomes], [well.job, [], ["ok", "ok", "ok"]]);
  const script = (hook: string, worker: string, error: string | null = null) => ({ hook, worker, error, duration_ms: 1 });
  const scripts = [
    script("one", "a"),
    script("one", "b"),
    script("one", "c"),
    script("two", "a"),
    script("two", "b", "exit code 1"),
  ];
  const thrown = (error: unknown) => ({ hooks: () => Promise.reject(error) });
  const failure = new Failure("ErrHookFailed", "it failed", { details: { scripts } });
  const failed = await control(t, { job: { ...HOOKED, maxConcurrentUpgrades: 3 }, effects: thrown(failure) });
  const cut = "a hook failed on another worker, so not all hooks ran for this one";
  assert.deepEqual(failed.outcomes, ["ok", "failed: hook two: exit code 1", `failed: ${cut}`]);
  const other = await control(t, { job: HOOKED, effects: thrown(new Error("a defect")) });
  assert.deepEqual([other.error, other.outcomes], ["a defect", ["not_started", "not_started", "not_started"]]);
  const stop = new AbortController();
  const cancelled = await control(t, {
    job: HOOKED,
    signal: stop.signal,
    effects: {
      hooks() {
        stop.abort();
        throw failure;
      },
    },
  });
  assert.deepEqual(cancelled.outcomes, ["cancelled: cancelled", "cancelled: cancelled", "not_started"]);
  assert.deepEqual(cancelled.noted, ["a restart cancelled cancelled", "b restart cancelled cancelled"]);
});

test("one hook for job_control is enough; how long its batch took is told", async (t) => {
  t.mock.method(performance, "now", () => 1_000_000);
  const one = { hooks: [{ name: "one", events: ["job_control"] }] as never };
  const { asked, states } = await control(t, { job: one });
  assert.deepEqual([asked.hooks?.length, asked.run], [2, []]);
  assert.deepEqual(
    states.map(({ duration_ms }) => duration_ms),
    [0, 0, 0],
  );
});

test("a health check runs hooks for disabled allocations, too; a cancel in it fails nothing", async (t) => {
  const hooked = { hooks: [{ name: "one", events: ["health_check"] }] as never };
  const { asked } = await control(t, { healthCheck: true, job: hooked, disabled: ["b"], states: { b: { outcome: "skipped" } } });
  const [pass] = asked.hooks as { kind: string; workers: string[] }[];
  assert.deepEqual([pass?.kind, pass?.workers], ["health_check", ["a", "b", "c"]]);
  const stop = new AbortController();
  const hooks = () => {
    stop.abort();
    throw new Failure("ErrHookFailed", "no", {
      details: { scripts: [{ hook: "one", worker: "a", error: "no", duration_ms: 1 }] },
    });
  };
  const cut = await control(t, { healthCheck: true, job: hooked, signal: stop.signal, effects: { hooks } });
  assert.deepEqual([cut.error, cut.outcomes], ["cancelled", ["ok", "ok", "not_started"]]);
});

test("an error is that of each allocation; a status, and what has not begun, is not noted", async (t) => {
  const { bucket, states } = await control(t, { signal: AbortSignal.abort() });
  const context = bucket.context("job_status");
  const note = (target: string) => {
    noteControl({ context, target } as unknown as Control, states);
    return bucket.db.all("SELECT outcome FROM last_outcome").length;
  };
  assert.equal(note("restart"), 0);
  assert.equal(blameStates(states, new Failure("unreachable", "gone")), "gone");
  assert.deepEqual(
    states.map(({ outcome, error }) => `${outcome} ${error}`),
    ["unreachable gone", "unreachable gone", "unreachable gone"],
  );
  assert.deepEqual([note("status"), note("restart")], [0, 3]);
});

test("what hooks for job_control wrote is stored, however they end", async (t) => {
  for (const ending of [async () => [], () => Promise.reject(new Error("a defect"))]) {
    const flushed: unknown[] = [];
    const bucket = await makeBucket(t, { workers: ["a"], jobs: { web: { selectors: ["worker"] } } });
    await build(bucket.context("build"), {});
    const context = bucket.context("job_restart");
    t.mock.method(context.kv, "flush", (job: string) => flushed.push(job));
    const [job] = catalogJobs(bucket.db);
    const [allocation] = catalogAllocations(bucket.db);
    const states = [{ allocation, promoted: HELD, outcome: "not_started", error: null, duration_ms: 0 }];
    const work = {
      context,
      effects: { hooks: ending },
      present: [allocation],
      target: "restart",
      job: { ...job, ...HOOKED },
      states,
    };
    await controlJob(work as unknown as JobWork).catch(() => {});
    assert.deepEqual(flushed, ["web"]);
  }
});

const CHECKED = { healthCheck: { checks: [{}], timeoutSeconds: 1, wait: { attempts: 1, intervalSeconds: 0 } } as never };

test("a health check after each batch is about all that should be healthy by then; what fails it fails the batch", async (t) => {
  const probed = async (given: Given) => (await control(t, { healthCheck: true, job: CHECKED, ...given })).asked.probe;
  assert.deepEqual(await probed({}), ["a", "b", "c", "a", "b", "c"]);
  assert.deepEqual(await probed({ target: "start" }), ["a", "b", "a", "b", "c"]);
  assert.deepEqual(await probed({ target: "stop" }), ["c"], "behind the last batch nothing is left");
  assert.deepEqual(await probed({ states: { b: { outcome: "failed", error: "no" } } }), ["a", "c"]);
  assert.deepEqual(await probed({ disabled: ["b"], states: { b: { outcome: "skipped" } } }), ["a", "c"]);
  assert.deepEqual(await probed({ healthCheck: false }), []);
  const none = await control(t, { healthCheck: true });
  assert.ok(none.said.includes("web: no health check, there is nothing to check"));
  const well = await control(t, { healthCheck: true, job: CHECKED });
  assert.equal(well.said.filter((line) => line === "web: health check passed").length, 2);
  const probe = (_: never, worker: string) => (worker === "a" ? [{ ok: false, evidence: "no answer", durationMs: 1 }] : []);
  const { outcomes, states, noted, said } = await control(t, {
    healthCheck: true,
    job: CHECKED,
    effects: { probe: probe as never },
  });
  const sick = "a after 1 attempt: no answer";
  const whole = `the health check of job web failed: ${sick}`;
  assert.deepEqual(outcomes, [`failed: ${sick}`, `failed: ${whole}`, "not_started"]);
  assert.deepEqual([states[0]?.evidence, states[1]?.evidence], ["of a", undefined]);
  assert.deepEqual(noted, [`a restart failed ${sick}`, `b restart failed ${whole}`]);
  assert.ok(said.includes(`error: ${whole}`));
  const defect = await control(t, {
    healthCheck: true,
    job: CHECKED,
    effects: { probe: () => Promise.reject(new Error("a defect")) },
  });
  assert.equal(defect.error, "a defect");
});

const UNFINISHED = { unfinished: true, synced: "other" };

test("where a deploy did not finish the promoted files are put back first; where nothing is promoted there is nothing to start", async (t) => {
  const promoted = { a: UNFINISHED, b: { hash: "", synced: "" } };
  const { outcomes, asked, states, noted, said } = await control(t, { promoted });
  const never = "nothing is promoted there: run `ops deploy` first";
  assert.deepEqual(outcomes, ["ok", `failed: ${never}`, "ok"]);
  assert.deepEqual([asked.stage, asked.sync], [["a"], [["a", {}]]]);
  assert.deepEqual(
    states.map((state) => state.put_back),
    [true, undefined, undefined],
  );
  assert.deepEqual(noted, ["a restart ok", `b restart failed ${never}`, "c restart ok"]);
  assert.deepEqual(said.slice(0, 3), [
    `error: web@b: ${never}`,
    "web: a deploy did not finish on a: the promoted files are put back",
    "web: batch 1 of 1: restart on a, c",
  ]);
  for (const target of ["start", "reload"]) assert.deepEqual((await control(t, { promoted, target })).asked.stage, ["a"]);
  for (const target of ["stop", "dump"]) {
    const left = await control(t, { promoted, target });
    assert.deepEqual([left.asked.stage, left.outcomes], [[], ["ok", "ok", "ok"]], target);
  }
});

test("files that cannot be put back fail their allocation, and those that any sync may have left are all sent", async (t) => {
  const sync = () => Promise.reject(new Failure("unreachable", "gone"));
  const lost = await control(t, { promoted: { a: UNFINISHED }, effects: { sync } });
  const why = "the promoted files could not be put back: gone";
  assert.deepEqual(lost.outcomes, [`unreachable: ${why}`, "ok", "ok"]);
  assert.deepEqual(lost.noted, ["a restore unreachable gone", "b restart ok", "c restart ok"]);
  const files = { "conf/a": "644:missing" };
  const { outcomes } = await control(t, { promoted: { a: { ...UNFINISHED, files } } });
  assert.match(
    outcomes[0] ?? "",
    /^failed: the promoted files could not be put back: the content missing of a promoted file is not kept/,
  );
  const held = { states: { a: { outcome: "skipped" as const } }, promoted: { a: UNFINISHED } };
  assert.deepEqual((await control(t, held)).asked.stage, [], "what the run leaves alone");
});
