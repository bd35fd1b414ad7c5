import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure } from "../../../lib/core/errors.ts";
import { Redactor } from "../../../lib/core/redact.ts";
import type { CommandOutcome } from "../../../lib/core/spawn.ts";
import type { OperationContext } from "../../../lib/operation/base/context.ts";
import type { Fleet } from "../../../lib/operation/base/fleet.ts";
import {
  causesOf,
  concluded,
  concludeWorkers,
  countGrades,
  describeGrades,
  endCancelled,
  exitCodeOf,
  failedWith,
  gradeOf,
  masked,
  toldOnce,
  troubleOf,
  worstOf,
} from "../../../lib/operation/base/outcome.ts";
import { WorkerFailure } from "../../../lib/transport/base/transport.ts";

test("an error is unreachable, cancelled or failed", () => {
  const grades = [new Failure("unreachable", "a"), new Failure("cancelled", "b"), new Failure("timeout", "c"), "d"];
  assert.deepEqual(
    grades.map((error) => troubleOf(error)),
    [
      { grade: "unreachable", message: "a" },
      { grade: "cancelled", message: "b" },
      { grade: "failed", message: "c" },
      { grade: "failed", message: "d" },
    ],
  );
});

test("of several grades the worst counts; counts are told without what does not occur", () => {
  assert.equal(worstOf(["changed", "unreachable", "skipped"]), "unreachable");
  assert.equal(worstOf(["skipped", "ok"]), "ok");
  assert.equal(worstOf([]), "skipped");
  assert.equal(
    describeGrades(countGrades(["changed", "failed", "changed", "not_started"])),
    "2 changed, 1 not started, 1 failed",
  );
  assert.equal(describeGrades(countGrades([])), "none");
});

test("what several places have in common is told once; of more than 20 places the first are named", () => {
  const places = Array.from({ length: 22 }, (_, index) => `web@w${index}`);
  const many = places.map((place) => `${place}: no: not yet`);
  assert.deepEqual(toldOnce(["db@a: down", ...many, "db@b: down"]), [
    "db@a, db@b: down",
    `${places.slice(0, 20).join(", ")} and 2 more: no: not yet`,
  ]);
  assert.deepEqual(toldOnce([]), []);
});

test("the failure of a program is told in one line, and its trouble has all lines", () => {
  const error = failedWith("failed", "it failed:\na\nerror: b\nc");
  assert.equal(error.message, "it failed: error: b");
  assert.deepEqual(troubleOf(error), { grade: "failed", message: "it failed:\na\nerror: b\nc" });
});

test("workers with one cause are told in one sentence", () => {
  const gone = (host: string) => troubleOf(new WorkerFailure("unreachable", host, "{workers} gave no answer"));
  const sick = troubleOf(failedWith("failed", "it failed:\na\nb"));
  const troubles = new Map([
    ["w1", gone("w1")],
    ["w3", sick],
    ["w2", gone("w2")],
  ]);
  assert.deepEqual(causesOf(troubles), ["workers w[1-2] gave no answer", "w3: it failed: b"]);
});

test("a command has an exit code where it ended by itself, by a signal too", () => {
  const code = (outcome: Partial<CommandOutcome>) =>
    exitCodeOf({ reason: "exit", exitCode: null, signal: null, ...outcome } as CommandOutcome);
  assert.deepEqual([code({ exitCode: 0 }), code({ exitCode: 3 }), code({ signal: "SIGKILL" })], [0, 3, 137]);
  assert.equal(code({ signal: "SIGRTMIN" as NodeJS.Signals }), 128, "a signal that Node does not know");
  assert.deepEqual([code({ reason: "timeout", exitCode: 3 }), code({ reason: "cancelled", signal: "SIGTERM" })], [null, null]);
});

test("the error of a worker is told, but for a cancel", () => {
  assert.deepEqual(gradeOf(new Failure("unreachable", "gone")), { outcome: "unreachable", error: "gone" });
  assert.deepEqual(gradeOf(new Failure("cancelled", "cancelled")), { outcome: "cancelled", error: null });
});

/** What is told of workers, and how their run ends. */
function conclude(outcomes: readonly string[], conclusion?: Parameters<typeof concludeWorkers>[3], signal?: AbortSignal) {
  const said: string[] = [];
  const say = (text: string, of?: { worker: string }) => said.push(`${of ? `[${of.worker}] ` : ""}${text}`);
  const log = { info: say, error: say };
  const context = { log, signal: signal ?? new AbortController().signal } as unknown as OperationContext;
  const fleet = { cancelReceipts: () => ({ ended: 1 }) } as unknown as Fleet;
  const workers = outcomes.map((outcome, index) => {
    return { worker: `w${index}`, outcome, error: outcome === "failed" ? "it broke" : null };
  });
  try {
    return { said, workers, result: concludeWorkers(context, fleet, { workers }, conclusion) };
  } catch (error) {
    return { said, workers, error: error as Failure };
  }
}

