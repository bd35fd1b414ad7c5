import assert from "node:assert/strict";
import { test } from "node:test";
import { DEFAULT_WAIT } from "../../../lib/bucket/workspace/manifest-blocks.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { LastLines } from "../../../lib/core/plain-text.ts";
import { Redactor } from "../../../lib/core/redact.ts";
import { checkHealth, gateTroubles, type HealthQuestion, hasGate, passGate } from "../../../lib/operation/health/gate.ts";
import type { ProbeResult } from "../../../lib/transport/ask/probes.ts";

const ok = (evidence = "it answers"): ProbeResult => ({ ok: true, evidence, durationMs: 1.6 });
const bad = (evidence: string, more: Partial<ProbeResult> = {}): ProbeResult => ({ ok: false, evidence, durationMs: 0, ...more });
const WELL = [{ ok: true, evidence: "it answers", duration_ms: 2 }];
const gone = (host: string) => new Failure("unreachable", `${host} is gone`);

interface Given extends Partial<Pick<HealthQuestion, "wait" | "isThorough" | "verbose">> {
  /** What each probe of a worker finds, or throws; the last one again and again. */
  finds?: Record<string, (ProbeResult[] | Error)[]>;
  probed?: string[];
  hooked?: string[];
  order?: string;
  job?: object;
  hooks?: () => unknown;
  signal?: AbortSignal;
}

/** A question about a job on workers that exist in memory only, with what it leads to. */
function asked(given: Given) {
  const { finds = {}, probed = ["a", "b"], hooked = [], order, job = {}, hooks = () => [], signal } = given;
  const found = {
    probes: [] as string[],
    evidence: [] as string[],
    passes: [] as object[],
    said: [] as unknown[],
    waits: [] as unknown[],
    noted: 0,
  };
  const redactor = new Redactor();
  redactor.add("hunter-two-2");
  const db = { get: () => undefined, transaction: (work: () => void) => work(), run: () => found.noted++, all: () => [] };
  const whole = {
    name: "web",
    healthCheck: { checks: [{}], wait: { attempts: 3, intervalSeconds: 0.001 } },
    hooks: [],
    maxConcurrentUpgrades: 1,
    ...job,
  };
  const question = {
    context: {
      ...{ db, run: { id: "r" }, signal: signal ?? new AbortController().signal, kv: { get: () => order } },
      log: { redactor, info: (...said: unknown[]) => found.said.push(said) },
      progress: {
        during(wait: object, _limit: number, work: Promise<void>) {
          found.waits.push(wait);
          return work;
        },
      },
    },
    effects: {
      async probe(_: unknown, worker: string) {
        found.probes.push(worker);
        const left = finds[worker] ?? [[ok()]];
        const next = (left.length > 1 ? left.shift() : left[0]) as ProbeResult[] | Error;
        if (next instanceof Error) throw next;
        return next;
      },
      async evidence(_: unknown, worker: string) {
        found.evidence.push(worker);
        return `of ${worker}`;
      },
      async hooks(pass: object) {
        found.passes.push(pass);
        return hooks();
      },
    },
    ...{ job: whole, workers: { probed, hooked }, wait: false, isThorough: false, verbose: false, ...given },
  } as unknown as HealthQuestion;
  // The job of the question is the whole one.
  question.job = whole as never;
  return { question, found };
}

async function check(given: Given) {
  const { question, found } = asked(given);
  return { ...found, health: await checkHealth(question) };
}

const inShort = (health: Awaited<ReturnType<typeof checkHealth>>) => health.map(({ worker, outcome }) => `${worker} ${outcome}`);

test("a worker whose probes all succeed is well, in rollout order; the answer has what each probe found", async () => {
  const { health, probes, evidence, said } = await check({ order: "b,a" });
  const well = { attempts: 1, checks: WELL, outcome: "ok", error: null, evidence: null };
  assert.deepEqual(health, [
    { worker: "b", ...well },
    { worker: "a", ...well },
  ]);
  assert.deepEqual([probes, evidence, said], [["b", "a"], [], []]);
  assert.deepEqual((await check({ job: { healthCheck: null } })).health, []);
});

