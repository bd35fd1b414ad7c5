import assert from "node:assert/strict";
import { test } from "node:test";
import { foldedText, foldWorkers } from "../../../lib/cli/bucket/results.ts";
import type { CommandResult } from "../../../lib/operation/control/run-command.ts";

const result = (worker: string, more: Partial<CommandResult> = {}): CommandResult => ({
  worker,
  outcome: "ok",
  error: null,
  exit_code: 0,
  output: "same\n",
  output_sha256: "1",
  duration_ms: 1,
  ...more,
});

test("workers with the same output are one group, the biggest is last and outliers come first", () => {
  const many = Array.from({ length: 197 }, (_, at) => result(`10.0.0.${at + 1}`));
  const failed = { outcome: "failed", exit_code: 3, error: "exit code 3", output: "no\n" } as const;
  const folds = foldWorkers([
    ...many.slice(0, 100),
    result("10.0.1.1", failed),
    ...many.slice(100),
    result("10.0.1.3", { output: "other\n" }),
    result("10.0.1.2", failed),
  ]);
  assert.deepEqual(
    folds.map(({ workers, how, output }) => [workers.length, how, output]),
    [
      [1, "ok", "other\n"],
      [2, "failed: exit code 3", "no\n"],
      [197, "ok", "same\n"],
    ],
  );
});

test("outputs that differ only where they were cut are not the same", () => {
  assert.equal(foldWorkers([result("a"), result("b", { output_sha256: "2" })]).length, 2);
});

test("workers that cannot be reached are one group although each reason names its own", () => {
  const away = (worker: string) =>
    result(worker, { outcome: "unreachable", error: `Cannot connect to worker ${worker}`, output: "" });
  const [two, one] = foldWorkers([away("a1"), away("a2"), result("b"), result("c"), result("d")]);
  assert.deepEqual([two?.workers, two?.how, one?.workers.length], [["a1", "a2"], "unreachable", 3]);
  assert.equal(foldWorkers([away("a1")])[0]?.how, "unreachable: Cannot connect to worker a1");
});

test("the text names the workers in short and holds nothing that a terminal would obey", () => {
  const text = foldedText({ workers: [result("a", { output: "\x1b]0;x\x07\n" }), result("w1"), result("w2")] });
  assert.equal(text, "--- a: ok\n\\x1b]0;x\\x07\n--- w[1-2] (2 workers): ok\nsame\n");
  for (const nothing of [null, {}, { problems: [] }]) assert.equal(foldedText(nothing), "");
});
