import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";

const { AllLines, lineFilter, RunLog } = await import(path.join(PROGRAM_ROOT, "ui/run-log.js"));

interface Line {
  start: number;
  end: number;
  text: string;
  open: boolean;
  continued: boolean;
}

/** A log in memory, and how many bytes of it were asked for. */
function logOf(bytes: Buffer, size = bytes.length) {
  const asked = { bytes: 0 };
  const log = new RunLog("bucket", "run", new AbortController().signal, () => {});
  log.size = size;
  globalThis.fetch = async (_, init) => {
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(new Headers(init?.headers).get("Range") ?? "") ?? [];
    const part = bytes.subarray(Number(from), Number(to) + 1);
    asked.bytes += part.length;
    return new Response(new Uint8Array(part), { status: 206 });
  };
  return { log, lines: new AllLines(log), asked };
}

async function forwards(source: typeof AllLines, most: number): Promise<Line[]> {
  const all: Line[] = [];
  for (let at = 0; ; ) {
    const { lines, next, done } = await source.after(at, most);
    all.push(...lines);
    if (done) return all;
    at = next;
  }
}

async function backwards(source: typeof AllLines, size: number, most: number): Promise<Line[]> {
  const all: Line[] = [];
  for (let at = size; ; ) {
    const { lines, done } = await source.before(at, most);
    all.unshift(...lines);
    if (done) return all;
    at = lines[0].start;
  }
}

const LOGS: Record<string, string | Buffer> = {
  "short lines": Array.from({ length: 9000 }, (_, index) => `line ${index}\n`).join(""),
  "empty lines": "\n".repeat(20_000),
  "one line of 1 MB": `${"x".repeat(1_000_000)}\n`,
  "long lines between short ones": `a\n${"é€".repeat(9_000)}\nb\n${"👩".repeat(30_000)}\nc\n`,
  "lines around the size of a piece": [4095, 4096, 4097, 8191, 8192, 8193]
    .map((n) => `${"y".repeat(n)}\n`)
    .join(""),
  "no newline at the end": `first\n${"z".repeat(10_000)}\nlast`,
  "bytes that are not UTF-8": Buffer.alloc(50_000, Buffer.from([0x80, 0xff, 0xc3])),
};
for (const [name, log] of Object.entries(LOGS))
  test(`lines are the same from either end, without a gap: ${name}`, async () => {
    const bytes = Buffer.from(log as string);
    const { lines } = logOf(bytes);
    const all = await forwards(lines, 100);
    assert.deepEqual(await backwards(lines, bytes.length, 77), all);
    assert.equal(all[0]?.start, 0);
    assert.equal(all.at(-1)?.end, bytes.length);
    for (const [index, line] of all.entries()) {
      if (index > 0) assert.equal(line.start, all[index - 1]?.end);
      assert.ok(line.end - line.start <= 2 * 4096 + 3);
      assert.equal(line.continued, index > 0 && bytes[line.start - 1] !== 10);
    }
    const text = all.map((line) => line.text + (line.open ? "" : "\n")).join("");
    if (typeof log === "string") assert.equal(text, log);
  });

test("a place in the middle is the line around it, whatever was read before", async () => {
  const bytes = Buffer.from(LOGS["long lines between short ones"] as string);
  const all = await forwards(logOf(bytes).lines, 100);
  for (let at = 0; at < bytes.length; at += 997) {
    const { lines } = await logOf(bytes).lines.after(at, 1);
    assert.deepEqual(
      lines[0],
      all.find(({ start, end }) => start <= at && at < end),
    );
  }
});

test("the end of a long log is read without its beginning", async () => {
  const { log, lines, asked } = logOf(Buffer.alloc(50_000_000, "one line of many\n"));
  await lines.before(log.size, 100);
  assert.ok(asked.bytes < 400_000, String(asked.bytes));
});

test("what arrives is read from memory, and a log that was read goes on", async () => {
  const { log, lines, asked } = logOf(Buffer.from("one\ntwo\nthr"), 4);
  log.append(Buffer.from("two\nthr"), 11);
  assert.deepEqual(
    (await lines.before(11, 2)).lines.map(({ text, open }: Line) => [text, open]),
    [
      ["two", false],
      ["thr", true],
    ],
  );
  assert.equal(asked.bytes, 11);
});

test("lines of commands on workers are told by their beginning", () => {
  const filter = lineFilter({ job: "web", worker: "10.0.0.7" });
  assert.equal(filter.q, "web@10.0.0.7");
  for (const [line, expected] of [
    ["web@10.0.0.7 | started", true],
    ["web@10.0.0.7 ! warned", true],
    ["web@10.0.0.7: in sync", true],
    ["10.0.0.7 | of no job", false],
    ["web@10.0.0.70 | started", false],
    ["myweb@10.0.0.7 | started", false],
    ["says web@10.0.0.7 | started", false],
    ["\x1b[31mweb@10.0.0.7 | failed", true],
  ])
    assert.equal(filter.accepts({ text: line }), expected, String(line));
  const ofJob = lineFilter({ job: "web" });
  for (const [line, expected] of [
    ["web: batch 1 of 2", true],
    ["web@10.0.0.7 | started", true],
    ["10.0.0.7 | of no job", false],
  ])
    assert.equal(ofJob.accepts({ text: line }), expected, String(line));
  const ofWorker = lineFilter({ worker: "10.0.0.7" });
  assert.equal(ofWorker.q, "10.0.0.7");
  for (const line of ["10.0.0.7 | of no job", "10.0.0.7 ! of no job", "web@10.0.0.7 | started"])
    assert.equal(ofWorker.accepts({ text: line }), true, line);
  assert.equal(ofWorker.accepts({ text: "web: synced to 10.0.0.7: 5 changed" }), false);
  assert.equal(lineFilter({ worker: "10.0.0.7", text: "failed" }).q, "failed");
  assert.equal(lineFilter({}), null);
});
