import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import {
  descriptorRoom,
  enterAll,
  handshakeLimit,
  Limit,
  Patience,
  Pool,
  pauseAfter,
} from "../../../lib/transport/ssh/limits.ts";

/** Asks for places and notes who got one, in which order. */
function asking(limit: { enter(signal?: AbortSignal): Promise<() => void> }) {
  const inside: string[] = [];
  const leave = new Map<string, () => void>();
  const ask = async (name: string, signal?: AbortSignal) => {
    leave.set(name, await limit.enter(signal));
    inside.push(name);
  };
  return { inside, leave, ask };
}

test("no more than its width are in a limit, and who came first gets the next place", async () => {
  const { inside, leave, ask } = asking(new Limit(2));
  for (const name of ["a", "b", "c", "d"]) void ask(name);
  await nextRound();
  assert.deepEqual(inside, ["a", "b"]);
  leave.get("b")?.();
  leave.get("b")?.();
  await nextRound();
  assert.deepEqual(inside, ["a", "b", "c"], "who leaves twice gives back one place");
  leave.get("a")?.();
  await nextRound();
  assert.deepEqual(inside, ["a", "b", "c", "d"]);
});

test("CP-133 who stops waiting for a place does not get one, and leaves no listener", async () => {
  const { inside, leave, ask } = asking(new Limit(1));
  const stop = new AbortController();
  await ask("a");
  const given = ask("b", stop.signal);
  void ask("c");
  stop.abort();
  await assert.rejects(given, { code: "cancelled" });
  leave.get("a")?.();
  await nextRound();
  assert.deepEqual(inside, ["a", "c"]);
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
  await assert.rejects(ask("d", stop.signal), { code: "cancelled" });
  const other = new AbortController();
  void ask("e", other.signal);
  leave.get("c")?.();
  await nextRound();
  assert.deepEqual(inside, ["a", "c", "e"]);
  assert.equal(getEventListeners(other.signal, "abort").length, 0, "who got a place waits for nothing");
});

test("a limit that turns out too wide keeps what is in use; the last place cannot be lost", async () => {
  const limit = new Limit(8);
  const { inside, leave, ask } = asking(limit);
  for (const name of ["a", "b", "c"]) await ask(name);
  assert.equal(limit.narrow(), true);
  leave.get("c")?.();
  void ask("d");
  await nextRound();
  assert.deepEqual(inside, ["a", "b", "c"], "only two have a place now");
  leave.get("b")?.();
  await nextRound();
  assert.deepEqual(inside, ["a", "b", "c", "d"]);
  leave.get("d")?.();
  assert.equal(limit.narrow(), false);
  leave.get("a")?.();
  await ask("e");
});

test("several limits are entered together or not at all", async () => {
  const [first, second] = [new Limit(1), new Limit(1)];
  const leaveSecond = await second.enter();
  const stop = new AbortController();
  const waiting = enterAll([first, second], stop.signal);
  stop.abort();
  await assert.rejects(waiting, { code: "cancelled" });
  leaveSecond();
  const leave = await enterAll([first, second]);
  leave();
  await enterAll([first, second]);
});

test("one server gets 8 handshakes at a time, all of them together as many as sessions are allowed", async () => {
  const count = async (concurrency: number, hostOf: (index: number) => string) => {
    const enter = handshakeLimit(concurrency);
    let entered = 0;
    for (let index = 0; index < 40; index++) void enter({ host: hostOf(index), port: 22 }).then(() => entered++);
    await nextRound();
    return entered;
  };
  assert.equal(await count(100, () => "bastion.example"), 8);
  assert.equal(await count(100, (index) => `127.0.0.${index + 1}`), 8, "loopback addresses are one machine");
  assert.equal(await count(3, (index) => `10.0.0.${index + 1}`), 3);
  assert.ok((await count(100, (index) => `10.0.0.${index + 1}`)) >= 10);
});

test("a server that opens what it is asked for gets up to 20 at a time, until it drops one", async () => {
  const enter = handshakeLimit(100);
  const inside: Awaited<ReturnType<typeof enter>>[] = [];
  for (let index = 0; index < 100; index++)
    void enter({ host: "bastion.example", port: 22 }).then((leave) => {
      inside.push(leave);
    });
  const ended = async (end: "opened" | "dropped" | "failed") => {
    inside.shift()?.(end);
    await nextRound();
    return inside.length;
  };
  await nextRound();
  assert.equal(await ended("failed"), 8);
  for (let more = 9; more <= 20; more++) assert.equal(await ended("opened"), more);
  assert.equal(await ended("opened"), 20);
  assert.equal(await ended("dropped"), 19);
  assert.equal(await ended("opened"), 19, "not again");
});

