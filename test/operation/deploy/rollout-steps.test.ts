import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure } from "../../../lib/core/errors.ts";
import type { Trouble } from "../../../lib/operation/base/outcome.ts";
import { adoptSteps, rolloutSteps } from "../../../lib/operation/deploy/rollout-steps.ts";
import { type Driver, drive, type Steps } from "../../../lib/operation/deploy/steps.ts";
import type { JobPlan } from "../../../lib/operation/plan/plan-job.ts";
import { type AllocationState, type Rollout, rolloutOf } from "../../../lib/operation/plan/rollout-state.ts";
import { rolloutPhases } from "../../../lib/plan/rollout.ts";

const GOING_ON = new AbortController().signal;
const CHECKED = { healthCheck: { checks: [] } };
const LOST: Trouble = { grade: "unreachable", message: "gone" };
const SICK: Trouble = { grade: "failed", message: "it broke" };

/** The rollout of a job with these actions on the workers `w0`, `w1`, …; `disabled`: to be promoted, and not to run. */
function rolloutWith(actions: readonly string[], job: object = {}, plan: Partial<JobPlan> = {}): Rollout {
  const whole = { name: "web", healthCheck: null, hooks: [], onFailure: "stop", tolerateUnreachable: 0, ...job };
  const allocations = actions.map((word, at) => {
    const action = word === "disabled" ? "promote" : word === "gate" ? "skip" : word;
    const promoted = { hash: word === "gate" ? "h" : "old", version: "1", unfinished: false, gate: "pending" };
    const allocation = { id: `a${at}`, worker: `w${at}`, disabled: word === "disabled" };
    return { allocation, decision: { action, reason: "" }, promoted, target: { hash: "h", version: "1" } };
  });
  const widths = { maxConcurrentStarts: 1, maxConcurrentUpgrades: 2, hasOwnControl: false, ...job };
  const placed = allocations.map(({ allocation, decision }) => ({ worker: allocation.worker, action: decision.action }));
  const phases = rolloutPhases(widths, placed as Parameters<typeof rolloutPhases>[1], undefined);
  return rolloutOf({ job: whole, allocations, phases, refused: undefined, ...plan } as unknown as JobPlan);
}

type Handlers = Partial<Record<keyof Driver, (of: Asked) => unknown>>;
/** What a step may be about. */
interface Asked {
  states: AllocationState[];
  phase: { phase: string; action: string };
  batch: { index: number; count: number; workers: string[] };
  pass: { kind: string; job: unknown; workers?: string[]; batch?: Asked["batch"]; variables?: Record<string, string> };
  gate?: string;
  gated: { probed: string[]; hooked: string[] };
  waiting: AllocationState[];
  failure: Error;
  rollout: Rollout;
}

const hosts = (states: readonly AllocationState[] | undefined) => states?.map(({ plan }) => plan.allocation.worker).join(" ");
const placeOf = ({ index, count, workers }: Asked["batch"]) => `${index}/${count} [${workers.join(" ")}]`;

/** A step in words. Every step of a rollout is about the same one. */
function told(kind: string, of: Asked | string, rollout: Rollout): string {
  if (typeof of === "string") return `${kind} ${of}`;
  const isWhole = kind === "note" || kind === "status";
  assert.equal(isWhole ? of : of.rollout, rollout, kind);
  if (isWhole) return kind;
  const { phase, batch, pass, gate, gated, waiting, failure } = of;
  if (pass) assert.equal(pass.job, rollout.plan.job);
  const variables = pass?.variables && Object.values(pass.variables).join("|");
  const places = [batch, pass?.batch].flatMap((one) => (one ? placeOf(one) : []));
  const words = [
    ...[kind, phase?.phase, phase?.action, pass?.kind, ...places, hosts(of.states), pass?.workers?.join(" "), variables, gate],
    ...[gated && `probed ${gated.probed.join(" ")}, hooked ${gated.hooked.join(" ")}`],
    ...[waiting && `waiting ${hosts(waiting)}`, failure?.message],
  ];
  return words.filter(Boolean).join(" ");
}

