import assert from "node:assert/strict";
import { test } from "node:test";
import { isQuiet, type QuietHours } from "../../lib/plan/calendar.ts";

const HOUR_MS = 3_600_000;
const SUNDAY = Date.UTC(2026, 4, 3);
const [NOON, ONE, TEN_AT_NIGHT, SEVEN] = [12 * 60, 13 * 60, 22 * 60, 7 * 60];

/** Whether these hours are quiet, a whole number of hours and minutes after the Sunday began. */
function quietAt(hours: QuietHours, day: number, time: string): boolean {
  const [hour = 0, minute = 0] = time.split(":").map(Number);
  return isQuiet([hours], SUNDAY + (day * 24 + hour) * HOUR_MS + minute * 60_000);
}

test("quiet hours of one day begin at their first minute and end before their last, on their days alone", () => {
  const hours = { fromMinute: NOON, toMinute: ONE, days: [1, 6], timezone: "UTC" };
  for (let day = 0; day < 7; day++) {
    const quiet = ["00:00", "11:59", "12:00", "12:59", "13:00", "23:59"].filter((time) => quietAt(hours, day, time));
    assert.deepEqual(quiet, day === 1 || day === 6 ? ["12:00", "12:59"] : [], `day ${day}`);
  }
});

test("quiet hours over midnight begin on their day, whichever it is, and end on the next", () => {
  for (let begin = 0; begin < 7; begin++) {
    const hours = { fromMinute: TEN_AT_NIGHT, toMinute: SEVEN, days: [begin], timezone: "UTC" };
    for (let day = 0; day < 7; day++) {
      const quiet = ["00:00", "06:59", "07:00", "21:59", "22:00", "23:59"].filter((time) => quietAt(hours, day, time));
      const own = day === begin ? ["22:00", "23:59"] : [];
      assert.deepEqual(quiet, day === (begin + 1) % 7 ? ["00:00", "06:59"] : own, `day ${day}, begun on ${begin}`);
    }
  }
});

test("quiet hours are those on the clocks of their timezone; without any it is never quiet", () => {
  const hours = { fromMinute: NOON, toMinute: ONE, days: [0], timezone: "Europe/Berlin" };
  const quiet = ["09:59", "10:00", "10:59", "11:00", "12:00"].filter((time) => quietAt(hours, 0, time));
  assert.deepEqual(quiet, ["10:00", "10:59"]);
  assert.equal(isQuiet([], SUNDAY), false);
  const other = { ...hours, timezone: "UTC" };
  assert.equal(isQuiet([hours, other], SUNDAY + 12 * HOUR_MS), true, "one of them is enough");
});
