import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { type TestContext, test } from "node:test";
import { Semaphores } from "../../lib/hook/semaphores.ts";
import { seeded } from "../helpers/random.ts";
import { until } from "../helpers/temporary.ts";

const SCOPE = { job: "a", event: "pre_deploy", name: "lock" };
const LONG_MS = 600_000;

/** Semaphores, and what became of each attempt, in the order in which the attempts ended. */
function setUp(t: TestContext) {
  const testEnds = new AbortController();
  t.after(() => testEnds.abort());
  const semaphores = new Semaphores();
  const ended: string[] = [];
  const ask = async (holder: string, { capacity = 1, timeoutMs = LONG_MS, signal = testEnds.signal, scope = SCOPE } = {}) => {
    const outcome = await semaphores.acquire(scope, holder, { capacity, timeoutMs, signal });
    ended.push(`${holder} ${outcome}`);
    return outcome;
  };
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  return { semaphores, ended, ask, settled };
}

test("HR-227 HR-228 HR-230 waiters get the slot in the order of their coming, each once", async (t) => {
  const { semaphores, ended, ask, settled } = setUp(t);
  for (const holder of ["1", "2", "3", "4"]) void ask(holder);
  await settled();
  assert.deepEqual(ended, ["1 acquired"]);
  for (const holder of ["1", "2", "3"]) {
    assert.equal(semaphores.release(SCOPE, holder), true);
    await settled();
  }
  assert.deepEqual(ended, ["1 acquired", "2 acquired", "3 acquired", "4 acquired"]);
});

test("as many as the capacity hold it at a time", async (t) => {
  const { semaphores, ended, ask, settled } = setUp(t);
  for (const holder of ["1", "2", "3", "4", "5"]) void ask(holder, { capacity: 3 });
  await settled();
  assert.deepEqual(semaphores.status(SCOPE), { name: "lock", capacity: 3, holders: ["1", "2", "3"], waiting: 2, available: 0 });
  semaphores.release(SCOPE, "2");
  await settled();
  assert.deepEqual(ended.slice(3), ["4 acquired"]);
});

for (const [what, scope] of [
  ["HR-208 job", { ...SCOPE, job: "b" }],
  ["HR-209 event", { ...SCOPE, event: "post_deploy" }],
  ["HR-210 name", { ...SCOPE, name: "other" }],
] as const)
  test(`${what}: the same otherwise is an independent semaphore`, async (t) => {
    const { semaphores, ask } = setUp(t);
    await ask("1");
    assert.equal(await ask("2", { scope }), "acquired");
    assert.equal(semaphores.release(scope, "1"), false);
    assert.deepEqual(semaphores.status(SCOPE).holders, ["1"]);
  });

test("HR-229 a waiter whose time is up leaves the queue, and a later release passes it by", async (t) => {
  const { semaphores, ask, ended, settled } = setUp(t);
  await ask("1");
  assert.equal(await ask("2", { timeoutMs: 5 }), "timeout");
  assert.equal(semaphores.status(SCOPE).waiting, 0);
  void ask("3");
  semaphores.release(SCOPE, "1");
  await settled();
  assert.deepEqual(ended, ["1 acquired", "2 timeout", "3 acquired"]);
  assert.deepEqual(semaphores.status(SCOPE).holders, ["3"]);
});

test("T-96 a release that comes when a waiter's time is up, before its timer, gives the slot to the next", async (t) => {
  const { semaphores, ask, ended, settled } = setUp(t);
  await ask("1");
  void ask("2", { timeoutMs: 5 });
  void ask("3");
  // No timer fires while this loop keeps the thread: the release finds a waiter that is late.
  for (const end = performance.now() + 10; performance.now() < end; );
  semaphores.release(SCOPE, "1");
  await settled();
  assert.deepEqual(ended, ["1 acquired", "2 timeout", "3 acquired"]);
  assert.deepEqual(semaphores.status(SCOPE).holders, ["3"]);
});

test("T-96 a waiter whose signal is aborted leaves the queue, and who comes with an aborted one gets nothing", async (t) => {
  const { semaphores, ask, ended, settled } = setUp(t);
  const gone = new AbortController();
  await ask("1");
  void ask("2", { signal: gone.signal });
  void ask("3");
  await settled();
  gone.abort();
  await settled();
  assert.equal(semaphores.status(SCOPE).waiting, 1);
  semaphores.release(SCOPE, "1");
  await settled();
  assert.equal(await ask("4", { signal: gone.signal, scope: { ...SCOPE, name: "free" } }), "cancelled");
  assert.deepEqual(ended, ["1 acquired", "2 cancelled", "3 acquired", "4 cancelled"]);
  assert.equal(semaphores.status({ ...SCOPE, name: "free" }).available, 1);
});

