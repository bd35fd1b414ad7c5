import assert from "node:assert/strict";
import { test } from "node:test";
import { fewDescriptors } from "../helpers/few-descriptors.ts";

test("CP-398 with few descriptors a deploy goes to more workers than can stay open, and each verdict is right", async (t) => {
  assert.match(
    await fewDescriptors(t, 40, 128),
    /at most 128: 5 commands at a time, connections of 6 workers ready for the next one; ssh_concurrency is 64/,
  );
});
