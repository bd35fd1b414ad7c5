import assert from "node:assert/strict";
import { test } from "node:test";
import { type MessageEvent, NO_NOTIFY, type Notify } from "../../../lib/bucket/notify/notify.ts";
import { noteFindings, noteMessages, type Sighting } from "../../../lib/server/messages/incidents.ts";
import type { MessageState } from "../../../lib/server/messages/state.ts";

const NOW = Date.UTC(2026, 10, 27);
const NOBODY: Notify = { ...NO_NOTIFY, send: [] };
const TOLD = {
  ...NO_NOTIFY,
  targets: { hook: {} },
  send: [{ to: ["hook"], events: ["drift", "recovered"], after: 1, days: 14 }],
} as unknown as Notify;

const none = (): MessageState => ({ runs: [], change: 0, incidents: [], messages: [] });

function seen(place: string, more: Partial<Sighting> = {}): Sighting {
  return { event: "drift", place, isBad: true, group: "g", job: "web", run: "r1", ...more };
}

/** What one look after the other finds. */
function lookAt(state: MessageState, ...looks: Sighting[][]): MessageState {
  for (const found of looks) noteFindings(state, { found, complete: [], checks: [] }, NOW);
  return state;
}

const placesOf = (state: MessageState) => state.incidents.map(({ places }) => places.join());

test("CP-861 what one run finds bad of one job, in however many looks, is one incident", () => {
  assert.deepEqual(placesOf(lookAt(none(), [seen("a"), seen("b")], [seen("c"), seen("a")])), ["a,b,c"]);
  const others: [what: string, later: Partial<Sighting>][] = [
    ["another run", { run: "r2" }],
    ["another event", { event: "allocation_unhealthy" }],
    ["another job", { job: "api" }],
  ];
  for (const [what, later] of others)
    assert.deepEqual(placesOf(lookAt(none(), [seen("a")], [seen("b", later)])), ["a", "b"], what);
  const unknown = { run: null };
  assert.deepEqual(placesOf(lookAt(none(), [seen("a", unknown)], [seen("b", unknown)])), ["a", "b"], "no run");
  const over = lookAt(none(), [seen("a")], [seen("a", { isBad: false })], [seen("b")]);
  assert.deepEqual(placesOf(over), ["a", "b"], "one that is over");
});

test("the subject of an incident has at most 200 characters of its places", () => {
  const subject = (length: number) => lookAt(none(), [seen("x".repeat(length))]).incidents[0]?.subject ?? "";
  const begin = "Drift: ".length;
  assert.equal(subject(200 - begin), `Drift: ${"x".repeat(200 - begin)}`);
  assert.equal(subject(201 - begin), `Drift: ${"x".repeat(200 - begin)}…`);
});

test("CP-861 an incident is over once all its places are well, those that came later too", () => {
  const state = lookAt(none(), [seen("a")], [seen("b")]);
  const isOpen = () => state.incidents.map(({ over_at, left }) => [over_at === null, left.join()]);
  assert.deepEqual(isOpen(), [[true, "a,b"]]);
  lookAt(state, [seen("a", { isBad: false })]);
  assert.deepEqual(isOpen(), [[true, "b"]]);
  lookAt(state, [seen("b", { isBad: false })]);
  assert.deepEqual(isOpen(), [[false, ""]]);
});

const openOf = (state: MessageState) => state.incidents.map(({ over_at, left }) => [over_at === null, left.join()]);

test("CP-861 what one look finds bad and then good is an incident that is over, whatever else it finds", () => {
  const look = [seen("a"), seen("z", { isBad: false }), seen("a", { isBad: false }), seen("b", { run: "r2" })];
  const state = lookAt(none(), look);
  assert.deepEqual(
    [placesOf(state), openOf(state)],
    [
      ["a", "b"],
      [
        [false, ""],
        [true, "b"],
      ],
    ],
  );
  const unknown = { run: null };
  const together = lookAt(none(), [seen("a", unknown), seen("z", { isBad: false }), seen("b", unknown)]);
  assert.deepEqual(placesOf(together), ["a,b"]);
});

