import type { Database } from "../../bucket/base/database.ts";
import { requireKnown } from "../../bucket/base/problems.ts";
import { Failure, type FailureCode, messageOf } from "../../core/errors.ts";
import { boolean, object, optional, type Shape } from "../../core/shape.ts";
import { APPROVED_KINDS } from "../../run/approval/proposal.ts";
import {
  type ControlKind,
  isRepeatable,
  JOB_CONTROL,
  RUNS,
  type RunKind,
  type RunParams,
  SNAPSHOT_WISH,
  secretFields,
  secretsApart,
} from "../../run/protocol.ts";
import { canName, repeated, startShape } from "../../run/request.ts";
import { bucketRoute, type ServerRoute } from "../context.ts";
import { START_HEADERS, startRun } from "../start.ts";
import { isHeldBack } from "../watch/freeze.ts";
import { READ_FAILURES } from "./catalog.ts";
import { component } from "./shapes.ts";
import { START_ROUTES } from "./start-paths.ts";

/** The failures of every start of a run. */
export const START_FAILURES: readonly FailureCode[] = [...READ_FAILURES, "bucket_busy", "idempotency_mismatch"];

/** The failures of a start that others may have to approve. */
export const APPROVAL_FAILURES: readonly FailureCode[] = ["approval_required", "proposal_not_found"];

/** The errors of a request that starts a run of a kind. */
function startFailures(kind: RunKind): FailureCode[] {
  const ofNames: FailureCode[] = canName(kind) ? ["unknown_name"] : [];
  const ofRetry: FailureCode[] = isRepeatable(kind) ? ["run_not_found", "retry_impossible"] : [];
  const ofApproval = (APPROVED_KINDS as readonly RunKind[]).includes(kind) ? APPROVAL_FAILURES : [];
  const ofFreeze: FailureCode[] = isHeldBack(kind) ? ["frozen"] : [];
  return [...ofNames, ...START_FAILURES, ...ofFreeze, ...ofRetry, ...ofApproval];
}

/** What every route that starts a run takes and answers, beside its own. */
export const STARTS = {
  headers: START_HEADERS,
  answer: { status: 202, description: "The run has started", shape: component("RunStarted") },
};

/** Options of a route that starts a run, beside the parameters of the kind. */
interface StartOptions {
  description?: string;
  /** Where the request has more than the parameters of the kind. */
  body?: Shape<RunParams>;
  failures?: readonly FailureCode[];
}

/**
 * A route that starts a run of a kind. The body of the request are the parameters of the kind (`run/protocol.ts`); names
 * that are not in the catalog are refused.
 */
function start(kind: RunKind, { description, body: shape, failures = [] }: StartOptions = {}): ServerRoute {
  return bucketRoute(`POST ${START_ROUTES[kind].path}`, START_ROUTES[kind].role, {
    summary: RUNS[kind].summary,
    ...(description !== undefined && { description }),
    body: shape ?? startShape(kind),
    ...STARTS,
    failures: [...new Set([...startFailures(kind), ...failures])],
    async handle(call, context) {
      const { bucket, body } = call;
      return startRun(call, kind, context, async () => {
        if (body.retry_of !== undefined) return await repeated(bucket.layout, kind, String(body.retry_of));
        const { params } = secretsApart(kind, body);
        await context.beside.ask("startable", bucket.layout, { kind, params });
        return body;
      });
    },
  });
}

const READ =
  "Without `workers` and `labels`: all workers of the catalog. The run's result has for each worker its `outcome` " +
  "(`ok`, `failed`, `unreachable`, `cancelled` or `not_started`). All workers are asked; the run fails unless all are `ok`.";

