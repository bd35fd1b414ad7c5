import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { KeptOutput } from "../../../lib/operation/control/run-command.ts";

function keep(limit: number, lines: readonly string[]): KeptOutput {
  const kept = new KeptOutput(limit);
  for (const line of lines) kept.add(line);
  return kept;
}

test("a short output is kept as it is", () => {
  assert.equal(keep(10, ["a", "", "b"]).text, "a\n\nb\n");
  assert.equal(keep(10, []).text, "");
  assert.equal(keep(4, ["abc", "def"]).text, "abc\ndef\n");
});

test("of a long one the first and the last lines are kept, and how much is missing", () => {
  const lines = Array.from({ length: 1_000 }, (_, at) => `line ${at}`);
  const { text } = keep(30, lines);
  const whole = lines.map((line) => `${line}\n`).join("");
  const [head = "", tail = ""] = text.split(/… \d+ bytes left out …\n/);
  assert.deepEqual([head, tail], [whole.slice(0, 28), whole.slice(-27)]);
  assert.ok(text.includes(`… ${whole.length - head.length - tail.length} bytes left out …`), text);
});

test("a single line that is too long keeps its end, from the beginning of a character on", () => {
  assert.equal(keep(6, ["ü".repeat(100)]).text, `… 196 bytes left out …\nüü\n`);
});

test("the digest is that of all of it", () => {
  const whole = Array.from({ length: 100 }, (_, at) => `line ${at}`);
  const digest = createHash("sha256")
    .update(whole.map((line) => `${line}\n`).join(""))
    .digest("hex");
  assert.equal(keep(10, whole).sha256, digest);
});
