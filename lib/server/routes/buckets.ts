import type { Layout } from "../../bucket/base/layout.ts";
import { wrongCursor } from "../../bucket/catalog/pages.ts";
import { bucketIds, createBucket, deleteBucket, findBucket, type RootBucket, renameBucket } from "../../bucket/source/root.ts";
import type { InitResult } from "../../bucket/workspace/init.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { boolean, described, integer, object, optional, string, withExample } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import type { ReadThread } from "../beside.ts";
import { bucketRoute, type Context, route, type Services } from "../context.ts";
import { isInReach } from "../people/permission.ts";
import type { Readers } from "../reading.ts";
import type { ShownRun } from "../run-list.ts";
import { component, LABEL, PAGE, page } from "./shapes.ts";

const ANY_ID = withExample(string({ max: 100 }), "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70");

/** How many buckets the page of all buckets shows. */
const MOST_SHOWN = 500;

/** The buckets below the root. */
export const BUCKET_ROUTES = [
  route("GET /api/buckets", "read", {
    summary: "List the buckets, by id",
    query: PAGE,
    answer: { status: 200, description: "A page of buckets", shape: page("Bucket") },
    failures: ["database_busy"],
    async handle({ query: { cursor, limit } }, services) {
      if (cursor !== undefined && !isUuid(cursor)) throw wrongCursor();
      const ids = (await idsInReach(services)).filter((id) => cursor === undefined || id > cursor);
      const shown = ids.slice(0, limit);
      const buckets = shown.flatMap((id) => unlessGone(services, id) ?? []);
      const items = await Promise.all(buckets.map((bucket) => shownBucket(bucket, services)));
      return json(200, { items, next_cursor: ids.length > shown.length ? shown.at(-1) : null });
    },
  }),
  route("GET /api/summary", "read", {
    summary: "Show all buckets at a glance: counts, problems, runs",
    description: `The first ${MOST_SHOWN} buckets, by id. A bucket that cannot be read says why.`,
    answer: { status: 200, description: "The buckets", shape: component("BucketGlances") },
    async handle(_, services) {
      const ids = await idsInReach(services);
      const buckets = ids.slice(0, MOST_SHOWN).flatMap((id) => unlessGone(services, id) ?? []);
      const items = await Promise.all(buckets.map((bucket) => glanceAt(bucket, services.beside)));
      return json(200, { items, cut: ids.length - Math.min(ids.length, MOST_SHOWN) });
    },
  }),
  route(
    "POST /api/buckets",
    { role: "admin", everywhere: true },
    {
      summary: "Create a bucket",
      description: "Makes its folders and its database. Its source comes with the first push.",
      body: object({
        id: optional(described(ANY_ID, "A UUID of any version; a new one by default")),
        project: LABEL,
        name: LABEL,
      }),
      answer: { status: 201, description: "The new bucket", shape: component("Bucket") },
      failures: ["invalid_bucket_id", "bucket_exists", "database_busy"],
      async handle({ body }, services) {
        const { root, labels, supervisor } = services;
        const initialise = async (dir: string, id: string) => void (await initialised(supervisor, dir, id));
        const bucket = await createBucket(root, body, initialise, labels);
        return json(201, await shownBucket(bucket, services));
      },
    },
  ),
  bucketRoute("GET", "read", {
    summary: "Show a bucket",
    answer: { status: 200, description: "The bucket", shape: component("Bucket") },
    failures: ["database_busy"],
    handle: async ({ bucket }, services) => json(200, await shownBucket(bucket, services)),
  }),
  bucketRoute("PUT", "admin", {
    summary: "Give a bucket another project or name, or another number of approvals",
    description: "Also while a run is active. The number is kept beside the tokens, and in no source that is pushed.",
    body: object({
      project: optional(LABEL),
      name: optional(LABEL),
      approvals: optional(
        described(integer({ min: 0, max: 2 }), "How many others must approve a deploy, rollback, hook or command"),
      ),
    }),
    answer: { status: 200, description: "The bucket", shape: component("Bucket") },
    failures: ["database_busy"],
    async handle({ body: { approvals, ...labels }, bucket }, services) {
      if (approvals !== undefined) await services.access.setApprovals(bucket.id, approvals);
      const isRenamed = Object.values(labels).some((label) => label !== undefined);
      return json(200, await shownBucket(isRenamed ? await renameBucket(bucket, labels) : bucket, services));
    },
  }),
  bucketRoute("DELETE", "admin", {
    summary: "Delete a bucket with all it holds: source, revisions, database, secrets, logs",
    description: "Not while a run is active. Nothing is done on the workers.",
    answer: { status: 204, description: "There is no such bucket any more" },
    failures: ["bucket_busy"],
    async handle({ bucket }, { root, supervisor }) {
      await supervisor.discard(bucket.layout, () => deleteBucket(root, bucket));
      return { status: 204 };
    },
  }),
  bucketRoute("POST /init", "admin", {
    summary: "Create or upgrade the database of a bucket",
    description: "Keeps its id, its CA and its keys. Not while a run is active.",
    body: object({}),
    answer: {
      status: 200,
      description: "The database has this program's schema",
      shape: object({ schema_version: integer(), upgraded: described(boolean(), "The schema was created or upgraded") }),
    },
    failures: ["invalid_bucket_id", "bucket_busy", "schema_too_new", "database_damaged", "database_busy"],
    async handle({ bucket: { id, layout } }, { supervisor }) {
      const initialise = () => initialised(supervisor, layout.root, id);
      const { schemaVersion, upgraded } = await supervisor.exclusively(layout, "init", initialise);
      return json(200, { schema_version: schemaVersion, upgraded });
    },
  }),
];

