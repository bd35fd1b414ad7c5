import assert from "node:assert/strict";
import { appendFileSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { openLogText } from "../../../lib/run/log/log-lines.ts";
import { searchLog } from "../../../lib/run/log/log-search.ts";
import { type LinesQuery, readLines } from "../../../lib/run/log/log-view.ts";
import { type RunRecord, readRecord } from "../../../lib/run/record.ts";
import { seeded } from "../../helpers/random.ts";
import { writtenRun } from "../../helpers/written-logs.ts";

async function setUp(t: TestContext) {
  const run = await writtenRun(t);
  const read = (query: Partial<LinesQuery> = {}) =>
    readLines(run.layout, run.id, { matchCase: false, tail: false, errors: false, limit: 200, ...query });
  const output = (worker: string, text: string, stream: "stdout" | "stderr" = "stdout") =>
    run.log.output("web", worker, text, { stream });
  return { ...run, descriptor: run.output, read, output };
}

const told = ({ job, worker, stream, text }: Awaited<ReturnType<typeof readLines>>["lines"][number]) =>
  `${job} ${worker} ${stream}: ${text}`;

test("a line has its number, its byte, its time, its place and its text without the place", async (t) => {
  const { read, output, log, text, end } = await setUp(t);
  const before = Date.now();
  log.info("web: begins", { job: "web" });
  output("10.0.0.7", "grüße", "stderr");
  log.output(undefined, "10.0.0.8", "hello", { stream: "stdout" });
  await end();
  const { lines, ...rest } = await read();
  const times = lines.map(({ at }) => Date.parse(at ?? ""));
  assert.ok(
    times.every((at) => at >= before && at <= Date.now()),
    String(times),
  );
  assert.deepEqual(
    lines.map(({ at, ...line }) => line),
    [
      { line: 1, offset: 0, job: "web", worker: null, stream: "ops", error: false, text: "web: begins", length: 11 },
      { line: 2, offset: 12, job: "web", worker: "10.0.0.7", stream: "stderr", error: false, text: "grüße", length: 7 },
      { line: 3, offset: 35, job: null, worker: "10.0.0.8", stream: "stdout", error: false, text: "hello", length: 5 },
    ],
  );
  const size = Buffer.byteLength(text());
  assert.deepEqual(rest, {
    next: `${size}.4`,
    scanned_to: size,
    scanned_line: 4,
    total: 3,
    size_bytes: size,
    status: "succeeded",
    done: true,
  });
});

test("lines with a text, or of a worker, have their numbers among empty lines", async (t) => {
  const { read, output, descriptor, end } = await setUp(t);
  for (const count of [1, 2, 3]) {
    writeSync(descriptor, "\n".repeat(count));
    output("10.0.0.7", `word ${count}`);
  }
  await end();
  const numbers = async (query: Partial<LinesQuery>) => (await read(query)).lines.map(({ line }) => line);
  assert.deepEqual(await numbers({ text: "word" }), [2, 5, 9]);
  assert.deepEqual(await numbers({ worker: "10.0.0.7" }), [2, 5, 9]);
});

test("no text changes the place of a line, whatever it imitates", async (t) => {
  const { read, output, log, end } = await setUp(t);
  const fake = "db@10.0.0.1 ! fake";
  output("10.0.0.7", fake);
  output("10.0.0.7", `error: ${fake}`, "stderr");
  output("10.0.0.7", "web@10.0.0.7 | twice");
  log.error(`web: failed:\n${fake}\nerror: db: fake\nweb@10.0.0.7 | fake`, { job: "web" });
  log.info(`told:\n${fake}\nerror: fake`);
  log.remark("web", "10.0.0.7", `warning: a\n${fake}`, { stream: "stderr" });
  await end();
  const { lines } = await read();
  assert.deepEqual(lines.map(told), [
    `web 10.0.0.7 stdout: ${fake}`,
    `web 10.0.0.7 stderr: error: ${fake}`,
    "web 10.0.0.7 stdout: web@10.0.0.7 | twice",
    "web null ops: error: web: failed:",
    `web null ops: ${fake}`,
    "web null ops: error: db: fake",
    "web null ops: web@10.0.0.7 | fake",
    "null null ops: told:",
    `null null ops: ${fake}`,
    "null null ops: error: fake",
    "web 10.0.0.7 stderr: warning: a",
    `web 10.0.0.7 stderr: ${fake}`,
  ]);
  for (const filter of [{ job: "db" }, { worker: "10.0.0.1" }]) assert.deepEqual((await read(filter)).lines, []);
  assert.equal((await read({ job: "web" })).lines.length, 9);
  assert.equal((await read({ job: "web", worker: "10.0.0.7" })).lines.length, 5);
  assert.deepEqual(
    (await read({ stream: "stderr" })).lines.map(({ line }) => line),
    [2, 11, 12],
  );
  assert.equal((await read({ stream: "ops", job: "web" })).lines.length, 4);
});

test("searches and downloads take the recorded places too, whatever the text imitates", async (t) => {
  const { layout, id, files, output, log, end } = await setUp(t);
  output("10.0.0.7", "db@10.0.0.1 | fake");
  log.error("db: failed:\nweb@10.0.0.7 | fake", { job: "db" });
  log.info("the files went to web", { job: "web" });
  for (let line = 0; line < 30_000; line++) output(`10.0.0.${8 + (line % 2)}`, "x".repeat(80));
  log.info("the end", { job: "db", worker: "10.0.0.7" });
  await end();
  const ask = { matchCase: false, limit: 50 };
  const found = async (filter: Partial<LinesQuery>) =>
    (await searchLog(layout, id, { ...ask, text: "f", ...filter })).matches.map(({ line }) => line);
  assert.deepEqual(await found({ job: "web" }), [1, 4]);
  assert.deepEqual(await found({ job: "db" }), [2, 3]);
  assert.deepEqual(await found({ worker: "10.0.0.1" }), []);
  assert.deepEqual(await found({ text: undefined, job: "db", worker: "10.0.0.7" }), [30_005]);
  const opened = await openLogText(layout, readRecord(layout, id) as RunRecord, { matchCase: false, job: "db" }, false);
  const pieces: Uint8Array[] = [];
  for await (const piece of opened.read()) pieces.push(piece);
  await opened.close();
  assert.equal(String(Buffer.concat(pieces)), "error: db: failed:\nweb@10.0.0.7 | fake\nthe end\n");
  // An entry that was cut off is no record.
  writeFileSync(files.activityPlaces, "0 0 stdout web 10.");
  assert.deepEqual(await found({ job: "db" }), [2]);
});

test("what Node itself writes into the log has no place, and moves none", async (t) => {
  const { read, output, descriptor, end } = await setUp(t);
  output("10.0.0.7", "a");
  writeSync(descriptor, "(node:1) a warning\n");
  output("10.0.0.7", "b");
  await end();
  assert.deepEqual((await read()).lines.map(told), [
    "web 10.0.0.7 stdout: a",
    "null null null: (node:1) a warning",
    "web 10.0.0.7 stdout: b",
  ]);
  assert.equal((await read({ worker: "10.0.0.7" })).lines.length, 2);
});

test("without a record of places lines have none, and a job is found by what lines begin with", async (t) => {
  const { read, output, files, log, text, end } = await setUp(t);
  log.info("web: begins", { job: "web" });
  output("10.0.0.7", "a failed thing");
  await end();
  rmSync(files.activityPlaces);
  const found = await read();
  assert.deepEqual(found.lines.map(told), ["null null null: web: begins", "null null null: web@10.0.0.7 | a failed thing"]);
  assert.equal(found.next, `${text().length}.3`);
  assert.deepEqual(
    (await read({ job: "web", worker: "10.0.0.7" })).lines.map(({ line, error }) => [line, error]),
    [[2, true]],
  );
});

test("an entry of the places that was cut does not count: no line gets the place of another one's output", async (t) => {
  const { read, output, files, end } = await setUp(t);
  output("10.0.0.7", "a");
  output("10.0.0.8", "b");
  output("10.0.0.7", "c");
  await end();
  writeFileSync(files.activityPlaces, "0 0 stdout web 10.0.0.7\n17 1 stdout we");
  assert.deepEqual((await read()).lines.map(told), [
    "web 10.0.0.7 stdout: a",
    "null null null: web@10.0.0.8 | b",
    "web 10.0.0.7 stdout: c",
  ]);
});

test("lines are read from a line, before a line, from the end and behind an answer, in parts of any size", async (t) => {
  const { read, output, log, text, end } = await setUp(t);
  const random = seeded();
  const integer = (from: number, to: number) => from + Math.floor(random() * (to - from + 1));
  for (let line = 1; line <= 5_000; line++) {
    const words = random() < 0.01 ? "x".repeat(20_000) : random() < 0.02 ? "error: bad" : `line ${line}`;
    if (random() < 0.3) log.info(words);
    else output(`10.0.0.${integer(1, 3)}`, words, random() < 0.5 ? "stdout" : "stderr");
  }
  await end();
  const written = text().split("\n").slice(0, -1);
  const numbers = async (query: Partial<LinesQuery>) => (await read(query)).lines.map(({ line }) => line);
  const range = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index);
  for (let round = 0; round < 50; round++) {
    const [line, limit] = [integer(1, 5_001), integer(1, 1_000)];
    assert.deepEqual(await numbers({ from: line, limit }), range(line, Math.min(5_001, line + limit)));
    assert.deepEqual(await numbers({ before: line, limit }), range(Math.max(1, line - limit), line));
  }
  assert.deepEqual(await numbers({ tail: true, limit: 7 }), range(4_994, 5_001));
  for (const filter of [{}, { errors: true }, { worker: "10.0.0.2" }, { text: "LINE 4", job: "web" }]) {
    const isWanted = (line: string) =>
      ("errors" in filter ? / [|!] error/.test(line) : true) &&
      ("worker" in filter ? line.startsWith("web@10.0.0.2 ") : true) &&
      ("text" in filter ? line.startsWith("web@") && line.includes("line 4") : true);
    const wanted = written.flatMap((line, index) => (isWanted(line) ? [index + 1] : []));
    const forwards: number[] = [];
    for (let after = "0", done = false; !done; ) {
      const part = await read({ ...filter, after, limit: 333 });
      forwards.push(...part.lines.map(({ line }) => line));
      ({ next: after, done } = part);
    }
    assert.deepEqual(forwards, wanted);
    const backwards: number[] = [];
    for (let before = 5_001; before > 1; ) {
      const part = await read({ ...filter, before, limit: 333 });
      backwards.unshift(...part.lines.map(({ line }) => line));
      before = part.scanned_line;
    }
    assert.deepEqual(backwards, wanted);
  }
  const all = (await read({ from: 4_001, limit: 1_000 })).lines;
  const bytes = Buffer.from(text());
  for (const { offset, length, text: shown, line } of all) {
    const whole = written[line - 1] as string;
    assert.equal(bytes.subarray(offset).toString("utf8", 0, whole.length), whole);
    assert.ok(whole.endsWith(shown.replace(/…$/, "")) || (shown.endsWith("…") && length === 20_000));
  }
});

