import assert from "node:assert/strict";
import { appendFileSync, rmSync, writeFileSync } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { openIndexed } from "../../../lib/run/log/log-index.ts";
import { lineStartOf, wantedLines, wholeLines } from "../../../lib/run/log/log-lines.ts";
import { searchLog } from "../../../lib/run/log/log-search.ts";
import { readLines, readMap } from "../../../lib/run/log/log-view.ts";
import { writtenRun } from "../../helpers/written-logs.ts";

/** A run that has ended, with this log and without a record of places. */
async function ended(t: TestContext, log: string) {
  const { layout, id, files, end } = await writtenRun(t);
  appendFileSync(files.activity, log);
  await end();
  const ask = { matchCase: false, limit: 50, errors: false, tail: false };
  return {
    files,
    lines: async (query: Partial<Parameters<typeof readLines>[2]> = {}) => await readLines(layout, id, { ...ask, ...query }),
    search: async (query: Partial<Parameters<typeof searchLog>[2]>) => await searchLog(layout, id, { ...ask, ...query }),
    open: async () => await openIndexed(layout, id),
    map: async () => await readMap(layout, id, { matchCase: false }),
  };
}

test("a match of up to 2,000 bytes is shown whole, of a longer line 2,000 around the text, between two characters", async (t) => {
  const shown = async (line: string) => (await (await ended(t, `${line}\n`)).search({ text: "needle" })).matches[0]?.text;
  const x = (count: number) => "x".repeat(count);
  assert.equal(await shown(`needle${x(1_994)}`), `needle${x(1_994)}`);
  assert.equal(await shown(`\ufffd${x(1_991)}needle`), `\ufffd${x(1_991)}needle`);
  assert.equal(await shown(`needle${x(1_995)}`), `needle${x(1_994)}…`);
  assert.equal(await shown(`${x(1_995)}needle`), `…${x(1_994)}needle`);
  assert.equal(await shown(`${x(500)}needle${x(1_600)}`), `${x(500)}needle${x(1_494)}…`);
  assert.equal(await shown(`${x(501)}needle${x(1_600)}`), `…${x(500)}needle${x(1_494)}…`);
  assert.equal(await shown(`${x(1_000)}needle${x(1_494)}`), `…${x(500)}needle${x(1_494)}`);
  assert.equal(await shown(`${"ä".repeat(500)}xneedlex${"ä".repeat(1_000)}`), `…${"ä".repeat(249)}xneedlex${"ä".repeat(746)}…`);
});

test("a line of 4 KiB is shown whole, a longer one ends in …; its length is told", async (t) => {
  const { lines } = await ended(t, `${"x".repeat(4_096)}\n${"y".repeat(4_097)}\n`);
  const shown = (await lines()).lines.map(({ text, length }) => [text.length, text.at(-1), length]);
  assert.deepEqual(shown, [
    [4_096, "x", 4_096],
    [4_097, "…", 4_097],
  ]);
});

test("where an answer went on is a byte and the number of a line, of up to 15 digits each", () => {
  const most = "9".repeat(15);
  assert.deepEqual([undefined, "0", "0.1", "12.3", `${most}.${most}`].map(lineStartOf), [
    { offset: 0, line: 1 },
    { offset: 0, line: 1 },
    { offset: 0, line: 1 },
    { offset: 12, line: 3 },
    { offset: Number(most), line: Number(most) },
  ]);
  for (const wrong of ["", "1", "1.0", "1.01", "x1.1", "1.1x", "1.1\n", `${most}9.1`, `1.${most}9`, "1,1", "-1.1"])
    assert.throws(() => lineStartOf(wrong), {
      code: "invalid_request",
      message: "after: expected `next` of an earlier answer about this log",
    });
});

test("of a log every 1,024 lines are a block, or fewer of 64 KiB together", async (t) => {
  for (const [count, length, expected] of [
    [4_096, 5, [1, 1_025, 2_049, 3_073]],
    [48, 8 * 1024, [1, 9, 17, 25, 33, 41]],
  ] as const) {
    const { open } = await ended(t, `${"x".repeat(length - 1)}\n`.repeat(count));
    await using log = await open();
    assert.deepEqual(
      log.index.marks.map(({ line }) => line),
      expected,
    );
  }
});

test("of a log no more blocks are read than may have a wanted line", async (t) => {
  const well = "well\n".repeat(3_000);
  const { lines, open } = await ended(t, `${well}it failed\n${well}`);
  // Makes the index.
  await using log = await open();
  const read = t.mock.method(Object.getPrototypeOf(log.log), "read");
  for (const [query, blocks] of [
    // The first one is read to find where it begins.
    [{ errors: true }, 2],
    [{ tail: true, limit: 1 }, 1],
    [{ limit: 1 }, 1],
    [{ from: 6_002 }, 0],
    [{ limit: 1_500 }, 2],
  ] as const) {
    read.mock.resetCalls();
    await lines(query);
    assert.equal(read.mock.callCount(), blocks, JSON.stringify(query));
  }
});

