import assert from "node:assert/strict";
import path from "node:path";
import { beforeEach, test } from "node:test";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { until } from "../helpers/temporary.ts";

const load = (file: string) => import(path.join(PROGRAM_ROOT, "ui/log", file));
const [{ LogSource }, { folded, rowsOf }, { seenNames, timeOf }] = await Promise.all(
  ["source.js", "fold.js", "row.js"].map(load),
);

interface Line {
  line: number;
  job: string | null;
  worker: string | null;
  stream: string;
  text: string;
  error: boolean;
}

/** A page, as far as reading a log needs one. */
const page = Object.assign(new EventTarget(), { hidden: false });
/** The server: its lines, what it was asked, and how it fails. */
const server = { lines: [] as Line[], done: false, asked: [] as URLSearchParams[], failures: 0 };

beforeEach(() => {
  Object.assign(globalThis, { document: page, fetch: answer });
  Object.assign(page, { hidden: false });
  Object.assign(server, { lines: [], done: true, asked: [], failures: 0 });
});

const lineOf = (line: number, more: Partial<Line> = {}): Line => ({
  ...{ line, job: "web", worker: `10.0.0.${line % 7}`, stream: "stdout", text: `line ${line}`, error: false },
  ...more,
});

/** Answers like `logs/lines`; one look passes at most 500 lines. */
async function answer(url: string, { signal }: { signal: AbortSignal }) {
  const query = new URLSearchParams(url.split("?")[1]);
  server.asked.push(query);
  if (server.failures-- > 0) throw new TypeError("no connection");
  const { lines } = server;
  const limit = Number(query.get("limit"));
  const wanted = ({ error, text }: Line) => (!query.has("errors") || error) && text.includes(query.get("q") ?? "");
  const isBackwards = query.has("tail") || query.has("before");
  const from = Number(query.get("from") ?? query.get("after")?.split(".")[1] ?? 1);
  if (query.has("after")) await until("a line", () => lines.length >= from || server.done || signal.aborted);
  const before = Number(query.get("before") ?? lines.length + 1);
  const looked = isBackwards ? lines.slice(Math.max(0, before - 501), before - 1) : lines.slice(from - 1, from + 499);
  const found = looked.filter(wanted);
  const cut = isBackwards ? found.slice(-limit) : found.slice(0, limit);
  const isFull = cut.length === limit;
  const end = isFull ? (cut.at(-1)?.line ?? 0) + 1 : (looked.at(-1)?.line ?? from - 1) + 1;
  const begin = isFull ? cut[0]?.line : (looked[0]?.line ?? 1);
  const next = isBackwards ? before : end;
  const body = {
    ...{ lines: cut, next: `0.${next}`, scanned_line: isBackwards ? begin : end, total: lines.length },
    ...{ size_bytes: 9 * lines.length, status: server.done ? "succeeded" : "running", done: server.done && next > lines.length },
  };
  return new Response(JSON.stringify(body));
}

async function opened(count: number) {
  server.lines.push(...Array.from({ length: count }, (_, index) => lineOf(index + 1)));
  const source = new LogSource("bucket", "run");
  await source.open();
  return source;
}

const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index);
const numbersOf = (lines: Line[]) => lines.map(({ line }) => line);

for (const limit of [13, 77, 200, 600])
  test(`lines are the same from either end, without a gap, ${limit} at a time`, async () => {
    const source = await opened(2_345);
    const forwards: number[] = [];
    for (let at = 1; at <= source.total; ) {
      const { lines, next } = await source.after(at, limit);
      forwards.push(...numbersOf(lines));
      at = next;
    }
    const backwards: number[] = [];
    for (let at = source.total + 1; at > 1; ) {
      const { lines, first } = await source.before(at, limit);
      backwards.unshift(...numbersOf(lines));
      at = first;
    }
    assert.deepEqual(forwards, numbers(1, 2_345));
    assert.deepEqual(backwards, forwards);
  });

test("the end of a long log takes one answer, and is in memory then", async () => {
  const source = await opened(50_000);
  assert.deepEqual(numbersOf((await source.before(50_001, 100)).lines), numbers(49_901, 50_000));
  assert.deepEqual(numbersOf((await source.after(49_950, 100)).lines), numbers(49_950, 50_000));
  assert.equal(server.asked.length, 1);
  assert.deepEqual(numbersOf((await source.after(25_000, 3)).lines), [25_000, 25_001, 25_002]);
  assert.equal(server.asked.length, 2);
});

test("lines that match are looked for in as many answers as it takes, and from the other end at last", async () => {
  const source = await opened(5_000);
  for (const line of [1_200, 4_100]) server.lines[line - 1] = lineOf(line, { error: true });
  const seek = async (line: number, by: number) => (await source.seek({ errors: true }, line, by))?.line;
  assert.deepEqual([await seek(0, 1), await seek(1_200, 1), await seek(4_100, 1)], [1_200, 4_100, 1_200]);
  assert.deepEqual([await seek(5_001, -1), await seek(4_100, -1), await seek(1_200, -1)], [4_100, 1_200, 4_100]);
  assert.equal(await source.seek({ q: "nowhere" }, 0, 1), undefined);
});

