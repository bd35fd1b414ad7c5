import assert from "node:assert/strict";
import { test } from "node:test";
import { fuzz } from "../helpers/fuzz.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("CP-326 a thousand mutated requests get the answers that the API promises, and leave nothing where it should not be", async (t) => {
  const seed = Number(process.env.OPS_TEST_SEED ?? Date.now() % 1_000_000);
  t.diagnostic(`seed ${seed}`);
  const { answers, memoryMb } = await fuzz(temporaryFolder(t), 1_000, seed);
  t.diagnostic(`${JSON.stringify(answers)}, memory ${memoryMb.join(" -> ")} MB`);
  for (const status of ["200", "202", "400", "404", "405", "409"])
    assert.ok(answers[status], `no ${status} at all`);
});