test("hosts that give no answer keep no place from others for longer than a handshake computes", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const enter = handshakeLimit(3);
  const entered: ((end: "failed") => void)[] = [];
  for (let index = 0; index < 40; index++)
    void enter({ host: `10.0.0.${index + 1}`, port: 22 }).then((leave) => {
      entered.push(leave);
    });
  await nextRound();
  const counts = [];
  for (let second = 0; second < 6; second++) {
    counts.push(entered.length);
    t.mock.timers.tick(1_000);
    await nextRound();
  }
  assert.deepEqual(counts, [3, 6, 9, 12, 12, 12], "of all that wait, four times as many at most");
  entered[0]?.("failed");
  await nextRound();
  assert.equal(entered.length, 13);
});

test("a handshake that is cancelled while others compute gives its places back, and one that is over keeps no timer", async (t) => {
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const before = timers();
  (await handshakeLimit(1)({ host: "10.0.0.1", port: 22 }))("failed");
  assert.equal(timers(), before);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const enter = handshakeLimit(1);
  await enter({ host: "10.0.0.1", port: 22 });
  for (let round = 0; round < 3; round++) {
    const stop = new AbortController();
    const waiting = enter({ host: "10.0.0.2", port: 22 }, stop.signal);
    await nextRound();
    stop.abort();
    await assert.rejects(waiting, { code: "cancelled" });
  }
  let isIn = false;
  void enter({ host: "10.0.0.3", port: 22 }).then(() => {
    isIn = true;
  });
  t.mock.timers.tick(1_000);
  await nextRound();
  assert.ok(isIn, "of four places one is taken");
});

test("pauses grow to at most 5 s and are never the same for all", () => {
  for (const [attempt, longest] of [
    [1, 300],
    [2, 600],
    [5, 4_800],
    [6, 5_000],
    [60, 5_000],
  ] as const) {
    const pauses = new Set(Array.from({ length: 20 }, () => pauseAfter(attempt)));
    assert.ok([...pauses].every((pause) => pause >= longest / 2 && pause <= longest));
    assert.ok(pauses.size > 1);
  }
});

test("CP-398 the limit of open files bounds commands and kept shells, and always leaves one of each", () => {
  assert.deepEqual(descriptorRoom(20_000, 32), { commands: 32, shells: 14_802 });
  assert.deepEqual(descriptorRoom(256, 32), { commands: 24, shells: 26 });
  assert.deepEqual(descriptorRoom(64, 32), { commands: 1, shells: 1 });
  assert.deepEqual(descriptorRoom(Number.POSITIVE_INFINITY, 32), { commands: 32, shells: Number.POSITIVE_INFINITY });
});

test("a pool closes what has been idle longest where one more is needed, and nothing that is in use", async () => {
  const closed: string[] = [];
  const pool = new Pool(2);
  const named = (name: string) => pool.placeOf({ close: async () => void closed.push(name) });
  const [one, two, three] = [named("one"), named("two"), named("three")];
  const leaveOne = await one.enter();
  (await two.enter())();
  leaveOne();
  (await three.enter())();
  assert.deepEqual(closed, ["two"]);
  const leave = await one.enter();
  (await two.enter())();
  assert.deepEqual(closed, ["two", "three"]);
  await three.enter();
  await named("four").enter();
  assert.deepEqual(closed, ["two", "three", "two"], "all others are in use");
  leave();
  const again: string[] = [];
  const other = new Pool(2);
  const [a, b, c] = ["a", "b", "c"].map((name) => other.placeOf({ close: async () => void again.push(name) }));
  for (const place of [a, b, c, c]) (await place?.enter())?.();
  assert.deepEqual(again, ["a"], "what was closed counts no more");
});

test("who waits for a worker waits longer where other workers were slow, and not for ever", async () => {
  const patience = new Patience();
  assert.equal(patience.limitMs, 30_000);
  for (const tookMs of [9_000, 100]) patience.note(tookMs);
  assert.equal(patience.limitMs, 36_000);
  patience.note(1_000_000);
  assert.equal(patience.limitMs, 120_000);
});

test("a limit that is raised while somebody waits counts for that wait, too", async () => {
  const never = new Promise<void>(() => {});
  const stop = new AbortController();
  const patience = new Patience(1);
  const waiting = patience.wait(never, stop.signal);
  patience.note(30_000);
  // The first limit of the wait above is over by then.
  assert.equal(await new Patience(1).wait(never, undefined), "timeout");
  await nextRound();
  stop.abort();
  assert.equal(await waiting, "cancelled");
});
