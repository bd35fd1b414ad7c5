import type { Layout } from "../../bucket/base/layout.ts";
import { findBucket } from "../../bucket/source/root.ts";
import { isUuid } from "../../codec/uuid.ts";
import { described, object, oneOf, optional, string } from "../../core/shape.ts";
import { json, jsonText, ok } from "../../http/message.ts";
import { RUN_KINDS, RUN_STATUS } from "../../run/protocol.ts";
import { type RunRecord, readRecord, runNotFound } from "../../run/record.ts";
import { route } from "../context.ts";
import { shownRun } from "../run-list.ts";
import { component, PAGE, page, pollMs, TIMEOUT } from "./shapes.ts";

/** Below it are all routes about runs. */
export const RUNS = "/api/buckets/{bucket_id}/runs";
/** What happened and happens in a bucket (control-plane.md, Runs). */
export const RUN_ROUTES = [
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
      return supervisor.events.after(query.after, pollMs(query.timeout), request.signal).then(ok);
    },
  }),
  route({
    method: "GET",
    path: RUNS,
    summary: "List the runs of a bucket, newest first",
    query: { ...PAGE, status: optional(RUN_STATUS), kind: optional(oneOf(...RUN_KINDS)) },
    answer: { status: 200, description: "A page of runs", shape: page("Run") },
    failures: ["bucket_not_found"],
    async handle({ params, query }, { root, runList }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      return jsonText(200, await runList.page(layout, query));
    },
  }),
  route({
    method: "GET",
    path: `${RUNS}/{run_id}`,
    summary: "Show a run",
    answer: { status: 200, description: "The run", shape: component("RunDetail") },
    failures: ["bucket_not_found", "run_not_found"],
    async handle({ params }, { root, supervisor }) {
      const { layout, record } = findRun(root, params);
      const progress = supervisor.progress(record.id);
      return json(200, { ...(await shownRun(layout, record)), progress });
    },
  }),
  route({
    method: "POST",
    path: `${RUNS}/{run_id}/cancel`,
    summary: "Cancel a run",
    description: "The run stays `running` until its process is gone, then it is `cancelled`, whatever it had done.",
    body: object({}),
    answer: { status: 202, description: "The cancel is accepted", shape: component("Run") },
    failures: ["bucket_not_found", "run_not_found", "run_not_active"],
    async handle({ params, request }, { root, supervisor, identity }) {
      const { layout, record } = findRun(root, params);
      const { address, via } = identity;
      const cancelled = await supervisor.cancel(layout, record.id, { address, via }, request.id);
      return json(202, await shownRun(layout, cancelled));
    },
  }),
];

/** The run that a path names. Throws `bucket_not_found` and `run_not_found`. */
export function findRun(root: string, params: Record<string, string>): { layout: Layout; record: RunRecord } {
  const { layout, id } = runIn(root, params);
  const record = readRecord(layout, id);
  if (!record) throw runNotFound(id);
  return { layout, record };
}

/** The same without looking whether there is such a run: only what is no id is `run_not_found`. */
export function runIn(root: string, params: Record<string, string>): { layout: Layout; id: string } {
  const { layout } = findBucket(root, params.bucket_id ?? "");
  const id = (params.run_id ?? "").toLowerCase();
  if (!isUuid(id)) throw runNotFound(id);
  return { layout, id };
}
