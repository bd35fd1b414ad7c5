import { MAP_LETTERS } from "../../bucket/catalog/map.ts";
import { PROBLEM_KINDS } from "../../bucket/catalog/problems.ts";
import { LAST_OUTCOMES, ROLLOUTS, STATES } from "../../bucket/catalog/states.ts";
import { KEY_CHANGES } from "../../bucket/keys/key-changes.ts";
import {
  anything,
  boolean,
  described,
  integer,
  list,
  nullable,
  object,
  oneOf,
  record,
  type Shape,
  string,
} from "../../core/shape.ts";
import { TIME } from "../../run/progress.ts";
import { RUN_STATUS } from "../../run/protocol.ts";
import { ID, RUN_KIND } from "../../run/record.ts";
import { INCIDENT_AT_A_GLANCE } from "../messages/state.ts";
import { FREEZES } from "../watch/freeze.ts";
import { HEALTH_CHANGE } from "../watch/health-shapes.ts";

const COUNT = integer({ min: 0 });
const SINCE = "Since when there was trouble all the time, whatever ran in between";

/** A list of which the first items are shown. */
function shortList<T>(item: Shape<T>) {
  return object({ items: list(item), total: COUNT, cut: described(COUNT, "How many of them are not in `items`") });
}

const SHORT_RUN = {
  id: ID,
  kind: RUN_KIND,
  status: RUN_STATUS,
  created_at: TIME,
  finished_at: nullable(TIME),
  dry_run: boolean(),
};
const RUN = nullable(object(SHORT_RUN));
const RECENT = described(
  list(object({ id: ID, kind: RUN_KIND, status: RUN_STATUS, duration_ms: COUNT, dry_run: boolean(), created_at: TIME })),
  "The last 20 deploys, dry runs and pushes, oldest first",
);
const RUNS = {
  active_run: RUN,
  last_deploy: described(RUN, "The newest that was no dry run"),
  recent: RECENT,
  mean_deploy_ms: described(nullable(COUNT), "Of the last 20 deploys of all jobs that succeeded; null without any"),
};

/** How many there are of each. */
function countsOf<N extends string>(...names: readonly N[]) {
  return object(Object.fromEntries(names.map((name) => [name, COUNT])) as Record<N, typeof COUNT>);
}

const COUNTS = countsOf("allocations", "promoted", "failed", "unreachable", "unsettled", "waiting", "new", "update", "disabled");

const PROBLEM = object({
  kind: oneOf(...PROBLEM_KINDS),
  job: described(nullable(string()), "null for an unreachable worker"),
  action: described(string(), "The last one"),
  workers: described(list(string()), "The first 20"),
  worker_count: COUNT,
  allocation_count: COUNT,
  jobs: described(list(string()), "The first 20"),
  job_count: COUNT,
  reason: described(
    string(),
    "Of the newest of these actions, masked, at most 300 characters; of a longer one the first line and, in the first 50 problems, the line that tells most",
  ),
  since: described(TIME, SINCE),
  run_id: described(string(), "The run of that action"),
});

const TROUBLED = shortList(
  object({
    job: string(),
    worker: string(),
    allocation_id: ID,
    rollout: oneOf(...ROLLOUTS),
    outcome: string(),
    action: described(string(), "The last one"),
    run_id: string(),
    reason: described(string(), "Of the last action, masked, its first 300 characters"),
  }),
);

const CERT = { job: string(), worker: string(), cert: string(), not_after: string() };
const CERT_STATUS = oneOf("expired", "expiring");

const DRIFT = object({
  ...SHORT_RUN,
  workers: described(
    record(COUNT),
    "How many workers have each outcome, without drift that has ended since or that a deploy left which did not end",
  ),
  allocations: described(
    list(object({ job: string(), worker: string(), files: integer({ min: 1 }) })),
    "The first 50 whose files are still changed, and how many files",
  ),
  total: described(COUNT, "How many allocations these are in all"),
});

const KEY_CHANGE = object({
  kind: described(oneOf(...KEY_CHANGES), "The kind of the run that changes the key"),
  since: described(TIME, "Since when the change is as far as it is"),
  left: described(string(), "What has not been done yet, in a sentence"),
  next: described(string(), "The command that goes on with the change"),
});

const OPEN_INCIDENTS = "Open incidents about failed runs, failed snapshots and missed due times";

