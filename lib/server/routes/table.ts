import type { ServerRoute } from "../context.ts";
import { AUTH_ROUTES } from "./auth.ts";
import { BUCKET_ROUTES } from "./buckets.ts";
import { CATALOG_ROUTES } from "./catalog.ts";
import { FILE_ROUTES } from "./files.ts";
import { JOB_ROUTES } from "./jobs.ts";
import { LOG_ROUTES } from "./logs.ts";
import { OPERATION_ROUTES } from "./operations.ts";
import { REFERENCE_ROUTES } from "./reference.ts";
import { RUN_ROUTES } from "./runs.ts";
import { SECRET_ROUTES } from "./secrets.ts";
import { SETTINGS_ROUTES } from "./settings.ts";
import { SNAPSHOT_ROUTES } from "./snapshots.ts";
import { SOURCE_ROUTES } from "./source.ts";

/** All that can be asked of the server, by what it is about: the source of the router, of the checks and of openapi.yaml. */
export const ROUTE_GROUPS: Readonly<Record<string, readonly ServerRoute[]>> = {
  "Sign-in": AUTH_ROUTES,
  Buckets: BUCKET_ROUTES,
  Source: [...SOURCE_ROUTES, ...FILE_ROUTES, ...SETTINGS_ROUTES],
  Secrets: SECRET_ROUTES,
  Operations: OPERATION_ROUTES,
  Jobs: JOB_ROUTES,
  Snapshots: SNAPSHOT_ROUTES,
  Runs: [...RUN_ROUTES, ...LOG_ROUTES],
  Catalog: CATALOG_ROUTES,
  "This description": REFERENCE_ROUTES,
};

/** The same as one list, in which the router looks for the first match. */
export const ROUTES: readonly ServerRoute[] = Object.values(ROUTE_GROUPS).flat();
