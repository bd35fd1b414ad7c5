import { findBucket } from "../../bucket/root.ts";
import { Failure, type FailureCode } from "../../core/errors.ts";
import {
  boolean,
  described,
  integer,
  list,
  object,
  optional,
  string,
  withDefault,
} from "../../core/shape.ts";
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

const NAMES = list(string({ min: 1, max: 253 }), { min: 1, max: 1000 });

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
  route({
    method: "POST",
    path: "/api/buckets/{bucket_id}/workers/trust",
    summary: "Trust: record the host keys of workers, and of the jump hosts before them",
    description:
      "Without `workers` and `labels`: all workers of the catalog that are reached over ssh. A known key is never " +
      "replaced without `force`; the run fails where one has changed or a worker gives no answer, after all were asked.",
    body: object({
      workers: optional(described(NAMES, "Only these workers")),
      labels: optional(
        described(NAMES, "Only workers with one of these labels; not together with `workers`"),
      ),
      concurrency: optional(
        described(
          integer({ min: 1, max: 1024 }),
          "How many are asked at a time; `ssh_concurrency` by default",
        ),
      ),
      force: withDefault(described(boolean(), "Replace known keys by what the workers show now"), false),
    }),
    answer: STARTED,
    failures: START_FAILURES,
    async handle({ params, request, body }, context) {
      const bucket = await findBucket(context.root, params.bucket_id ?? "");
      if (body.workers && body.labels)
        throw new Failure("invalid_request", "labels: give workers or labels, not both");
      return startRun(bucket, "worker_trust", request, context, async () => body);
    },
  }),
];
