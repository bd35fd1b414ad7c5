import assert from "node:assert/strict";
import { test } from "node:test";
import { contend } from "../helpers/contention.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("CP-118 eight processes contend for one lock, 30 holders die by SIGKILL: never two holders, never a dead lock", async (t) => {
  const { turns, killed } = await contend(temporaryFolder(t), 8, 30);
  assert.equal(killed, 30);
  assert.ok(turns >= 30, `only ${turns} turns`);
});
