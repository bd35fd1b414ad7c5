import { bucketInfo, knownFacts, LAST_OUTCOMES } from "../../bucket/catalog/info.ts";
import { catalogView, VIEW_NAMES, type ViewName } from "../../bucket/catalog/views.ts";
import { fingerprintsOf } from "../../bucket/kv/kv-seal.ts";
import { findBucket } from "../../bucket/source/root.ts";
import { Failure, type FailureCode } from "../../core/errors.ts";
import { boolean, described, integer, optional, string, withDefault } from "../../core/shape.ts";
import { json, jsonText } from "../../http/message.ts";
import { MOST_VALUES } from "../../http/router.ts";
import { route, type ServerRoute } from "../context.ts";
import { component, offsetOf, PAGE, page } from "./shapes.ts";

/** What reading the catalog may fail with. */
export const READ_FAILURES: readonly FailureCode[] = [
  "bucket_not_found",
  "bucket_not_initialized",
  "schema_upgrade_required",
  "schema_too_new",
  "database_damaged",
  "database_busy",
];

const NAMES = string({ min: 1, max: 10_000 });

const FILTERS = {
  jobs: optional(described(NAMES, "Only what belongs to these jobs, with commas between them")),
  workers: optional(described(NAMES, "Only what belongs to these workers, with commas between them")),
  active: optional(described(boolean(), "Leave out what is removed or disabled")),
  outcome: optional(
    described(
      NAMES,
      `deployments: only allocations whose last action had one of these outcomes, separated by commas: ${LAST_OUTCOMES.join(", ")}`,
    ),
  ),
  deleted: optional(described(boolean(), "Show deleted keys too (kv)")),
  limit: withDefault(described(integer({ min: 1, max: 5_000 }), "How many items at most"), 5_000),
  cursor: optional(described(string({ min: 1, max: 20 }), "`next_cursor` of the answer before")),
};

/** What the last build made, for reading only. Values of secrets and private keys are never in it. */
export const CATALOG_ROUTES: readonly ServerRoute[] = [
  route({
    method: "GET",
    path: "/api/buckets/{bucket_id}/info",
    summary: "Show what a bucket is and how much it holds",
    answer: { status: 200, description: "The bucket", shape: component("BucketInfo") },
    failures: READ_FAILURES,
    async handle({ params }, { root, readers }) {
      const { layout, project, name } = findBucket(root, params.bucket_id ?? "");
      const info = await readers.readOnce(layout, "info", (db) => JSON.stringify(bucketInfo(db)));
      const labels = JSON.stringify({ project, name });
      return jsonText(200, `${labels.slice(0, -1)},${info.slice(1)}`);
    },
  }),
  route({
    method: "GET",
    path: "/api/buckets/{bucket_id}/workers/facts",
    summary: "Show what the workers are, as they told it last",
    description: "Without those that were never asked: `POST …/workers/facts` asks them.",
    query: PAGE,
    answer: { status: 200, description: "A page of workers", shape: page("WorkerFacts") },
    failures: READ_FAILURES,
    async handle({ params, query: { limit, cursor } }, { root, readers }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      const offset = offsetOf(cursor);
      const known = await readers.read(layout, knownFacts);
      const more = known.length > offset + limit;
      const items = known.slice(offset, offset + limit);
      return json(200, { items, next_cursor: more ? String(offset + limit) : null });
    },
  }),
  ...VIEW_NAMES.map(viewRoute),
];

function viewRoute(name: ViewName): ServerRoute {
  return route({
    method: "GET",
    path: `/api/buckets/{bucket_id}/cat/${name}`,
    summary: `Show the catalog: ${name}`,
    query: FILTERS,
    answer: { status: 200, description: "A page of rows, keyed by the columns", shape: component("CatalogPage") },
    failures: [...READ_FAILURES, "not_found"],
    async handle({ params, query }, { root, readers }) {
      const { layout } = findBucket(root, params.bucket_id ?? "");
      const { jobs, workers, active, outcome, deleted, limit, cursor } = query;
      const offset = offsetOf(cursor);
      const names = { jobs: split(jobs), workers: split(workers), outcome: split(outcome) };
      const wanted = { ...names, active, deleted };
      const fingerprintOf = name === "kv" ? await fingerprintsOf(layout) : undefined;
      const view = await readers.read(layout, (db) => catalogView(db, name, wanted, { offset, limit }, fingerprintOf));
      const { columns, items, more } = view;
      return json(200, { items, columns, next_cursor: more ? String(offset + limit) : null });
    },
  });
}

function split(names: string | undefined): string[] | undefined {
  const parts = names?.split(",").map((name) => name.trim());
  if (parts && parts.length > MOST_VALUES)
    throw new Failure("invalid_request", `expected at most ${MOST_VALUES} names`);
  if (parts?.includes("")) throw new Failure("invalid_request", "expected names with commas between them");
  return parts;
}