/** Drives a rollout; targets succeed. Answers the steps that were asked for, and the error at the end. */
async function follow(steps: Steps, rollout: Rollout, handlers: Handlers = {}) {
  const asked: string[] = [];
  const lifecycle = ({ states }: Asked) => {
    for (const state of states) state.done = true;
  };
  const all: Handlers = { lifecycle, ...handlers };
  const driver = new Proxy({} as Driver, {
    get: (_, kind: keyof Driver) => async (of: Asked) => {
      asked.push(told(kind, of, rollout));
      return await all[kind]?.(of);
    },
  });
  const error = await drive(steps, driver).then(
    () => undefined,
    (thrown: Error) => thrown.message,
  );
  return { asked, error };
}

const roll = (rollout: Rollout, handlers?: Handlers, signal = GOING_ON) =>
  follow(rolloutSteps(signal, rollout), rollout, handlers);

/** Gives workers a trouble when a step is asked for the first time. */
function troubled(trouble: Trouble, ...workers: string[]) {
  return ({ states, rollout }: Asked) => {
    for (const state of states) if (workers.length === 0) state.done = true;
    for (const state of rollout.states) if (workers.includes(state.plan.allocation.worker)) state.trouble = trouble;
  };
}

test("HR-110 a rollout goes batch by batch: target, hooks, promotion, gate; then what needs no target, and a last sync", async () => {
  const rollout = rolloutWith(["start", "start", "restart", "disabled", "skip"], CHECKED);
  Object.assign(rollout.states[1]?.plan.promoted ?? {}, { unfinished: true });
  const { asked, error } = await roll(rollout);
  assert.equal(error, undefined);
  const changed = "w0 w1 w2 w3";
  const batch = (phase: string, place: string, host: string, healthy: string) => [
    ...[`batch ${phase} ${place} [${host}] ${host}`, `lifecycle ${host}`],
    `hooks ${phase === "new start" ? "started" : "updated"} ${place} [${host}] ${host}`,
    ...[`promote ${host} pending`, `gate ${host} probed ${healthy} w4, hooked ${healthy} w3 w4`, "note"],
  ];
  assert.deepEqual(asked, [
    ...["checkDrift w0 w2 w3", `sync ${changed}`],
    ...batch("new start", "0/2", "w0", "w0"),
    ...batch("new start", "1/2", "w1", "w0 w1"),
    ...batch("update restart", "0/1", "w2", "w0 w1 w2"),
    ...[`hooks post_deploy ${changed} w4`, "promote w3", "status", `syncAgain ${changed}`, "note"],
  ]);
  const ungated = await roll(rolloutWith(["start"]));
  assert.deepEqual(
    ungated.asked.filter((step) => /^(?:promote|gate)/.test(step)),
    ["promote w0", "promote"],
  );
});

test("a job that may not run is synced all the same; a cancelled rollout begins no batch", async () => {
  const refused = rolloutWith(["start"], {}, { refused: "never started" });
  const synced = ["checkDrift w0", "sync w0", "note"];
  assert.deepEqual(await roll(refused), { asked: synced, error: "never started" });
  assert.deepEqual(await roll(rolloutWith(["start"]), {}, AbortSignal.abort()), { asked: synced, error: "cancelled" });
});

test("a gate that is still open comes first, and is passed by the unchanged allocations alone", async () => {
  const rollout = rolloutWith(["gate", "skip", "start"], CHECKED);
  const { asked } = await roll(rollout);
  const first = ["checkDrift w2", "say web: a gate is still open on w0: it comes first", "gate w0 probed w0 w1, hooked w0 w1"];
  assert.deepEqual(asked.slice(0, 4), [...first, "sync w2"]);
  assert.deepEqual(
    rollout.states.map(({ passedGate }) => passedGate),
    [true, false, false],
  );
  assert.ok(!(await roll(rolloutWith(["skip"], CHECKED))).asked.some((step) => /^(?:say|gate)/.test(step)));
});