/** `GET …/summary`. */
export const BUCKET_SUMMARY = object({
  built_at: described(nullable(TIME), "null before the first build"),
  update_seq: COUNT,
  workers: COUNT,
  jobs: COUNT,
  counts: described(COUNTS, "Of the allocations that are not removed: each is promoted, new, update or disabled"),
  problems: described(shortList(PROBLEM), "What is wrong, one entry for each cause; failed ones first, then by age"),
  failed: described(TROUBLED, "Their last action failed or found the worker unreachable"),
  unsettled: described(TROUBLED, "A rollout began there and did not come to its end"),
  certs: described(
    shortList(object({ ...CERT, status: CERT_STATUS })),
    "Those that have ended or are near their end, the first to end first; the CA without a job",
  ),
  next_cert: described(nullable(object({ ...CERT, status: oneOf("expired", "expiring", "ok") })), "The first one to end"),
  totals: described(
    countsOf("runs", "jobs", "workers", "certs", "kv", "hooks", "revisions", "snapshots"),
    "How much there is to list; of the keys those that are not deleted",
  ),
  freezes: FREEZES,
  unwell: described(
    shortList(HEALTH_CHANGE),
    "What was found in no good state when it was last looked at, the longest first; `problems` tell of the last actions",
  ),
  incidents: described(shortList(INCIDENT_AT_A_GLANCE), `${OPEN_INCIDENTS}, newest first`),
  key_changes: described(list(KEY_CHANGE), "Changes of the bucket's keys that have begun and have not ended"),
  messages: described(countsOf("waiting", "failed"), "How many wait, and how many were given up"),
  ...RUNS,
  drift: described(nullable(DRIFT), "The last drift run of all jobs and workers that has ended"),
  revision: described(
    nullable(
      object({ id: ID, created_at: TIME, build_status: oneOf("pending", "succeeded", "failed"), last_successful: boolean() }),
    ),
    "The one that is the source now",
  ),
});

/** `GET /api/summary`. */
export const BUCKET_GLANCES = object({
  items: list(
    object({
      id: ID,
      project: string(),
      name: string(),
      initialized: boolean(),
      unavailable: described(nullable(string()), "Why the bucket cannot be read: then all that follows is empty"),
      workers: COUNT,
      jobs: COUNT,
      counts: nullable(COUNTS),
      problems: described(list(PROBLEM), "The first 3"),
      problem_count: COUNT,
      unwell_count: described(COUNT, "What was found in no good state when it was last looked at"),
      incident_count: described(COUNT, OPEN_INCIDENTS),
      certs_soon: described(COUNT, "Certificates that have ended or are near their end"),
      next_cert: nullable(object({ ...CERT, status: oneOf("expired", "expiring", "ok") })),
      drifted: described(
        COUNT,
        "Allocations with files that the last drift run of all jobs and workers found changed, and that still are",
      ),
      freezes: FREEZES,
      last_run: RUN,
      ...RUNS,
    }),
  ),
  cut: described(COUNT, "How many buckets are not in `items`"),
});

const LETTERS = Object.entries(MAP_LETTERS).map(([letter, means]) => `\`${letter}\` ${means}`);

/** `GET …/map`. */
export const JOB_MAP = object({
  workers: list(
    object({
      worker: string(),
      hostname: nullable(string()),
      labels: list(string()),
      tags: anything({ type: "object", additionalProperties: { type: "string" } }),
    }),
  ),
  jobs: list(
    object({
      job: string(),
      version: string(),
      wave: COUNT,
      cells: described(string(), `A letter for each worker, in their order: ${LETTERS.join(", ")}; upper case: changed by hand`),
    }),
  ),
  letters: described(anything({ type: "object", additionalProperties: { type: "string" } }), "What each letter means"),
  cut: described(countsOf("workers", "jobs"), "How many are not on the map"),
});

/** `GET …/map/{job}/{worker}`. */
export const MAP_CELL = object({
  job: string(),
  worker: string(),
  allocation_id: ID,
  state: oneOf(...STATES),
  action: described(string(), "The last one; empty before the first"),
  outcome: oneOf("", ...LAST_OUTCOMES),
  reason: described(string(), "Of the last action, masked"),
  since: described(nullable(TIME), `${SINCE}; null where all is well`),
  run_id: string(),
  current_version: string(),
  new_version: string(),
  wave: COUNT,
  drift_files: described(
    list(object({ path: string(), state: string() })),
    "The first 20 files that the last drift run of all jobs and workers found changed by hand, and that still are",
  ),
});
