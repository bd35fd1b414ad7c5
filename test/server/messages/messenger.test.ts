import assert from "node:assert/strict";
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { NO_NOTIFY, type Notify } from "../../../lib/bucket/notify/notify.ts";
import { findBucket } from "../../../lib/bucket/source/root.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { Lines } from "../../../lib/server/line.ts";
import { Messenger } from "../../../lib/server/messages/messenger.ts";
import type { Message, MessageState } from "../../../lib/server/messages/state.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const START = Date.UTC(2026, 10, 27, 12);
const RULE = { to: ["a"], events: ["run_failed", "recovered"], after: 1, days: 14 };
const NOTIFY = { ...NO_NOTIFY, quiet: [], targets: { a: {}, b: {} }, send: [RULE] } as unknown as Notify;
const NOTHING = {
  ended: [],
  forced: [],
  health: undefined,
  certs: undefined,
  due: new Map(),
  wanted: [],
  runs: ["r"],
  change: 7,
};

/** A run that has ended. */
const run = (kind: string, status = "failed", more: object = {}) => {
  const rest = { params: {}, error: "no", result: null, schedule: null, audit: [], created_at: "", finished_at: null };
  return { id: uuidV7(), kind, status, ...rest, ...more } as never;
};

/** A messenger of one bucket, whose sources and receivers are here. */
function world(t: TestContext) {
  const root = temporaryFolder(t);
  const id = uuidV7();
  const layout = layoutOf(path.join(root, id));
  const make = () => {
    for (const folder of [path.dirname(layout.database), layout.internal]) mkdirSync(folder, { recursive: true });
    writeFileSync(layout.bucketJson, '{"project": "shop", "name": "live"}');
    writeFileSync(layout.database, "");
  };
  make();
  let [now, version] = [START, 0];
  const made = {
    /** What the next look finds, and what notify.json says. */
    found: {} as object,
    notify: NOTIFY as Notify | undefined,
    broken: undefined as Error | undefined,
    /** The runs that each look was told are known. */
    looks: [] as (string[] | undefined)[],
    sent: [] as string[],
    said: [] as string[],
    answer: async (_target: string, _signal: AbortSignal): Promise<void> => {},
  };
  const sources = {
    version: () => String(version),
    async look(bucket: { id: string }, state: MessageState | undefined) {
      assert.equal(bucket.id, id);
      made.looks.push(state?.runs);
      if (made.broken) throw made.broken;
      const found = made.found;
      made.found = {};
      return { ...NOTHING, isActive: false, notify: made.notify, ...found };
    },
  };
  const courier = {
    async send({ target, fields }: { target: string; fields: { Subject: string; Event: string } }, signal: AbortSignal) {
      made.sent.push(`${target}: ${fields.Subject}`);
      await made.answer(target, signal);
    },
  };
  const log = (line: string) => made.said.push(line.replace(id, "b").replace(root, "ROOT"));
  const own = { root, labels: "bucket.json", lines: new Lines(), sources, courier, log, now: () => now };
  const messenger = new Messenger(own as never);
  /** Looks once, so many seconds later, and waits for what is sent. */
  const step = async (seconds = 0, found?: object) => {
    now += seconds * 1_000;
    if (found) {
      made.found = found;
      version++;
    }
    await messenger.round();
    await messenger.idle();
  };
  const state = (): MessageState => JSON.parse(readFileSync(path.join(layout.messages, "state.json"), "utf8"));
  const messages = () => state().messages.map(({ subject, state: how }) => `${subject}: ${how}`);
  const seconds = ({ next_at }: Message) => (next_at === null ? null : (Date.parse(next_at) - now) / 1_000);
  const put = (change: (messages: Message[]) => void) => {
    const kept = state();
    change(kept.messages);
    writeFileSync(path.join(layout.messages, "state.json"), JSON.stringify(kept));
  };
  return Object.assign(made, {
    messenger,
    bucket: findBucket(root, id),
    layout,
    root,
    make,
    step,
    state,
    messages,
    seconds,
    put,
  });
}

const failing = async (): Promise<void> => {
  throw new Error("no answer");
};

