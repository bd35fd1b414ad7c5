import assert from "node:assert/strict";
import { test } from "node:test";
import { badWorkers } from "../helpers/bad-workers.ts";
import { SEED } from "../helpers/random.ts";

test("of 24 workers, two are bad in each way: the verdicts of a command and of a deploy are right", async (t) => {
  assert.equal(await badWorkers(t, 24, 2, SEED), 48);
});