test("why a worker is not well is told with all its reasons, masked and cut, and evidence is taken of it", async () => {
  const lines = new LastLines();
  for (const line of ["on its way", "no hunter-two-2"]) lines.add(line);
  const errorOf = async (...found: ProbeResult[]) => {
    const { health, evidence } = await check({ probed: ["a"], finds: { a: [found] } });
    assert.deepEqual([evidence, health[0]?.outcome, health[0]?.evidence], [["a"], "failed", "of a"]);
    return health[0]?.error;
  };
  assert.equal(await errorOf(bad("exit code 3")), "a after 1 attempt: exit code 3");
  assert.equal(await errorOf(bad("one"), ok(), bad("two")), "a after 1 attempt: one, two");
  assert.equal(await errorOf(bad("exit code 3", { said: lines })), "a after 1 attempt: exit code 3:\non its way\nno ***");
  assert.equal(await errorOf(bad("one"), bad("two", { said: lines })), "a after 1 attempt:\none\ntwo:\non its way\nno ***");
  assert.equal(await errorOf(bad("hunter-two-2")), "a after 1 attempt: ***");
  assert.equal(await errorOf(bad("x".repeat(1_201))), `a after 1 attempt: ${"x".repeat(1_200)}…`);
  const { health } = await check({ probed: ["a"], finds: { a: [[bad("exit code 3", { said: lines })]] } });
  assert.deepEqual(health[0]?.checks, [{ ok: false, evidence: "exit code 3: no ***", duration_ms: 0 }]);
  const lost = await check({ probed: ["a"], finds: { a: [[bad("no route", { isUnreachable: true })]] } });
  assert.deepEqual([lost.health[0]?.outcome, lost.health[0]?.evidence, lost.evidence], ["unreachable", null, []]);
});

test("HR-336 with wait a worker has the attempts of the manifest, and what it waits for is told once", async () => {
  const finds = () => ({ a: [[bad("one"), bad("two")], [bad("three")], [ok()]] });
  const { health, said, waits } = await check({ probed: ["a"], wait: true, finds: finds() });
  assert.deepEqual([inShort(health), health[0]?.attempts], [["a ok"], 3]);
  assert.deepEqual(said, [["web@a: waiting to become healthy: one, two", { job: "web", worker: "a" }]]);
  const wait = { reason: "gate", job: "web", worker: "a" };
  assert.deepEqual(waits, [
    { ...wait, detail: "to become healthy (attempt 1 of 3 failed)" },
    { ...wait, detail: "to become healthy (attempt 2 of 3 failed)" },
  ]);
  const once = await check({ probed: ["a"], finds: finds() });
  assert.deepEqual([once.health[0]?.error, once.waits, once.said], ["a after 1 attempt: one, two", [], []]);
  const never = await check({ probed: ["a"], wait: true, finds: { a: [[bad("no")]] } });
  assert.deepEqual([never.health[0]?.error, never.probes.length], ["a after 3 attempts: no", 3]);
});

test("with verbose each probe is told", async () => {
  const { said } = await check({ probed: ["a"], verbose: true, finds: { a: [[ok(), bad("no", { durationMs: 7 })]] } });
  const place = { job: "web", worker: "a" };
  assert.deepEqual(said, [
    ["web@a: it answers (2 ms)", place],
    ["web@a: no (7 ms)", place],
  ]);
});

test("a probe that cannot be carried out is trouble of its worker; a defect and a cancel are thrown", async () => {
  const failing = async (error: Error, more: Given = {}) => await check({ probed: ["a"], finds: { a: [error] }, ...more });
  const found = { worker: "a", attempts: 1, checks: [], evidence: null };
  assert.deepEqual((await failing(gone("a"))).health, [{ ...found, outcome: "unreachable", error: "a is gone" }]);
  assert.deepEqual((await failing(new Failure("failed", "no key"))).health, [{ ...found, outcome: "failed", error: "no key" }]);
  await assert.rejects(failing(new Error("a defect")), /a defect/);
  await assert.rejects(failing(gone("a"), { signal: AbortSignal.abort() }), { code: "cancelled" });
  const later = await check({ probed: ["a"], wait: true, finds: { a: [[bad("no")], gone("a")] } });
  assert.deepEqual([later.health[0]?.attempts, later.health[0]?.outcome], [2, "unreachable"]);
});

const ROWS: [what: string, a: ProbeResult[] | Error, isThorough: boolean, outcomes: string[], hooked: string[] | undefined][] = [
  ["all is well", [ok()], false, ["a ok", "b ok"], ["a", "b"]],
  ["one fails", [bad("no")], false, ["a failed"], undefined],
  ["one is lost", gone("a"), false, ["a unreachable"], undefined],
  ["one fails of a thorough check", [bad("no")], true, ["a failed", "b ok"], undefined],
  ["one is lost of a thorough check", gone("a"), true, ["a unreachable", "b ok"], ["b"]],
];
for (const [what, a, isThorough, outcomes, hooked] of ROWS)
  test(`where ${what}, hooks run ${hooked ? `on ${hooked.join(" and ")}` : "nowhere"}`, async () => {
    const { health, passes } = await check({ finds: { a: [a] }, isThorough, hooked: ["a", "b"], hooks: () => [] });
    assert.deepEqual(inShort(health), outcomes);
    assert.deepEqual(
      passes.map((pass) => (pass as { workers: string[] }).workers),
      hooked ? [hooked] : [],
    );
  });

