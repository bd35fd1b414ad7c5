import assert from "node:assert/strict";
import { test } from "node:test";
import { isTimezone } from "../../lib/codec/calendar/zone.ts";
import { calendarOf, decidedBy, delayed, dueNow, MOST_SET_BACK_MS, nextDue } from "../../lib/plan/calendar.ts";
import { seeded } from "../helpers/random.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

/** Days on which clocks change in a zone: by an hour, by half an hour, by a whole day, at midnight, to the east and west. */
const CHANGES: [zone: string, ...days: string[]][] = [
  ["Europe/Berlin", "2026-03-29", "2026-10-25"],
  ["America/New_York", "2026-03-08", "2026-11-01"],
  ["America/Santiago", "2026-04-05", "2026-09-06"],
  ["Australia/Lord_Howe", "2026-04-05", "2026-10-04"],
  ["Pacific/Chatham", "2026-04-05", "2026-09-27"],
  ["Africa/Casablanca", "2026-02-15", "2026-03-22"],
  ["Africa/Cairo", "2026-04-24", "2026-10-30"],
  ["Pacific/Apia", "2011-12-30"],
  ["Asia/Kathmandu", "2026-03-29"],
  ["UTC", "2026-03-29"],
];
const EXPRESSIONS = [
  "* * * * *",
  "*/15 * * * *",
  "30 2 * * *",
  "0 0 * * *",
  "59 23 * * *",
  "30 0,1,2,3 * * *",
  "7 */3 * * *",
  "15 2 * * sun",
  "45 1 25 10 *",
];

const clocks = new Map<string, Map<number, number>>();

/** The minutes that a clock shows, as text, so that nothing of the calendar is used to judge it. */
function clockOf(timeZone: string) {
  const format = new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "short" });
  const known = clocks.get(timeZone) ?? new Map<number, number>();
  clocks.set(timeZone, known);
  return (instant: number) => {
    const wall = known.get(instant) ?? Date.parse(`${format.format(instant).replace(" ", "T")}Z`);
    known.set(instant, wall);
    return wall;
  };
}

type Field = (value: number) => boolean;

/** Judges the minutes of a clock by the words of an expression. */
function judgeOf(expression: string): Field {
  const [minute, hour, date, month, day] = expression.split(" ").map(fieldOf) as [Field, Field, Field, Field, Field];
  return (wall) => {
    const shown = new Date(wall);
    const isDay = date(shown.getUTCDate()) && month(shown.getUTCMonth() + 1) && day(shown.getUTCDay());
    return isDay && hour(shown.getUTCHours()) && minute(shown.getUTCMinutes());
  };
}

function fieldOf(words: string): Field {
  if (words === "*") return () => true;
  const step = Number(/^\*\/(\d+)$/.exec(words)?.[1]);
  if (step > 0) return (value) => value % step === 0;
  const named = new Set(words.split(",").map((word) => (word === "sun" ? 0 : Number(word))));
  return (value) => named.has(value);
}

/** Walks every minute between two instants, as somebody who looks at the clock. */
function walked(expression: string, timeZone: string, from: number, until: number): number[] {
  const clock = clockOf(timeZone);
  const isNamed = judgeOf(expression);
  const due: number[] = [];
  let latest = clock(from - MINUTE_MS);
  for (let instant = from; instant <= until; instant += MINUTE_MS) {
    const wall = clock(instant);
    let isDue = false;
    // What was skipped is due now; what was shown before is not due again.
    for (let minute = latest + MINUTE_MS; minute <= wall; minute += MINUTE_MS) isDue ||= isNamed(minute);
    if (isDue) due.push(instant);
    latest = Math.max(latest, wall);
  }
  return due;
}

test("cron is due as a walk over every minute says, at each change of the clocks in ten timezones", () => {
  for (const [timezone, ...days] of CHANGES)
    for (const day of days) {
      const [from, until] = [Date.parse(day) - 0.75 * DAY_MS, Date.parse(day) + 1.5 * DAY_MS];
      for (const cron of EXPRESSIONS) {
        const expected = walked(cron, timezone, from, until);
        const calendar = calendarOf({ cron, timezone });
        const found: number[] = [];
        for (let at = calendar.after(from - 1); at !== undefined && at <= until; at = calendar.after(at)) found.push(at);
        // Texts are made where the times differ: of a cron of every minute there are thousands.
        const isSame = found.length === expected.length && found.every((due, index) => due === expected[index]);
        if (!isSame) assert.deepEqual(found.map(shown), expected.map(shown), `${cron} in ${timezone} around ${day}`);
      }
    }
});

