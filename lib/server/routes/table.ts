import { toYaml } from "../../codec/config/yaml.ts";
import { json, raw } from "../../http/message.ts";
import { PROPOSAL_ROUTES } from "../approval/routes.ts";
import { AUDIT_ROUTES } from "../audit/routes.ts";
import { type RouteGroups, route, type ServerRoute } from "../context.ts";
import { MESSAGE_ROUTES } from "../messages/routes.ts";
import { openApiDocument } from "../openapi.ts";
import { SESSION_ROUTES } from "../people/sessions.ts";
import { TOKEN_ROUTES } from "../people/tokens.ts";
import { HEALTH_ROUTES, SCHEDULE_ROUTES } from "../watch/routes.ts";
import { AUTH_ROUTES } from "./auth.ts";
import { BUCKET_ROUTES } from "./buckets.ts";
import { CATALOG_ROUTES } from "./catalog.ts";
import { FILE_ROUTES } from "./files.ts";
import { LOG_ROUTES } from "./logs.ts";
import { METRIC_ROUTES } from "./metrics.ts";
import { JOB_ROUTES, OPERATION_ROUTES } from "./operations.ts";
import { RUN_ROUTES } from "./runs.ts";
import { SECRET_ROUTES } from "./secrets.ts";
import { SNAPSHOT_ROUTES } from "./snapshots.ts";
import { SOURCE_ROUTES } from "./source.ts";

/** All routes of the server in groups: the source of the router, of the checks of requests and of openapi.yaml. */
export const ROUTE_GROUPS: RouteGroups = {
  "Sign-in": AUTH_ROUTES,
  People: [...TOKEN_ROUTES, ...SESSION_ROUTES],
  Buckets: BUCKET_ROUTES,
  Source: [...SOURCE_ROUTES, ...FILE_ROUTES],
  Secrets: SECRET_ROUTES,
  Operations: OPERATION_ROUTES,
  Approval: PROPOSAL_ROUTES,
  Jobs: JOB_ROUTES,
  Snapshots: SNAPSHOT_ROUTES,
  Schedules: SCHEDULE_ROUTES,
  Health: HEALTH_ROUTES,
  Messages: MESSAGE_ROUTES,
  Runs: [...RUN_ROUTES, ...LOG_ROUTES],
  Catalog: CATALOG_ROUTES,
  Metrics: METRIC_ROUTES,
  Audit: AUDIT_ROUTES,
  "This description": descriptionRoutes(() => openApiDocument(ROUTE_GROUPS)),
};

/** All routes as one list, in which the router takes the first match. */
export const ROUTES: readonly ServerRoute[] = Object.values(ROUTE_GROUPS).flat();

/** The routes that serve the description of a route table, as YAML and as JSON. */
export function descriptionRoutes(description: () => object): readonly ServerRoute[] {
  return [
    route("GET /openapi.yaml", "read", {
      summary: "This description, as YAML",
      answer: { status: 200, description: "OpenAPI 3.1", type: "application/yaml" },
      handle: async () => raw("application/yaml; charset=utf-8", toYaml(description())),
    }),
    route("GET /openapi.json", "read", {
      summary: "This description, as JSON",
      answer: { status: 200, description: "OpenAPI 3.1", type: "application/json" },
      handle: async () => json(200, description()),
    }),
  ];
}