test("where the target fails on a worker the job fails there; tolerated workers are left out, and a batch without any other ends", async () => {
  const failed = await roll(rolloutWith(["restart", "restart"]), { lifecycle: troubled(SICK, "w1") });
  assert.deepEqual(
    [failed.asked.slice(-3), failed.error],
    [["lifecycle w0 w1", "note", "note"], "job web failed on 1 worker: w1: it broke"],
  );
  const lost = rolloutWith(["start", "start"], { tolerateUnreachable: 50, ...CHECKED });
  const { asked, error } = await roll(lost, { sync: troubled(LOST, "w0") });
  assert.equal(error, undefined);
  const ofSecond = asked.slice(
    asked.findIndex((step) => step.startsWith("batch new start 1/2")),
    -5,
  );
  assert.deepEqual(asked.slice(2, 5), ["batch new start 0/2 [w0] w0", "lifecycle", "note"]);
  assert.deepEqual(ofSecond.slice(1, 4), ["lifecycle w1", "hooks started 1/2 [w1] w1", "promote w1 pending"]);
  assert.deepEqual(asked.slice(-5), ["hooks post_deploy w1", "promote", "status", "syncAgain w1", "note"]);
  const part = rolloutWith(["restart", "restart"], { tolerateUnreachable: 50 });
  const { asked: others } = await roll(part, { sync: troubled(LOST, "w0") });
  assert.ok(others.includes("hooks updated 0/1 [w1] w1"), others.join("\n"));
});

test("trouble with what needs no target, or at the last sync, fails the job", async () => {
  const promoting = { promote: troubled(SICK, "w0") };
  const { asked, error } = await roll(rolloutWith(["disabled"]), promoting);
  assert.deepEqual([asked.slice(-2), error], [["promote w0", "note"], "job web failed on 1 worker: w0: it broke"]);
  const last = await roll(rolloutWith(["start"]), { syncAgain: troubled(SICK, "w0") });
  assert.deepEqual([last.asked.at(-1), last.error], ["note", "job web failed on 1 worker: w0: it broke"]);
});

test("hooks for job_control take the place of targets, on unchanged workers too", async () => {
  const own = { hasOwnControl: true, maxConcurrentUpgrades: 2 };
  const rollout = rolloutWith(["restart", "skip", "skip", "start"], own);
  const { asked } = await roll(rollout);
  assert.deepEqual(asked.slice(2, 9), [
    ...["batch job_control job_control 0/2 [w0 w1] w0 w1", "hooks deploy_control 0/2 [w0 w1] w0 w1 w3|w0", "promote w0", "note"],
    ...["batch job_control job_control 1/2 [w2 w3] w2 w3", "hooks deploy_control 1/2 [w2 w3] w2 w3 w3|w0", "promote w3"],
  ]);
  const single = await roll(rolloutWith(["skip", "start"], { ...own, maxConcurrentUpgrades: 1 }));
  assert.deepEqual(single.asked.slice(3, 5), ["hooks deploy_control 0/2 [w0] w0 w1|", "note"], "nothing of it has changed");
  const lost = rolloutWith(["start", "start"], { ...own, tolerateUnreachable: 50 });
  const left = await roll(lost, { sync: troubled(LOST, "w0") });
  assert.equal(left.asked[3], "hooks deploy_control 0/1 [w1] w1 w1|");
  const alone = rolloutWith(["start", "start"], { ...own, maxConcurrentUpgrades: 1, tolerateUnreachable: 50 });
  assert.equal((await roll(alone, { sync: troubled(LOST, "w0") })).asked[3], "note", "no worker of the batch is left");
});

