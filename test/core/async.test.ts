import assert from "node:assert/strict";
import { getEventListeners, getMaxListeners } from "node:events";
import { test } from "node:test";
import {
  aborted,
  batches,
  expired,
  mapAll,
  openController,
  runAll,
  sleep,
  unlessAborted,
  unlessCut,
  within,
  woken,
} from "../../lib/core/async.ts";

test("CP-133 a sleep ends at once when its signal is aborted, before or during it", async () => {
  const stop = new AbortController();
  const sleeping = sleep(600_000, stop.signal);
  stop.abort();
  await assert.rejects(sleeping, { name: "Failure", code: "cancelled" });
  await assert.rejects(sleep(600_000, stop.signal), { code: "cancelled" });
});

test("a sleep leaves no listener on its signal", async () => {
  const stop = new AbortController();
  await sleep(1, stop.signal);
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
});

test("a sleep longer than a timer of Node can wait does not end at once", async () => {
  const stop = new AbortController();
  const first = await Promise.race([sleep(2 ** 32, stop.signal).then(() => "long"), sleep(30).then(() => "short")]);
  assert.equal(first, "short");
  stop.abort();
});

test("the longest wait is the longest that a timer of Node has: 24.8 days", (t) => {
  const set = t.mock.method(globalThis, "setTimeout");
  const [stop, waiting] = [new AbortController(), new Set<() => void>()];
  void expired(2 ** 40, stop.signal);
  void woken(waiting, 2 ** 40, stop.signal);
  void expired(2 ** 30, stop.signal);
  stop.abort();
  assert.deepEqual(
    set.mock.calls.map(({ arguments: [, ms] }) => ms),
    [2 ** 31 - 1, 2 ** 31 - 1, 2 ** 30],
  );
});

test("any number may listen to the signal of an open controller", () => {
  assert.equal(getMaxListeners(openController().signal), 0);
});

test("within() answers what came in time, else undefined, and passes a failure on", async () => {
  const stop = new AbortController();
  assert.equal(await within(Promise.resolve(1), 600_000), 1);
  const never = sleep(600_000, stop.signal);
  assert.equal(await within(never, 5), undefined);
  await assert.rejects(within(Promise.reject(new Error("broken")), 600_000), { message: "broken" });
  // Its promise is not forgotten: a failure after the time is no unhandled one.
  stop.abort();
});

const parts: [string, number, number[][]][] = [
  ["one at a time", 1, [[1], [2], [3]]],
  ["a smaller last batch", 2, [[1, 2], [3]]],
  ["a width above the number of items", 9, [[1, 2, 3]]],
  ["width 0, one batch", 0, [[1, 2, 3]]],
];

for (const [what, width, expected] of parts)
  test(`batches(): ${what}`, () => {
    assert.deepEqual(batches([1, 2, 3], width), expected);
    assert.deepEqual(batches([], width), []);
  });

test("runAll() runs at most `limit` at a time and answers in the order of the items", async () => {
  let running = 0;
  let most = 0;
  const outcomes = await runAll([30, 1, 10, 2], 2, async (ms) => {
    most = Math.max(most, ++running);
    await sleep(ms);
    running--;
    return ms;
  });
  assert.equal(most, 2);
  assert.deepEqual(
    outcomes.map((outcome) => outcome.status === "fulfilled" && outcome.value),
    [30, 1, 10, 2],
  );
});

for (const limit of [1, 0])
  test(`runAll() with a limit of ${limit} runs one at a time`, async () => {
    let [running, most] = [0, 0];
    await runAll([1, 2, 3], limit, async () => {
      most = Math.max(most, ++running);
      await sleep(1);
      running--;
    });
    assert.equal(most, 1);
  });

test("runAll() runs to the end of all, whatever failed, thrown at once or later", async () => {
  const done: number[] = [];
  const outcomes = await runAll([1, 2, 3], 1, (item) => {
    if (item === 1) throw new Error("at once");
    return Promise.resolve().then(() => {
      if (item === 2) throw new Error("later");
      done.push(item);
    });
  });
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ["rejected", "rejected", "fulfilled"],
  );
  assert.deepEqual(done, [3]);
});

