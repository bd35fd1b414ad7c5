import { bucketInfo } from "../../bucket/catalog/info.ts";
import { keyOf } from "../../bucket/catalog/pages.ts";
import { LAST_OUTCOMES, STATES } from "../../bucket/catalog/states.ts";
import { VIEW_NAMES, type ViewName } from "../../bucket/catalog/views.ts";
import { Failure, type FailureCode } from "../../core/errors.ts";
import { boolean, described, integer, optional, string, withDefault } from "../../core/shape.ts";
import { json } from "../../http/message.ts";
import { MOST_VALUES } from "../../http/router.ts";
import { bucketRoute, type ServerRoute } from "../context.ts";
import { CURSOR_TEXT, component, PAGE, page } from "./shapes.ts";

/** Failures of reading the catalog. */
export const READ_FAILURES: readonly FailureCode[] = [
  "bucket_not_initialized",
  "schema_upgrade_required",
  "schema_too_new",
  "database_damaged",
  "database_busy",
];

/** Names with commas between them. */
export const NAMES = string({ min: 1, max: 10_000 });

const NAME = string({ min: 1, max: 300 });
const KEY_PAGE = { ...PAGE, cursor: optional(CURSOR_TEXT) };
const OF_ALLOCATIONS = "allocations, deployments: only allocations";

const FILTERS = {
  jobs: optional(described(NAMES, "Only entries of these jobs, with commas between them")),
  job: optional(described(NAME, "One more of them")),
  workers: optional(described(NAMES, "Only entries of these workers, with commas between them")),
  worker: optional(described(NAME, "One more of them")),
  active: optional(described(boolean(), "Leave out removed and disabled entries")),
  state: optional(described(NAMES, `${OF_ALLOCATIONS} in one of these states, with commas between them: ${STATES.join(", ")}`)),
  outcome: optional(
    described(
      NAMES,
      `${OF_ALLOCATIONS} whose last action had one of these outcomes, with commas between them: ${LAST_OUTCOMES.join(", ")}`,
    ),
  ),
  deleted: optional(described(boolean(), "Show deleted and expired keys too (kv)")),
  ...KEY_PAGE,
  limit: withDefault(described(integer({ min: 1, max: 5_000 }), "How many items at most"), 5_000),
};

/** The catalog, which the last build made, for reading. Values of secrets and private keys are never in it. */
export const CATALOG_ROUTES: readonly ServerRoute[] = [
  bucketRoute("GET /info", "read", {
    summary: "Show a bucket: its id, its update sequence, how much it holds",
    answer: { status: 200, description: "The bucket", shape: component("BucketInfo") },
    failures: READ_FAILURES,
    async handle({ bucket }, { readers }) {
      const { layout, project, name } = bucket;
      return json(200, { project, name, ...(await readers.read(layout, bucketInfo)) });
    },
  }),
  bucketRoute("GET /summary", "read", {
    summary: "Show a bucket at a glance: counts by state, what has failed, what ends soon",
    description: "At most 64 KB at any size of the bucket. `total` and `cut` of a list say how much of it is left out.",
    answer: { status: 200, description: "The summary", shape: component("BucketSummary") },
    failures: READ_FAILURES,
    handle: async ({ bucket: { layout } }, { beside }) => beside.answer("summary", layout, undefined),
  }),
  bucketRoute("GET /map", "read", {
    summary: "Show how each job is on each worker: one letter each",
    description:
      "At most 1,000 jobs, by name, and 1,000 workers, by position; `cut` says how many are left out. A letter in upper " +
      "case: the last drift run of all jobs and workers found files that were changed by hand, and still are.",
    answer: { status: 200, description: "The map", shape: component("JobMap") },
    failures: READ_FAILURES,
    handle: async ({ bucket: { layout } }, { beside }) => beside.answer("map", layout, undefined),
  }),
  bucketRoute("GET /map/{job}/{worker}", "read", {
    summary: "Show how a job is on a worker",
    answer: { status: 200, description: "The allocation", shape: component("MapCell") },
    failures: [...READ_FAILURES, "not_found"],
    handle: async ({ params: { job = "", worker = "" }, bucket: { layout } }, { beside }) =>
      beside.answer("cell", layout, { job: job.toLowerCase(), worker }),
  }),
  bucketRoute("GET /workers/facts", "read", {
    summary: "Show the facts of the workers that were read last",
    description: "Workers that were never asked are left out; `POST …/workers/facts` reads the facts.",
    query: KEY_PAGE,
    answer: { status: 200, description: "A page of workers", shape: page("WorkerFacts") },
    failures: READ_FAILURES,
    handle: async ({ query: { cursor, limit }, bucket: { layout } }, { beside }) =>
      beside.answer("facts", layout, { after: keyOf(cursor), limit }),
  }),
  ...VIEW_NAMES.map(viewRoute),
];

function viewRoute(name: ViewName): ServerRoute {
  return bucketRoute(`GET /cat/${name}`, "read", {
    summary: `Show the catalog: ${name}`,
    query: FILTERS,
    answer: { status: 200, description: "A page of rows, keyed by the columns", shape: component("CatalogPage") },
    failures: [...READ_FAILURES, "not_found"],
    async handle(
      { query: { jobs, job, workers, worker, state, outcome, limit, cursor, ...flags }, bucket: { layout } },
      { beside },
    ) {
      const names = { jobs: namesOfList(jobs, job), workers: namesOfList(workers, worker) };
      const words = { state: namesOfList(state), outcome: namesOfList(outcome) };
      const page = { after: keyOf(cursor), limit };
      return beside.answer("view", layout, { name, query: { ...flags, ...names, ...words }, page });
    },
  });
}

/** The names in lists with commas; undefined where no list is given. Throws `invalid_request`. */
export function namesOfList(...lists: (string | undefined)[]): string[] | undefined {
  const given = lists.filter((list) => list !== undefined);
  if (given.length === 0) return undefined;
  const names = given.flatMap((list) => list.split(",").map((name) => name.trim()));
  if (names.length > MOST_VALUES) throw new Failure("invalid_request", `expected at most ${MOST_VALUES} names`);
  if (names.includes("")) throw new Failure("invalid_request", "expected names with commas between them");
  return names;
}