test("where a hook for job_control fails the job fails, and the workers whose scripts ran count as changed", async () => {
  const rollout = rolloutWith(["restart", "restart"], { hasOwnControl: true });
  const scripts = [{ hook: "h", worker: "w0", error: "x", duration_ms: 1 }];
  const failure = new Failure("ErrHookFailed", "the hook failed", { details: { scripts } });
  const { asked, error } = await roll(rollout, { hooks: () => Promise.reject(failure) });
  assert.deepEqual([asked.slice(-2), error], [["note", "note"], "the hook failed"]);
  assert.deepEqual(
    rollout.states.map(({ done }) => done),
    [true, false],
  );
});

/** The error of a gate that these workers have not passed. */
function gateError(outcome: string, ...workers: string[]): Failure {
  const allocations = workers.map((worker) => ({ worker, outcome, error: "sick", evidence: null }));
  return new Failure("ErrHealthCheckFailed", "not healthy", { details: { allocations } });
}

test("a batch that fails its gate is put back where the job says so, and not in a cancelled run", async () => {
  const failing = { gate: () => Promise.reject(gateError("failed", "w0")), restore: () => new Error("put back") };
  const after = async (job: object, signal?: AbortSignal) => {
    const { asked, error } = await roll(rolloutWith(["start", "start", "start"], { ...CHECKED, ...job }), failing, signal);
    return [asked.slice(asked.findIndex((step) => step.startsWith("gate")) + 1), error];
  };
  assert.deepEqual(await after({ onFailure: "restore" }), [["restore w0 waiting w1 w2 not healthy", "note", "note"], "put back"]);
  assert.deepEqual(await after({}), [["note", "note"], "not healthy"]);
  const stop = new AbortController();
  failing.gate = () => {
    stop.abort();
    return Promise.reject(gateError("failed", "w0"));
  };
  assert.deepEqual(await after({ onFailure: "restore" }, stop.signal), [["note", "note"], "not healthy"]);
});

test("a gate goes on without the workers that may be unreachable", async () => {
  const gates = async (tolerateUnreachable: number, outcome: "unreachable" | "failed", ...workers: string[]) => {
    const rollout = rolloutWith(["restart", "restart"], { ...CHECKED, tolerateUnreachable });
    let count = 0;
    const gate = (of: Asked) => {
      if (count++ > 0) return;
      troubled({ grade: outcome, message: "sick" }, ...workers)(of);
      throw gateError(outcome, ...workers);
    };
    const { asked, error } = await roll(rollout, { gate });
    return [asked.filter((step) => step.startsWith("gate")), error];
  };
  const first = "gate w0 w1 probed w0 w1, hooked w0 w1";
  assert.deepEqual(await gates(50, "unreachable", "w0"), [[first, "gate w1 probed w1, hooked w1"], undefined]);
  assert.deepEqual(await gates(100, "unreachable", "w0", "w1"), [[first], undefined]);
  assert.deepEqual(await gates(49, "unreachable", "w0"), [[first], "not healthy"]);
  assert.deepEqual(await gates(100, "failed", "w0"), [[first], "not healthy"]);
  const broken = await roll(rolloutWith(["restart"], { ...CHECKED, tolerateUnreachable: 100 }), {
    gate: () => Promise.reject(new Error("a defect")),
  });
  assert.equal(broken.error, "a defect");
});

test("an adoption takes over what is sound, and fails where a worker is in trouble", async () => {
  const adopt = (rollout: Rollout, handlers?: Handlers) => follow(adoptSteps(rollout), rollout, handlers);
  assert.deepEqual(await adopt(rolloutWith(["adopt", "skip", "adopt"])), { asked: ["adopt w0 w2", "note"], error: undefined });
  const rollout = rolloutWith(["adopt", "adopt"]);
  Object.assign(rollout.states[0] ?? {}, { trouble: SICK });
  assert.deepEqual(await adopt(rollout), { asked: ["adopt w1", "note"], error: "job web failed on 1 worker: w0: it broke" });
  const failing = await adopt(rolloutWith(["adopt"]), { adopt: () => Promise.reject(new Error("a defect")) });
  assert.deepEqual(failing, { asked: ["adopt w0", "note"], error: "a defect" });
});