test("of a run that goes on there are the lines that are complete, and the next call goes on behind them", async (t) => {
  const { read, files, output, end } = await setUp(t);
  assert.deepEqual(await read({ tail: true }), {
    lines: [],
    next: "0.1",
    scanned_to: 0,
    scanned_line: 1,
    total: 0,
    size_bytes: 0,
    status: "running",
    done: false,
  });
  output("10.0.0.7", "one");
  appendFileSync(files.activity, "web@10.0.0.7 | tw");
  const first = await read();
  assert.deepEqual([first.lines.map(told), first.next, first.done], [["web 10.0.0.7 stdout: one"], "19.2", false]);
  appendFileSync(files.activity, "o\nweb@10.0.0.7 | thr");
  const second = await read({ after: first.next });
  assert.deepEqual([second.lines.map(told), second.next, second.total], [["web 10.0.0.7 stdout: two"], "38.3", 2]);
  await end();
  const third = await read({ after: second.next });
  assert.deepEqual([third.lines.map(told), third.next, third.done], [["web 10.0.0.7 stdout: thr"], "56.4", true]);
  assert.deepEqual((await read({ from: 99 })).lines, []);
});

test("many readers of a log that grows all read the same lines", async (t) => {
  const { read, output } = await setUp(t);
  const readers: ReturnType<typeof read>[] = [];
  for (let line = 1; line <= 200; line++) {
    output("10.0.0.7", `line ${line}`);
    readers.push(read({ tail: true, limit: 1 }));
    if (line % 5 === 0) await readers.at(-1);
  }
  const found = await Promise.all(readers);
  for (const { lines, total } of found) assert.deepEqual(lines.map(told), [`web 10.0.0.7 stdout: line ${total}`]);
  assert.equal(found.at(-1)?.total, 200);
});

test("a long line is cut behind 4 KiB, between two characters", async (t) => {
  const { read, output, end } = await setUp(t);
  output("10.0.0.7", `a${"ä".repeat(3_000)}`);
  await end();
  const [line] = (await read()).lines;
  assert.deepEqual([line?.text, line?.length], [`a${"ä".repeat(2_047)}…`, 6_001]);
});

test("where to look is told in one way only, and lies in the log", async (t) => {
  const { read } = await setUp(t);
  for (const query of [{ from: 1, tail: true }, { before: 2, after: "0" }, { after: "1.1" }, { after: "x" }, { text: "a\nb" }])
    await assert.rejects(read(query), { code: "invalid_request" }, JSON.stringify(query));
});