test("runAll() starts nothing more after the signal; what runs is waited for", async () => {
  const stop = new AbortController();
  const started: number[] = [];
  const outcomes = await runAll(
    [1, 2, 3, 4],
    2,
    async (item) => {
      started.push(item);
      stop.abort();
      await sleep(5);
      return item;
    },
    stop.signal,
  );
  assert.deepEqual(started, [1, 2].slice(0, started.length));
  assert.equal(outcomes[0]?.status, "fulfilled");
  assert.deepEqual(
    outcomes.slice(2).map((outcome) => outcome.status === "rejected" && outcome.reason.code),
    ["cancelled", "cancelled"],
  );
});

test("mapAll() answers in the order of the items, or throws what the first one that failed has thrown, after all", async () => {
  assert.deepEqual(await mapAll([3, 1, 2], 3, async (item) => item * 2), [6, 2, 4]);
  const done: number[] = [];
  const work = async (item: number) => {
    await sleep(item === 1 ? 10 : 1);
    done.push(item);
    if (item < 3) throw new Error(`${item} is broken`);
  };
  await assert.rejects(mapAll([1, 2, 3], 3, work), /^Error: 1 is broken$/);
  assert.deepEqual(done.sort(), [1, 2, 3]);
  const stop = new AbortController();
  const cancelled = mapAll(
    [1],
    1,
    async () => {
      stop.abort();
      throw new Error("broken");
    },
    stop.signal,
  );
  await assert.rejects(cancelled, { code: "cancelled" });
});

test("runAll() of nothing is nothing", async () => {
  assert.deepEqual(await runAll([], 0, async () => 1), []);
});

test("CP-133 a wait that a signal can end leaves the promise alone, and no listener", async () => {
  const stop = new AbortController();
  assert.equal(await unlessAborted(Promise.resolve(1), stop.signal), 1);
  assert.equal(await unlessAborted(Promise.resolve(2), undefined), 2);
  await assert.rejects(unlessAborted(Promise.reject(new Error("its own")), stop.signal), /its own/);
  const waiting = unlessAborted(new Promise(() => {}), stop.signal);
  stop.abort();
  await assert.rejects(waiting, { code: "cancelled" });
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
});

test("CP-133 a wait with a signal and a limit tells which of them ended it, and leaves no listener", async () => {
  const stop = new AbortController();
  const wait = <T>(promise: Promise<T>, timeoutMs: number) => unlessCut(promise, { signal: stop.signal, timeoutMs });
  const never = new Promise<never>(() => {});
  assert.equal(await wait(Promise.resolve(1), 60_000), 1);
  await assert.rejects(wait(Promise.reject(new Error("its own")), 60_000), /its own/);
  assert.equal(await wait(never, 1), "timeout");
  const waiting = wait(never, 2 ** 40);
  stop.abort();
  assert.equal(await waiting, "cancelled");
  assert.equal(await wait(never, 60_000), "cancelled");
  assert.equal(await wait(Promise.resolve(2), 60_000), 2, "what is there already counts");
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
});

test("a waiter goes on when it is woken, when its time is over or when it is aborted, and leaves nothing behind", async () => {
  const waiting = new Set<() => void>();
  const stop = new AbortController();
  const first = woken(waiting, 600_000, stop.signal);
  const second = woken(waiting, 600_000, stop.signal);
  assert.equal(waiting.size, 2);
  const [wake] = waiting;
  wake?.();
  await first;
  assert.deepEqual([waiting.size, getEventListeners(stop.signal, "abort").length], [1, 1]);
  await woken(waiting, 1, stop.signal);
  assert.deepEqual([waiting.size, getEventListeners(stop.signal, "abort").length], [1, 1]);
  stop.abort();
  await second;
  await woken(waiting, 600_000, stop.signal);
  assert.deepEqual([waiting.size, getEventListeners(stop.signal, "abort").length], [0, 0]);
  assert.deepEqual(
    process.getActiveResourcesInfo().filter((one) => one === "Timeout"),
    [],
    "no timer is left of what was woken",
  );
});

test("reasons to stop come when they are due, and never once they are stopped themselves", async () => {
  const [signal, stop] = [new AbortController(), new AbortController()];
  assert.equal(await expired(1, stop.signal), "timeout");
  const reason = aborted(signal.signal, stop.signal);
  signal.abort();
  assert.equal(await reason, "cancelled");
  assert.equal(await aborted(signal.signal, stop.signal), "cancelled");
  const late = new AbortController();
  const never = [expired(5, stop.signal), aborted(late.signal, stop.signal), expired(undefined, stop.signal)];
  stop.abort();
  late.abort();
  assert.equal(await Promise.race([...never, sleep(20).then(() => "nothing")]), "nothing");
});