test("T-42 who holds a slot has it at once when asking again, and still one only", async (t) => {
  const { semaphores, ask } = setUp(t);
  assert.equal(await ask("1", { capacity: 2 }), "acquired");
  assert.equal(await ask("1", { capacity: 2 }), "acquired");
  assert.equal(semaphores.status(SCOPE).available, 1);
  semaphores.release(SCOPE, "1");
  assert.equal(semaphores.release(SCOPE, "1"), false);
});

test("T-42 who holds the only slot is not made to wait for it", async (t) => {
  const { semaphores, ask } = setUp(t);
  await ask("1");
  assert.equal(await ask("1", { timeoutMs: 0 }), "acquired");
  assert.deepEqual(semaphores.status(SCOPE).holders, ["1"]);
});

test("T-42 a second wait of the same holder and another capacity of a live name are conflicts", async (t) => {
  const { semaphores, ask } = setUp(t);
  await ask("1");
  const first = ask("2");
  assert.equal(await ask("2"), "conflict");
  assert.equal(await ask("3", { capacity: 2 }), "conflict");
  assert.equal(await ask("1", { capacity: 2 }), "conflict");
  semaphores.release(SCOPE, "1");
  assert.equal(await first, "acquired");
  semaphores.release(SCOPE, "2");
  assert.equal(semaphores.status(SCOPE).available, 1);
  assert.equal(await ask("3", { capacity: 2 }), "acquired", "nobody holds or waits: the capacity is new");
});

test("HR-231 a release by who holds nothing changes nothing", async (t) => {
  const { semaphores, ask } = setUp(t);
  assert.equal(semaphores.release(SCOPE, "1"), false);
  await ask("1");
  assert.equal(semaphores.release(SCOPE, "2"), false);
  assert.deepEqual(semaphores.status(SCOPE).holders, ["1"]);
});

test("the status of a name that nobody has used is one free slot, and asking does not make it live", async (t) => {
  const { semaphores, ask } = setUp(t);
  assert.deepEqual(semaphores.status(SCOPE), { name: "lock", capacity: 1, holders: [], waiting: 0, available: 1 });
  assert.equal(await ask("1", { capacity: 64 }), "acquired");
});

test("heldBy names what a holder has under one job and event", async (t) => {
  const { semaphores, ask } = setUp(t);
  for (const name of ["x", "y"]) await ask("1", { scope: { ...SCOPE, name } });
  await ask("1", { scope: { ...SCOPE, event: "cli" } });
  await ask("2", { scope: { ...SCOPE, name: "z" } });
  assert.deepEqual(semaphores.heldBy("a", "pre_deploy", "1"), ["x", "y"]);
});

test("an attempt that has ended leaves no listener on its signal, and no timer", async (t) => {
  const { semaphores, ask } = setUp(t);
  const stop = new AbortController();
  await ask("1", { signal: stop.signal });
  const waits = [ask("2", { signal: stop.signal }), ask("3", { signal: stop.signal, timeoutMs: 5 })];
  semaphores.release(SCOPE, "1");
  await Promise.all(waits);
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
  assert.ok(!process.getActiveResourcesInfo().includes("Timeout"));
});

test("random acquires, releases, time-outs and departures never exceed the capacity and leave nobody waiting", async (t) => {
  const { semaphores, ask } = setUp(t);
  const random = seeded();
  const capacity = 3;
  let inside = 0;
  const client = async (holder: string) => {
    for (let round = 0; round < 50; round++) {
      const gone = new AbortController();
      if (random() < 0.2) setTimeout(() => gone.abort(), random() * 4);
      const outcome = await ask(holder, { capacity, signal: gone.signal, timeoutMs: 1 + random() * 8 });
      if (outcome !== "acquired") continue;
      inside++;
      assert.ok(inside <= capacity, `${inside} inside`);
      await new Promise((resolve) => setTimeout(resolve, random() * 2));
      inside--;
      assert.equal(semaphores.release(SCOPE, holder), true);
    }
  };
  await Promise.all(Array.from({ length: 20 }, (_, index) => client(`${index}`)));
  await until("the queue to be empty", () => semaphores.status(SCOPE).waiting === 0);
  assert.deepEqual(semaphores.status(SCOPE).holders, []);
});
