import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { catalogAllocations, catalogWorkers } from "../../../lib/bucket/catalog/catalog.ts";
import { beginChange } from "../../../lib/bucket/catalog/promotions.ts";
import { Failure } from "../../../lib/core/errors.ts";
import type { OperationContext } from "../../../lib/operation/base/context.ts";
import { Fleet } from "../../../lib/operation/base/fleet.ts";
import { deploySteps } from "../../../lib/operation/deploy/engine.ts";
import { type Driver, drive, type Steps } from "../../../lib/operation/deploy/steps.ts";
import { deployScope } from "../../../lib/operation/plan/plan-job.ts";
import type { ChangeOptions } from "../../../lib/plan/changes.ts";
import { Deploys, HOSTS, type JobsSpec } from "../../helpers/deploys.ts";

const [A, B] = HOSTS;
const HOOKED = {
  manifest: { hooks: { check: { executed_on: ["cli"] }, up: { executed_on: ["pre_deploy"] } } },
  files: { "_hooks/up.py": "" },
};
/** Cannot be rendered. */
const KEYLESS = { files: { "a.tpl": '{{ get "vars/job/web" "missing" }}\n' } };

type Named = { name: string };
/** What a step may be about. */
interface Asked {
  name?: string;
  job?: Named;
  plan?: { job: Named };
  rollout?: Asked;
  states?: { trouble?: { message: string } }[];
  seq?: number;
  jobs?: (string | Named)[] | (() => Named[]);
  due?: (string | { action: string; allocation: { job: string; worker: string } })[];
  neverDeployed?: unknown[];
  hosts?: string[];
  updateSeq?: number;
  upstream?: string;
  error?: Error;
}

function told(kind: string, of: Asked | string | unknown[]): string {
  if (typeof of === "string") return `${kind} ${of}`;
  if (Array.isArray(of)) return `${kind} ${of.length}`;
  const { name, job, rollout, seq, jobs, due, neverDeployed, hosts, updateSeq, upstream, error } = of;
  const all = typeof jobs === "function" ? jobs() : jobs;
  const words = [
    ...[kind, name, job?.name, (rollout ?? of).plan?.job.name, seq, upstream, error?.message],
    ...(all ?? []).map((one) => (typeof one === "string" ? one : one.name)),
    ...(due ?? []).map((one) => (typeof one === "string" ? one : `${one.action} ${one.allocation.job}@${one.allocation.worker}`)),
    ...[neverDeployed && `never ${neverDeployed.length}`, hosts?.join(" "), updateSeq],
    ...((rollout ?? of).states ?? []).map(({ trouble }) => trouble?.message),
  ];
  return words.filter((word) => word !== undefined && word !== "").join(" ");
}

/** The steps of one job's rollout, which rollout-steps.test.ts looks at. */
const OF_ROLLOUT = /^(?:checkDrift|sync|batch|lifecycle|hooks|promote|status|syncAgain|note|adopt|say)\b/;

interface Given {
  jobs?: string[];
  options?: Partial<ChangeOptions>;
  answers?: Partial<Record<keyof Driver, (of: never) => unknown>>;
  signal?: AbortSignal;
  prepare?: (context: OperationContext) => void;
}

/** Drives the steps of a deploy of a built bucket without doing any; answers what was asked for. */
async function listen({ bucket }: Deploys, { jobs, options, answers = {}, signal, prepare }: Given = {}) {
  const context = bucket.context("deploy", signal);
  prepare?.(context);
  const fleet = new Fleet(context, catalogWorkers(context.db));
  const scope = deployScope(context, jobs);
  const asked: string[] = [];
  const usual: Partial<Record<keyof Driver, unknown>> = { workerFiles: new Map(), raiseSequence: 7, leftOut: false };
  const driver = new Proxy({} as Driver, {
    get: (_, kind: keyof Driver) => async (of: unknown) => {
      if (kind === "sideBySide") for (const branch of of as Steps[]) await drive(branch, driver);
      else asked.push(told(kind, of as Asked));
      const answer = answers[kind];
      return answer ? await answer(of as never) : usual[kind];
    },
  });
  const steps = deploySteps({ context, fleet, scope, options: { force: false, syncOnly: false, ...options } });
  const error = await drive(steps, driver).then(
    () => undefined,
    (thrown: Error) => thrown.message,
  );
  return { asked: asked.filter((step) => !OF_ROLLOUT.test(step)), all: asked, error };
}

