import assert from "node:assert/strict";
import { test } from "node:test";
import { Deploys, HOSTS, outcomes } from "../helpers/deploys.ts";

const [A, B, C] = HOSTS;
const CHECK = {
  ...{ checks: [{ type: "ssh", command: "true" }], wait: { attempts: 1, interval_seconds: 1 } },
};

for (const [what, manifest] of [
  ["with a gate", { health_check: CHECK }],
  ["without one", {}],
] as const)
  test(`a rollout ${what} goes on past the tolerated share of unreachable workers, and the next deploy brings them along`, async (t) => {
    const deploys = await Deploys.make(t);
    const jobs = (text: string, share: string) => ({
      web: {
        manifest: { ...manifest, tolerate: { unreachable: share }, max_concurrent_upgrades: 1 },
        files: { a: text },
      },
    });
    await deploys.build(jobs("1", "34%"));
    assert.equal((await deploys.deploy()).error, undefined);

    await deploys.build(jobs("2", "34%"));
    const back = deploys.cutOff(A);
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
    const again = deploys.cutOff(A);
    const over = await deploys.deploy();
    assert.deepEqual(outcomes(over), { web: "failed" });
    assert.deepEqual(
      over.jobs[0]?.allocations.map(({ outcome }) => outcome),
      ["unreachable", "not_started", "not_started"],
    );
    again();
  });

test("a worker that fails is never tolerated", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: { manifest: { tolerate: { unreachable: "100%" } } } });
  deploys.fail("web", "start", B);
  assert.deepEqual(outcomes(await deploys.deploy()), { web: "failed" });
});