test("a log that grows is followed; after a lost connection the reading goes on where it was", async () => {
  server.done = false;
  const source = await opened(10);
  const [added, troubles] = [[] as number[], [] as string[]];
  const following = source.follow(
    (lines: Line[]) => added.push(...numbersOf(lines)),
    (trouble: string) => troubles.push(trouble),
  );
  server.lines.push(...numbers(11, 15).map((line) => lineOf(line)));
  await until("five lines", () => added.length === 5);
  server.failures = 1;
  server.lines.push(lineOf(16));
  await until("a trouble", () => troubles.includes("The server cannot be reached. Trying again."));
  server.lines.push(lineOf(17));
  server.done = true;
  await following;
  assert.deepEqual(added, numbers(11, 17));
  assert.deepEqual([source.total, source.newest.line, troubles.at(-1)], [17, 17, ""]);
});

test("a page that nobody sees asks for nothing", async () => {
  server.done = false;
  const source = await opened(1);
  page.hidden = true;
  const following = source.follow(
    () => {},
    () => {},
  );
  await new Promise(setImmediate);
  assert.equal(server.asked.length, 1);
  server.done = true;
  page.hidden = false;
  page.dispatchEvent(new Event("visibilitychange"));
  await following;
  assert.equal(server.asked.length, 2);
});

test("a log that ends is not read any more, and one that is closed neither", async () => {
  server.done = false;
  const source = await opened(1);
  const following = source.follow(
    () => {},
    () => {},
  );
  await until("the question", () => server.asked.length === 2);
  source.close();
  await following;
  assert.equal(server.asked.length, 2);
});

const SAME = [
  ...numbers(1, 3).map((line) => lineOf(line)),
  ...numbers(4, 43).map((line) => lineOf(line, { text: "test is successful", worker: `10.0.1.${line}` })),
  lineOf(44, { text: "test is successful", job: "db" }),
  ...numbers(45, 47).map((line) => lineOf(line, { text: "failed", error: true })),
  ...numbers(48, 49).map((line) => lineOf(line, { text: "twice" })),
];
const told = (rows: { line: number; last: number; fold?: string; count: number; workers?: Set<string> }[]) =>
  rows.filter(({ fold }) => fold).map(({ line, last, count, workers }) => [line, last, count, workers?.size]);
const never = () => false;

test("the same line of many workers is one row and a fold; errors, other jobs and pairs stay", () => {
  const rows = folded(rowsOf(SAME), { equal: true, places: false, isOpen: never });
  assert.deepEqual(told(rows), [[5, 43, 39, 39]]);
  assert.deepEqual(
    rows.map(({ line }: Line) => line),
    [...numbers(1, 5), ...numbers(44, 49)],
  );
});

test("folds are the same in whatever order their lines were read", () => {
  const how = { equal: true, places: false, isOpen: never };
  const whole = told(folded(rowsOf(SAME), how));
  for (let cut = 1; cut < SAME.length; cut++) {
    const [above, below] = [folded(rowsOf(SAME.slice(0, cut)), how), folded(rowsOf(SAME.slice(cut)), how)];
    assert.deepEqual(told(folded([...above, ...below], how)), whole, `cut before line ${cut + 1}`);
  }
});

test("lines of one place are one row where that is wanted; an open line stands between two folds", () => {
  const lines = numbers(1, 100).map((line) => lineOf(line, { worker: "10.0.0.1" }));
  const how = { equal: true, places: true };
  assert.deepEqual(told(folded(rowsOf(lines), { ...how, isOpen: never })), [[2, 100, 99, 1]]);
  const rows = folded(rowsOf(lines), { ...how, isOpen: ({ line }: Line) => line === 50 });
  assert.deepEqual(told(rows), [
    [2, 49, 48, 1],
    [52, 100, 49, 1],
  ]);
});

test("what names of workers share is cut after a whole part of the name", () => {
  const cutOf = (...names: string[]) => {
    const { seen, add } = seenNames();
    for (const worker of names) add({ worker });
    return seen.cut;
  };
  assert.deepEqual([cutOf(), cutOf("ams-b-007"), cutOf("ams-b-007", "ams-b-007")], [0, 0, 0]);
  assert.equal(cutOf("ams-b-007", "ams-a-012"), 4);
  assert.equal(cutOf("web01", "web02"), 0);
  assert.equal(cutOf("10.0.0.1", "10.0.0.12", "10.0.3.1"), 5);
});

test("a time is shown in UTC or since the start; what is not known is a dash", () => {
  const at = "2026-05-04T12:00:01.250Z";
  const of = (how: string, time: string | null = at) => timeOf(time, how, "2026-05-04T10:30:00Z");
  assert.deepEqual([of(""), of("UTC"), of("run"), of("UTC", null)], ["", "12:00:01.250", "01:30:01.250", "-"]);
});
