import { bucketInfo, knownFacts, LAST_OUTCOMES } from "../../bucket/catalog/info.ts";
import { catalogView, VIEW_NAMES, type ViewName } from "../../bucket/catalog/views.ts";
import { fingerprintsOf } from "../../bucket/kv/kv-access.ts";
import { Failure, type FailureCode } from "../../core/errors.ts";
import { boolean, described, integer, optional, string, withDefault } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { MOST_VALUES } from "../../http/router.ts";
import { bucketRoute, type ServerRoute } from "../context.ts";
import { component, offsetOf, PAGE, page, pageOf } from "./shapes.ts";

/** Failures of reading the catalog. */
export const READ_FAILURES: readonly FailureCode[] = [
  "bucket_not_initialized",
  "schema_upgrade_required",
  "schema_too_new",
  "database_damaged",
  "database_busy",
];

const NAMES = string({ min: 1, max: 10_000 });

const FILTERS = {
  jobs: optional(described(NAMES, "Only entries of these jobs, with commas between them")),
  workers: optional(described(NAMES, "Only entries of these workers, with commas between them")),
  active: optional(described(boolean(), "Leave out removed and disabled entries")),
  outcome: optional(
    described(
      NAMES,
      `deployments: only allocations whose last action had one of these outcomes, separated by commas: ${LAST_OUTCOMES.join(", ")}`,
    ),
  ),
  deleted: optional(described(boolean(), "Show deleted keys too (kv)")),
  limit: withDefault(described(integer({ min: 1, max: 5_000 }), "How many items at most"), 5_000),
  cursor: optional(described(string({ min: 1, max: 20 }), "`next_cursor` of the last answer")),
};

/** The catalog, which the last build made, for reading. Values of secrets and private keys are never in it. */
export const CATALOG_ROUTES: readonly ServerRoute[] = [
  bucketRoute({
    method: "GET",
    path: "/info",
    summary: "Show a bucket: its id, its update sequence, how much it holds",
    answer: { status: 200, description: "The bucket", shape: component("BucketInfo") },
    failures: READ_FAILURES,
    async handle({ bucket }, { readers }) {
      const { layout, project, name } = bucket;
      return json(200, { project, name, ...(await readers.read(layout, bucketInfo)) });
    },
  }),
  bucketRoute({
    method: "GET",
    path: "/workers/facts",
    summary: "Show the facts of the workers that were read last",
    description: "Workers that were never asked are left out; `POST …/workers/facts` reads the facts.",
    query: PAGE,
    answer: { status: 200, description: "A page of workers", shape: page("WorkerFacts") },
    failures: READ_FAILURES,
    async handle({ query, bucket: { layout } }, { readers }) {
      const offset = offsetOf(query.cursor);
      return json(200, pageOf(await readers.read(layout, knownFacts), offset, query.limit));
    },
  }),
  ...VIEW_NAMES.map(viewRoute),
];

function viewRoute(name: ViewName): ServerRoute {
  return bucketRoute({
    method: "GET",
    path: `/cat/${name}`,
    summary: `Show the catalog: ${name}`,
    query: FILTERS,
    answer: { status: 200, description: "A page of rows, keyed by the columns", shape: component("CatalogPage") },
    failures: [...READ_FAILURES, "not_found"],
    async handle({ query, bucket: { layout } }, { readers }) {
      const { jobs, workers, active, outcome, deleted, limit, cursor } = query;
      const offset = offsetOf(cursor);
      const names = { jobs: namesOfList(jobs), workers: namesOfList(workers), outcome: namesOfList(outcome) };
      const wanted = { ...names, active, deleted };
      const fingerprintOf = name === "kv" ? await fingerprintsOf(layout) : undefined;
      const view = await readers.read(layout, (db) => catalogView(db, name, wanted, { offset, limit, fingerprintOf }));
      const { columns, items, more } = view;
      return json(200, { items, columns, next_cursor: more ? String(offset + limit) : null });
    },
  });
}

function namesOfList(names: string | undefined): string[] | undefined {
  const parts = names?.split(",").map((name) => name.trim());
  if (parts && parts.length > MOST_VALUES) throw new Failure("invalid_request", `expected at most ${MOST_VALUES} names`);
  if (parts?.includes("")) throw new Failure("invalid_request", "expected names with commas between them");
  return parts;
}