test("CP-862 the failures of runs have one way to their end; anything else at the same place is of its own", () => {
  const ofRuns: Sighting["event"][] = ["run_failed", "gate_failed", "snapshot_failed"];
  for (const event of ofRuns)
    for (const other of ofRuns)
      assert.deepEqual(openOf(lookAt(none(), [seen("a", { event })], [seen("a", { event: other, isBad: false })])), [
        [false, ""],
      ]);
  const apart = lookAt(none(), [seen("a", { event: "allocation_unhealthy" })], [seen("a", { isBad: false })]);
  assert.deepEqual(openOf(apart), [[true, "a"]]);
});

test("CP-873 what is told once has no end, and is known when it is found again", () => {
  const forced = (place: string) => seen(place, { event: "break_glass_used", isMoment: true, at: "2026-11-20T00:00:00.000Z" });
  const state = lookAt(none(), [forced("a")], [forced("a"), forced("b")], [forced("b")]);
  assert.deepEqual(openOf(state), [
    [false, "a"],
    [false, "b"],
  ]);
  const [{ opened_at, over_at } = { opened_at: "", over_at: "" }] = state.incidents;
  assert.deepEqual([opened_at, over_at], ["2026-11-20T00:00:00.000Z", "2026-11-20T00:00:00.000Z"]);
});

test("an incident has each reason once, at most 1,000 characters, its job where there is one, and the earliest end", () => {
  const group = (...all: Partial<Sighting>[]) =>
    lookAt(none(), [all.map((more, at) => seen(`p${at}`, more))].flat()).incidents[0];
  const [first, second] = [
    { reason: "x", endsAt: NOW + 2_000 },
    { reason: "", job: "web" },
  ];
  const all = group(first, second, { reason: "y", endsAt: NOW + 1_000 }, { reason: "x" });
  assert.deepEqual(
    [all?.reason, all?.job, all?.ends_at, all?.checks, all?.opened_at, all?.told, all?.settled],
    ["x\ny", "web", new Date(NOW + 1_000).toISOString(), 1, new Date(NOW).toISOString(), [], false],
  );
  assert.deepEqual([group({}, { job: "api" })?.job, group({ job: null })?.job, group({})?.ends_at], [null, null, null]);
  assert.equal(group({ reason: "x".repeat(1_001) })?.reason, "x".repeat(1_000));
  assert.equal(group({ reason: `${"x".repeat(999)}😀` })?.reason, `${"x".repeat(999)}\ufffd`);
});

/** What notify.json says: the targets `a` and `b`, and these rules. */
const rules = (...send: Partial<Notify["send"][number]>[]) =>
  ({
    ...TOLD,
    targets: { a: {}, b: {} },
    send: send.map((rule) => ({ ...TOLD.send[0], to: ["a"], ...rule })),
  }) as unknown as Notify;

test("CP-862 a rule names the events it tells; run_failed stands for all failures of runs", () => {
  const told = (event: Sighting["event"], events: readonly MessageEvent[]) => {
    const state = lookAt(none(), [seen("a", { event })]);
    noteMessages(state, rules({ events: [...events] }), NOW);
    return state.messages.length === 1;
  };
  for (const event of ["run_failed", "gate_failed", "snapshot_failed", "drift"] as const) {
    assert.ok(told(event, [event]), event);
    assert.equal(told(event, ["run_failed"]), event !== "drift", event);
    for (const other of ["gate_failed", "schedule_missed"] as const) assert.equal(told(event, [other]), event === other, event);
  }
});

test("CP-861 a message is of one incident for one target, waits to be sent at once, and is added once", () => {
  const state = lookAt(none(), [seen("a")]);
  const incident = state.incidents[0];
  for (let look = 0; look < 2; look++) noteMessages(state, rules({ to: ["a", "b"], events: ["drift"] }), NOW);
  const at = new Date(NOW).toISOString();
  const waiting = { state: "waiting", attempts: 0, next_at: at, error: null, sent_at: null };
  const about = { at, event: "drift", subject: "Drift: a", incident: incident?.id, ...waiting };
  assert.deepEqual(
    state.messages.map(({ id: _, ...message }) => message),
    [
      { ...about, target: "a" },
      { ...about, target: "b" },
    ],
  );
  assert.equal(new Set(state.messages.map(({ id }) => id)).size, 2);
  assert.deepEqual(incident?.told, ["a", "b"]);
});

