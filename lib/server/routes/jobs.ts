import type { Database } from "../../bucket/base/database.ts";
import { hasCatalogJob } from "../../bucket/catalog/catalog.ts";
import { findBucket } from "../../bucket/source/root.ts";
import { Failure } from "../../core/errors.ts";
import { boolean, object, optional, quote, type Shape } from "../../core/shape.ts";
import { type ControlKind, JOB_CONTROL, RUNS } from "../../run/protocol.ts";
import { repeated, requireNames, startShape } from "../../run/request.ts";
import { route, type ServerRoute } from "../context.ts";
import { openBucket } from "../reading.ts";
import { startRun } from "../start.ts";
import { STARTED, startFailures } from "./operations.ts";

const DESCRIPTION =
  "Disabled allocations are skipped. A worker that cannot be reached, or whose worker.json is not that of its last sync, " +
  "is left out. Batches of max_concurrent_upgrades; the next one starts only after the one before succeeded.";
const FORGET = { forget: optional(boolean()) };

/** What a request says: a job of the path, and the rest of the run's parameters. */
interface ControlBody {
  allocations?: string[];
  forget?: boolean;
  retry_of?: string;
}

function controlRoute(kind: ControlKind): ServerRoute {
  return route({
    method: "POST",
    path: `/api/buckets/{bucket_id}/jobs/{job}/${kind.slice("job_".length)}`,
    summary: RUNS[kind].summary,
    description: kind === "job_stop" ? `${DESCRIPTION} Forgets where query or body says so.` : DESCRIPTION,
    ...(kind === "job_stop" && { query: FORGET }),
    body: startShape(kind, object(JOB_CONTROL[kind]) as Shape<Record<string, unknown>>) as Shape<ControlBody>,
    answer: STARTED,
    failures: [...startFailures(kind), "not_found"],
    async handle({ params, query, request, body }, context) {
      const bucket = findBucket(context.root, params.bucket_id ?? "");
      return startRun(bucket, kind, request, context, async () => {
        using db = await openBucket(bucket.layout);
        const job = jobOf(db, params.job ?? "");
        if (body.retry_of !== undefined) return await repeated(bucket.layout, kind, body.retry_of, job);
        requireNames(db, kind, { ...body, jobs: [job] });
        const { forget } = query as { forget?: boolean };
        return { ...body, jobs: [job], ...(forget === true && { forget }) };
      });
    },
  });
}

/** The job of the path. Throws `not_found` where the catalog has none. */
function jobOf(db: Database, name: string): string {
  const job = name.toLowerCase();
  if (!hasCatalogJob(db, job)) throw new Failure("not_found", `there is no job ${quote(name)} in the catalog`);
  return job;
}

/** Job control: each request starts a run. */
export const JOB_ROUTES = (Object.keys(JOB_CONTROL) as ControlKind[]).map(controlRoute);
