import assert from "node:assert/strict";
import { test } from "node:test";
import { CronError, nextWall, parseCron, previousWall } from "../../../lib/codec/calendar/cron.ts";

const wall = (text: string) => Date.parse(`${text}Z`);
const shown = (time: number | undefined) => (time === undefined ? "never" : new Date(time).toISOString().slice(0, 16));

test("a cron expression comes at the next minute that it names", () => {
  const cases: [cron: string, from: string, next: string][] = [
    ["* * * * *", "2026-03-01T10:07", "2026-03-01T10:07"],
    ["* * * * *", "2026-03-01T10:07:01", "2026-03-01T10:08"],
    ["*/15 * * * *", "2026-03-01T10:46", "2026-03-01T11:00"],
    ["5/20 * * * *", "2026-03-01T10:26", "2026-03-01T10:45"],
    ["0 9-17/4 * * *", "2026-03-01T13:01", "2026-03-01T17:00"],
    ["30 2 * * *", "2026-12-31T02:31", "2027-01-01T02:30"],
    ["0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"],
    ["0 0 31 * *", "2026-04-01T00:00", "2026-05-31T00:00"],
    ["0 12 * JAN,jul Mon", "2026-02-01T00:00", "2026-07-06T12:00"],
    ["0 12 * * 7", "2026-11-23T00:00", "2026-11-29T12:00"],
    ["0 12 * * 0", "2026-11-23T00:00", "2026-11-29T12:00"],
    ["0 12 * * fri-sat", "2026-11-22T00:00", "2026-11-27T12:00"],
    ["0 12,3 * * *", "2026-03-01T00:00", "2026-03-01T03:00"],
    ["0 12,3 * * *", "2026-03-01T12:01", "2026-03-02T03:00"],
    ["59 23 31 12 *", "2026-03-01T00:00", "2026-12-31T23:59"],
    ["* * * * *", "2026-11-28T10:00", "2026-11-28T10:00"],
    // A range of days of the week ends with Saturday.
    ["0 0 * * 1/3", "2026-11-28T00:00", "2026-11-30T00:00"],
    // Around 2100, which has no 29 February, twelve years pass between two such Thursdays.
    ["0 0 */31 2 4", "2091-02-02T00:00", "2103-02-01T00:00"],
    // Both fields of days are restricted: either counts.
    ["0 0 13 * 5", "2026-11-01T00:00", "2026-11-06T00:00"],
    // A field that begins with * is not restricted: both count.
    ["0 0 */2 * 5", "2026-11-01T00:00", "2026-11-13T00:00"],
  ];
  for (const [cron, from, next] of cases) assert.equal(shown(nextWall(parseCron(cron), wall(from))), next, cron);
});

test("each month has its name", () => {
  for (const [index, name] of "jan feb mar apr may jun jul aug sep oct nov dec".split(" ").entries()) {
    const next = nextWall(parseCron(`0 0 1 ${name} *`), wall("2026-01-01T00:00"));
    assert.equal(next, Date.UTC(2026, index), name);
  }
});

test("the minute before a time is found as well", () => {
  const cases: [cron: string, from: string, previous: string][] = [
    ["* * * * *", "2026-03-01T10:07:59", "2026-03-01T10:07"],
    ["* * * * *", "2026-03-01T10:07", "2026-03-01T10:07"],
    ["30 2 * * *", "2027-01-01T02:29", "2026-12-31T02:30"],
    ["0 12,3 * * *", "2026-03-02T02:00", "2026-03-01T12:00"],
    ["0 0 29 2 *", "2028-02-28T23:59", "2024-02-29T00:00"],
  ];
  for (const [cron, from, previous] of cases) assert.equal(shown(previousWall(parseCron(cron), wall(from))), previous, cron);
});

test("what is no cron expression is refused with the field that is wrong", () => {
  const cases: [cron: string, message: RegExp][] = [
    ["", /expected five fields .* found 0/],
    ["* * * *", /expected five fields .* found 4/],
    ["* * * * * *", /expected five fields .* found 6/],
    ["60 * * * *", /^minute: .* found "60"/],
    ["* 24 * * *", /^hour: /],
    ["005 * * * *", /^minute: /],
    ["*/10000 * * * *", /^minute: /],
    ["1/2/3 * * * *", /^minute: /],
    ["1/2x * * * *", /^minute: /],
    ["* * 32 * *", /^day of the month: /],
    ["* * 0 * *", /^day of the month: /],
    ["* * * 13 *", /^month: .* or jan to dec/],
    ["* * * * 8", /^day of the week: /],
    ["*/0 * * * *", /^minute: /],
    ["5-1 * * * *", /^minute: /],
    ["1-2-3 * * * *", /^minute: /],
    ["1,,2 * * * *", /^minute: /],
    ["@daily * * * *", /^minute: /],
    ["-1 * * * *", /^minute: /],
    ["1.5 * * * *", /^minute: /],
    ["0 0 30 2 *", /never comes/],
    ["0 0 31 4,6,9,11 *", /never comes/],
  ];
  for (const [cron, message] of cases)
    assert.throws(
      () => parseCron(cron),
      (error) => error instanceof CronError && message.test(error.message),
      cron,
    );
});
