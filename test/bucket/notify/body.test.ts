import assert from "node:assert/strict";
import { test } from "node:test";
import { type MessageFields, READY_BODIES, renderBody, SAMPLE } from "../../../lib/bucket/notify/body.ts";

const ID = "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f10";
const AT = "2026-11-26T10:00:00.000Z";
const parsed = (name: string, more: Partial<MessageFields> = {}) =>
  JSON.parse(renderBody(name, {}, { ...SAMPLE, ...more } as MessageFields));

test("the sample of a message has a value in each of its fields but for the end of the incident", () => {
  const { OverAt, PlaceCount, Places, ...texts } = SAMPLE;
  assert.deepEqual([OverAt, PlaceCount, Places], ["", 1n, ["web@10.0.0.1"]]);
  assert.deepEqual(texts, {
    ...{ ID, Event: "allocation_unhealthy", At: AT, IncidentEvent: "allocation_unhealthy", Status: "open" },
    IncidentID: ID.replace(/0$/, "1"),
    ...{ OpenedAt: AT, ForgetAt: "2026-12-26T10:00:00.000Z", BucketID: "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70" },
    ...{ Project: "shop", Bucket: "live", Subject: "shop/live: Unhealthy: web on 10.0.0.1" },
    Text: "10.0.0.1: no answer\nSince 2026-11-26T10:00:00.000Z",
    ...{ Reason: "no answer", Job: "web", Run: ID.replace(/0$/, "2") },
  });
  assert.deepEqual(READY_BODIES, ["json", "slack", "matrix", "ntfy", "alertmanager"]);
});

test("the body json has all that a message tells, and the end of an incident is null while it is open", () => {
  const { IncidentID, BucketID, Subject, Text, Reason, Run } = SAMPLE;
  const incident = { id: IncidentID, event: "allocation_unhealthy", status: "open", opened_at: AT, over_at: null };
  assert.deepEqual(parsed("json"), {
    ...{ id: ID, at: AT, event: "allocation_unhealthy", incident },
    bucket: { id: BucketID, project: "shop", name: "live" },
    ...{ subject: Subject, text: Text, reason: Reason, places: ["web@10.0.0.1"], place_count: 1, job: "web", run_id: Run },
  });
  const over = parsed("json", { Status: "over", OverAt: "2026-11-27T10:00:00.000Z", Places: ["a", "b"], PlaceCount: 25n });
  assert.deepEqual([over.incident.over_at, over.places, over.place_count], ["2026-11-27T10:00:00.000Z", ["a", "b"], 25]);
});

test("the bodies for chats have the subject and the text, with what would be markup escaped", () => {
  const odd = { Subject: 'a "b" <c>', Text: "1 & 2\n<3>" };
  assert.deepEqual(parsed("slack", odd), { text: '*a "b" &lt;c&gt;*\n1 &amp; 2\n&lt;3&gt;' });
  assert.deepEqual(parsed("matrix", odd), { msgtype: "m.text", body: 'a "b" <c>\n1 & 2\n<3>' });
  assert.equal(renderBody("ntfy", {}, { ...SAMPLE, ...odd }), 'a "b" <c>\n1 & 2\n<3>\n');
  assert.ok(!renderBody("json", {}, { ...SAMPLE, ...odd }).includes("<"), "no body of JSON has a < that a page could read");
});

test("an alert has equal labels from its beginning to its end, and is forgotten where no end comes", () => {
  const { IncidentID, BucketID, Subject, Text, ForgetAt } = SAMPLE;
  const labels = {
    alertname: "allocation_unhealthy",
    incident: IncidentID,
    bucket: BucketID,
    project: "shop",
    name: "live",
    job: "web",
  };
  const alert = { labels, annotations: { summary: Subject, description: Text }, startsAt: AT };
  assert.deepEqual(parsed("alertmanager"), [{ ...alert, endsAt: ForgetAt }]);
  const end = "2026-11-27T10:00:00.000Z";
  const recovered = { Event: "recovered", Status: "over", OverAt: end } as const;
  assert.deepEqual(parsed("alertmanager", recovered), [{ ...alert, endsAt: end }]);
});

test("a template of a bucket goes before a ready body of its name, and a wrong one is told by its place", () => {
  assert.equal(renderBody("json", { json: "{{ .Job }}" }, SAMPLE), "web");
  assert.equal(
    renderBody("a.tpl", { "a.tpl": "{{ json .PlaceCount }} {{ json .Places }} {{ mrkdwn .Job }}" }, SAMPLE),
    '1 ["web@10.0.0.1"] web',
  );
  assert.throws(() => renderBody("a.tpl", { "a.tpl": "x\n{{ .Nope }}" }, SAMPLE), { code: "failed", message: /a\.tpl:2:/ });
});
