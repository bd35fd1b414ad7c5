import assert from "node:assert/strict";
import { test } from "node:test";
import { SimulatedDeploys } from "../helpers/simulated-deploys.ts";

const SEEDS = 25;
const PLANS = 40;

test("HR-119 T-39 gate, tolerance, width, waves, promotion, skip, starts, restore and convergence hold over any order of failures, lost workers, cancels and kills", async (t) => {
  const first = Number(process.env.OPS_TEST_SEED ?? Date.now() % 1_000_000);
  const bucket = await SimulatedDeploys.bucket(t);
  const tally = await SimulatedDeploys.runAll(bucket, first, SEEDS);
  t.diagnostic(`seeds ${first} to ${first + SEEDS - 1}: ${JSON.stringify(tally)}`);
});

test("a plan that is carried out with no change in between does what it says, file for file and action for action", async (t) => {
  const first = Number(process.env.OPS_TEST_SEED ?? Date.now() % 1_000_000);
  const bucket = await SimulatedDeploys.bucket(t);
  const tally = await SimulatedDeploys.planAll(bucket, first, PLANS);
  assert.ok(tally.planned > PLANS);
  t.diagnostic(`seeds ${first} to ${first + PLANS - 1}: ${JSON.stringify(tally)}`);
});
