import type { MessageFields } from "../../bucket/notify/body.ts";
import type { RootBucket } from "../../bucket/source/root.ts";
import { DAY_IN_MS } from "../../codec/calendar/zone.ts";
import { counted } from "../../core/plain-text.ts";
import type { Incident, Message } from "./state.ts";

/** The places that a message names, and that the API shows. */
export const MOST_SHOWN_PLACES = 100;
const MOST_TEXT_PLACES = 20;
/** How long a receiver should know of an incident that is open and that nobody tells of again. */
const FORGET_MS = 30 * DAY_IN_MS;

/** What a message tells, for its body. */
export function fieldsOf(message: Message, incident: Incident, bucket: RootBucket): MessageFields {
  const { over_at, opened_at, reason, places, job, run_id } = incident;
  const isOver = message.event === "recovered";
  return {
    ID: message.id,
    Event: message.event,
    At: message.at,
    IncidentEvent: incident.event,
    IncidentID: incident.id,
    Status: isOver ? "over" : "open",
    OpenedAt: opened_at,
    OverAt: isOver ? (over_at ?? "") : "",
    ForgetAt: new Date(Date.parse(opened_at) + FORGET_MS).toISOString(),
    ...ofBucket(bucket),
    Subject: `${bucket.project}/${bucket.name}: ${message.subject}`,
    Text: textOf(incident, isOver),
    Reason: reason,
    Places: places.slice(0, MOST_SHOWN_PLACES),
    PlaceCount: BigInt(places.length),
    Job: job ?? "",
    Run: run_id ?? "",
  };
}

/** What a test of a target tells: an incident that is over already, so that nobody waits for its end. */
export function testFields(id: string, bucket: RootBucket, now: number): MessageFields {
  const at = new Date(now).toISOString();
  return {
    ID: id,
    Event: "test",
    At: at,
    IncidentEvent: "test",
    IncidentID: id,
    Status: "over",
    OpenedAt: at,
    OverAt: at,
    ForgetAt: at,
    ...ofBucket(bucket),
    Subject: `${bucket.project}/${bucket.name}: Test`,
    Text: "This is a test. Nothing is wrong.",
    Reason: "",
    Places: [],
    PlaceCount: 0n,
    Job: "",
    Run: "",
  };
}

function ofBucket({ id, project, name }: RootBucket): Pick<MessageFields, "BucketID" | "Project" | "Bucket"> {
  return { BucketID: id, Project: project, Bucket: name };
}

function textOf({ reason, places, opened_at, over_at, run_id }: Incident, isOver: boolean): string {
  const shown = places.slice(0, MOST_TEXT_PLACES);
  const more = places.length > shown.length ? ` and ${places.length - shown.length} more` : "";
  return [
    ...(reason === "" ? [] : [reason]),
    ...(places.length > 1 ? [`${counted(places.length, "place")}: ${shown.join(", ")}${more}`] : []),
    isOver ? `From ${opened_at} to ${over_at}` : `Since ${opened_at}`,
    ...(run_id === null ? [] : [`Run ${run_id}`]),
  ].join("\n");
}
