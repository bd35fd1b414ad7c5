import type { Database } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import { validPlan } from "../../bucket/catalog/plan-basis.ts";
import { findBucket } from "../../bucket/source/root.ts";
import type { FailureCode } from "../../core/errors.ts";
import { RUNS, type RunKind, type RunParameters } from "../../run/protocol.ts";
import { canName, isRepeatable, repeated, requireNames, startShape } from "../../run/request.ts";
import { route, type ServerRoute } from "../context.ts";
import { startRun } from "../start.ts";
import { component } from "./shapes.ts";

/** What every start of a run may fail with. */
export const START_FAILURES: readonly FailureCode[] = [
  "bucket_not_found",
  "bucket_not_initialized",
  "schema_upgrade_required",
  "schema_too_new",
  "database_damaged",
  "bucket_busy",
  "database_busy",
];

/** The errors of a request that starts a run of a kind. */
export function startFailures(kind: RunKind): FailureCode[] {
  const ofNames: FailureCode[] = canName(kind) ? ["unknown_name"] : [];
  const ofRetry: FailureCode[] = isRepeatable(kind) ? ["run_not_found", "retry_impossible"] : [];
  return [...ofNames, ...START_FAILURES, ...ofRetry];
}

/** How every start of a run is answered. */
export const STARTED = { status: 202, description: "The run has started", shape: component("RunStarted") };

/**
 * A route that starts a run of a kind; its body are the parameters of the kind (`run/protocol.ts`). Names that are not
 * in the catalog are refused; `verify` throws where the request is impossible for another reason.
 */
function start<K extends RunKind>(
  kind: K,
  path: string,
  description?: string,
  verify?: (params: RunParameters<K>, db: Database, layout: Layout) => void,
  failures: readonly FailureCode[] = [],
): ServerRoute {
  const { summary } = RUNS[kind];
  return route({
    method: "POST",
    path: `/api/buckets/{bucket_id}/${path}`,
    summary,
    ...(description !== undefined && { description }),
    body: startShape(kind),
    answer: STARTED,
    failures: [...new Set([...startFailures(kind), ...failures])],
    async handle({ params, request, body }, context) {
      const bucket = findBucket(context.root, params.bucket_id ?? "");
      return startRun(bucket, kind, request, context, async () => {
        if (body.retry_of !== undefined) return await repeated(bucket.layout, kind, String(body.retry_of));
        await context.readers.read(bucket.layout, (db) => {
          requireNames(db, kind, body);
          verify?.(body as RunParameters<K>, db, bucket.layout);
        });
        return body;
      });
    },
  });
}

const READ =
  "Without `workers` and `labels`: all workers of the catalog. The run's result tells of each worker its `outcome` " +
  "(`ok`, `failed`, `unreachable`, `cancelled` or `not_started`); the run fails unless all are `ok`, after all were asked.";

/** What can be started in a bucket; each is a run. */
export const OPERATION_ROUTES = [
  start("build", "build"),
  start(
    "deploy",
    "deploy",
    "With `dry_run` the run's result is the plan: per wave, job, batch and worker the action, why, the hooks, each file " +
      "with a unified diff against what was promoted (secrets masked), what was changed by hand there, and who is " +
      "unreachable. With `plan`, the id of a dry run, nothing else is given: that is done. Where the catalog, a key, or " +
      "what is promoted has changed since, the answer is 409 `plan_stale` with what moved.",
    ({ plan }, db, layout) => plan !== undefined && void validPlan(layout, db, plan),
    ["run_not_found", "plan_stale"],
  ),
  start("hooks", "hooks", "The hook must be on the event `cli`; without `job` exactly one job must have it."),
  start(
    "health_check",
    "health_check",
    "Changes nothing. The run fails where anything is not well; its result tells how each worker and allocation was " +
      "found, with evidence of each failure.",
  ),
  start(
    "drift",
    "drift",
    "Changes nothing. The run's result tells of each worker its `outcome` (`in_sync`, `drifted`, `unreachable`, `failed`, " +
      "`cancelled` or `not_started`) and of each allocation the files that are `changed` or `missing` or lie behind a `link`, with a " +
      "unified diff of those that no secret was read for; the run fails unless all are in sync, after all were asked.",
  ),
  start(
    "gc",
    "gc",
    "Of each removed allocation that a deploy has stopped, the job's whole folder on the worker goes, data included. A " +
      "worker that gives no answer is reported and passed over; the next gc tries it again.",
  ),
  start("snapshot_create", "snapshots"),
  start(
    "run_command",
    "run_command",
    "Without `workers` and `labels`: all workers of the catalog, in its order. The script runs in the bucket's folder " +
      "where there is one, with BUCKET_ID and WORKER_IP. After a batch in which a worker failed no other one is started. " +
      "The run's result tells of each worker its `outcome` (`ok`, `failed`, `unreachable`, `cancelled` or `not_started`), " +
      "`exit_code`, `output` (of a long one the first and last lines) and `duration_ms`.",
  ),
  start(
    "worker_trust",
    "workers/trust",
    "Without `workers` and `labels`: all workers of the catalog that are reached over ssh. A known key is never " +
      "replaced without `force`; the run fails where one has changed or a worker gives no answer, after all were asked.",
  ),
  start("worker_facts", "workers/facts", `${READ} \`GET …/workers/facts\` shows the facts that were read last.`),
  start("worker_uptime", "workers/uptime", READ),
  start("worker_sysstat", "workers/sysstat", READ),
];
