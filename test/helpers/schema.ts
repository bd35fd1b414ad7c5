import { Ajv2020 } from "ajv/dist/2020.js";
import { type SchemaName, schemaOf } from "../../lib/bucket/workspace/schemas.ts";

/** What a validator of JSON Schema says against a value; empty where it accepts the value. */
export function schemaErrors(name: SchemaName, value: unknown): string[] {
  const validate = new Ajv2020({ strictTypes: false, allErrors: true }).compile(schemaOf(name));
  validate(value);
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath}: ${message}`);
}