test("CP-861 who has heard of the beginning is told of the end; who has not is told both with the end", () => {
  const state = lookAt(none(), [seen("a"), seen("c", { group: "h", job: "api", run: "r2" })]);
  noteMessages(state, rules({ to: ["a", "b"] }), NOW);
  const of = (target: string) => state.messages.filter((one) => one.target === target);
  Object.assign(of("a")[0] ?? {}, { attempts: 1 });
  lookAt(state, [seen("a", { isBad: false })]);
  const onlyEnds = rules({ to: ["a", "b"], events: ["recovered"] });
  noteMessages(state, onlyEnds, NOW);
  assert.deepEqual(
    state.messages.map(({ target, event, subject }) => `${target} ${event} ${subject}`),
    ["a drift Drift: a", "a drift Drift: c", "b drift Drift: c", "a recovered Over: Drift: a", "b recovered Over: Drift: a"],
  );
  assert.deepEqual(
    state.incidents.map(({ settled }) => settled),
    [true, false],
  );
});

test("CP-861 of an incident that nobody has heard of before its end only the end is told", () => {
  const state = lookAt(none(), [seen("a")]);
  noteMessages(state, TOLD, NOW);
  lookAt(state, [seen("a", { isBad: false })]);
  noteMessages(state, TOLD, NOW);
  assert.deepEqual(
    state.messages.map(({ event }) => event),
    ["recovered"],
  );
});

test("what is open and what waits is bounded", () => {
  const many = (count: number) =>
    Array.from({ length: count }, (_, index) => seen(`p${index}`, { group: `${index}`, run: null }));
  const state = lookAt(none(), many(501));
  assert.equal(state.incidents.length, 500);
  for (let look = 0; look < 2; look++) {
    lookAt(
      state,
      many(500).map((one) => ({ ...one, isBad: false })),
      many(500),
    );
    noteMessages(state, TOLD, NOW);
  }
  lookAt(state, many(1));
  noteMessages(state, TOLD, NOW);
  const waiting = state.messages.filter((one) => one.state === "waiting");
  const failed = state.messages.filter((one) => one.state === "failed");
  assert.equal(waiting.length, 1_000);
  assert.ok(failed.length > 0 && failed.length <= 500);
  assert.deepEqual([failed[0]?.error, failed[0]?.next_at], ["more than 1000 messages wait", null]);
  const lastFailed = state.messages.findLastIndex((one) => one.state === "failed");
  assert.ok(lastFailed < state.messages.indexOf(waiting[0] as never), "the oldest go");
});

test("of the messages that wait for nothing 500 are kept, the newest", () => {
  const state = none();
  const add = (count: number) => {
    for (let index = 0; index < count; index++) {
      lookAt(state, [seen(`p${index}`, { run: `r${index}` })]);
      noteMessages(state, rules({ events: ["drift"] }), NOW);
      for (const one of state.messages) one.state = "sent";
      lookAt(state, [seen(`p${index}`, { isBad: false })]);
    }
    noteMessages(state, NOBODY, NOW);
  };
  add(501);
  assert.deepEqual([state.messages.length, state.messages[0]?.subject], [500, "Drift: p1"]);
});

test("of what is over, and told to nobody, 200 incidents are kept, the newest", () => {
  const state = lookAt(none(), [seen("open", { run: "r9" })], [seen("told", { run: "r0" })]);
  noteMessages(state, TOLD, NOW);
  lookAt(state, [seen("told", { isBad: false })]);
  for (let index = 0; index < 205; index++) {
    lookAt(state, [seen(`p${index}`)], [seen(`p${index}`, { isBad: false })]);
    noteMessages(state, NOBODY, NOW);
  }
  assert.deepEqual(placesOf(state).slice(0, 3), ["open", "told", "p5"], "what is open, or has a message, stays");
  assert.deepEqual([placesOf(state).at(-1), state.incidents.length], ["p204", 202]);
});
