import type { Notify } from "../../bucket/notify/notify.ts";
import type { FailureCode } from "../../core/errors.ts";
import { described, list, nullable, object, oneOf, optional, string } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { bucketRoute } from "../context.ts";
import { component, offsetOf, PAGE, page, pageOf } from "../routes/shapes.ts";
import type { Incident, MessageState } from "./state.ts";
import { MOST_SHOWN_PLACES } from "./wording.ts";

const OF_MESSAGES: readonly FailureCode[] = ["database_busy"];
const MESSAGE_STATES = ["waiting", "sent", "failed"] as const;

/** What is wrong in a bucket, and who is told of it (docs/messages.md). */
export const MESSAGE_ROUTES = [
  bucketRoute("GET /incidents", "read", {
    summary: "List what is wrong: open incidents first, then those that are over, each newest first",
    description: "Found by runs, schedules, proposals and the ends of certificates, whether or not somebody is told.",
    query: PAGE,
    answer: { status: 200, description: "A page of incidents", shape: page("Incident") },
    failures: OF_MESSAGES,
    async handle({ query: { limit, cursor }, bucket }, { messenger }) {
      const { incidents } = (await messenger.kept(bucket)).state;
      const newest = incidents.toReversed();
      const open = newest.filter(({ over_at }) => over_at === null);
      const over = newest.filter(({ over_at }) => over_at !== null);
      const { items, next_cursor } = pageOf([...open, ...over], offsetOf(cursor), limit);
      return json(200, { items: items.map(shownIncident), next_cursor });
    },
  }),
  bucketRoute("GET /messages", "read", {
    summary: "List the messages that wait, were sent or were given up, newest first",
    description: "Of those that do not wait the newest 500.",
    query: { ...PAGE, state: optional(described(oneOf(...MESSAGE_STATES), "Only those in this state")) },
    answer: { status: 200, description: "A page of messages", shape: page("Message") },
    failures: OF_MESSAGES,
    async handle({ query: { limit, cursor, state }, bucket }, { messenger }) {
      const { messages } = (await messenger.kept(bucket)).state;
      const wanted = messages.toReversed().filter((one) => state === undefined || one.state === state);
      return json(200, pageOf(wanted, offsetOf(cursor), limit));
    },
  }),
  bucketRoute("GET /messages/targets", "read", {
    summary: "List the targets that workspace/notify.json names, with what waits for each",
    description: "Those that the last successful build found.",
    answer: { status: 200, description: "The targets", shape: object({ items: list(component("MessageTarget")) }) },
    failures: OF_MESSAGES,
    handle: async ({ bucket }, { messenger }) => json(200, { items: shownTargets(await messenger.kept(bucket)) }),
  }),
  bucketRoute("POST /messages/test", "deploy", {
    summary: "Send a test to a target now, once, also in quiet hours",
    body: object({ target: described(string({ min: 1, max: 100 }), "The name of the target") }),
    answer: {
      status: 200,
      description: "What became of it",
      shape: object({
        id: described(string(), "The id of the message"),
        error: described(nullable(string()), "Why the target has not taken it; null where it has"),
      }),
    },
    failures: [...OF_MESSAGES, "not_found"],
    handle: async ({ body: { target }, bucket, request }, { messenger }) =>
      json(200, await messenger.test(bucket, target.toLowerCase(), request.signal)),
  }),
  bucketRoute("POST /messages/{message_id}/retry", "deploy", {
    summary: "Send a message that failed, or waits, now; and try for another day",
    body: object({}),
    answer: { status: 200, description: "The message, which waits", shape: component("Message") },
    failures: [...OF_MESSAGES, "not_found"],
    handle: async ({ params: { message_id = "" }, bucket }, { messenger }) =>
      json(200, await messenger.retry(bucket, message_id)),
  }),
];

function shownIncident({ settled: _, left, places, ...shown }: Incident) {
  const shownPlaces = places.slice(0, MOST_SHOWN_PLACES);
  return { ...shown, places: shownPlaces, place_count: places.length, left_count: left.length };
}

function shownTargets({ state: { messages }, notify: { targets, send } }: { state: MessageState; notify: Notify }) {
  return Object.entries(targets).map(([name, { webhook, command, body }]) => {
    const own = messages.filter(({ target }) => target === name);
    const rules = send.filter(({ to }) => to.includes(name));
    return {
      name,
      kind: webhook === undefined ? "command" : "webhook",
      address: command?.[0] ?? shownAddress(webhook),
      body,
      events: [...new Set(rules.flatMap(({ events }) => events))],
      waiting: own.filter((one) => one.state === "waiting").length,
      failed: own.filter((one) => one.state === "failed").length,
      last_sent_at:
        own
          .flatMap(({ sent_at }) => sent_at ?? [])
          .sort()
          .at(-1) ?? null,
    };
  });
}

/** The path of an address is often its password. */
function shownAddress(webhook: Notify["targets"][string]["webhook"]): string {
  return typeof webhook === "object" ? `secret ${webhook.secret}` : new URL(webhook ?? "").origin;
}
