import assert from "node:assert/strict";
import { test } from "node:test";
import { SEED } from "../../helpers/random.ts";
import { SimulatedDeploys } from "../../helpers/simulated-deploys.ts";

const SEEDS = 10;
const PLANS = 10;

test("HR-119 T-39 gate, tolerance, width, waves, promotion, skip, starts, restore, job control and convergence hold over any order of failures, lost workers, cancels and kills", async (t) => {
  const bucket = await SimulatedDeploys.bucket(t);
  const tally = await SimulatedDeploys.runAll(bucket, SEED, SEEDS);
  assert.ok(tally.controlled > 0 && tally.settled > 0 && tally.adopted > 0);
  t.diagnostic(`seeds ${SEED} to ${SEED + SEEDS - 1}: ${JSON.stringify(tally)}`);
});

test("a plan that is carried out with no change in between does what it says, file for file and action for action", async (t) => {
  const bucket = await SimulatedDeploys.bucket(t);
  const tally = await SimulatedDeploys.planAll(bucket, SEED, PLANS);
  assert.ok(tally.planned > PLANS);
  t.diagnostic(`seeds ${SEED} to ${SEED + PLANS - 1}: ${JSON.stringify(tally)}`);
});
