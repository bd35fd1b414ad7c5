import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { Deploys, HOSTS, outcomes } from "../../helpers/deploys.ts";
import { hooksOf, RECORD, traces } from "../../helpers/hooks.ts";

const [A, B, C] = HOSTS;
const CHECK = { checks: [{ type: "ssh", command: "true" }], wait: { attempts: 1, interval_seconds: 1 } };

for (const [what, manifest] of [
  ["with a gate", { health_check: CHECK }],
  ["without one", {}],
] as const)
  test(`a rollout ${what} goes on past the tolerated share of unreachable workers, and the next deploy brings them along`, async (t) => {
    const deploys = await Deploys.make(t);
    const jobs = (text: string, share: string) => ({
      web: { manifest: { ...manifest, tolerate: { unreachable: share }, max_concurrent_upgrades: 1 }, files: { a: text } },
    });
    await deploys.build(jobs("1", "34%"));
    assert.equal((await deploys.deploy()).error, undefined);

    await deploys.build(jobs("2", "34%"));
    const back = await deploys.cutOff(A);
    const run = await deploys.deploy();
    assert.equal(run.error, undefined);
    assert.deepEqual(outcomes(run), { web: "deployed" });
    assert.deepEqual(
      run.jobs[0]?.allocations.map(({ worker, outcome }) => [worker, outcome]),
      [
        [A, "unreachable"],
        [B, "changed"],
        [C, "changed"],
      ],
    );
    back();
    assert.deepEqual(deploys.targets("web", A), ["start"]);
    const next = await deploys.deploy();
    assert.equal(next.error, undefined);
    assert.deepEqual(
      next.jobs[0]?.allocations.map(({ outcome }) => outcome),
      ["changed", "skipped", "skipped"],
    );
    assert.deepEqual(deploys.targets("web", A), ["start", "restart"]);

    await deploys.build(jobs("3", "33%"));
    const again = await deploys.cutOff(A);
    const over = await deploys.deploy();
    assert.deepEqual(outcomes(over), { web: "failed" });
    assert.deepEqual(
      over.jobs[0]?.allocations.map(({ outcome }) => outcome),
      ["unreachable", "not_started", "not_started"],
    );
    again();
  });

test("a worker that answers but has no place for its files has failed, and is never tolerated", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: { manifest: { tolerate: { unreachable: "100%" } } } });
  writeFileSync(path.join(deploys.workers, B), "in the way of the root folder");
  const run = await deploys.deploy();
  assert.deepEqual(outcomes(run), { web: "failed" });
  const [, lame] = run.jobs[0]?.allocations ?? [];
  assert.equal(lame?.outcome, "failed");
  assert.match(lame?.error ?? "", /^Cannot make the folder of worker 127\.0\.0\.2: /);
});

test("a worker that fails is never tolerated", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: { manifest: { tolerate: { unreachable: "100%" } } } });
  deploys.fail("web", "start", B);
  assert.deepEqual(outcomes(await deploys.deploy()), { web: "failed" });
});

test("where hooks do what targets do, they and those after the deploy leave out tolerated workers, whose batch goes on", async (t) => {
  const deploys = await Deploys.make(t);
  const hooks = hooksOf({ act: ["job_control"], after: ["post_deploy"] });
  const jobs = (text: string, width = 2) => ({
    web: {
      manifest: { ...hooks, health_check: CHECK, tolerate: { unreachable: "34%" }, max_concurrent_upgrades: width },
      files: { a: text, "_hooks/act.py": RECORD, "_hooks/after.py": RECORD },
    },
  });
  const { dir } = deploys.bucket;
  const told = () =>
    traces(dir)
      .map((one) => `${one.EVENT} ${one.ALLOCATION_IP} ${one.BATCH_ALLOCATIONS} ${one.UPDATED_ALLOCATIONS ?? "-"}`)
      .sort();
  await deploys.build(jobs("1"));
  assert.equal((await deploys.deploy()).error, undefined);
  told();
  await deploys.build(jobs("2"));
  const back = await deploys.cutOff(A);
  const run = await deploys.deploy();
  assert.equal(run.error, undefined);
  const grades = ({ jobs }: typeof run) => jobs[0]?.allocations.map(({ outcome }) => outcome);
  assert.deepEqual(grades(run), ["unreachable", "changed", "changed"]);
  assert.deepEqual(told(), [
    `job_control ${B} ${B} ${B},${C}`,
    `job_control ${C} ${C} ${B},${C}`,
    ...[B, C].map((host) => `post_deploy ${host} ${B},${C} -`),
  ]);
  back();
  const next = await deploys.deploy();
  assert.deepEqual([next.error, grades(next)], [undefined, ["changed", "skipped", "skipped"]]);
  assert.deepEqual(
    told().filter((line) => line.startsWith(`job_control ${A}`)),
    [`job_control ${A} ${A},${B} ${A}`],
  );

  await deploys.build(jobs("3"));
  const [first, second] = [await deploys.cutOff(A), await deploys.cutOff(C)];
  const over = await deploys.deploy();
  assert.deepEqual(grades(over), ["unreachable", "not_started", "unreachable"]);
  assert.deepEqual(told(), [], "past the share no script is run");
  first();
  second();

  assert.equal((await deploys.deploy()).error, undefined);
  await deploys.build(jobs("4", 1));
  await deploys.cutOff(C);
  const alone = await deploys.deploy();
  assert.deepEqual(grades(alone), ["changed", "changed", "unreachable"]);
  assert.match(alone.text, /hook act \(job_control, batch 2 of 3\)/);
  assert.doesNotMatch(alone.text, /hook act \(job_control, batch 3 of 3\)/, "for no worker no hook is run");
});