test("hooks are told the attempts of the manifest, the usual ones without probes, or one", async () => {
  const passOf = async (given: Given) => {
    const {
      question,
      found: { passes },
    } = asked({ hooked: ["a"], ...given });
    await checkHealth(question);
    assert.equal((passes[0] as { job: unknown }).job, question.job);
    const { kind, workers, wait, verbose } = passes[0] as Record<string, unknown>;
    return { kind, workers, wait, verbose };
  };
  const about = { kind: "health_check", workers: ["a"] };
  const manifest = { attempts: 3, intervalSeconds: 0.001 };
  assert.deepEqual(await passOf({ wait: true, verbose: true }), { ...about, wait: manifest, verbose: true });
  assert.deepEqual(await passOf({}), { ...about, wait: { attempts: 1, intervalSeconds: 0 }, verbose: false });
  const none = { healthCheck: null };
  assert.deepEqual((await passOf({ wait: true, job: none })).wait, DEFAULT_WAIT);
});

test("what hooks find counts beside what probes have found", async () => {
  const scripts = [
    { hook: "h", worker: "b" },
    { hook: "i", worker: "b" },
    { hook: "h", worker: "c" },
  ];
  const { health } = await check({ hooked: ["b", "c"], hooks: () => scripts });
  const well = { outcome: "ok", error: null, evidence: null };
  assert.deepEqual(health, [
    { worker: "a", attempts: 1, checks: WELL, ...well },
    { worker: "b", attempts: 1, checks: WELL, ...well },
    { worker: "c", attempts: 0, checks: [], ...well },
  ]);
  const errors = [{ hook: "h", worker: "b", error: "exit code 1: hunter-two-2", duration_ms: 1 }];
  const failure = new Failure("ErrHookFailed", "it failed", { details: { scripts: errors } });
  const failed = await check({ hooked: ["b", "c"], hooks: () => Promise.reject(failure) });
  assert.deepEqual(inShort(failed.health), ["a ok", "b failed"]);
  const { error, evidence, attempts } = failed.health[1] ?? assert.fail();
  assert.match(error ?? "", /^b: .*exit code 1: \*\*\*$/);
  assert.deepEqual([evidence, attempts, failed.evidence], ["of b", 1, ["b"]]);
  await assert.rejects(check({ hooked: ["b"], hooks: () => Promise.reject(new Error("a defect")) }), /a defect/);
});

test("a gate throws what was seen last on every worker that has not passed, and keeps the health of all", async () => {
  const pass = async (given: Given) => {
    const { question, found } = asked(given);
    const { context, effects, job, workers } = question;
    const error = await passGate(context, effects, job, workers).then(
      () => undefined,
      (thrown: Failure) => thrown,
    );
    return { error, found };
  };
  assert.equal((await pass({})).error, undefined);
  const first = await pass({ finds: { a: [[bad("no")]] } });
  assert.deepEqual(first.found.probes, ["a", "a", "a"], "the next batch is not looked at");
  assert.deepEqual(first.found.said.length, 1, "that it waits");
  const { error, found } = await pass({ finds: { b: [[bad("no")]] } });
  assert.deepEqual(
    [error?.code, error?.message],
    ["ErrHealthCheckFailed", "the health check of job web failed: b after 3 attempts: no"],
  );
  assert.ok(found.noted > 0);
  const troubles = gateTroubles(error);
  assert.deepEqual([...troubles], [["b", { grade: "failed", message: "b after 3 attempts: no", evidence: "of b" }]]);
  assert.equal(gateTroubles(new Failure("failed", "no")).size + gateTroubles(new Error("no")).size, 0);
});

test("a job has a gate where it has probes, or hooks for health_check", () => {
  const hooked = (event: string) => ({ healthCheck: null, hooks: [{ name: "h", events: [event] }] }) as never;
  assert.deepEqual(
    [hasGate({ healthCheck: {}, hooks: [] } as never), hasGate(hooked("health_check")), hasGate(hooked("cli"))],
    [true, true, false],
  );
});
