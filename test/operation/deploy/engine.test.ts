import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { catalogWorkers } from "../../../lib/bucket/catalog/catalog.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { Fleet } from "../../../lib/operation/base/fleet.ts";
import { deploySteps } from "../../../lib/operation/deploy/engine.ts";
import { type Driver, drive, type Steps } from "../../../lib/operation/deploy/steps.ts";
import { deployScope } from "../../../lib/operation/plan/plan-job.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";

const [A, B] = HOSTS;
const TABLES = ["hash", "kv_version", "bucket", "worker", "last_outcome"];

/** What a step may be about, as far as the tests tell it. */
interface Asked {
  name?: string;
  job?: { name: string };
  plan?: { job: { name: string } };
  rollout?: { plan: { job: { name: string } } };
  states?: { plan: { allocation: { worker: string } } }[];
  pass?: { kind: string };
}

/** Drives the steps without doing any, and answers what was asked for. `fail` throws where a step is to fail. */
async function listen(steps: Steps, fail: (step: string) => void = () => {}): Promise<string[]> {
  const asked: string[] = [];
  const ANSWERS: Partial<Record<keyof Driver, unknown>> = { workerFiles: new Map(), raiseSequence: 1 };
  const driver = new Proxy({} as Driver, {
    get: (_, kind: keyof Driver) => async (of: unknown) => {
      if (kind === "sideBySide") for (const branch of of as Steps[]) await drive(branch, driver);
      else asked.push(told(kind, of));
      fail(asked.at(-1) ?? "");
      return ANSWERS[kind];
    },
  });
  await drive(steps, driver);
  return asked;
}

function told(kind: string, of: unknown): string {
  if (typeof of === "string") return `${kind} ${of}`;
  const { name, job, plan, rollout, states, pass } = of as Asked;
  const jobName = name ?? job?.name ?? (rollout?.plan ?? plan)?.job.name;
  const workers = rollout && states?.map((state) => state.plan.allocation.worker).join(" ");
  return [kind, pass?.kind, jobName, workers].filter((word) => word !== undefined && word !== "").join(" ");
}

async function setUp(t: TestContext) {
  const deploys = await Deploys.make(t);
  const check = { health_check: { checks: [{ type: "ssh", command: "true" }] } };
  await deploys.build({ web: { manifest: { max_concurrent_starts: 1, ...check } }, app: { demands: "web" } }, { hosts: [A, B] });
  const context = deploys.bucket.context("deploy");
  const fleet = new Fleet(context, catalogWorkers(context.db));
  const scope = deployScope(context, ["web", "app"]);
  const steps = () => deploySteps({ context, fleet, scope, options: { force: false, syncOnly: false } });
  return { steps, state: () => TABLES.map((table) => context.db.all(`SELECT * FROM ${table}`)) };
}

test("HR-094 HR-099 HR-110 the engine asks for the steps of a deploy in their order, and does none itself", async (t) => {
  const { steps, state } = await setUp(t);
  const before = state();
  const asked = await listen(steps());
  assert.deepEqual(state(), before);
  const wave = (seq: number, job: string, batches: string[]) => [
    ...[`phase wave ${seq}: pre_deploy`, `preDeploy ${job}`, `phase wave ${seq}: plan`],
    ...(seq === 0 ? ["phase preflight", "preflight"] : []),
    "raiseSequence",
    ...[`phase wave ${seq}: worker files`, "workerFiles", `phase wave ${seq}: roll out`, `decided ${job}`],
    ...[`begin ${job}`, `checkDrift ${job} ${A} ${B}`, `sync ${job} ${A} ${B}`, ...batches],
    ...[`hooks post_deploy ${job}`, `promote ${job}`, `status ${job}`, `syncAgain ${job} ${A} ${B}`],
    ...[`note ${job}`, `end ${job}`, "waveOver"],
  ];
  const batch = (job: string, hosts: string, gate: string[]) => [
    ...[`batch ${job} ${hosts}`, `lifecycle ${job} ${hosts}`, `hooks started ${job} ${hosts}`],
    ...[`promote ${job} ${hosts}`, ...gate, `note ${job}`],
  ];
  const ofWeb = [A, B].flatMap((host) => batch("web", host, [`gate web ${host}`]));
  assert.deepEqual(asked, [
    ...["phase reconcile", "reconcile"],
    ...wave(0, "web", ofWeb),
    ...wave(1, "app", batch("app", `${A} ${B}`, [])),
  ]);
});

test("HR-116 a step that fails ends its job: no later batch is asked for, and no job that demands it", async (t) => {
  const { steps } = await setUp(t);
  const asked = await listen(steps(), (step) => {
    if (step === `promote web ${A}`) throw new Failure("failed", "made to fail");
  });
  const after = asked.slice(asked.indexOf(`promote web ${A}`) + 1);
  const ofWeb = ["note web", "note web", "end web", "waveOver"];
  assert.deepEqual(after, [...ofWeb, ...["notStarted app", "phase wave 1: pre_deploy", "phase wave 1: plan", "waveOver"]]);
});
