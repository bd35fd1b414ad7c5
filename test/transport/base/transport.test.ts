import assert from "node:assert/strict";
import { test } from "node:test";
import { aboutWorkers, describeCut, WorkerFailure } from "../../../lib/transport/base/transport.ts";

test("a sentence about workers names them in short, and in a command up to five of them", () => {
  const text = "{workers} gave no answer: ops worker trust{only}";
  const hosts = ["w1", "w2", "w3", "w4", "w5", "w6"];
  assert.equal(aboutWorkers(text, ["w1"]), "worker w1 gave no answer: ops worker trust -w w1");
  assert.equal(aboutWorkers(text, hosts.slice(0, 5)), "workers w[1-5] gave no answer: ops worker trust -w w1,w2,w3,w4,w5");
  assert.equal(aboutWorkers(text, hosts), "workers w[1-6] gave no answer: ops worker trust");
});

test("the trouble of a worker that cannot be reached may go away, any other one lasts", () => {
  const gone = new WorkerFailure("unreachable", "w1", "{workers} is gone", { note: ": try again" });
  assert.deepEqual([gone.message, gone.text, gone.lasts], ["worker w1 is gone: try again", "{workers} is gone", false]);
  assert.equal(new WorkerFailure("failed", "w1", "").lasts, true);
  assert.equal(new WorkerFailure("unreachable", "w1", "", { lasts: true }).lasts, true);
});

test("what became of a command at its time limit is told in words", () => {
  const told = [undefined, "stopped", "gone", "killed", "remaining", "unreachable"] as const;
  assert.deepEqual(
    told.map((receipt) => describeCut(receipt, 5)),
    [
      ...Array(3).fill("stopped at its time limit of 5 s"),
      "killed at its time limit of 5 s",
      "to be stopped at its time limit of 5 s and is still there although it was killed",
      "to be stopped at its time limit of 5 s and is in an unknown state: the worker is unreachable",
    ],
  );
});
