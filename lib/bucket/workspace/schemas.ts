import type { Schema } from "../../core/shape.ts";
import { NOTIFY_SCHEMA } from "../notify/notify.ts";
import { MANIFEST_SCHEMA } from "./manifest.ts";
import { SCHEDULES_SCHEMA } from "./schedules.ts";
import { DISABLED_SCHEMA, WORKERS_SCHEMA } from "./workers.ts";

const SCHEMAS = {
  manifest: {
    title: "A job of ops",
    description: "manifest.json in the folder of a job: where the job runs, what it needs, and how it is brought out.",
    ...MANIFEST_SCHEMA,
  },
  workers: { title: "The workers of ops", ...WORKERS_SCHEMA, description: "workspace/workers.json: the hosts that jobs run on." },
  disabled: {
    title: "What ops leaves out",
    ...DISABLED_SCHEMA,
    description: "workspace/disabled.json: the workers and allocations that are taken out of service.",
  },
  schedules: {
    title: "What ops starts by itself",
    ...SCHEDULES_SCHEMA,
    description: "workspace/schedules.json: the runs that the server starts, and the windows in which nothing is deployed.",
  },
  notify: {
    title: "What ops tells",
    ...NOTIFY_SCHEMA,
    description: "workspace/notify.json: where messages go, which events they tell of, and the hours in which they wait.",
  },
} satisfies Record<string, Schema>;

/** The name of a file that has a schema, without `.json`. */
export type SchemaName = keyof typeof SCHEMAS;
/** All names of {@link SchemaName}. */
export const SCHEMA_NAMES = Object.keys(SCHEMAS) as SchemaName[];

/** True for the name of a file that has a schema. */
export function isSchemaName(name: string): name is SchemaName {
  return Object.hasOwn(SCHEMAS, name);
}

/**
 * The JSON Schema (2020-12) of a file, made from the shapes that check the file in a build. For editors: the schema knows
 * only the present names of keys, in small letters, and no `null`, where a build is lenient. What ties several values
 * together is left to the build.
 */
export function schemaOf(name: SchemaName): Schema {
  return { $schema: "https://json-schema.org/draft/2020-12/schema", ...SCHEMAS[name] };
}
