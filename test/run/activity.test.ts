import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import fs, { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Layout, layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { sleep } from "../../lib/core/async.ts";
import { readActivity } from "../../lib/run/activity.ts";
import { createRecord, type RunRecord, saveRecord, settle } from "../../lib/run/record.ts";
import { patience } from "../../scripts/patience.ts";
import { failing } from "../helpers/faults.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const LONG_MS = patience(20_000);
const never = new AbortController().signal;

async function newRun(t: Parameters<typeof temporaryFolder>[0]) {
  const layout = layoutOf(temporaryFolder(t));
  const actor = { address: "127.0.0.1", via: "bearer" as const };
  const start = { id: uuidV7(), bucket_id: "b", origin: "server" as const, kind: "build" as const, params: {} };
  const record = await createRecord(layout, { ...start, actor, requestId: null });
  const write = (text: string | Buffer) => appendFileSync(runLayout(layout, record.id).activity, text);
  return { layout, record, write, end: () => finish(layout, record) };
}

async function finish(layout: Layout, record: RunRecord): Promise<void> {
  settle(record, { exitCode: 0, signal: null, outcome: { ok: true, error: null, result: null } });
  await saveRecord(layout, record);
}

test("CP-145 CP-265 T-74 the pieces put together are the log byte for byte, whole characters each", async (t) => {
  // Each byte of each character is the last one of a piece once.
  for (const character of ["ü", "…", "🌍"])
    for (let before = 0; before < Buffer.byteLength(character); before++) {
      const { layout, record, write, end } = await newRun(t);
      const text = "x".repeat(before) + character.repeat(150_000);
      write(text);
      await end();
      let all = "";
      for (let after = 0, done = false; !done; ) {
        const chunk = await readActivity(layout, record.id, { after, timeoutMs: 0, signal: never });
        assert.ok(!chunk.data.includes("\ufffd"));
        assert.equal(chunk.next, after + Buffer.byteLength(chunk.data));
        ({ next: after, done } = chunk);
        all += chunk.data;
      }
      assert.equal(all, text);
    }
});

test("CP-026 CP-267 a reader that waits is answered as soon as there is output", async (t) => {
  const { layout, record, write } = await newRun(t);
  const answer = readActivity(layout, record.id, { after: 0, timeoutMs: LONG_MS, signal: never });
  setTimeout(() => write("first line\n"), 50);
  assert.deepEqual(await answer, { run_id: record.id, status: "running", after: 0, next: 11, data: "first line\n", done: false });
});

test("readers whose watcher has failed see what is written after that", async (t) => {
  const { layout, record, write } = await newRun(t);
  const watcher = Object.assign(new EventEmitter(), { close() {} });
  const watch = t.mock.method(fs, "watch", () => watcher);
  syncBuiltinESMExports();
  t.after(() => {
    watch.mock.restore();
    syncBuiltinESMExports();
  });
  const answer = readActivity(layout, record.id, { after: 0, timeoutMs: LONG_MS, signal: never });
  watcher.emit("error", new Error("too many watches"));
  // The reader has looked again, and found nothing, before anything is written.
  await nextTurn();
  write("line\n");
  assert.equal((await answer).data, "line\n");
});

test("a reader that waits is answered when the run ends", async (t) => {
  const { layout, record, write, end } = await newRun(t);
  write("x");
  const answer = readActivity(layout, record.id, { after: 1, timeoutMs: LONG_MS, signal: never });
  await Promise.all([answer, sleep(50).then(end)]);
  const chunk = await answer;
  assert.deepEqual([chunk.data, chunk.done, chunk.status], ["", true, "succeeded"]);
});

test("CP-266 without anything new the answer comes after the timeout, and at once when the caller leaves", async (t) => {
  const { layout, record } = await newRun(t);
  assert.equal((await readActivity(layout, record.id, { after: 0, timeoutMs: 30, signal: never })).data, "");
  const leave = new AbortController();
  setTimeout(() => leave.abort(), 20);
  assert.equal((await readActivity(layout, record.id, { after: 0, timeoutMs: LONG_MS, signal: leave.signal })).done, false);
});

test("half a character is held back until its rest is there, or the run has ended", async (t) => {
  const { layout, record, write, end } = await newRun(t);
  const bytes = Buffer.from("a€");
  write(bytes.subarray(0, 3));
  const first = await readActivity(layout, record.id, { after: 0, timeoutMs: 0, signal: never });
  assert.deepEqual([first.data, first.next], ["a", 1]);
  write(bytes.subarray(3));
  assert.equal((await readActivity(layout, record.id, { after: 1, timeoutMs: LONG_MS, signal: never })).data, "€");
  write(bytes.subarray(1, 2));
  await end();
  const last = await readActivity(layout, record.id, { after: 4, timeoutMs: LONG_MS, signal: never });
  assert.deepEqual([last.data, last.next, last.done], ["\ufffd", 5, true]);
});

test("bytes that are no text hold nothing back: what comes behind them is told at once", async (t) => {
  const { layout, record, write } = await newRun(t);
  const read = async (after: number) => (await readActivity(layout, record.id, { after, timeoutMs: 0, signal: never })).data;
  write(Buffer.from([0xf0, 0x61]));
  assert.equal(await read(0), "\ufffda");
  write(Buffer.from([0x80, 0x80, 0x80, 0x80]));
  assert.equal(await read(2), "\ufffd".repeat(4));
});

test("CP-145 CP-267 each of many who read at once gets all of the log, whatever was written meanwhile", async (t) => {
  const { layout, record, write, end } = await newRun(t);
  const follow = async (pauseMs: number) => {
    let all = "";
    for (let after = 0, done = false; !done; ) {
      const chunk = await readActivity(layout, record.id, { after, timeoutMs: LONG_MS, signal: never });
      assert.equal(chunk.after, after);
      ({ next: after, done } = chunk);
      all += chunk.data;
      if (pauseMs > 0) await sleep(pauseMs);
    }
    return all;
  };
  const readers = Array.from({ length: 60 }, (_, index) => follow(index % 4));
  let text = "";
  for (let count = 0; count < 300; count++) {
    const line = `${count} ${"ü".repeat(count % 7)}\n`;
    write(line);
    text += line;
    if (count % 3 === 0) await new Promise((resolve) => setImmediate(resolve));
    if (count % 50 === 0) await sleep(5);
  }
  await end();
  for (const all of await Promise.all(readers)) assert.equal(all, text);
});

test("who reads right before a change is woken by it", { timeout: LONG_MS }, async (t) => {
  const { layout, record, write } = await newRun(t);
  const read = (after: number) => readActivity(layout, record.id, { after, timeoutMs: 3 * LONG_MS, signal: never });
  const second = read(0).then(() => read(1));
  const first = read(0).then(() => write("y"));
  write("x");
  await first;
  assert.equal((await second).data, "y");
});

test("a run's files are watched while somebody reads, and again for a later reader", { timeout: LONG_MS }, async (t) => {
  const { layout, record, write } = await newRun(t);
  const watches = () =>
    readdirSync("/proc/self/fdinfo")
      .map((descriptor) => `/proc/self/fdinfo/${descriptor}`)
      .filter((file) => existsSync(file))
      .map((file) => readFileSync(file, "utf8"))
      .reduce((sum, text) => sum + (text.match(/^inotify /gm)?.length ?? 0), 0);
  for (const [after, text] of ["x", "y"].entries()) {
    const answer = readActivity(layout, record.id, { after, timeoutMs: 3 * LONG_MS, signal: never });
    assert.equal(watches(), 1);
    write(text);
    assert.equal((await answer).data, text);
    await nextTurn();
    assert.equal(watches(), 0);
  }
});

test("an offset past the end and an unknown run are refused", async (t) => {
  const { layout, record } = await newRun(t);
  await assert.rejects(readActivity(layout, record.id, { after: 1, timeoutMs: 0, signal: never }), { code: "invalid_request" });
  await assert.rejects(readActivity(layout, uuidV7(), { after: 0, timeoutMs: 0, signal: never }), { code: "run_not_found" });
});

test("a reader that waits learns that its run was removed", async (t) => {
  const { layout, record } = await newRun(t);
  const answer = readActivity(layout, record.id, { after: 0, timeoutMs: LONG_MS, signal: never });
  answer.catch(() => {});
  rmSync(runLayout(layout, record.id).folder, { recursive: true });
  await assert.rejects(answer, { code: "run_not_found" });
});

test("a log that is no regular file counts as empty", async (t) => {
  const { layout, record, end } = await newRun(t);
  mkdirSync(runLayout(layout, record.id).activity);
  await end();
  const { data, done } = await readActivity(layout, record.id, { after: 0, timeoutMs: 0, signal: never });
  assert.deepEqual([data, done], ["", true]);
});

test("CP-147 the log of a run that ended long ago is read like any other", async (t) => {
  const { layout, record, write, end } = await newRun(t);
  write("old\n");
  await end();
  const chunk = await readActivity(layoutOf(layout.root), record.id, { after: 0, timeoutMs: LONG_MS, signal: never });
  assert.deepEqual([chunk.data, chunk.done], ["old\n", true]);
});

test("a log that goes while it is read has said nothing; any other trouble is told", async (t) => {
  const { layout, record, write } = await newRun(t);
  write("said\n");
  const { activity } = runLayout(layout, record.id);
  const mend = failing(t, fs, "openSync", "ENOENT", activity);
  assert.equal((await readActivity(layout, record.id, { after: 0, timeoutMs: 0, signal: never })).data, "");
  mend();
  failing(t, fs, "openSync", "EMFILE", activity);
  await assert.rejects(readActivity(layout, record.id, { after: 0, timeoutMs: 0, signal: never }), { code: "EMFILE" });
});
