import assert from "node:assert/strict";
import { test } from "node:test";
import { ProgressBoard } from "../../../lib/operation/base/context.ts";
import { NO_DEPLOY, type Progress } from "../../../lib/run/progress.ts";
import { until } from "../../helpers/temporary.ts";

function board() {
  const sent: Progress[] = [];
  const stop = new AbortController();
  return { sent, stop, board: new ProgressBoard((progress) => sent.push(progress), stop.signal) };
}

const WAIT = { reason: "other", worker: "w", detail: "x" } as const;

test("CP-437 over 200 waits are told as one for each job and reason, with the first beginning and the last limit", async () => {
  const { sent, board: one } = board();
  const { promise, resolve } = Promise.withResolvers<void>();
  const make = (index: number) => ({ reason: "make", job: "web", worker: `w${index}`, detail: "make start" }) as const;
  const waits = Array.from({ length: 200 }, (_, index) => one.during(make(index), 1_000 + index, promise));
  await until("each of 200 to be told", () => sent.at(-1)?.waiting.length === 200);
  const first = sent.at(-1)?.waiting[0];
  waits.push(one.during({ reason: "connect", worker: "w9", detail: "connecting" }, null, promise));
  await until("the groups", () => sent.at(-1)?.waiting.length === 2);
  const [group, single] = sent.at(-1)?.waiting ?? [];
  assert.deepEqual(
    [group?.on, group?.worker, group?.job, group?.since, group?.more],
    ["web: make start, and 199 more", null, "web", first?.since, 199],
  );
  assert.ok(Date.parse(group?.until ?? "") - Date.parse(group?.since ?? "") >= 1_199);
  assert.deepEqual([single?.on, single?.worker], ["w9: connecting", "w9"]);
  resolve();
  await Promise.all(waits);
});

test("every wait has a name, a beginning and a limit as long as it lasts, and none longer, however it ends", async () => {
  const { sent, board: one } = board();
  const { promise, resolve } = Promise.withResolvers<number>();
  const before = Date.now();
  const waits = [
    one.during({ reason: "connect", worker: "10.0.0.7", detail: "connecting" }, 5_000, promise),
    one
      .during({ reason: "hook", job: "web", worker: "10.0.0.8", detail: "hook up" }, null, Promise.reject(new Error("no")))
      .catch(() => -1),
  ];
  await until("both to be reported", () => sent.at(-1)?.waiting.length === 1);
  assert.deepEqual([sent[0]?.phase, sent[0]?.done, sent[0]?.total], ["", 0, 0], "in no phase yet");
  const [wait] = sent.at(-1)?.waiting ?? [];
  assert.deepEqual(
    [wait?.on, wait?.reason, wait?.job, wait?.worker, wait?.detail],
    ["10.0.0.7: connecting", "connect", null, "10.0.0.7", "connecting"],
  );
  assert.ok(Date.parse(wait?.since ?? "") >= before);
  assert.equal(Date.parse(wait?.until ?? "") - Date.parse(wait?.since ?? ""), 5_000);
  resolve(7);
  assert.deepEqual(await Promise.all(waits), [7, -1]);
  await until("the end to be reported", () => sent.at(-1)?.waiting.length === 0);
});

test("the limit of what waits for its turn begins when it begins", async () => {
  const { sent, board: one } = board();
  const { promise, resolve } = Promise.withResolvers<void>();
  let begin = () => {};
  const work = one.during({ reason: "make", job: "web", worker: "10.0.0.7", detail: "make start" }, 5_000, (begun) => {
    begin = begun;
    return promise;
  });
  await until("the wait to be reported", () => sent.at(-1)?.waiting.length === 1);
  const waiting = () => sent.at(-1)?.waiting[0];
  assert.deepEqual([waiting()?.until, waiting()?.reason, waiting()?.on], [null, "slot", "web@10.0.0.7: make start"]);
  const before = Date.now();
  begin();
  await until("its limit", () => sent.at(-1)?.waiting[0]?.until !== null);
  assert.ok(Date.parse(waiting()?.until ?? "") >= before + 5_000);
  assert.deepEqual([waiting()?.reason, waiting()?.job], ["make", "web"]);
  resolve();
  await work;
});

test("the parts of a phase are counted from none to all", async () => {
  const { sent, board: one } = board();
  const countOne = one.counting("trust", 2);
  assert.deepEqual([sent[0]?.phase, sent[0]?.done, sent[0]?.total], ["trust", 0, 2]);
  countOne();
  countOne();
  await until("both", () => sent.at(-1)?.done === 2);
  assert.ok(sent.every(({ total }) => total === 2));
});

test("changes that follow each other closely are reported together, and the last one always", async () => {
  const { sent, board: one } = board();
  for (let done = 0; done <= 1_000; done++) one.report({ phase: "deploy", done, total: 1_000 });
  await until("the last one", () => sent.at(-1)?.done === 1_000);
  assert.ok(sent.length < 100, `${sent.length} reports of 1001 changes`);
  assert.deepEqual(sent[0], { phase: "deploy", done: 0, total: 1_000, waiting: [], ...NO_DEPLOY, cancel: null });
});

test("once the run is cancelled it tells how much has ended of what it waited for then", async () => {
  const { sent, stop, board: one } = board();
  const ends = [0, 1, 2].map(() => Promise.withResolvers<void>());
  const [first, second, third] = ends.map(({ promise }, index) => one.during({ ...WAIT, worker: `w${index}` }, null, promise));
  assert.equal(sent.at(-1)?.cancel, null);
  ends[0]?.resolve();
  await first;
  stop.abort();
  assert.deepEqual(sent.at(-1)?.cancel, { confirmed: 0, total: 2 }, "at once");
  const cleaning = Promise.withResolvers<void>();
  void one.during(WAIT, null, cleaning.promise);
  ends[1]?.resolve();
  await second;
  await until("the count to go up", () => sent.at(-1)?.cancel?.confirmed === 1);
  ends[2]?.resolve();
  await third;
  await until("all to be confirmed", () => sent.at(-1)?.cancel?.confirmed === 2);
  assert.deepEqual([sent.at(-1)?.cancel?.total, sent.at(-1)?.waiting.length], [2, 1]);
  one.unconfirmed();
  one.report({ phase: "next", done: 0, total: 0 });
  assert.deepEqual(sent.at(-1)?.cancel, { confirmed: 1, total: 2 }, "what nobody knows of is not confirmed");
  cleaning.resolve();
});

test("what a cancel has told at once is not told again", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { sent, stop, board: one } = board();
  for (const done of [0, 1]) one.report({ phase: "deploy", done, total: 2 });
  stop.abort();
  t.mock.timers.tick(60_000);
  assert.deepEqual(
    sent.map(({ done, cancel }) => [done, cancel?.total]),
    [
      [0, undefined],
      [1, 0],
    ],
  );
});
