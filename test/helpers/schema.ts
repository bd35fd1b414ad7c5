import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { type SchemaName, schemaOf } from "../../lib/bucket/workspace/schemas.ts";

const validators = new Map<SchemaName, ValidateFunction>();

/** What a validator of JSON Schema says against a value; empty where it accepts the value. */
export function schemaErrors(name: SchemaName, value: unknown): string[] {
  const validate = validators.get(name) ?? new Ajv2020({ strictTypes: false, allErrors: true }).compile(schemaOf(name));
  validators.set(name, validate);
  validate(value);
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath}: ${message}`);
}
