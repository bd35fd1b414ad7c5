import { SESSION_PATH } from "../../auth/guard.ts";
import { EARLIER_COOKIE, SESSION_COOKIE } from "../../auth/session.ts";
import { object } from "../../core/shape.ts";
import type { RouteGroups, ServerRoute } from "../context.ts";
import { EARLIER_ABOUT, openApiDocument } from "../openapi.ts";
import { LABEL } from "../routes/shapes.ts";
import { descriptionRoutes, ROUTE_GROUPS } from "../routes/table.ts";
import { CHANGE_ROUTES } from "./changes.ts";

/** The groups of the present table that the earlier API has, too. */
const KEPT = ["Source", "Secrets", "Operations", "Jobs", "Snapshots", "Runs", "Catalog", "Metrics"];
/** Nobody pushes, so there are no revisions; nobody is told. */
const LEFT_OUT = /^\/api\/buckets\/\{bucket_id\}\/(?:push|source\/.+|secrets\/notify\/.+)$/;
/** A route that starts a run takes this header. */
const START_HEADER = "Idempotency-Key";
const SIGN_IN: Readonly<Record<string, string>> = {
  POST: `Takes the API token in the Authorization header and sets the cookie \`${EARLIER_COOKIE}\`: a signed grant of 12 hours, never the token.`,
  DELETE: "The cookie is cleared, and refused from then on.",
};

/** All routes of the earlier variant in groups: those of the present server under other paths, and a few of its own. */
export const EARLIER_GROUPS: RouteGroups = {
  "Sign-in": signInRoutes(),
  Environments: groupOf("Buckets"),
  ...Object.fromEntries(KEPT.map((group) => [group, groupOf(group)])),
  Changes: CHANGE_ROUTES.map(renamed),
  "This description": descriptionRoutes(() => openApiDocument(EARLIER_GROUPS, EARLIER_ABOUT)),
};

/** All of them as one list, in which the router takes the first match. */
export const EARLIER_ROUTES: readonly ServerRoute[] = Object.values(EARLIER_GROUPS).flat();

function groupOf(group: string): ServerRoute[] {
  return (ROUTE_GROUPS[group] ?? []).filter(({ path }) => !LEFT_OUT.test(path)).map(renamed);
}

/** Signing in and out outside `/api`; there is no other exchange of a session. */
function signInRoutes(): ServerRoute[] {
  const own = (ROUTE_GROUPS["Sign-in"] ?? []).filter(({ path, method }) => path === SESSION_PATH && method !== "GET");
  return own.map((route) => ({ ...renamed(route), path: "/signin", description: SIGN_IN[route.method] ?? "" }));
}

/** A route under the name that it has in the earlier API. */
function renamed(present: ServerRoute): ServerRoute {
  const { path, summary, description, answer, failures = [], headers = {}, handle, ...rest } = present;
  const isCreate = path === "/api/buckets" && present.method === "POST";
  return {
    ...rest,
    path: path.replace(/^\/api\/buckets(?:\/\{bucket_id\})?/, (found) =>
      found.endsWith("}") ? "/api/envs/{env_id}" : "/api/envs",
    ),
    summary: worded(summary),
    ...(description !== undefined && { description: worded(description) }),
    headers,
    // The server makes the ids.
    ...(isCreate && { body: object({ project: LABEL, name: LABEL }) }),
    answer: { ...answer, description: worded(answer.description) },
    failures: START_HEADER in headers ? [...failures, "busy"] : failures,
    handle: (call, context) => handle({ ...call, params: { ...call.params, bucket_id: call.params.env_id ?? "" } }, context),
  };
}

/** A text about buckets as one about environments; names such as bucket.conf stay. */
function worded(text: string): string {
  return text
    .replaceAll("bucket.json", "env.json")
    .replaceAll(SESSION_COOKIE, EARLIER_COOKIE)
    .replace(/\b([Aa]) bucket\b(?![._])/g, "$1n environment")
    .replace(/\bbucket(s?)\b(?![._])/g, "environment$1");
}