test("CP-861 what a look finds is on the disk, and is sent once; what has not changed is not looked at again", async (t) => {
  const { step, state, sent, looks, bucket } = world(t);
  await step(0, { ended: [run("gc")] });
  assert.deepEqual(sent, ["a: shop/live: Run failed: gc"]);
  const kept = state();
  assert.deepEqual([kept.runs, kept.change, kept.incidents.length], [["r"], 7, 1]);
  const [{ id: _, incident, ...message } = assert.fail()] = kept.messages;
  assert.equal(incident, kept.incidents[0]?.id);
  const at = new Date(START).toISOString();
  assert.deepEqual(message, {
    ...{ at, event: "run_failed", subject: "Run failed: gc", target: "a", state: "sent", attempts: 1 },
    ...{ next_at: null, error: null, sent_at: at },
  });
  await step(1);
  await step(1, { ended: [], isActive: true });
  await step(1);
  assert.deepEqual([looks, sent.length], [[undefined, ["r"], ["r"]], 1], "while a run goes on each look counts");
  assert.equal(bucket.project, "shop");
});

test("CP-864 a message that is not taken is tried again for a day, ever more rarely, and then given up", async (t) => {
  const made = world(t);
  made.answer = () => Promise.reject(new Error("x".repeat(501)));
  await made.step(0, { ended: [run("gc")] });
  const pauses: (number | null)[] = [];
  for (let attempt = 1; attempt <= 12; attempt++) {
    const [message = assert.fail()] = made.state().messages;
    assert.deepEqual([message.attempts, made.sent.length, message.error], [attempt, attempt, "x".repeat(500)]);
    const pause = made.seconds(message);
    pauses.push(pause);
    if (pause === null) break;
    assert.deepEqual([message.state, message.sent_at], ["waiting", null]);
    await made.step(pause - 1);
    assert.equal(made.sent.length, attempt, "not before");
    await made.step(1);
  }
  assert.deepEqual(pauses, [10, 30, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 36_000, null]);
  const [message = assert.fail()] = made.state().messages;
  assert.equal(message.state, "failed");
  assert.deepEqual(made.said, [`bucket b: message ${message.id} to a is given up: ${"x".repeat(500)}`]);
  await made.step(100_000);
  assert.equal(made.sent.length, 12);
  await made.messenger.retry(made.bucket, message.id);
  assert.deepEqual(made.messages(), ["Run failed: gc: waiting"]);
});

test("CP-872 a message that was given up can be tried again, one that was sent cannot", async (t) => {
  const made = world(t);
  made.answer = failing;
  await made.step(0, { ended: [run("gc")] });
  const [{ id } = assert.fail()] = made.state().messages;
  const again = await made.messenger.retry(made.bucket, id.toUpperCase());
  const now = new Date(START).toISOString();
  assert.deepEqual([again.state, again.attempts, again.next_at, again.subject], ["waiting", 0, now, "Run failed: gc"]);
  assert.deepEqual([made.state().messages[0]?.attempts, made.state().messages[0]?.next_at], [0, now]);
  made.answer = async () => {};
  await made.step();
  assert.deepEqual(made.messages(), ["Run failed: gc: sent"]);
  await assert.rejects(made.messenger.retry(made.bucket, id), { code: "invalid_request" });
  await assert.rejects(made.messenger.retry(made.bucket, uuidV7()), { code: "not_found" });
});

test("CP-872 a test is sent at once to a target that there is, and says why it was not taken", async (t) => {
  const made = world(t);
  const { signal } = new AbortController();
  const good = await made.messenger.test(made.bucket, "b", signal);
  assert.deepEqual([good.error, made.sent], [null, ["b: shop/live: Test"]]);
  made.answer = failing;
  const bad = await made.messenger.test(made.bucket, "b", signal);
  assert.deepEqual([bad.error, bad.id !== good.id], ["no answer", true]);
  for (const target of ["c", "constructor"])
    await assert.rejects(made.messenger.test(made.bucket, target, signal), { code: "not_found" });
});

test("a test is cut short where its client leaves, and at the end of the server", async (t) => {
  for (const leaves of [true, false]) {
    const made = world(t);
    made.answer = (_, signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("cut"))));
    const [client, stop] = [new AbortController(), new AbortController()];
    const over = made.messenger.run(stop.signal);
    const tested = made.messenger.test(made.bucket, "b", client.signal);
    await until("the test", () => made.sent.length === 1);
    (leaves ? client : stop).abort();
    assert.equal((await tested).error, "cut");
    stop.abort();
    await over;
  }
});

