import assert from "node:assert/strict";
import { test } from "node:test";
import { isTimezone, Zone } from "../../../lib/codec/calendar/zone.ts";

const HOUR = 3_600_000;

test("a timezone has a name that is known, in any letter case; a fixed offset is none", () => {
  for (const name of ["UTC", "utc", "Europe/Berlin", "america/port-au-prince", "Etc/GMT+5"]) assert.ok(isTimezone(name), name);
  for (const name of ["", "+01:00", "-0130", "Europe/Nowhere", "Europe/Berlin ", " UTC", "Europe/", "UTC+1", "../UTC"])
    assert.equal(isTimezone(name), false, name);
});

test("what reads the clocks of a timezone is made once, however its name is written", (t) => {
  const made = t.mock.method(Intl, "DateTimeFormat").mock;
  for (const name of ["Asia/Tokyo", "asia/tokyo", "Asia/Tokyo"]) new Zone(name).offsetAt(0);
  assert.equal(made.callCount(), 1);
});

test("a clock shows what its offset says, at any part of a second", () => {
  const offsets: [zone: string, at: string, hours: number][] = [
    ["UTC", "2026-07-01T12:00:00.000Z", 0],
    ["Europe/Berlin", "2026-01-01T23:59:59.999Z", 1],
    ["Europe/Berlin", "2026-07-01T12:00:00.500Z", 2],
    ["America/New_York", "2026-12-31T23:30:15.001Z", -5],
    ["Asia/Kathmandu", "2026-02-28T20:00:00.000Z", 5.75],
    ["Pacific/Kiritimati", "2024-02-29T10:00:00.000Z", 14],
    ["Etc/GMT+12", "1969-12-31T11:59:59.500Z", -12],
  ];
  for (const [name, at, hours] of offsets) {
    const zone = new Zone(name);
    assert.equal(zone.offsetAt(Date.parse(at)), hours * HOUR, `${name} ${at}`);
    assert.equal(zone.wallAt(Date.parse(at)), Date.parse(at) + hours * HOUR);
  }
});

// What the clocks show is taken from the way that dates are printed, five minutes apart around each change.
for (const [name, change] of [
  ["Europe/Berlin", "2026-03-29T01:00Z"],
  ["Europe/Berlin", "2026-10-25T01:00Z"],
  ["America/Adak", "2026-03-08T12:00Z"],
  ["America/Adak", "2026-11-01T11:00Z"],
  ["Australia/Lord_Howe", "2026-04-04T15:00Z"],
  ["Pacific/Apia", "2020-09-26T14:00Z"],
  ["Pacific/Apia", "2021-04-03T14:00Z"],
] as const)
  test(`in ${name} each time is the first one that the clocks show around ${change}`, () => {
    const zone = new Zone(name);
    const at = Date.parse(change);
    const first = new Map<number, number>();
    for (let instant = at - 4 * HOUR; instant < at + 4 * HOUR; instant += HOUR / 12) {
      const shown = Date.parse(`${new Date(instant).toLocaleString("sv-SE", { timeZone: name }).replace(" ", "T")}Z`);
      if (!first.has(shown)) first.set(shown, instant);
    }
    for (const [wall, instant] of first) assert.equal(zone.instantOf(wall), instant, new Date(wall).toISOString());
    // In a gap no clock shows the time.
    const before = zone.wallAt(at - 1) + 1;
    for (let wall = before; wall < zone.wallAt(at); wall += HOUR / 12) assert.equal(zone.instantOf(wall), at);
  });
