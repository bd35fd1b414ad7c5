import assert from "node:assert/strict";
import { test } from "node:test";
import type { CommandOutcome } from "../../../lib/core/spawn.ts";
import { leadingNumbers, runScriptOn, ScriptAnswer } from "../../../lib/transport/base/scripts.ts";
import { answeringWorker } from "../../helpers/worker.ts";

test("what a worker tells is a name, a blank and a value on each line, in order; other lines are passed over", () => {
  const lines = ["a 1", "b_2  two ", "a 2", "A 3", "a", " a 4", "a\t5", "a 6\x07", "a-b 7", "c "];
  const answer = new ScriptAnswer(`${lines.join("\n")}\nend\n`);
  assert.deepEqual([answer.all("a"), answer.all("b_2"), answer.all("A"), answer.all("none")], [["1", "2"], ["two"], [], []]);
  assert.deepEqual([answer.text("a"), answer.text("b_2"), answer.text("c"), answer.text("none")], ["1", "two", null, null]);
  const long = new ScriptAnswer(`a ${"x".repeat(254)}\nend\n`);
  assert.equal(long.text("a"), "x".repeat(253));
});

test("an answer without its end is none", () => {
  for (const text of ["", "end", "a 1\n", "a 1\nend", "end\na 1\n", "a 1\nend\n\n"])
    assert.throws(
      () => new ScriptAnswer(text),
      { code: "failed", message: "Cannot understand the worker's answer: it is not complete" },
      JSON.stringify(text),
    );
  assert.deepEqual(new ScriptAnswer("end\n").all("end"), []);
});

test("numbers are as many as are asked for, and whole ones from 1 to a bound", () => {
  const answer = new ScriptAnswer("n 1 2.5 3 x\nzero 0\nhalf 1.5\nten 10\nword x\nend\n");
  assert.deepEqual(
    [answer.numbers("n", 2), answer.numbers("n", 3)],
    [
      [1, 2.5],
      [1, 2.5, 3],
    ],
  );
  assert.throws(() => answer.numbers("n", 4), { code: "failed", message: /: "1 2\.5 3 x" is not what n can be$/ });
  assert.throws(() => answer.numbers("none", 1), { code: "failed", message: /: "" is not what none can be$/ });
  assert.deepEqual([answer.whole("ten", 10), answer.whole("n", 1)], [10, 1]);
  for (const [name, told] of [
    ["ten", "10"],
    ["zero", "0"],
    ["half", "1.5"],
    ["word", '"x"'],
  ] as const)
    assert.throws(() => answer.whole(name, 9), { code: "failed", message: new RegExp(`: ${told} is not what ${name} can be$`) });
});

test("a text begins with plain decimals, of up to 20 digits and 9 behind the point", () => {
  const digits = (count: number) => "1".repeat(count);
  for (const [text, numbers] of [
    ["1 2\t3.25 x 4", [1, 2, 3.25]],
    ["x 1", []],
    ["", []],
    [" 1", []],
    ["1 ", [1]],
    ["-1", []],
    ["1e3", []],
    ["1.", []],
    [".5", []],
    ["1.2.3", []],
    ["0x10", []],
    [`${digits(20)} 1`, [Number(digits(20)), 1]],
    [digits(21), []],
    [`1.${digits(9)}`, [Number(`1.${digits(9)}`)]],
    [`1.${digits(10)}`, []],
  ] as const)
    assert.deepEqual(leadingNumbers(text), numbers, JSON.stringify(text));
});

test("a script that succeeded is told whole, with what it said beside", async () => {
  const { transport, asked } = answeringWorker({ stdout: "out", stderr: "warned" });
  const options = { args: ["a"], timeoutMs: 5 };
  const { stdout, stderr } = await runScriptOn(transport, "uptime", "Cannot ask", options);
  assert.deepEqual([stdout, stderr, asked], ["out", "warned", [options]]);
});

test("a script that did not succeed is a failure with what the worker said, or how it ended", async () => {
  for (const [outcome, code, message] of [
    [{ reason: "cancelled", exitCode: null }, "cancelled", /./],
    [{ reason: "timeout", exitCode: null }, "timeout", /^Cannot ask: the script still ran after 0\.005 s$/],
    [{ exitCode: 3, stderr: " one\ntwo\n" }, "failed", /^Cannot ask: one; two$/],
    [{ exitCode: 3, stderr: "x".repeat(1_001) }, "failed", /^Cannot ask: x{1000}$/],
    [{ exitCode: 3 }, "failed", /^Cannot ask: exit code 3$/],
    [{ exitCode: null, signal: "SIGKILL" }, "failed", /^Cannot ask: ended by SIGKILL$/],
  ] as [Partial<CommandOutcome>, string, RegExp][]) {
    const { transport } = answeringWorker(outcome);
    await assert.rejects(runScriptOn(transport, "uptime", "Cannot ask", { timeoutMs: 5 }), { code, message });
  }
});
