import assert from "node:assert/strict";
import { test } from "node:test";
import { freezesAhead, openFreeze, toldFreezes } from "../../lib/plan/calendar.ts";

const at = (text: string) => Date.parse(`${text}Z`);
const HOUR_MS = 3_600_000;
const weekend = { rhythm: { cron: "0 17 * * fri", timezone: "Europe/Berlin" }, forMs: 62 * HOUR_MS, reason: "weekend" };
const holidays = { fromMs: at("2026-12-20T00:00"), toMs: at("2027-01-04T00:00"), reason: "holidays" };

test("a window begins at its first instant and ends before its last", () => {
  assert.equal(openFreeze([holidays], holidays.fromMs - 1), undefined);
  assert.equal(openFreeze([holidays], holidays.fromMs)?.reason, "holidays");
  assert.equal(openFreeze([holidays], holidays.toMs - 1)?.reason, "holidays");
  assert.equal(openFreeze([holidays], holidays.toMs), undefined);
});

test("a repeated window is found on the clock of its timezone", () => {
  assert.equal(openFreeze([weekend], at("2026-07-03T14:59")), undefined);
  assert.deepEqual(openFreeze([weekend], at("2026-07-03T15:00")), {
    fromMs: at("2026-07-03T15:00"),
    toMs: at("2026-07-06T05:00"),
    reason: "weekend",
  });
  assert.equal(openFreeze([weekend], at("2026-07-06T05:00")), undefined);
});

test("of several open windows the one that ends last counts; windows that follow on one another are one", () => {
  assert.equal(openFreeze([weekend, holidays], at("2026-12-26T12:00"))?.reason, "holidays");
  const daily = { rhythm: { cron: "0 0 * * 1-3", timezone: "UTC" }, forMs: 24 * HOUR_MS, reason: "daily" };
  assert.equal(openFreeze([daily], at("2026-07-06T12:00"))?.toMs, at("2026-07-09T00:00"));
});

test("windows that follow on one another without an end are looked at a hundred windows ahead", () => {
  const always = { rhythm: { everyMs: HOUR_MS }, forMs: HOUR_MS, reason: "always" };
  const now = at("2026-07-06T12:00");
  assert.deepEqual(openFreeze([always], now), { fromMs: now, toMs: now + 101 * HOUR_MS, reason: "always" });
  const gaps = { ...always, forMs: HOUR_MS - 1 };
  assert.deepEqual(openFreeze([gaps], now), { fromMs: now, toMs: now + HOUR_MS - 1, reason: "always" });
  assert.equal(openFreeze([gaps], now + HOUR_MS - 1), undefined);
});

test("the freezes ahead are those that are on or begin within seven days, of each rule the first", () => {
  const reasons = (now: number) => freezesAhead([holidays, weekend], now).map(({ reason }) => reason);
  assert.deepEqual(reasons(at("2026-12-12T00:00")), ["weekend"]);
  assert.deepEqual(reasons(at("2026-12-13T00:00") - 1), ["weekend"]);
  assert.deepEqual(reasons(at("2026-12-13T00:00")), ["weekend", "holidays"]);
  assert.deepEqual(reasons(at("2026-12-14T00:00")), ["weekend", "holidays"]);
  assert.deepEqual(reasons(at("2027-01-04T00:00")), ["weekend"]);
});

test("whoever plans a deploy is told until when it is refused, or when the next window opens", () => {
  const [from, to] = ["2026-12-20T00:00:00.000Z", "2027-01-04T00:00:00.000Z"];
  assert.deepEqual(toldFreezes([holidays], holidays.fromMs - 1), [`from ${from} to ${to} deploys are refused: holidays`]);
  assert.deepEqual(toldFreezes([holidays], holidays.fromMs), [`a deploy is refused until ${to}: holidays`]);
  assert.deepEqual(toldFreezes([holidays], holidays.toMs), []);
});
