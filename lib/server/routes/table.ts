import type { ServerRoute } from "../context.ts";
import { AUTH_ROUTES } from "./auth.ts";
import { BUCKET_ROUTES } from "./buckets.ts";
import { CATALOG_ROUTES } from "./catalog.ts";
import { EVENT_ROUTES } from "./events.ts";
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

/** All that can be asked of the server: the source of the router, of the checks and of openapi.yaml. */
export const ROUTES: readonly ServerRoute[] = [
  ...AUTH_ROUTES,
  ...BUCKET_ROUTES,
  ...SOURCE_ROUTES,
  ...FILE_ROUTES,
  ...SETTINGS_ROUTES,
  ...SECRET_ROUTES,
  ...OPERATION_ROUTES,
  ...JOB_ROUTES,
  ...SNAPSHOT_ROUTES,
  ...RUN_ROUTES,
  ...LOG_ROUTES,
  ...EVENT_ROUTES,
  ...CATALOG_ROUTES,
  ...REFERENCE_ROUTES,
];
