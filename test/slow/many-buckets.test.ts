import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { startsOverBuckets } from "../helpers/many-buckets.ts";

test("CP-116 CP-370 48 starts over 12 buckets all end, with no more processes at a time than there are slots", async (t) => {
  const most = await startsOverBuckets(t, 12, 4);
  assert.ok(most <= 2 * availableParallelism(), `${most} processes at a time`);
});
