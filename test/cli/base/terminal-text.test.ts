import assert from "node:assert/strict";
import { test } from "node:test";
import {
  ago,
  diffColours,
  factLines,
  jsonText,
  shownTime,
  spanOf,
  stopRequest,
  textTable,
  toStderr,
  visible,
} from "../../../lib/cli/base/terminal.ts";

test("how long something took is told in the unit that fits", () => {
  const spans: [seconds: number, text: string][] = [
    [-1, "0.0 s"],
    [0, "0.0 s"],
    [0.449, "0.4 s"],
    [9.5, "9.5 s"],
    [9.949, "9.9 s"],
    [9.95, "10 s"],
    [12.4, "12 s"],
    [99.4, "99 s"],
    [99.5, "2 min"],
    [59 * 60, "59 min"],
    [60 * 60, "1 h"],
    [119 * 60, "1 h 59 min"],
    [47 * 3600 + 60, "47 h 1 min"],
    [48 * 3600, "2 d"],
    [59 * 3600, "2 d"],
    [60 * 3600, "3 d"],
    [240 * 3600, "10 d"],
  ];
  for (const [seconds, text] of spans) assert.equal(spanOf(seconds * 1000), text, String(seconds));
  assert.equal(ago("2026-11-24T00:00:00Z", Date.parse("2026-11-24T00:03:00Z")), "3 min ago");
  assert.match(ago(new Date(Date.now() - 7_200_000).toISOString()), /^2 h ago$/);
});

test("a time stays whole in a pipe", () => {
  assert.equal(shownTime("2026-11-24T00:00:00.000Z"), "2026-11-24T00:00:00.000Z");
});

test("facts without a value are left out, and further lines of a value stand below its first", () => {
  const facts: Parameters<typeof factLines>[0] = [
    ["name", "web"],
    ["empty", ""],
    ["a-long-name-without-value", null],
    ["text", "one\ntwo\x1b\n\n"],
    ["count", 0],
    ["done", false],
  ];
  assert.equal(factLines(facts), "name   web\ntext   one\n       two\\x1b\ncount  0\ndone   false\n");
});

test("a column is aligned to the right where it has a number and nothing else but dashes", () => {
  const rows = [
    [5, 5, null, 5],
    [null, "abc", null, 12345],
  ];
  const shown = textTable(["numbers", "mixed", "none", "n"], rows);
  assert.equal(shown, "numbers  mixed  none      n\n      5  5      -         5\n      -  abc    -     12345\n");
  assert.equal(textTable(["", "a"], [["", "x"]]), "  a\n  x\n");
});

test("on a terminal a UUID and a time are shortened where they are the whole text", () => {
  const [id, at] = ["0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70", "1999-11-24T10:20:30.000Z"];
  const shown = (text: string) => textTable(["x"], [[text]], 200).split("\n")[1];
  assert.deepEqual([id, at, at.replace(".000", "")].map(shown), ["8a3c5e70", at, at.replace(".000", "")]);
  for (const text of [`x${id}`, `${id}0`, `x${at}`, `${at}0`]) assert.equal(shown(text), text);
  const tty = Object.getOwnPropertyDescriptor(process.stdout, "isTTY");
  Object.defineProperty(process.stdout, "isTTY", { value: true, configurable: true });
  try {
    assert.deepEqual([at, at.replace(".000", "")].map(shown), ["1999-11-24 10:20", "1999-11-24 10:20"]);
    for (const text of [`x${at}`, `${at}0`]) assert.equal(shown(text), text);
  } finally {
    if (tty) Object.defineProperty(process.stdout, "isTTY", tty);
    else Reflect.deleteProperty(process.stdout, "isTTY");
  }
});

test("a hash of 12 to 128 digits is cut before a name, and no other text is", () => {
  const cut = (text: string) => textTable(["a", "b"], [["n".repeat(20), text]], 40).includes("n".repeat(20));
  const hex = (size: number) => "0f".repeat(64).padEnd(size, "a").slice(0, size);
  assert.deepEqual([hex(128), hex(30)].map(cut), [true, true]);
  for (const text of [hex(129), `x${hex(30)}`, `${hex(30)}x`, "x".repeat(30)]) assert.equal(cut(text), false, text);
  assert.equal(textTable(["a", "b"], [["n".repeat(20), hex(12)]], 31).includes("n".repeat(20)), true);
});

test("JSON has two blanks for each level, and a soft hyphen is written out as two digits", () => {
  assert.equal(jsonText({ a: [1] }), '{\n  "a": [\n    1\n  ]\n}\n');
  assert.equal(visible("a\u00adb\u0600"), "a\\xadb\\u{600}");
});

test("a line of a diff begins with its mark", () => {
  assert.equal(
    diffColours("a - b\n@@ x\n@x\n-a --- b\n+a +++ b\n"),
    "a - b\n\x1b[36m@@ x\x1b[39m\n@x\n\x1b[31m-a --- b\x1b[39m\n\x1b[32m+a +++ b\x1b[39m\n",
  );
});

test("what goes to stderr is written out too", (t) => {
  const write = t.mock.method(process.stderr, "write", () => true);
  toStderr("a\x1b\n");
  assert.deepEqual(
    write.mock.calls.map(({ arguments: [first] }) => first),
    ["a\\x1b\n"],
  );
});

test("signals within a quarter of a second are one request to stop; a later one insists", async (t) => {
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  const before = signals.map((name) => process.listenerCount(name));
  const clock = { now: 1_000 };
  t.mock.method(performance, "now", () => clock.now);
  const hasInsisted = async (stop: ReturnType<typeof stopRequest>) =>
    await Promise.race([stop.insisted.then(() => true), new Promise((resolve) => setImmediate(() => resolve(false)))]);
  for (const name of signals) {
    using stop = stopRequest();
    assert.equal(stop.signal.aborted, false);
    clock.now = 1_000;
    process.emit(name);
    assert.equal(stop.signal.aborted, true);
    clock.now = 1_250;
    process.emit(name);
    assert.equal(await hasInsisted(stop), false);
    clock.now = 1_251;
    process.emit(name);
    assert.equal(await hasInsisted(stop), true);
  }
  let hangUps = 0;
  {
    using stop = stopRequest(() => hangUps++);
    process.emit("SIGHUP");
    assert.deepEqual([hangUps, stop.signal.aborted], [1, false]);
    process.emit("SIGTERM");
    assert.equal(stop.signal.aborted, true);
  }
  assert.deepEqual(
    signals.map((name) => process.listenerCount(name)),
    before,
  );
});
