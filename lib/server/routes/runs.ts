import { stat } from "node:fs/promises";
import { type Layout, runLayout } from "../../bucket/layout.ts";
import { findBucket } from "../../bucket/root.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure, hasErrno } from "../../core/errors.ts";
import { object, oneOf, optional, quote } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { listRuns } from "../../run/history.ts";
import { RUN_KINDS } from "../../run/protocol.ts";
import { type RunRecord, readRecord } from "../../run/record.ts";
import { route } from "../context.ts";
import { component, PAGE, page, RUN_STATUSES } from "./shapes.ts";

/** Below it are all routes about runs. */
export const RUNS = "/api/buckets/{bucket_id}/runs";
/** What happened and happens in a bucket (control-plane.md, Runs). */
export const RUN_ROUTES = [
  route({
    method: "GET",
    path: RUNS,
    summary: "List the runs of a bucket, newest first",
    query: { ...PAGE, status: optional(oneOf(...RUN_STATUSES)), kind: optional(oneOf(...RUN_KINDS)) },
    answer: { status: 200, description: "A page of runs", shape: page("Run") },
    failures: ["bucket_not_found"],
    async handle({ params, query }, { root }) {
      const { layout } = await findBucket(root, params.bucket_id ?? "");
      const { items, next_cursor } = await listRuns(layout, query);
      return json(200, { items: await Promise.all(items.map((run) => describe(layout, run))), next_cursor });
    },
  }),
  route({
    method: "GET",
    path: `${RUNS}/{run_id}`,
    summary: "Show a run",
    answer: { status: 200, description: "The run", shape: component("RunDetail") },
    failures: ["bucket_not_found", "run_not_found"],
    async handle({ params }, { root, supervisor }) {
      const { layout, record } = await findRun(root, params);
      const progress = supervisor.progress(record.id);
      return json(200, { ...(await describe(layout, record)), progress });
    },
  }),
  route({
    method: "POST",
    path: `${RUNS}/{run_id}/cancel`,
    summary: "Cancel a run",
    description:
      "The run stays `running` until its process is gone, then it is `cancelled`, whatever it had done.",
    body: object({}),
    answer: { status: 202, description: "The cancel is accepted", shape: component("Run") },
    failures: ["bucket_not_found", "run_not_found", "run_not_active"],
    async handle({ params, request }, { root, supervisor, identity }) {
      const { layout, record } = await findRun(root, params);
      const { address, via } = identity;
      const cancelled = await supervisor.cancel(layout, record.id, { address, via }, request.id);
      return json(202, await describe(layout, cancelled));
    },
  }),
];

/** The run that a path names. Throws `bucket_not_found` and `run_not_found`. */
export async function findRun(
  root: string,
  params: Record<string, string>,
): Promise<{ layout: Layout; record: RunRecord }> {
  const { layout } = await findBucket(root, params.bucket_id ?? "");
  const id = (params.run_id ?? "").toLowerCase();
  const record = isUuid(id) ? await readRecord(layout, id) : undefined;
  if (!record) throw new Failure("run_not_found", `run ${quote(id)} does not exist`);
  return { layout, record };
}

async function describe(layout: Layout, record: RunRecord) {
  const until = record.finished_at === null ? Date.now() : Date.parse(record.finished_at);
  const duration_ms = Math.max(0, until - Date.parse(record.created_at));
  return { ...record, duration_ms, log_size_bytes: await sizeOf(runLayout(layout, record.id).activity) };
}

async function sizeOf(file: string): Promise<number> {
  try {
    return (await stat(file)).size;
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return 0;
    throw error;
  }
}