test("a messenger ends once what it sends is sent", async (t) => {
  const made = world(t);
  const { promise, resolve } = Promise.withResolvers<void>();
  made.answer = () => promise;
  made.found = { ended: [run("gc")] };
  const stop = new AbortController();
  let isOver = false;
  const over = made.messenger.run(stop.signal).then(() => {
    isOver = true;
  });
  await until("the message", () => made.sent.length === 1);
  stop.abort();
  await new Promise(setImmediate);
  assert.equal(isOver, false);
  resolve();
  await over;
  assert.deepEqual(made.messages(), ["Run failed: gc: sent"]);
});

test("CP-862 a deploy of everything ends what earlier deploys of its jobs began", async (t) => {
  const made = world(t);
  const jobs = [{ job: "web", outcome: "failed", reason: "no", allocations: [] }];
  await made.step(0, { ended: [run("deploy", "failed", { result: { jobs } })] });
  await made.step(1, { ended: [run("deploy", "succeeded", { result: { jobs: [] } })] });
  assert.deepEqual(made.messages(), ["Run failed: deploy of web: sent", "Over: Run failed: deploy of web: sent"]);
});

test("who asks at the same time gets the same; what is known of a bucket stays known without its database", async (t) => {
  const made = world(t);
  made.found = { ended: [run("gc")] };
  await Promise.all([made.messenger.kept(made.bucket), made.messenger.kept(made.bucket)]);
  assert.equal(made.state().incidents.length, 1);
  rmSync(made.layout.database);
  assert.equal((await made.messenger.kept(made.bucket)).state.incidents.length, 1);
});

test("CP-865 in quiet hours messages wait", async (t) => {
  const made = world(t);
  const quiet = [{ fromMinute: 12 * 60, toMinute: 13 * 60, days: [0, 1, 2, 3, 4, 5, 6], timezone: "UTC" }];
  made.notify = { ...NOTIFY, quiet };
  await made.step(0, { ended: [run("gc")] });
  assert.deepEqual([made.sent, made.messages()], [[], ["Run failed: gc: waiting"]]);
  await made.step(3_599);
  assert.deepEqual(made.sent, []);
  await made.step(1);
  assert.equal(made.sent.length, 1);
});

test("CP-864 one target does not keep another waiting, and gets the messages about an incident in their order", async (t) => {
  const made = world(t);
  made.notify = { ...NOTIFY, send: [{ ...RULE, to: ["a", "b"] }] } as unknown as Notify;
  made.answer = async (target) => {
    if (target === "a") throw new Error("no answer");
  };
  await made.step(0, { ended: [run("gc")] });
  await made.step(1, { ended: [run("gc", "succeeded"), run("build")] });
  assert.deepEqual(made.sent, [
    ...["a: shop/live: Run failed: gc", "b: shop/live: Run failed: gc"],
    ...["a: shop/live: Run failed: build", "b: shop/live: Over: Run failed: gc"],
  ]);
  made.answer = async () => {};
  await made.step(1);
  assert.deepEqual(made.sent.slice(4), ["b: shop/live: Run failed: build"]);
  await made.step(9);
  await made.step(1);
  assert.deepEqual(made.sent.slice(5, 7), ["a: shop/live: Run failed: gc", "a: shop/live: Over: Run failed: gc"]);
});

test("while a target gets a message it gets no other one, and other targets get theirs", async (t) => {
  const made = world(t);
  made.notify = { ...NOTIFY, send: [{ ...RULE, to: ["a", "b"] }] } as unknown as Notify;
  const { promise, resolve } = Promise.withResolvers<void>();
  made.answer = (target) => (target === "a" ? promise : Promise.resolve());
  made.found = { ended: [run("gc"), run("build")] };
  const countOf = (target: string) => made.sent.filter((one) => one.startsWith(target)).length;
  await until("all messages of the other target", async () => {
    await made.messenger.round();
    return countOf("b") === 2;
  });
  assert.equal(countOf("a"), 1);
  resolve();
  await made.messenger.idle();
  await made.step();
  assert.equal(countOf("a"), 2);
});

