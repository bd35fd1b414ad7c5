import assert from "node:assert/strict";
import { test } from "node:test";
import { Lines } from "../../lib/server/line.ts";
import { until } from "../helpers/temporary.ts";

const BY = { address: "127.0.0.1", via: "bearer" } as const;

function lineOf(keptMs?: number) {
  const lines = new Lines(keptMs);
  const enter = (key: string, bucket = "a") => lines.enter(bucket, { key, kind: "build", by: BY, since: key });
  const keys = (bucket = "a") => lines.waiting(bucket).map(({ key }) => key);
  return { lines, enter, keys };
}

test("CP-446 who comes first is next, each bucket has a line of its own, and a key has one place", () => {
  const { lines, enter, keys } = lineOf();
  const [one, two, three] = [enter("one"), enter("two"), enter("three")];
  const again = enter("two");
  const other = enter("two", "b");
  assert.deepEqual(
    [one, two, three, again, other].map(({ position }) => position),
    [1, 2, 3, 2, 1],
  );
  assert.equal(lines.next("a")?.key, "one");
  assert.ok(one.leave() && !one.leave());
  assert.deepEqual([keys(), keys("b")], [["two", "three"], ["two"]]);
  assert.deepEqual([one.position, again.position, three.position], [null, 1, 2]);
  assert.ok(lines.leave("a", "two") && !lines.leave("a", "two"));
  assert.deepEqual([two.position, keys(), lines.next("c")], [null, ["three"], undefined]);
  assert.deepEqual(lines.waiting("a"), [{ position: 1, key: "three", kind: "build", by: BY, since: "three", connected: true }]);
});

test("CP-447 a place stays while a request holds it, and a while longer, but not for good", async () => {
  const { lines, enter, keys } = lineOf(30);
  const [one, two] = [enter("one"), enter("two")];
  const again = enter("one");
  one[Symbol.dispose]();
  assert.deepEqual(
    lines.waiting("a").map(({ connected }) => connected),
    [true, true],
  );
  again[Symbol.dispose]();
  assert.deepEqual(
    lines.waiting("a").map(({ connected }) => connected),
    [false, true],
  );
  const back = enter("one");
  two[Symbol.dispose]();
  await until("the end of the second place", async () => keys().length === 1);
  assert.deepEqual([keys(), back.position], [["one"], 1]);
  back[Symbol.dispose]();
  await until("the end of the line", async () => keys().length === 0);
});

test("CP-447 a place that no request holds is kept for 30 seconds", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { enter, keys } = lineOf();
  enter("one")[Symbol.dispose]();
  t.mock.timers.tick(29_999);
  assert.deepEqual(keys(), ["one"]);
  t.mock.timers.tick(1);
  assert.deepEqual(keys(), []);
});

test("CP-447 a place that was given up takes no later place of its key along", async () => {
  const { lines, enter, keys } = lineOf(20);
  enter("one")[Symbol.dispose]();
  lines.leave("a", "one");
  using _ = enter("one");
  enter("two")[Symbol.dispose]();
  await until("the end of the other place", async () => keys().length === 1);
  assert.deepEqual(keys(), ["one"]);
});

test("CP-446 a line has at most 100 places", () => {
  const { enter, keys } = lineOf();
  const holds = Array.from({ length: 101 }, (_, at) => enter(`key ${at}`));
  assert.deepEqual([holds[99]?.position, holds[100]?.position, holds[100]?.leave(), keys().length], [100, null, false, 100]);
  assert.equal(enter("key 7").position, 8, "a key that is in line needs no room");
});

test("works of one name do not overlap, whether they fail or not; those of others do; a client that has left neither waits nor lets the next one in", async () => {
  const { lines } = lineOf();
  const order: string[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  const { signal } = new AbortController();
  const work = (name: string, wait: Promise<void>, error?: Error) =>
    lines.alone(name, signal, async () => {
      order.push(`${name} begins`);
      await wait;
      order.push(`${name} ends`);
      if (error) throw error;
    });
  const failing = work("a", promise, new Error("failed"));
  const second = work("a", Promise.resolve());
  await assert.rejects(
    lines.alone("a", AbortSignal.abort(), () => assert.fail("its client has left")),
    { code: "cancelled" },
  );
  const third = work("a", Promise.resolve());
  await work("b", Promise.resolve());
  assert.deepEqual(order, ["a begins", "b begins", "b ends"]);
  resolve();
  await assert.rejects(failing, /failed/);
  await Promise.all([second, third]);
  assert.deepEqual(order.slice(3), ["a ends", "a begins", "a ends", "a begins", "a ends"]);
});

test("a work that comes while the second of its name goes on waits for that one; of those that are over nothing is kept", async (t) => {
  const { lines } = lineOf();
  const maps = new Set<Map<unknown, unknown>>();
  const set = Map.prototype.set;
  t.mock.method(Map.prototype, "set", function (this: Map<unknown, unknown>, key: unknown, value: unknown) {
    if (key === "a") maps.add(this);
    return set.call(this, key, value);
  });
  const order: string[] = [];
  const work = (name: string, wait?: Promise<void>) =>
    lines.alone("a", new AbortController().signal, async () => {
      order.push(`${name} begins`);
      await wait;
      order.push(`${name} ends`);
    });
  const { promise, resolve } = Promise.withResolvers<void>();
  const [first, second] = [work("first"), work("second", promise)];
  await first;
  await until("the second work", () => order.includes("second begins"));
  const third = work("third");
  resolve();
  await Promise.all([second, third]);
  assert.deepEqual(order.slice(2, 6), ["second begins", "second ends", "third begins", "third ends"]);
  await until("none to be known", () => [...maps].every((map) => !map.has("a")));
  assert.equal(maps.size, 1);
});