/** The ids of the buckets that the client may know of, sorted. */
export async function idsInReach({ root, labels, identity }: Pick<Context, "root" | "labels" | "identity">): Promise<string[]> {
  return (await bucketIds(root, labels)).filter((id) => isInReach(identity, id));
}

/** Makes or upgrades the database of a bucket. */
async function initialised(supervisor: Services["supervisor"], bucketDir: string, bucketId: string): Promise<InitResult> {
  const task = { name: "init", bucketDir, bucketId, input: null } as const;
  return (await supervisor.task(task, `initialise bucket ${bucketId}`)) as InitResult;
}

/** A bucket of a list; undefined where it was deleted meanwhile. */
export function unlessGone({ root, labels }: Services, id: string): RootBucket | undefined {
  try {
    return findBucket(root, id, labels);
  } catch (error) {
    if (error instanceof Failure && error.code === "bucket_not_found") return undefined;
    throw error;
  }
}

/** A bucket at a glance. What goes wrong with one bucket is told in its place, and the others are shown. */
async function glanceAt({ layout, id, project, name }: RootBucket, beside: ReadThread) {
  try {
    const found = JSON.parse(Buffer.from(await beside.ask("glance", layout, undefined)).toString());
    return { id, project, name, initialized: true, unavailable: null, ...found };
  } catch (error) {
    const isKnown = error instanceof Failure;
    const initialized = !isKnown || (error.code !== "bucket_not_initialized" && error.code !== "database_damaged");
    const unavailable = isKnown ? error.message : "an internal error; open the bucket to learn more";
    return { id, project, name, initialized, unavailable, ...NO_GLANCE };
  }
}

const NO_RUNS = { active_run: null, last_run: null, last_deploy: null, recent: [], mean_deploy_ms: null };
const NO_COUNTS = { workers: 0, jobs: 0, problem_count: 0, unwell_count: 0, incident_count: 0, certs_soon: 0, drifted: 0 };
const NO_GLANCE = { ...NO_COUNTS, ...NO_RUNS, counts: null, problems: [], next_cert: null, freezes: [] };

async function shownBucket(bucket: RootBucket, { supervisor, readers, runList, access }: Services) {
  const { layout, id, project, name, created_at } = bucket;
  const newest = await runList.newest(layout);
  return {
    id,
    project,
    name,
    ...(await databaseState(layout, readers)),
    approvals: access.approvalsOf(id),
    created_at,
    active_run: supervisor.activeRun(id),
    last_run: newest ? lastRun(newest) : null,
  };
}

/** The fields about a bucket's database; of a database with another schema only the schema version is known. */
async function databaseState(layout: Layout, readers: Readers): Promise<Record<string, unknown>> {
  const nothing = { initialized: false, schema_version: null, failed_allocations: null };
  try {
    const { schemaVersion } = await import("../../bucket/base/database.ts");
    const { countFailed } = await import("../../bucket/catalog/info.ts");
    return await readers.read(layout, (db) => ({
      initialized: true,
      schema_version: schemaVersion(db),
      failed_allocations: countFailed(db),
    }));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    if (error.code === "bucket_not_initialized" || error.code === "database_damaged") return nothing;
    if (error.code !== "schema_upgrade_required" && error.code !== "schema_too_new") throw error;
    return { ...nothing, initialized: true, ...(error.details as object) };
  }
}

function lastRun({ id, kind, status, created_at, finished_at }: ShownRun) {
  return { id, kind, status, created_at, finished_at };
}
