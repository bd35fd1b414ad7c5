import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { LogLine } from "../../../lib/bucket/base/logs.ts";
import { humanLog, printJobLogs, printLogs, wantedJobLogs, wantedLogs } from "../../../lib/cli/bucket/logs.ts";
import { parsed, printed } from "../../helpers/printed.ts";

const NEVER = new AbortController().signal;

async function* each<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}

test("the flags of ops logs say which lines are wanted; those about runs go without a job", () => {
  const filters = { worker: "-,a", run: "12345678", job: "web", phase: "rollout", event: "command_end" };
  assert.deepEqual(wantedLogs(parsed({ ...filters, tail: "3" })), {
    filter: { worker: ["-", "a"], run: ["12345678"], job: ["web"], phase: ["rollout"], event: ["command_end"] },
    tail: 3,
  });
  assert.deepEqual(wantedLogs(parsed()), { filter: {}, tail: undefined });
  assert.throws(() => wantedLogs(parsed({}, ["follow"])), { code: "usage", message: /^--follow goes with a job/ });
  assert.deepEqual(wantedJobLogs(parsed({}, [], ["web"])), { job: "web", workers: undefined, tail: 100, follow: false });
  assert.deepEqual(wantedJobLogs(parsed({ worker: "a,b", tail: "1000000" }, ["follow"], ["web"])), {
    ...{ job: "web", workers: ["a", "b"], tail: 1_000_000, follow: true },
  });
  const tooMany = '--tail: expected at most 1000000, found "1000001"';
  assert.throws(() => wantedJobLogs(parsed({ tail: "1000001" }, [], ["web"])), { code: "usage", message: tooMany });
  for (const name of ["run", "job", "phase", "event", "run-dir", "format"])
    assert.throws(() => wantedJobLogs(parsed({ [name]: "x" }, [], ["web"])), {
      ...{ code: "usage", message: `--${name} goes without a job: it is about the lines of runs (see \`ops logs --help\`)` },
    });
});

test("lines of a job have the name of their worker where several are asked; errors go to stderr", async (t) => {
  const print = (lines: string[], ...switches: string[]) =>
    printed(t, () => printJobLogs(parsed({}, switches), each(lines), NEVER));
  const one = ["asked: w1", "w1 | hello you", "w1 ! oh\x1b", "alive:", "end: 0"];
  assert.deepEqual(await print(one), { out: "hello you\noh\\x1b\n", err: "", answer: 0 });
  const two = ["asked: w1 w2", "w1 | a", "w2 ! b", "error: w2 is gone", "end: 1"];
  assert.deepEqual(await print(two), { out: "w1 | a\nw2 ! b\n", err: "ops: w2 is gone\n", answer: 1 });
  const json = '{"worker":"w1","stream":"stdout","text":"a"}\n{"worker":"w2","stream":"stderr","text":"b"}\n';
  assert.deepEqual(await print(two, "json"), { out: json, err: "ops: w2 is gone\n", answer: 1 });
  await assert.rejects(print(one.slice(0, -1)), { code: "failed", message: "the server's answer was cut" });
});

test("lines of a job end where nobody reads, and at a request to stop also while none comes", async (t) => {
  const lines = each(["asked: w1", "w1 | a", "w1 | b", "end: 1"]);
  const closed = await printed(t, () => printJobLogs(parsed(), lines, NEVER), { closed: true });
  assert.deepEqual(closed, { out: "a\n", err: "", answer: 0 });
  const stop = new AbortController();
  const silent = (async function* (): AsyncGenerator<string> {
    await new Promise(() => {});
  })();
  const answer = printJobLogs(parsed(), silent, stop.signal);
  await nextTurn();
  stop.abort();
  await assert.rejects(answer, { code: "cancelled" });
  const unread = each(["end: 0"]);
  await assert.rejects(printJobLogs(parsed(), unread, stop.signal), { code: "cancelled" });
  assert.deepEqual(await unread.next(), { value: "end: 0", done: false });
});

test("lines of runs are printed as JSON, as they are, or for people; a command without an end comes last", async (t) => {
  const line = (entry: Record<string, string>): LogLine => ({ text: `raw\x1b ${entry.msg}`, entry }) as LogLine;
  const begin = { level: "info", run: "r", ops: "deploy", seq: "7", job: "web", event: "command_begin", action: "start" };
  const lines = [line(begin), line({ ...begin, event: "", stream: "stdout", msg: "held" })];
  const print = (values: Record<string, string>, ...switches: string[]) =>
    printed(t, () => printLogs(parsed(values, switches), each(lines)));
  assert.deepEqual(await print({}), { out: "  deploy  seq=7  run=r\n  web $ start\n  web | held\n", err: "", answer: 0 });
  assert.equal((await print({ format: "raw" })).out, "raw\\x1b undefined\nraw\\x1b held\n");
  assert.equal((await print({}, "json")).out, lines.map(({ entry }) => `${JSON.stringify(entry)}\n`).join(""));
  const rest = each(lines);
  const closed = await printed(t, () => printLogs(parsed({ format: "raw" }), rest), { closed: true });
  assert.deepEqual(closed, { out: "raw\\x1b undefined\n", err: "", answer: 0 });
});

test("an entry for people has its level, event, action, reason and text, and a command how it ended", () => {
  const shown = (...entries: Record<string, string>[]) => {
    const lines: string[] = [];
    const log = humanLog((text) => lines.push(text));
    for (const entry of entries) log.line({ level: "info", run: "r", worker: "w", ...entry } as Parameters<typeof log.line>[0]);
    return lines.slice(1);
  };
  const entry = { event: "gate", action: "check", reason: "late", msg: "wait" };
  assert.deepEqual(shown(entry, { ...entry, level: "warn", job: "web" }), [
    "  w gate check late wait",
    "  web@w warn: gate check late wait",
  ]);
  assert.deepEqual(shown({ worker: "-", msg: "all" }, { stream: "stderr", msg: "no command" }), ["  all", "  w ! no command"]);
  const end = (fields: Record<string, string>) => shown({ event: "command_end", ...fields })[0];
  assert.equal(end({ exit: "0", duration_ms: "1250", reason: "none" }), "  w ok, 1.3 s");
  assert.equal(end({ exit: "3", reason: "killed" }), "  w FAIL, exit 3, killed");
  assert.equal(end({ reason: "timed out", duration_ms: "90000" }), "  w FAIL, timed out, 90.0 s");
  const long = Array.from({ length: 10_001 }, (_, at) => ({ stream: "stdout", msg: String(at) }));
  assert.deepEqual(shown({ event: "command_begin", cmd: "x" }, ...long), ["  w | 9999", "  w | 10000"]);
});