/** The runs that can be started in a bucket. */
export const OPERATION_ROUTES = [
  start("build"),
  start("deploy", {
    description:
      "With `dry_run` the run's result is the plan: by wave, job, batch and worker the action, the reason, the hooks, each file " +
      "with a unified diff from the promoted one (secrets masked), changes by hand, and the workers that are " +
      "unreachable. `plan`, the id of a dry run, goes alone: the deploy carries out that plan. If the catalog, a key, or " +
      "a promotion has changed since, the answer is 409 `plan_stale` and says what moved. `adopt` takes over what lies on the workers " +
      "already, where it equals the rendered files; in its plan `files` go from what lies there, and `leave` is what differs.",
    failures: ["run_not_found", "plan_stale"],
  }),
  start("hooks", { description: "The hook must be on the event `cli`; without `job` exactly one job must have it." }),
  start("health_check", {
    description:
      "Changes nothing. The run fails unless everything is healthy; its result shows how each worker and allocation was " +
      "found, with evidence of each failure.",
  }),
  start("drift", {
    description:
      "Changes nothing. The run's result has for each worker its `outcome` (`in_sync`, `drifted`, `unreachable`, `failed`, " +
      "`cancelled` or `not_started`) and for each allocation the files that are `changed` or `missing` or behind a `link`, with a " +
      "unified diff unless a file was rendered with a secret. All workers are asked; the run fails unless all are in sync.",
  }),
  start("gc", {
    description:
      "Removes the job's whole folder, data included, from the worker of each removed allocation that a deploy has stopped. A " +
      "worker that gives no answer is reported and skipped; the next gc tries it again.",
  }),
  start("snapshot_create", {
    description:
      "Signed with the server's key. With `recipient` or `passphrase` it is sealed; with neither for `snapshot_recipient` of " +
      "ops.conf, or not at all. Then the oldest go that are more than `snapshot_keep`. The passphrase goes to the process " +
      "of the run and is stored nowhere.",
    body: object(
      { ...SNAPSHOT_WISH, ...secretFields("snapshot_create") },
      { exclusive: [["recipient", "passphrase"]] },
    ) as Shape<RunParams>,
  }),
  start("kv_rekey", {
    description:
      "Until the run has ended, the new key and the one before open. A run that was cut off loses nothing: the next one goes " +
      "on. The result counts the `values` and `contents` that were sealed anew, and names as `unreadable` what no key opens.",
  }),
  start("ca_rotate", {
    description:
      "Each run takes one step: `begin`, `issue`, `drop`. The run fails, and changes nothing, while running allocations are not " +
      "deployed with what the step before has changed; `waiting` in the result names them.",
  }),
  start("ssh_key_rotate", {
    description:
      "The result has for each worker and jump host its `outcome`: `ok` where the new key lets in and the one before is gone. " +
      "While `old_kept` is true some may know only the key before: both are offered, and the run fails. The next run goes on.",
  }),
  start("run_command", {
    description:
      "Without `workers` and `labels`: all workers of the catalog, in its order. The script runs in the bucket's folder " +
      "if there is one, with BUCKET_ID and WORKER_IP. After a batch in which a worker failed no further batch starts. " +
      "The run's result has for each worker its `outcome` (`ok`, `failed`, `unreachable`, `cancelled` or `not_started`), " +
      "`exit_code`, `output` (of a long output the first and last lines) and `duration_ms`.",
  }),
  start("worker_trust", {
    description:
      "Without `workers` and `labels`: all workers of the catalog that are reached over ssh. A known key is never " +
      "replaced without `force`. All workers are asked; the run fails if a key has changed or a worker gives no answer.",
  }),
  start("worker_facts", { description: `${READ} \`GET …/workers/facts\` shows the facts that were read last.` }),
  start("worker_uptime", { description: READ }),
  start("worker_sysstat", { description: READ }),
];

const CONTROL_RULES =
  "Disabled allocations are skipped. A worker that cannot be reached, or whose worker.json is not that of its last sync, " +
  "is left out. Batches of max_concurrent_upgrades; the next batch starts only after the batch before succeeded. " +
  "The path may name several jobs, with commas between them.";
const FORGET = { forget: optional(boolean()) };

/** The parameters of a run of job control but its job, which the path names. */
interface ControlBody {
  allocations?: string[];
  forget?: boolean;
  retry_of?: string;
}

function controlRoute(kind: ControlKind): ServerRoute {
  return bucketRoute(`POST ${START_ROUTES[kind].path}`, START_ROUTES[kind].role, {
    summary: RUNS[kind].summary,
    description: kind === "job_stop" ? `${CONTROL_RULES} \`forget\` may be in the query or in the body.` : CONTROL_RULES,
    ...(kind === "job_stop" && { query: FORGET }),
    body: startShape(kind, object(JOB_CONTROL[kind]) as Shape<Record<string, unknown>>) as Shape<ControlBody>,
    ...STARTS,
    failures: [...startFailures(kind), "not_found"],
    async handle(call, context) {
      const { bucket, params, query, body } = call;
      return startRun(call, kind, context, async () => {
        const jobs = await context.readers.read(bucket.layout, (db) => knownJobs(db, params.job ?? ""));
        if (body.retry_of !== undefined) return await repeated(bucket.layout, kind, body.retry_of, jobs);
        const asked = { ...body, jobs };
        await context.beside.ask("startable", bucket.layout, { kind, params: asked });
        const { forget } = query as { forget?: boolean };
        return { ...asked, ...(forget === true && { forget }) };
      });
    },
  });
}

/** The jobs of the path. Throws `not_found` for those that the catalog does not have. */
function knownJobs(db: Database, jobs: string): string[] {
  const known = new Set(db.tuples<[name: string]>("SELECT name FROM job").flat());
  try {
    return [...requireKnown("in the catalog", { kind: "job", path: "job", names: jobs.split(",") }, known)];
  } catch (error) {
    throw new Failure("not_found", messageOf(error));
  }
}

/** Job control: each request starts a run. */
export const JOB_ROUTES = (Object.keys(JOB_CONTROL) as ControlKind[]).map(controlRoute);
