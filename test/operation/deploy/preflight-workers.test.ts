import assert from "node:assert/strict";
import { test } from "node:test";
import type { CatalogJob } from "../../../lib/bucket/base/model.ts";
import type { Failure } from "../../../lib/core/errors.ts";
import { preflight } from "../../../lib/operation/deploy/preflight.ts";
import { WorkerFailure } from "../../../lib/transport/base/transport.ts";

const gone = (host: string) => new WorkerFailure("unreachable", host, "{workers} gave no answer", { lasts: false });
const lacking = (host: string) => new WorkerFailure("ErrWorkerPrerequisites", host, "no make on {workers}", { lasts: true });

/** Asks before a deploy of these jobs, each with its wave and workers; `sick` says how workers answer. */
async function ask(
  jobs: Record<string, { wave?: number; on: string[]; hooked?: boolean; idle?: boolean }>,
  sick: Record<string, (host: string) => Error> = {},
  due: string[] = [],
) {
  const all = Object.entries(jobs).map(([name, { wave = 0, hooked }]) => {
    const hooks = hooked ? [{ name: "up", events: ["pre_deploy"] }] : [];
    return { name, deploymentSeq: wave, hooks } as unknown as CatalogJob;
  });
  const [asked, warned, forgotten, settled] = [[] as string[], [] as string[], [] as string[], [] as unknown[]];
  const reach = async (host: string) => {
    asked.push(host);
    const fail = sick[host];
    if (fail) throw fail(host);
  };
  const work = {
    board: { settle: ({ name }: CatalogJob, how: object) => settled.push({ name, ...how }) },
    context: { log: { warn: (line: string) => warned.push(line) }, signal: new AbortController().signal },
    effects: { reach },
    fleet: { forget: (host: string) => forgotten.push(host) },
    scope: {
      jobs: all,
      present: new Map(Object.entries(jobs).map(([job, { on }]) => [job, on.map((worker) => ({ job, worker }))])),
    },
  };
  const working = all.filter(({ name }) => !jobs[name]?.idle);
  const error = await preflight(work as never, { due, jobs: () => working }).then(
    () => undefined,
    (thrown: Failure) => thrown,
  );
  return { error: error?.message, code: error?.code, asked, warned, forgotten, settled };
}

const none = { error: undefined, code: undefined, warned: [], forgotten: [], settled: [] };

test("before a deploy each worker of its jobs and of reconcile is asked once", async () => {
  const jobs = { web: { on: ["a", "b"] }, api: { wave: 1, on: ["b", "c"] }, idle: { on: ["d"], idle: true } };
  assert.deepEqual(await ask(jobs, {}, ["e", "a"]), { ...none, asked: ["e", "a", "b", "c"] });
  assert.deepEqual(await ask({}), { ...none, asked: [] });
});

test("workers of no use are told by their cause; those that only a later wave needs are asked again then", async () => {
  const jobs = { web: { wave: 1, on: ["a", "b"] }, api: { wave: 2, on: ["b", "c", "d"] } };
  const { error, warned, forgotten } = await ask(jobs, { a: gone, c: gone, d: lacking, e: gone }, ["e"]);
  assert.deepEqual([error, warned], [undefined, ["workers e,a,c gave no answer", "no make on worker d"]]);
  assert.deepEqual(forgotten.toSorted(), ["c", "d"]);
});

test("where only a person can make a worker of use to any job, the jobs have failed and nothing is touched", async () => {
  const jobs = { web: { on: ["a", "b"] }, api: { wave: 1, on: ["b"] } };
  const { error, code, settled, warned } = await ask(jobs, { a: lacking, b: lacking });
  const all = "no make on workers a,b";
  assert.deepEqual([error, code, warned], [`no worker was touched: ${all}`, "failed", []]);
  const result = (worker: string) => {
    return { worker, action: null, outcome: "failed", error: `no make on worker ${worker}` };
  };
  const failed = { outcome: "failed", duration_ms: 0 };
  assert.deepEqual(settled, [
    { name: "web", ...failed, reason: all, allocations: [result("a"), result("b")] },
    { name: "api", ...failed, reason: "no make on worker b", allocations: [result("b")] },
  ]);
  const other = await ask({ web: { on: ["a"] } }, { a: () => new Error("a defect") });
  assert.match(other.error ?? "", /^no worker was touched: a: a defect$/, "what has another cause lasts, too");
});

test("a deploy goes on where one worker is of use, a trouble may pass, or a hook may find work elsewhere", async () => {
  const goesOn = async (...given: Parameters<typeof ask>) => (await ask(...given)).error === undefined;
  const web = { on: ["a", "b"] };
  assert.ok(await goesOn({ web }, { a: lacking }), "b is of use");
  assert.ok(await goesOn({ web }, { a: lacking, b: gone }), "b may come back");
  const sick = { a: lacking, b: lacking };
  assert.ok(await goesOn({ web: { ...web, idle: true } }, sick, ["a"]), "nothing is to be changed");
  assert.ok(await goesOn({ web, other: { on: ["c"], hooked: true, idle: true } }, sick));
  assert.ok(!(await goesOn({ web: { ...web, hooked: true }, other: { on: ["c"], idle: true } }, sick)));
});