async function built(t: TestContext, jobs: JobsSpec, options: Parameters<Deploys["build"]>[1] = {}): Promise<Deploys> {
  const deploys = await Deploys.make(t);
  await deploys.build(jobs, { hosts: [A, B], ...options });
  return deploys;
}

const phase = (seq: number, name: string) => `phase wave ${seq}: ${name}`;
const begin = (seq: number, ...jobs: string[]) => [
  phase(seq, "pre_deploy"),
  ...jobs.map((job) => `preDeploy ${job}`),
  phase(seq, "plan"),
];

test("HR-094 each step tells what it is about: the jobs of a wave, its workers, and the sequence that was raised", async (t) => {
  const deploys = await built(t, { web: {}, api: {}, app: { demands: "web" } });
  const gone = new Map([[A, { grade: "unreachable", message: "gone" }]]);
  const { asked, error } = await listen(deploys, { answers: { workerFiles: () => gone } });
  assert.equal(error, undefined);
  const hosts = `${A} ${B}`;
  assert.deepEqual(asked, [
    ...["phase reconcile", "reconcile never 0", ...begin(0, "api", "web"), "phase preflight", "preflight api web app"],
    ...["raiseSequence 0 api web", phase(0, "worker files"), `workerFiles ${hosts} ${hosts} 7`, phase(0, "roll out")],
    ...["decided api", "decided web", "begin api gone", "end api job api failed on 1 worker: 127.0.0.1: gone gone"],
    ...["begin web gone", "end web job web failed on 1 worker: 127.0.0.1: gone gone", "waveOver 0 api web"],
    ...["notStarted app web", phase(1, "pre_deploy"), phase(1, "plan"), "waveOver 1 app"],
  ]);
});

test("the preflight comes before the first hook of a job that may need work, and only once", async (t) => {
  const deploys = await built(t, { web: HOOKED, app: { demands: "web" } });
  const { asked } = await listen(deploys);
  assert.deepEqual(asked.slice(2, 5), ["phase preflight", "preflight app web", phase(0, "pre_deploy")]);
  assert.equal(asked.filter((step) => step.startsWith("preflight")).length, 1);
  const only = await listen(deploys, { jobs: ["app"] });
  assert.deepEqual(only.asked.slice(2, 6), [...begin(1, "app"), "phase preflight"]);
});

test("the preflight comes before reconcile where something is to be stopped on a worker of the bucket", async (t) => {
  const deploys = await built(t, { web: {} });
  const { db } = deploys.bucket;
  beginChange(
    db,
    "web",
    catalogAllocations(db).map(({ id }) => id),
  );
  await deploys.build({ web: {} }, { hosts: [A], disabled: { web: [A] } });
  const { asked } = await listen(deploys);
  const stop = `reconcile stop web@${A} remove web@${B} never 0`;
  assert.deepEqual(asked.slice(0, 4), ["phase preflight", `preflight ${A}`, "phase reconcile", stop]);
  await deploys.build({ web: {} }, { hosts: [A] });
  const left = await listen(deploys);
  assert.deepEqual(left.asked.slice(0, 2), ["phase reconcile", `reconcile remove web@${B} never 0`], "its worker is gone");
});

test("a job that cannot be planned is left out, and assumed to roll out where its hooks may yet write what it lacks", async (t) => {
  const deploys = await built(t, { web: KEYLESS, api: {}, app: { demands: "web" } });
  const left = await listen(deploys);
  const lacking = left.asked.filter((step) => step.startsWith("leftOut web"));
  assert.deepEqual([lacking.length, /missing/.test(lacking[0] ?? "")], [1, true]);
  assert.ok(left.asked.includes("raiseSequence 0 api") && left.asked.includes("notStarted app web"));
  assert.ok(left.asked.includes("preflight api app"));
  const hooked = await listen(await built(t, { web: { ...HOOKED, files: { ...HOOKED.files, ...KEYLESS.files } } }));
  assert.deepEqual(hooked.asked.slice(2, 4), ["phase preflight", "preflight web"], "it may need work");
  const breaking = (context: OperationContext) => {
    context.kv.get = () => {
      throw new Error("a defect");
    };
  };
  assert.equal((await listen(deploys, { prepare: breaking })).error, "a defect", "what is no failure of a job ends the deploy");
  const assumed = await listen(deploys, { answers: { leftOut: () => true } });
  assert.ok(assumed.asked.includes("raiseSequence 0 api web"));
  assert.deepEqual(
    assumed.asked.filter((step) => /^(?:begin|notStarted)/.test(step)),
    ["begin api", "begin app"],
  );
});

