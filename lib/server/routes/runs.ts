import type { Layout } from "../../bucket/base/layout.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { boolean, described, list, nullable, object, oneOf, optional, quote, string } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { RUN_KINDS, RUN_STATUS } from "../../run/protocol.ts";
import { type RunRecord, readRecord, runNotFound } from "../../run/record.ts";
import { type BucketCall, bucketRoute, type Context, route } from "../context.ts";
import { isInReach } from "../people/permission.ts";
import { shownRun } from "../run-list.ts";
import { actorOf } from "../start.ts";
import { READ_FAILURES } from "./catalog.ts";
import { component, PAGE, page, pollMs, TIMEOUT } from "./shapes.ts";

/** The runs of a bucket, and the events of the runs of all buckets (control-plane.md, Runs). */
export const RUN_ROUTES = [
  route("GET /api/events", "read", {
    summary: "Follow the state changes of the runs of all buckets",
    description:
      "Answers as soon as a run of this server starts, is being cancelled or ends. Without " +
      "`after` the answer comes at once and says where to begin. The latest 1,000 changes are kept, in memory.",
    query: { after: optional(described(string({ min: 1, max: 40 }), "`next` of the last answer")), timeout: TIMEOUT },
    answer: { status: 200, description: "The changes", shape: component("Events") },
    async handle({ query, request }, { supervisor, identity }) {
      request.longPoll();
      const isShown = (event: { bucket_id: string }) => isInReach(identity, event.bucket_id);
      const wait = { timeoutMs: pollMs(query.timeout), signal: request.signal, isShown };
      return json(200, await supervisor.events.after(query.after, wait));
    },
  }),
  bucketRoute("GET /runs", "read", {
    summary: "List the runs of a bucket, newest first",
    query: {
      ...PAGE,
      status: optional(RUN_STATUS),
      kind: optional(oneOf(...RUN_KINDS)),
      id: optional(described(string({ min: 4, max: 36 }), "Only runs whose id begins or ends so")),
    },
    answer: { status: 200, description: "A page of runs", shape: page("Run") },
    handle: async ({ query, bucket: { layout } }, { beside }) => beside.answer("runs", layout, query),
  }),
  bucketRoute("GET /runs/{run_id}", "read", {
    summary: "Show a run",
    answer: { status: 200, description: "The run", shape: component("RunDetail") },
    failures: ["run_not_found"],
    async handle({ params, bucket: { layout } }, { supervisor, beside }) {
      const id = runIdOf(params);
      return beside.answer("run", layout, { id, progress: supervisor.progress(id) });
    },
  }),
  bucketRoute("GET /runs/{run_id}/plan", "read", {
    summary: "Ask whether a deploy can still carry out the plan of a dry run",
    answer: {
      status: 200,
      description: "The same check that a deploy with this plan begins with",
      shape: object({ valid: boolean(), reason: described(nullable(string()), "What has moved since; null where nothing has") }),
    },
    failures: ["run_not_found", ...READ_FAILURES],
    handle: async ({ params, bucket: { layout } }, { beside }) => beside.answer("plan", layout, runIdOf(params)),
  }),
  bucketRoute(
    "POST /runs/{run_id}/cancel",
    { role: "deploy", or: { role: "operate", says: "for one's own run", when: isOwnRun } },
    {
      summary: "Cancel a run",
      description: "The run stays `running` until its process is gone, then it is `cancelled`, whatever it had done.",
      body: object({}),
      answer: { status: 202, description: "The cancel is accepted", shape: component("Run") },
      failures: ["run_not_found", "run_not_active"],
      async handle({ params, request, bucket: { layout } }, { supervisor, identity }) {
        const { id } = findRun(layout, params);
        const cancelled = await supervisor.cancel(layout, id, actorOf(identity), request.id);
        return json(202, await shownRun(layout, cancelled));
      },
    },
  ),
  bucketRoute("GET /queue", "read", {
    summary: "List the starts that wait for the bucket, the next one first",
    description: "At most 100. A start waits where it was sent with `Ops-Wait` while the bucket was busy.",
    answer: { status: 200, description: "The starts in line", shape: object({ items: list(component("WaitingStart")) }) },
    handle: async ({ bucket: { id } }, { lines }) => json(200, { items: lines.waiting(id) }),
  }),
  bucketRoute(
    "DELETE /queue/{start_key}",
    { role: "deploy", or: { role: "operate", says: "for one's own start", when: isOwnStart } },
    {
      summary: "Give up a start that waits",
      description: "Its request is answered 409 and nothing starts. 404 where it does not wait: it may have started.",
      answer: { status: 204, description: "It waits no more, and will not start" },
      failures: ["not_found"],
      async handle({ params: { start_key = "" }, bucket: { id } }, { lines }) {
        if (!lines.leave(id, start_key)) throw new Failure("not_found", `no start with the key ${quote(start_key)} waits here`);
        return { status: 204 };
      },
    },
  ),
];

/** Whether a run was started with the token that asks. */
function isOwnRun({ params, bucket: { layout } }: Pick<BucketCall, "params" | "bucket">, { identity }: Context): boolean {
  return findRun(layout, params).audit[0]?.actor.name === identity.name;
}

/** Whether a start that waits was sent with the token that asks. */
function isOwnStart({ params, bucket: { id } }: Pick<BucketCall, "params" | "bucket">, { identity, lines }: Context): boolean {
  return lines.waiting(id).find(({ key }) => key === params.start_key)?.by.name === identity.name;
}

/** The run that a path names. Throws `run_not_found`. */
export function findRun(layout: Layout, params: Readonly<Record<string, string>>): RunRecord {
  const id = runIdOf(params);
  const record = readRecord(layout, id);
  if (!record) throw runNotFound(id);
  return record;
}

/** The id of the run that a path names, even of no run. Throws `run_not_found` for anything but an id. */
export function runIdOf({ run_id = "" }: Readonly<Record<string, string>>): string {
  const id = run_id.toLowerCase();
  if (!isUuid(id)) throw runNotFound(id);
  return id;
}