test("the last due time by an instant is the last one of a walk, also within an hour that comes twice", () => {
  const random = seeded();
  for (const [timezone, ...days] of CHANGES)
    for (const day of days) {
      const [from, until] = [Date.parse(day) - 1.75 * DAY_MS, Date.parse(day) + 1.5 * DAY_MS];
      for (const cron of ["* * * * *", "*/15 * * * *", "30 0,1,2,3 * * *"]) {
        const calendar = calendarOf({ cron, timezone });
        const all = walked(cron, timezone, from, until);
        for (let round = 0; round < 60; round++) {
          const instant = from + DAY_MS + Math.floor(random() * (until - from - DAY_MS));
          const message = `${cron} in ${timezone} by ${shown(instant)}`;
          assert.equal(shown(calendar.by(instant)), shown(all.findLast((due) => due <= instant)), message);
          assert.equal(
            shown(calendar.after(instant)),
            shown(all.find((due) => due > instant) ?? calendar.after(instant)),
            message,
          );
        }
      }
    }
});

test("both changes of summer time: a skipped time is due after the gap, a repeated one once", () => {
  const { after } = calendarOf({ cron: "30 2 * * *", timezone: "Europe/Berlin" });
  assert.equal(shown(after(Date.parse("2026-03-28T12:00Z"))), "2026-03-29T01:00:00.000Z");
  assert.equal(shown(after(Date.parse("2026-03-29T01:00Z"))), "2026-03-30T00:30:00.000Z");
  assert.equal(shown(after(Date.parse("2026-10-24T12:00Z"))), "2026-10-25T00:30:00.000Z");
  assert.equal(shown(after(Date.parse("2026-10-25T00:30Z"))), "2026-10-26T01:30:00.000Z");
});

test("every counts from 1970 in UTC, whatever the clocks do", () => {
  const calendar = calendarOf({ everyMs: 15 * MINUTE_MS });
  assert.equal(shown(calendar.after(Date.parse("2026-03-29T00:59:59.999Z"))), "2026-03-29T01:00:00.000Z");
  assert.equal(shown(calendar.after(Date.parse("2026-03-29T01:00Z"))), "2026-03-29T01:15:00.000Z");
  assert.equal(shown(calendar.by(Date.parse("2026-03-29T01:14Z"))), "2026-03-29T01:00:00.000Z");
});

test("a delayed calendar is due so much later each time", () => {
  const calendar = delayed(calendarOf({ cron: "0 3 * * *", timezone: "UTC" }), 90_000);
  assert.equal(shown(calendar.after(Date.parse("2026-05-01T03:01:29Z"))), "2026-05-01T03:01:30.000Z");
  assert.equal(shown(calendar.after(Date.parse("2026-05-01T03:01:30Z"))), "2026-05-02T03:01:30.000Z");
  assert.equal(shown(calendar.by(Date.parse("2026-05-01T03:01:29Z"))), "2026-04-30T03:01:30.000Z");
});

test("only a clock that is set back by more than an hour makes a schedule begin anew", () => {
  const decided = Date.UTC(2026, 0, 1, 12);
  assert.equal(decidedBy(decided, decided - MOST_SET_BACK_MS), decided);
  const now = decided - MOST_SET_BACK_MS - 1;
  assert.equal(decidedBy(decided, now), now);
});

test("of the due times since then the last one counts: within a minute it starts, later it is missed or caught up with", () => {
  const calendar = calendarOf({ everyMs: 15 * MINUTE_MS });
  const [noon, decided] = [Date.UTC(2026, 0, 1, 12), Date.UTC(2026, 0, 1, 11)];
  const verdict = (now: number, catchUp = false) => dueNow(calendar, catchUp, { decided, now });
  assert.deepEqual(verdict(noon), { due: noon, verdict: "start" });
  assert.deepEqual(verdict(noon + MINUTE_MS), { due: noon, verdict: "start" });
  assert.deepEqual(verdict(noon + MINUTE_MS + 1), { due: noon, verdict: "missed" });
  assert.deepEqual(verdict(noon + MINUTE_MS + 1, true), { due: noon, verdict: "start" });
  assert.equal(dueNow(calendar, true, { decided: noon, now: noon + MINUTE_MS }), undefined);
  assert.equal(nextDue(calendar, decided, noon), noon + 15 * MINUTE_MS);
  assert.equal(nextDue(calendar, noon, noon - MINUTE_MS), noon + 15 * MINUTE_MS, "a clock set back by a minute");
});

test("a timezone is known by its name, and an offset is none", () => {
  for (const name of ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"]) assert.ok(isTimezone(name), name);
  for (const name of ["", "+02:00", "Mars/Olympus", "Europe/Berlin ", "../etc"]) assert.ok(!isTimezone(name), name);
});

function shown(instant: number | undefined): string {
  return instant === undefined ? "never" : new Date(instant).toISOString();
}
