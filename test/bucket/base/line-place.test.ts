import assert from "node:assert/strict";
import { test } from "node:test";
import { isOfOps, type LinePlace, prefixOf, writtenTo } from "../../../lib/bucket/base/line-place.ts";

test("a line of a program has its job and worker before it, and a line of ops has nothing", () => {
  const place = (stream: LinePlace["stream"], job?: string) => ({ stream, job, worker: "w" }) as LinePlace;
  for (const [stream, from, plain, ofJob] of [
    ["stdout", "stdout", "w | ", "web@w | "],
    ["stderr", "stderr", "w ! ", "web@w ! "],
    ["ops", "ops", "", ""],
    ["error", "ops", "", ""],
    ["restore", "ops", "", ""],
  ] as const) {
    assert.deepEqual([writtenTo(place(stream)), isOfOps(place(stream))], [from, from === "ops"], stream);
    assert.deepEqual([prefixOf(place(stream)), prefixOf(place(stream, "web"))], [plain, ofJob], stream);
  }
});
