import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";

const { allLines, foldedLines, RunLog } = await import(path.join(PROGRAM_ROOT, "ui/run-log.js"));

interface Line {
  start: number;
  end: number;
  text: string;
  open: boolean;
  continued: boolean;
  /** Of a group: the lines that are not shown. */
  more?: number;
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
  return { log, lines: allLines(log), asked };
}

async function forwards(source: ReturnType<typeof allLines>, most: number): Promise<Line[]> {
  const all: Line[] = [];
  for (let at = 0; ; ) {
    const { lines, next, done } = await source.after(at, most);
    all.push(...lines);
    if (done) return all;
    at = next;
  }
}

async function backwards(source: ReturnType<typeof allLines>, size: number, most: number): Promise<Line[]> {
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
  "empty lines": "\n".repeat(9_000),
  "one line of 1 MB": `${"x".repeat(1_000_000)}\n`,
  "long lines between short ones": `a\n${"é€".repeat(9_000)}\nb\n${"👩".repeat(30_000)}\nc\n`,
  "lines around the size of a piece": [4095, 4096, 4097, 8191, 8192, 8193].map((n) => `${"y".repeat(n)}\n`).join(""),
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

const GROUPS = [1, 5_000, 3, 40, 1, 2_500, 700]
  .map((lines, group) =>
    Array.from({ length: lines }, (_, index) => `web@10.0.0.${group} ${index % 3 ? "|" : "!"} line ${index}\n`).join(""),
  )
  .join("web: batch 2 of 7\n");

test("lines of one place in a row are one row, without a gap from either end; none is longer than 64 KiB", async () => {
  const bytes = Buffer.from(GROUPS);
  const folded = foldedLines(logOf(bytes).lines, () => false);
  const all = (await forwards(logOf(bytes).lines, 500)).length;
  for (const rows of [await forwards(folded, 120), await backwards(folded, bytes.length, 120)]) {
    assert.equal(rows[0]?.start, 0);
    assert.equal(rows.at(-1)?.end, bytes.length);
    for (const [index, row] of rows.entries()) {
      if (index > 0) assert.equal(row.start, rows[index - 1]?.end);
      assert.ok(row.end - row.start <= 65_536);
      const lines = bytes.subarray(row.start, row.end).toString().trimEnd().split("\n");
      assert.equal(row.text, lines[0]);
      assert.equal(row.more, lines.length - 1);
      assert.equal(new Set(lines.map((line) => line.split(" ")[0])).size, 1);
    }
    assert.equal(
      rows.reduce((sum, { more = 0 }) => sum + 1 + more, 0),
      all,
    );
    assert.ok(rows.length < 40, String(rows.length));
  }
});

test("a line that is open is not folded, and those around it are", async () => {
  const bytes = Buffer.from(GROUPS);
  const at = bytes.indexOf("line 2000\n");
  const start = bytes.lastIndexOf("\n", at) + 1;
  const isOpen = (line: Line) => line.start === start;
  const rows = await forwards(foldedLines(logOf(bytes).lines, isOpen), 120);
  const place = rows.findIndex((row) => row.start === start);
  assert.equal(rows[place]?.more, 0);
  for (const near of [rows[place - 1], rows[place + 1]]) assert.ok((near?.more ?? 0) > 100);
});
