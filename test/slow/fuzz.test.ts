import assert from "node:assert/strict";
import { test } from "node:test";
import { fuzz } from "../helpers/fuzz.ts";
import { SEED } from "../helpers/random.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("CP-326 a thousand mutated requests get the answers that the API promises, and leave nothing where it should not be", async (t) => {
  t.diagnostic(`seed ${SEED}`);
  const { answers, memoryMb } = await fuzz(temporaryFolder(t), 1_000, SEED);
  t.diagnostic(`${JSON.stringify(answers)}, memory ${memoryMb.join(" -> ")} MB`);
  for (const status of ["200", "202", "400", "404", "405", "409"]) assert.ok(answers[status], `no ${status} at all`);
});