test("a run over workers ends well where all of them have the wanted outcome, or where failures are tolerated", () => {
  const fine = conclude(["ok", "ok"]);
  assert.deepEqual([fine.result, fine.said], [{ workers: fine.workers }, ["2 of 2 workers are ok"]]);
  const wanted = { outcome: "same", words: "as promoted" };
  assert.deepEqual(conclude(["same"], { wanted }).said, ["1 of 1 worker is as promoted"]);
  const tolerant = conclude(["failed"], { isTolerant: true, reasons: ["no"] });
  assert.deepEqual([tolerant.error, tolerant.said], [undefined, ["[w0] w0: it broke", "0 of 1 worker is ok"]]);
});

test("a run over workers that are not all well fails with each error told once, the first 20 by name, and other reasons", () => {
  const { error, said, workers } = conclude(["ok", "failed", "not_started"], { reasons: ["the job is sick"] });
  assert.equal(error?.message, "2 of 3 workers are not ok: w1 (failed), w2 (not started); the job is sick");
  assert.deepEqual([error?.code, error?.details], ["failed", { workers }]);
  assert.deepEqual(said, ["[w1] w1: it broke", "1 of 3 workers are ok"]);
  assert.deepEqual(conclude(["failed"], { isTold: true }).said, ["0 of 1 worker is ok"]);
  assert.equal(conclude(["ok"], { reasons: ["a", "b"] }).error?.message, "a; b");
  assert.equal(conclude(["failed"], { reasons: ["a"] }).error?.message, "1 of 1 worker is not ok: w0 (failed); a");
  assert.match(conclude(Array(20).fill("failed")).error?.message ?? "", /, w19 \(failed\)$/);
  assert.match(conclude(Array(21).fill("failed")).error?.message ?? "", /, w19 \(failed\) and 1 more$/);
});

test("a cancelled run over workers says so with its receipts, unless all was well by then", () => {
  const { error, workers } = conclude(["failed"], { isTolerant: true }, AbortSignal.abort());
  assert.deepEqual([error?.code, error?.details], ["cancelled", { workers, cancelled: { ended: 1 } }]);
  assert.equal(conclude(["ok"], {}, AbortSignal.abort()).error, undefined);
});

test("a result of which something is wrong is part of the error", () => {
  assert.equal(concluded(1, "it is not complete", []), 1);
  const wrong = { code: "failed", message: "it is not complete: a; b", details: 1 };
  assert.throws(() => concluded(1, "it is not complete", ["a", "b"]), wrong);
});

test("the error that ended a cancelled run is told as a cancel, any other one as it is", () => {
  const fleet = { cancelReceipts: () => ({ ended: 1 }) } as unknown as Fleet;
  const cause = new Error("broken");
  const end = (signal: AbortSignal) => () => endCancelled(signal, fleet, cause, () => ({ so: "far" }));
  assert.throws(end(AbortSignal.abort()), { code: "cancelled", details: { so: "far", cancelled: { ended: 1 } }, cause });
  assert.throws(end(new AbortController().signal), { message: "broken" });
});

test("of a result the texts are masked, and the names are not", () => {
  const redactor = new Redactor();
  redactor.add("correct-horse");
  const text = "it is correct-horse";
  const result = masked({ job: text, jobs: [{ error: text, worker: text, lines: [text, { job: text }] }], count: 1 }, redactor);
  const hidden = "it is ***";
  assert.deepEqual(result, { job: text, jobs: [{ error: hidden, worker: text, lines: [hidden, { job: text }] }], count: 1 });
  assert.deepEqual([masked(undefined, redactor), masked({ error: null }, redactor)], [null, { error: null }]);
  assert.deepEqual(masked([text], redactor), [text], "what has no field is no text");
  const names = ["diff", "errors", "evidence", "message", "note", "output", "reason", "reasons", "warnings", "last_error"];
  const all = masked(Object.fromEntries(names.map((name) => [name, text])), redactor) as Record<string, string>;
  assert.deepEqual(new Set(Object.values(all)), new Set([hidden]));
  assert.deepEqual(masked({ errors_path: text, terror: text }, redactor), { errors_path: text, terror: text });
});
