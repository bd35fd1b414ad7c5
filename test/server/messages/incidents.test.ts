import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_NOTIFY, type Notify } from "../../../lib/bucket/notify/notify.ts";
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
  assert.match(failed[0]?.error ?? "", /^more than 1000 messages wait$/);
  const lastFailed = state.messages.findLastIndex((one) => one.state === "failed");
  assert.ok(lastFailed < state.messages.indexOf(waiting[0] as never), "the oldest go");
});

test("of what is over, and told to nobody, 200 incidents are kept, the newest", () => {
  const state = none();
  for (let index = 0; index < 205; index++) {
    lookAt(state, [seen(`p${index}`)], [seen(`p${index}`, { isBad: false })]);
    noteMessages(state, NOBODY, NOW);
  }
  assert.deepEqual([placesOf(state)[0], placesOf(state).at(-1), state.incidents.length], ["p5", "p204", 200]);
});