test("of the eight logs that were read last it is known what is in them", async (t) => {
  const logs = await Promise.all(Array.from({ length: 9 }, () => ended(t, "well\n")));
  const reads = async (at: number) => {
    read.mock.resetCalls();
    await using _ = await logs[at]?.open();
    return read.mock.callCount();
  };
  await using some = (await logs[0]?.open()) ?? assert.fail();
  const read = t.mock.method(Object.getPrototypeOf(some.log), "read");
  for (const at of [0, 1, 2, 3, 4, 5, 6, 7, 0, 8]) await reads(at);
  assert.deepEqual([await reads(0), await reads(8), await reads(1)], [0, 0, 1]);
});

test("of what ops says of an error its first line is one, whatever words follow", async (t) => {
  const { layout, id, log, end } = await writtenRun(t);
  log.error("no answer\nthe deploy failed");
  await end();
  const { lines } = await readLines(layout, id, { matchCase: false, limit: 50, errors: false, tail: false });
  assert.deepEqual(
    lines.map(({ text, error }) => [text, error]),
    [
      ["error: no answer", true],
      ["the deploy failed", false],
    ],
  );
});

test("of a log that is cut while it is read the lines end where it does", async () => {
  const texts = ["one\ntwo\nth", ""];
  const read = async (buffer: Buffer) => ({ bytesRead: buffer.write(texts.shift() ?? assert.fail("it is read again")) });
  const pieces = await Array.fromAsync(wholeLines({ read } as unknown as FileHandle, 0, 100, true), String);
  assert.deepEqual(pieces, ["one\ntwo\n"]);
});

test("errors are known by number in a log of any length, and words of trouble in the first 4 KiB of a line", async (t) => {
  const bad = new Set([1, 8, 9, 8_191, 8_192, 8_193, 16_384, 20_000]);
  const log = Array.from({ length: 20_000 }, (_, index) => (bad.has(index + 1) ? "it failed\n" : "well\n"));
  const { lines, map } = await ended(t, log.join(""));
  const { errors, first_error } = await map();
  assert.deepEqual([errors, first_error], [bad.size, { line: 1, offset: 0 }]);
  assert.deepEqual(
    (await lines({ errors: true })).lines.map(({ line }) => line),
    [...bad],
  );
  const late = (count: number) => `${"x".repeat(count)} failed\n`;
  const long = await ended(t, `well\n${late(4_096 - 7)}${late(4_096 - 6)}${late(4_096)}it failed`);
  assert.deepEqual(
    (await long.lines({ errors: true })).lines.map(({ line }) => line),
    [2, 5],
  );
  assert.deepEqual((await long.map()).first_error, { line: 2, offset: 5 });
});

test("of a log that has become shorter, is another file or is gone, nothing known earlier counts", async (t) => {
  const { lines, files, map } = await ended(t, "it failed\ntwo\nthree\n");
  assert.equal((await map()).errors, 1);
  writeFileSync(files.activity, "one\n");
  assert.deepEqual([(await map()).errors, (await lines()).total], [0, 1]);
  rmSync(files.activity);
  writeFileSync(files.activity, "it failed\ntwo\nthree\n");
  assert.deepEqual([(await map()).errors, (await lines()).total], [1, 3]);
  rmSync(files.activity);
  assert.deepEqual([(await lines()).total, (await lines({ tail: true })).next], [0, "0.1"]);
});

test("of the logs that were read, what is known of the last eight is kept", async (t) => {
  const runs = await Promise.all(Array.from({ length: 9 }, () => writtenRun(t)));
  const indexOf = async ({ layout, id }: (typeof runs)[0]) => {
    await using opened = await openIndexed(layout, id);
    return opened.index;
  };
  const [first, second, ...others] = runs as [(typeof runs)[0], (typeof runs)[0], ...typeof runs];
  const [index, forgotten] = [await indexOf(first), await indexOf(second)];
  for (const one of [...others.slice(0, 6), first, ...others.slice(6)]) await indexOf(one);
  assert.equal(await indexOf(first), index);
  assert.notEqual(await indexOf(second), forgotten);
});

test("the beginning of a line tells its place: colours, blanks and levels may stand before it", () => {
  const found = (line: string, filter: { job?: string; worker?: string; stream?: "stdout" | "stderr" | "ops" }) =>
    [...wantedLines({ matchCase: true, ...filter })(line)].length > 0;
  const [job, worker] = ["web", "w1"];
  for (const [line, yes, no] of [
    ["web@w1 | out", { job, worker, stream: "stdout" }, { job, worker, stream: "stderr" }],
    ["web@w1 ! err", { job, worker, stream: "stderr" }, { job, worker, stream: "ops" }],
    ["web@w1: said", { job, worker, stream: "ops" }, { job, worker, stream: "stdout" }],
    ["w1 | w1@w1", { worker }, { job: "w1", worker }],
    ["w1 | of w12", { worker }, { worker: "w12" }],
    ["said web@w1 | out", { stream: "ops" }, { job, worker }],
    ["web: said", { job }, { job: "we" }],
    ["\x1b[1;31m\t error: warning: web: said", { job }, { job: "error" }],
    [`${" ".repeat(507)}web: said`, { job }, { job: "we" }],
  ] as const) {
    assert.equal(found(line, yes), true, line);
    assert.equal(found(line, no), false, line);
  }
  assert.equal(found(`${" ".repeat(508)}web: said`, { job }), false, "only the first 512 bytes are looked at");
});