test("a time that lies too far ahead is that of another clock, and a message about nothing that is known has no text", async (t) => {
  const made = world(t);
  made.answer = failing;
  await made.step(0, { ended: [run("gc"), run("build")] });
  const after = (seconds: number) => new Date(START + seconds * 1_000).toISOString();
  for (const [seconds, isSent] of [
    [36_000, false],
    [36_001, true],
  ] as const) {
    const other = world(t);
    mkdirSync(other.layout.messages);
    writeFileSync(path.join(other.layout.messages, "state.json"), JSON.stringify(made.state()));
    other.put((all) => {
      for (const one of all) Object.assign(one, { next_at: after(seconds) });
    });
    await other.step();
    assert.equal(other.sent.length > 0, isSent, String(seconds));
  }
  made.put((all) => {
    for (const one of all) Object.assign(one, { incident: "gone", next_at: after(0) });
  });
  const fresh = world(t);
  mkdirSync(fresh.layout.messages);
  writeFileSync(path.join(fresh.layout.messages, "state.json"), JSON.stringify(made.state()));
  await fresh.step();
  assert.deepEqual([fresh.sent, fresh.state().messages[0]?.error], [[], "what it tells of is not known any more"]);
});

test("what the end of the server cuts short was no attempt", async (t) => {
  const made = world(t);
  made.found = { ended: [run("gc")] };
  made.answer = (_, signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("cut"))));
  const stop = new AbortController();
  const over = made.messenger.run(stop.signal);
  await until("the message", () => made.sent.length === 1);
  stop.abort();
  await over;
  assert.deepEqual([made.state().messages[0]?.attempts, made.messages(), made.said], [0, ["Run failed: gc: waiting"], []]);
});

test("what the end of the server keeps from being looked at is not told", async (t) => {
  const made = world(t);
  const stop = new AbortController();
  const look = () => {
    stop.abort();
    return new Error("shutting down");
  };
  Object.defineProperty(made, "broken", { get: look });
  await made.messenger.run(stop.signal);
  assert.deepEqual([made.looks.length, made.said], [1, []]);
});

test("a bucket that cannot be looked at is told once, and again after it was well; so is the root", async (t) => {
  const made = world(t);
  const look = async (broken: Error | undefined) => {
    made.broken = broken;
    await made.step(0, {});
    return made.said.length;
  };
  const sick = new Error("damaged");
  assert.deepEqual([await look(sick), await look(sick), await look(undefined), await look(sick)], [1, 1, 1, 2]);
  assert.equal(made.said[0], "Cannot look for messages of bucket b: damaged");
  assert.equal(await look(new Error("other")), 3);
  const away = `${made.root}.away`;
  t.after(() => rmSync(away, { recursive: true, force: true }));
  for (const said of [4, 5]) {
    renameSync(made.root, away);
    for (let round = 0; round < 2; round++) await made.step();
    renameSync(away, made.root);
    assert.match(made.said[said - 1] ?? "", /^Cannot look for messages of ROOT: ENOENT/);
    assert.equal(made.said.length, said);
    made.broken = undefined;
    await made.step();
  }
});

test("of a bucket that is gone, or has no database, nothing is known", async (t) => {
  const made = world(t);
  await made.step(0, { ended: [run("gc")] });
  const { state, notify } = await made.messenger.kept(made.bucket);
  assert.deepEqual([state.incidents.length, notify.targets], [1, NOTIFY.targets]);
  made.notify = undefined;
  await made.step(1, {});
  assert.deepEqual(
    (await made.messenger.kept(made.bucket)).notify.targets,
    NOTIFY.targets,
    "what cannot be read stays as it was",
  );
  rmSync(made.layout.root, { recursive: true });
  await made.step();
  made.make();
  await made.step(1, {});
  assert.deepEqual(made.looks.at(-1), undefined, "it is looked at for the first time");
  rmSync(made.layout.root, { recursive: true });
  await made.step();
  made.make();
  rmSync(made.layout.database);
  const none = await made.messenger.kept(made.bucket);
  assert.deepEqual([none.state, none.notify], [{ runs: [], change: 0, incidents: [], messages: [] }, NO_NOTIFY]);
  await made.step();
  assert.deepEqual(made.said, []);
  await assert.rejects(made.messenger.retry(made.bucket, uuidV7()), { code: "not_found" });
});
