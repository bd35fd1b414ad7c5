import assert from "node:assert/strict";
import { test } from "node:test";
import { EventLog } from "../../lib/run/events.ts";
import type { RunRecord } from "../../lib/run/record.ts";

const RUN = { bucket_id: "b", kind: "build", status: "running" } as unknown as RunRecord;
const STAY = new AbortController().signal;

function add(log: EventLog, ...ids: number[]): void {
  for (const id of ids) log.add("started", { ...RUN, id: String(id) });
}

async function idsAfter(log: EventLog, place: string) {
  const { items, next, reset } = await log.after(place, { timeoutMs: 0, signal: STAY });
  return { ids: items.map(({ run_id }) => Number(run_id)), next, reset };
}

test("without a place the present one is answered at once, and from there on all changes come in order", async () => {
  const log = new EventLog();
  add(log, 1);
  const { items, next, reset } = await log.after(undefined, { timeoutMs: 60_000, signal: STAY });
  assert.deepEqual([items, reset], [[], false]);
  add(log, 2, 3);
  const found = await idsAfter(log, next);
  assert.deepEqual([found.ids, found.reset], [[2, 3], false]);
  assert.deepEqual((await idsAfter(log, found.next)).ids, []);
  assert.deepEqual((await idsAfter(log, next)).ids, [2, 3], "a place is good more than once");
});

test("who waits is woken by the change, all of them", async () => {
  const log = new EventLog();
  const { next } = await log.after(undefined, { timeoutMs: 0, signal: STAY });
  const waiting = [1, 2, 3].map(() => log.after(next, { timeoutMs: 60_000, signal: STAY }));
  add(log, 7);
  for (const found of await Promise.all(waiting)) assert.equal(found.items[0]?.run_id, "7");
});

test("who is woken by more changes than are kept learns that some were missed", async () => {
  const log = new EventLog();
  const { next } = await log.after(undefined, { timeoutMs: 0, signal: STAY });
  const waiting = log.after(next, { timeoutMs: 60_000, signal: STAY });
  add(log, ...Array.from({ length: 1_001 }, (_, index) => index));
  const found = await waiting;
  assert.deepEqual([found.items, found.reset, (await idsAfter(log, found.next)).reset], [[], true, false]);
});

test("without a change the answer comes after the timeout, and at once when the caller leaves", async () => {
  const log = new EventLog();
  const { next } = await log.after(undefined, { timeoutMs: 0, signal: STAY });
  assert.deepEqual(await log.after(next, { timeoutMs: 20, signal: STAY }), { items: [], next, reset: false });
  const leave = new AbortController();
  const waiting = log.after(next, { timeoutMs: 60_000, signal: leave.signal });
  leave.abort();
  assert.deepEqual(await waiting, { items: [], next, reset: false });
});

test("a place that is older than 1,000 changes, of another server or no place at all says that changes were missed", async () => {
  const log = new EventLog();
  const { next } = await log.after(undefined, { timeoutMs: 0, signal: STAY });
  add(log, ...Array.from({ length: 1_000 }, (_, index) => index));
  assert.equal((await idsAfter(log, next)).ids.length, 1_000);
  add(log, 1_000);
  const other = (await new EventLog().after(undefined, { timeoutMs: 0, signal: STAY })).next;
  for (const place of [next, other, "x", "", `${next}9999`, next.replace(/\d+$/, "-1")]) {
    const found = await log.after(place, { timeoutMs: 60_000, signal: STAY });
    assert.deepEqual([found.items, found.reset], [[], true], place);
    assert.deepEqual((await idsAfter(log, found.next)).reset, false);
  }
});

test("who waits while more than 1,000 changes come at once is told that some were missed", async () => {
  for (const [count, expected] of [
    [1_000, [1_000, false]],
    [1_001, [0, true]],
  ] as const) {
    const log = new EventLog();
    const { next } = await log.after(undefined, { timeoutMs: 0, signal: STAY });
    const waiting = log.after(next, { timeoutMs: 60_000, signal: STAY });
    add(log, ...Array(count).keys());
    const { items, reset } = await waiting;
    assert.deepEqual([items.length, reset], expected);
  }
});

test("runs that have ended are counted by kind and status, with their time, which no clock that was set back makes less", () => {
  const log = new EventLog();
  add(log, 1);
  for (const finished_at of ["2026-01-01T00:00:02.500Z", "2026-01-01T00:00:00.500Z", "2025-12-31T00:00:00.000Z"])
    log.add("ended", { ...RUN, id: "1", status: "failed", created_at: "2026-01-01T00:00:00.000Z", finished_at });
  assert.deepEqual([...log.ended.values()], [{ kind: "build", status: "failed", count: 3, seconds: 3 }]);
});

test("who may not know of a bucket is not woken by its changes, and goes on behind them", async () => {
  const log = new EventLog();
  const { next } = await log.after(undefined, { timeoutMs: 0, signal: STAY });
  const isShown = (event: { bucket_id: string }) => event.bucket_id === "mine";
  const waiting = log.after(next, { timeoutMs: 60_000, signal: STAY, isShown });
  add(log, 1, 2);
  log.add("started", { ...RUN, bucket_id: "mine", id: "3" });
  const { items, next: behind } = await waiting;
  assert.deepEqual(
    items.map(({ run_id }) => run_id),
    ["3"],
  );
  add(log, 4);
  const nothing = await log.after(behind, { timeoutMs: 0, signal: STAY, isShown });
  assert.deepEqual(nothing.items, []);
  assert.deepEqual((await idsAfter(log, nothing.next)).ids, [], "what is not shown is passed over");
});

test("a change has its time, its run and its status, and is told once the log has it", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: Date.UTC(2026, 0, 2, 3, 4, 5) });
  const log = new EventLog();
  const told: unknown[] = [];
  log.onChange = (change, record) => told.push([change, record.id]);
  const { next } = await log.after(undefined, { timeoutMs: 0, signal: STAY });
  log.add("cancelling", { ...RUN, id: "7" });
  const { items, next: behind } = await log.after(next, { timeoutMs: 60_000, signal: STAY });
  assert.deepEqual(items, [
    { at: "2026-01-02T03:04:05.000Z", change: "cancelling", bucket_id: "b", run_id: "7", kind: "build", status: "running" },
  ]);
  assert.deepEqual([told, log.ended.size], [[["cancelling", "7"]], 0]);
  assert.match(behind, /^[0-9a-f]{12}\.1$/);
  for (const place of [`${behind}x`, behind.replace(".", ".x"), behind.replace(/\d+$/, "2"), behind.replace(/\d+$/, "")])
    assert.equal((await idsAfter(log, place)).reset, true, place);
});

test("runs of each kind and status are counted by themselves", () => {
  const log = new EventLog();
  const times = { created_at: "2026-01-01T00:00:00.000Z", finished_at: "2026-01-01T00:00:01.500Z" };
  for (const [kind, status] of [
    ["build", "failed"],
    ["build", "succeeded"],
    ["deploy", "failed"],
    ["build", "failed"],
  ] as const)
    log.add("ended", { ...RUN, ...times, id: "1", kind, status });
  assert.deepEqual(
    [...log.ended.values()],
    [
      { kind: "build", status: "failed", count: 2, seconds: 3 },
      { kind: "build", status: "succeeded", count: 1, seconds: 1.5 },
      { kind: "deploy", status: "failed", count: 1, seconds: 1.5 },
    ],
  );
});
