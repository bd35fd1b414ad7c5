import { findBucket } from "../../bucket/root.ts";
import type { FailureCode } from "../../core/errors.ts";
import { boolean, described, list, object, optional, string, withDefault } from "../../core/shape.ts";
import { route } from "../context.ts";
import { startRun } from "../start.ts";
import { component } from "./shapes.ts";

/** What every start of a run may fail with. */
export const START_FAILURES: readonly FailureCode[] = [
  "bucket_not_found",
  "bucket_not_initialized",
  "schema_upgrade_required",
  "schema_too_new",
  "bucket_busy",
  "database_busy",
];

const STARTED = { status: 202, description: "The run has started", shape: component("RunStarted") };

/** What can be started in a bucket; each is a run. */
export const OPERATION_ROUTES = [
  route({
    method: "POST",
    path: "/api/buckets/{bucket_id}/build",
    summary: "Build: turn the source into the catalog that deploys work from",
    body: object({
      purge_job_kv: withDefault(
        described(boolean(), "Also drop variables and secrets of jobs that have no allocation any more"),
        false,
      ),
    }),
    answer: STARTED,
    failures: START_FAILURES,
    async handle({ params, request, body }, context) {
      const bucket = await findBucket(context.root, params.bucket_id ?? "");
      return startRun(bucket, "build", request, context, async () => body);
    },
  }),
  route({
    method: "POST",
    path: "/api/buckets/{bucket_id}/deploy",
    summary: "Deploy: bring the workers to the state of the catalog, in health-gated waves",
    body: object({
      jobs: optional(described(list(string({ min: 1, max: 200 }), { min: 1, max: 1000 }), "Only these jobs")),
      build: withDefault(described(boolean(), "Build first"), false),
      force: withDefault(described(boolean(), "Also roll out jobs whose deploy is complete"), false),
    }),
    answer: STARTED,
    failures: START_FAILURES,
    async handle({ params, request, body }, context) {
      const bucket = await findBucket(context.root, params.bucket_id ?? "");
      return startRun(bucket, "deploy", request, context, async () => body);
    },
  }),
];
