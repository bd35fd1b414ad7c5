import assert from "node:assert/strict";
import { test } from "node:test";
import type { RootBucket } from "../../../lib/bucket/source/root.ts";
import type { Incident, Message } from "../../../lib/server/messages/state.ts";
import { fieldsOf, testFields } from "../../../lib/server/messages/wording.ts";

const BUCKET = { id: "b1", project: "shop", name: "live" } as RootBucket;
const [OPENED, OVER, AT] = ["2026-11-01T10:00:00.000Z", "2026-11-02T10:00:00.000Z", "2026-11-03T10:00:00.000Z"];
const IN_30_DAYS = "2026-12-01T10:00:00.000Z";
const OF_BUCKET = { BucketID: "b1", Project: "shop", Bucket: "live" };

function fields(incident: Partial<Incident>, event: Message["event"] = "drift") {
  const message = { id: "m1", event, at: AT, subject: "Drift: a" } as Message;
  const base = { id: "i1", event: "drift", opened_at: OPENED, over_at: null, reason: "", places: ["a"], job: null, run_id: null };
  return fieldsOf(message, { ...base, ...incident } as Incident, BUCKET);
}

test("CP-861 a message tells what the incident is, where it is, and until when to remember it", () => {
  const open = fields({ reason: "why", job: "web", run_id: "r1", over_at: OVER });
  assert.deepEqual(open, {
    ...{ ID: "m1", Event: "drift", At: AT, IncidentEvent: "drift", IncidentID: "i1", Status: "open" },
    ...{ OpenedAt: OPENED, OverAt: "", ForgetAt: IN_30_DAYS, ...OF_BUCKET, Subject: "shop/live: Drift: a" },
    ...{ Text: `why\nSince ${OPENED}\nRun r1`, Reason: "why", Places: ["a"], PlaceCount: 1n, Job: "web", Run: "r1" },
  });
  const over = fields({ over_at: OVER }, "recovered");
  const { Event, Status, OverAt, Text, Reason, Job, Run } = over;
  assert.deepEqual([Event, Status, OverAt, Text], ["recovered", "over", OVER, `From ${OPENED} to ${OVER}`]);
  assert.deepEqual([Reason, Job, Run, over.IncidentEvent], ["", "", "", "drift"]);
});

test("a message names the first 100 places, and its text the first 20", () => {
  const of = (count: number) => fields({ places: Array.from({ length: count }, (_, at) => `p${at}`) });
  const first = (count: number) => Array.from({ length: count }, (_, at) => `p${at}`).join(", ");
  const text = (count: number) => of(count).Text.split("\n")[0];
  assert.equal(text(1), `Since ${OPENED}`);
  assert.equal(text(2), "2 places: p0, p1");
  assert.equal(text(20), `20 places: ${first(20)}`);
  assert.equal(text(21), `21 places: ${first(20)} and 1 more`);
  const { Places, PlaceCount } = of(101);
  assert.deepEqual([Places.length, Places.at(-1), PlaceCount], [100, "p99", 101n]);
});

test("CP-872 a test tells that nothing is wrong, of an incident that is over already", () => {
  assert.deepEqual(testFields("t1", BUCKET, Date.parse(AT)), {
    ...{ ID: "t1", Event: "test", At: AT, IncidentEvent: "test", IncidentID: "t1", Status: "over" },
    ...{ OpenedAt: AT, OverAt: AT, ForgetAt: AT, ...OF_BUCKET, Subject: "shop/live: Test" },
    ...{ Text: "This is a test. Nothing is wrong.", Reason: "", Places: [], PlaceCount: 0n, Job: "", Run: "" },
  });
});
