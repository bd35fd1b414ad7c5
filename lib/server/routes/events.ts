import { described, optional, string } from "../../core/shape.ts";
import { ok } from "../../http/message.ts";
import { route } from "../context.ts";
import { component, pollMs, TIMEOUT } from "./shapes.ts";

/** What happens over all buckets. */
export const EVENT_ROUTES = [
  route({
    method: "GET",
    path: "/api/events",
    summary: "Follow the state changes of the runs of all buckets",
    description:
      "Answers as soon as a run of this server starts, is being cancelled or has ended; otherwise it waits. Without " +
      "`after` the answer comes at once and says where to begin. The latest 1,000 changes are kept, in memory.",
    query: { after: optional(described(string({ min: 1, max: 40 }), "`next` of the answer before")), timeout: TIMEOUT },
    answer: { status: 200, description: "The changes", shape: component("Events") },
    handle({ query, request }, { supervisor }) {
      request.longPoll();
      return supervisor.events.after(query.after, pollMs(query.timeout), request).then(ok);
    },
  }),
];
