import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";

const { rhythmText } = await import(path.join(PROGRAM_ROOT, "ui/watch/rhythm.js"));
const { percentText, segmentsOf, stripOf } = await import(path.join(PROGRAM_ROOT, "ui/watch/history.js"));
const { troublesOf } = await import(path.join(PROGRAM_ROOT, "ui/parts/trouble.js"));
const { outcomesOf } = await import(path.join(PROGRAM_ROOT, "ui/run/words.js"));
const { markOf } = await import(path.join(PROGRAM_ROOT, "ui/parts/state.js"));
const HOUR_MS = 3_600_000;

const CRON: [string, string][] = [
  ["* * * * *", "every minute"],
  ["*/15 * * * *", "every 15 minutes"],
  ["5 * * * *", "every hour at 5 past"],
  ["30 5 * * *", "every day at 05:30"],
  ["0 2,14 * * *", "every day at 02:00 and 14:00"],
  ["0 7 * * mon-fri", "Monday to Friday at 07:00"],
  ["0 7 * * 0,3", "Sunday and Wednesday at 07:00"],
  ["0 7 * * 7", "Sunday at 07:00"],
  ["0 0 1 * *", "day 1 of every month at 00:00"],
  ["15 3 24,31 dec *", "24 and 31 December at 03:15"],
  ["0 9 1-7 * mon", "cron 0 9 1-7 * mon"],
  ["*/20 8-18 * * *", "cron */20 8-18 * * *"],
];

for (const [cron, text] of CRON)
  test(`CP-885 the rhythm ${cron} in words`, () => {
    assert.equal(rhythmText({ every_seconds: null, cron, timezone: "UTC" }), `${text} (UTC)`);
  });

test("CP-885 a rhythm by the clock alone is said in its largest unit", () => {
  const every = (seconds: number) => rhythmText({ every_seconds: seconds, cron: null, timezone: null });
  assert.deepEqual([60, 900, 5400, 7200, 86_400].map(every), [
    ...["every minute", "every 15 minutes", "every 90 minutes", "every 2 hours", "every day"],
  ]);
});

/** A record of an allocation, with the changes that led there. */
function history(now: number, ...states: [hoursAgo: number, state: string][]) {
  const of = { job: "web", worker: "a", aspect: "health", reason: "", run_id: "r" };
  const changes = states.map(([hours, state]) => ({ ...of, at: new Date(now - hours * HOUR_MS).toISOString(), state }));
  return { record: changes.at(-1), changes: changes.reverse() };
}

test("CP-887 a strip counts the known time alone, and each bar the share that was not well", () => {
  const now = Date.UTC(2026, 0, 10);
  const { record, changes } = history(now, [12, "healthy"], [6, "unhealthy"], [5, "healthy"]);
  const found = stripOf([segmentsOf(record, changes, now)], "day", now);
  assert.equal(found.bars.length, 48);
  assert.deepEqual([found.changes, Math.round(found.good * 12)], [2, 11]);
  const shown = found.bars.map(({ isKnown, state, bad }: { isKnown: boolean; state: string; bad: number }) =>
    isKnown ? (state === "" ? "+" : `${state[0]}${bad}`) : ".",
  );
  assert.equal(shown.join(""), `${".".repeat(24)}${"+".repeat(12)}u1u1${"+".repeat(10)}`);
});

test("CP-887 a change before the strip holds at its beginning, and what was never looked at is not known", () => {
  const now = Date.UTC(2026, 0, 10);
  const { record } = history(now, [200, "unhealthy"]);
  const place = segmentsOf(record, [], now);
  assert.equal(stripOf([place], "day", now).good, 0);
  assert.equal(stripOf([place], "day", now).changes, 0);
  assert.equal(stripOf([], "week", now).good, null);
});

test("CP-887 a share is never rounded to all of the time", () => {
  assert.deepEqual([1, 0.99999, 0.5, 0.9561, 0].map(percentText), ["100 %", "99.99 %", "50 %", "95.61 %", "0 %"]);
});

const unwell = (worker: string, about: object) => ({
  ...{ job: "web", worker, aspect: "health", state: "unhealthy", reason: "503", run_id: "r" },
  ...{ at: `2026-01-10T0${worker.length}:00:00Z` },
  ...about,
});
const summaryOf = (problems: object[], items: object[], cut = 0) => ({
  problems: { items: problems, cut: 0 },
  unwell: { items, cut },
});
const PROBLEM = { kind: "failed", job: "web", workers: ["a"], worker_count: 1, since: "2026-01-09T00:00:00Z", action: "restart" };

test("CP-886 equal troubles are one problem with the oldest time; the worst kind comes first", () => {
  const reach = { job: "", aspect: "reach", state: "unreachable" };
  const all = [unwell("aaa", { aspect: "files", state: "drifted" }), unwell("aa", {}), unwell("a", {}), unwell("aaaa", reach)];
  const { items } = troublesOf(summaryOf([], all, 7));
  type Shown = { kind: string; job: string | null; workers: string[]; since: string; more: boolean };
  assert.deepEqual(
    items.map(({ kind, job, workers, since, more }: Shown) => [kind, job, workers.join(), since, more]),
    [
      ["failed", "web", "aa,a", "2026-01-10T01:00:00Z", true],
      ["unreachable", null, "aaaa", "2026-01-10T04:00:00Z", true],
      ["hand", "web", "aaa", "2026-01-10T03:00:00Z", true],
    ],
  );
});

test("CP-886 what a run says already, and what an unreachable worker explains, is not said twice", () => {
  const reach = unwell("b", { job: "", aspect: "reach", state: "unreachable" });
  const all = [unwell("a", {}), reach, unwell("b", { job: "db", state: "unreachable" })];
  const { items } = troublesOf(summaryOf([PROBLEM], all));
  assert.deepEqual(
    items.map(({ kind, job }: { kind: string; job: string | null }) => [kind, job]),
    [
      ["failed", "web"],
      ["unreachable", null],
    ],
  );
});

test("CP-256 a host key that is not the known one is marked as a failure, whatever `changed` means elsewhere", () => {
  const marks = (outcome: string) => {
    const [row] = outcomesOf({ params: {}, result: { workers: [{ worker: "a", outcome, error: null }] } });
    return `${row.outcome} ${markOf(row.outcome)}`;
  };
  assert.deepEqual(["changed", "replaced", "unchanged", "trusted", "not_needed"].map(marks), [
    "key_changed failed",
    "replaced changed",
    "unchanged ok",
    "trusted ok",
    "not_needed ok",
  ]);
});
