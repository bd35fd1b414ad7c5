import assert from "node:assert/strict";
import { test } from "node:test";
import { stressHooks } from "../helpers/hook-stress.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("HR-039 T-96 T-111 scripts in parallel, some killed: no acknowledged write is lost, no waiter stuck, never more holders than slots", async (t) => {
  const { killed } = await stressHooks(temporaryFolder(t), { allocations: 16, rounds: 12, kills: 8 });
  assert.ok(killed > 0);
});
