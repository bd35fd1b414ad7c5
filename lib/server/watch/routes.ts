import type { RootBucket } from "../../bucket/source/root.ts";
import { described, list, object, optional, string } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { parametersOf, type RunParams } from "../../run/protocol.ts";
import { bucketRoute, type Context } from "../context.ts";
import { requireAllowed, requireExactly } from "../people/permission.ts";
import { READ_FAILURES } from "../routes/catalog.ts";
import { START_FAILURES, STARTS } from "../routes/operations.ts";
import { component, offsetOf, PAGE, page } from "../routes/shapes.ts";
import { START_ROUTES } from "../routes/start-paths.ts";
import { startRun } from "../start.ts";

const ONE = { status: 200, description: "The schedule", shape: component("Schedule") };

/** What the server starts by itself in a bucket (docs/schedules.md). */
export const SCHEDULE_ROUTES = [
  bucketRoute("GET /schedules", "read", {
    summary: "List the schedules of a bucket, with what became of the last due time and when each is due next",
    description: "Those that the last successful build found in workspace/schedules.json, in the order of the file.",
    answer: { status: 200, description: "The schedules", shape: object({ items: list(component("Schedule")) }) },
    failures: ["database_busy"],
    handle: async ({ bucket }, { scheduler }) => json(200, { items: (await scheduler.list(bucket)).map(shownSchedule) }),
  }),
  bucketRoute("POST /schedules/{schedule}/run", "deploy", {
    summary: "Start the run of a schedule now",
    description:
      "With the parameters of the schedule, also while it is paused. Its due times stay as they are. A start of the kind may " +
      "need a greater role: a snapshot and a gc need admin here too.",
    body: object({}),
    ...STARTS,
    failures: [...START_FAILURES, "forbidden", "approval_required", "frozen", "unknown_name", "not_found"],
    async handle(call, context) {
      const { kind, parameters } = await context.scheduler.find(call.bucket, call.params.schedule ?? "");
      const params: RunParams = parametersOf(kind, parameters);
      requireAllowed(context.identity, START_ROUTES[kind].role, call.bucket.id);
      requireExactly(START_ROUTES[kind].role, { body: params }, context);
      return startRun({ ...call, body: params }, kind, context, async () => {
        await context.beside.ask("startable", call.bucket.layout, { kind, params });
        return params;
      });
    },
  }),
  bucketRoute("POST /schedules/{schedule}/pause", "deploy", {
    summary: "Keep a schedule from starting, until it is resumed",
    body: object({}),
    answer: ONE,
    failures: ["not_found", "database_busy"],
    async handle({ bucket, params: { schedule: name = "" } }, context) {
      const { scheduler, identity } = context;
      await scheduler.pause(bucket, name, identity.name);
      return answerOf(bucket, name, context);
    },
  }),
  bucketRoute("POST /schedules/{schedule}/resume", "deploy", {
    summary: "Let a paused schedule go on with its next due time",
    description: "What was due while it was paused is not caught up.",
    body: object({}),
    answer: ONE,
    failures: ["not_found", "database_busy"],
    async handle({ bucket, params: { schedule: name = "" } }, context) {
      await context.scheduler.pause(bucket, name, null);
      return answerOf(bucket, name, context);
    },
  }),
];

const WANTED = {
  job: optional(described(string({ max: 100 }), "Only of this job")),
  worker: optional(described(string({ max: 253 }), "Only on this worker, or of it")),
};

/** How allocations and workers were over time (docs/operate.md, Health over time). */
export const HEALTH_ROUTES = [
  bucketRoute("GET /health", "read", {
    summary: "Show how allocations and workers are, since when, and how they were in the last 90 days",
    description: "As runs have found them; workers first, then by job and worker. What no run has looked at is not there.",
    query: { ...PAGE, ...WANTED },
    answer: { status: 200, description: "A page", shape: page("HealthRecord") },
    failures: READ_FAILURES,
    handle: async ({ query: { limit, cursor, ...wanted }, bucket: { layout } }, { beside }) =>
      beside.answer("health", layout, { ...wanted, limit, offset: offsetOf(cursor) }),
  }),
  bucketRoute("GET /health/changes", "read", {
    summary: "List the changes of the health of allocations and workers, newest first",
    query: { ...PAGE, ...WANTED },
    answer: { status: 200, description: "A page", shape: page("HealthChange") },
    failures: READ_FAILURES,
    async handle({ query: { limit, cursor, ...wanted }, bucket: { layout } }, { beside }) {
      const before = cursor === undefined ? Number.MAX_SAFE_INTEGER : offsetOf(cursor);
      return beside.answer("healthChanges", layout, { ...wanted, limit, before });
    },
  }),
];

async function answerOf(bucket: RootBucket, name: string, { scheduler }: Context) {
  const all = await scheduler.list(bucket);
  const found = all.find(({ schedule }) => schedule.name === name.toLowerCase());
  return json(200, found && shownSchedule(found));
}

function shownSchedule({ schedule, state, next }: Awaited<ReturnType<Context["scheduler"]["list"]>>[number]) {
  const { name, kind, parameters, rhythm, jitterMs, waitMs, catchUp } = schedule;
  const { cron = null, timezone = null, everyMs = null } = rhythm as { cron?: string; timezone?: string; everyMs?: number };
  return {
    name,
    kind,
    parameters,
    every_seconds: everyMs && everyMs / 1_000,
    cron,
    timezone,
    jitter_seconds: jitterMs / 1_000,
    wait_seconds: waitMs / 1_000,
    catch_up: catchUp,
    next,
    last: state.last,
    paused: state.paused,
  };
}