test("a job whose hook for pre_deploy fails is left out with all that demand it, and a cancel ends the deploy", async (t) => {
  const deploys = await built(t, { web: {}, api: {}, app: { demands: "web" } });
  const preDeploy = ({ name }: Named) => {
    if (name === "web") throw new Failure("ErrHookFailed", "no");
  };
  const { asked } = await listen(deploys, { answers: { preDeploy } });
  assert.ok(asked.includes("leftOut web no") && asked.includes("notStarted app web") && asked.includes("raiseSequence 0 api"));
  const stop = new AbortController();
  const cut = (kind: keyof Driver) => ({ [kind]: () => stop.abort() });
  const never = await listen(deploys, { signal: AbortSignal.abort() });
  assert.deepEqual([never.asked, never.error], [[], "cancelled"]);
  const wave = await listen(deploys, { signal: stop.signal, answers: cut("waveOver") });
  assert.deepEqual([wave.error, wave.asked.at(-1)], ["cancelled", "waveOver 0 api web"]);
  const hook = new AbortController();
  const failing = {
    preDeploy() {
      hook.abort();
      throw new Failure("ErrHookFailed", "no");
    },
  };
  const cancelled = await listen(deploys, { signal: hook.signal, answers: failing });
  assert.deepEqual([cancelled.error, cancelled.asked.at(-1)], ["cancelled", "preDeploy api"]);
});

test("a job that needs no work is decided at once, and raises no sequence", async (t) => {
  const deploys = await built(t, { web: {} }, { disabled: { web: [A, B] } });
  assert.equal((await deploys.deploy()).error, undefined);
  const { asked } = await listen(deploys);
  assert.deepEqual(asked.slice(2), [...begin(0, "web"), "decided web", "waveOver 0 web"]);
});

test("an adoption compares, takes pairs over and compares again, and then adopts on the workers that answer", async (t) => {
  const deploys = await built(t, { web: {}, app: { demands: "web" } });
  const lost = new Map([[B, { grade: "unreachable", message: "gone" }]]);
  let looks = 0;
  const look =
    (pairs: unknown[], troubles: ReadonlyMap<string, unknown> = new Map()) =>
    () => {
      return { pairs: looks++ === 0 ? pairs : [], differs: new Map(), troubles };
    };
  const adopt = async (answer: () => unknown, more: Given["answers"] = {}) => {
    looks = 0;
    const given = { jobs: ["web"], options: { adopt: true }, answers: { look: answer, ...more } };
    return (await listen(deploys, given)).asked;
  };
  const end = [phase(0, "adopt"), "begin web", "end web", "waveOver 0 web"];
  const raised = ["raiseSequence 0 web", `workerFiles ${A} ${B} 7`];
  assert.deepEqual(await adopt(look([])), [phase(0, "compare"), "look 1", "decided web", ...raised, ...end]);
  assert.deepEqual((await adopt(look([1]))).slice(0, 5), [phase(0, "compare"), "look 1", "takePairs 1", "look 1", "decided web"]);
  const part = await adopt(look([], lost));
  const failed = `job web failed on 1 worker: ${B}: gone`;
  assert.deepEqual(part.slice(3), [
    ...[
      "raiseSequence 0 web",
      `workerFiles ${A} 7`,
      phase(0, "adopt"),
      "begin web gone",
      `end web ${failed} gone`,
      "waveOver 0 web",
    ],
  ]);
  const none = await adopt(look([], new Map([...lost, [A, { grade: "unreachable", message: "gone" }]])));
  assert.deepEqual(none.slice(2, 5), ["decided web", phase(0, "adopt"), "begin web gone gone"]);
  const unready = await adopt(look([]), { workerFiles: () => lost });
  assert.ok(unready.includes("begin web gone"), "whose own files could not be brought up to date");
  const seen: unknown[] = [];
  const given = {
    look(plans: { allocations: { updateSeq: number }[] }[]) {
      seen.push(plans[0]?.allocations[0]?.updateSeq);
      return look([])();
    },
  };
  const { all } = await listen(deploys, { jobs: ["web"], options: { adopt: true }, answers: given as never });
  assert.deepEqual([seen, all.includes("adopt web")], [[1], true], "planned with the next sequence");
  const differing = catalogAllocations(deploys.bucket.db).map(({ id }) => [id, [{ path: "a", change: "changed" }]] as const);
  const left = await adopt(() => ({ pairs: [], differs: new Map(differing), troubles: new Map() }));
  assert.deepEqual(left, [phase(0, "compare"), "look 1", "decided web", "waveOver 0 web"], "nothing to adopt");
});
