import type { Schema } from "../core/shape.ts";
import { COMPONENTS } from "./routes/shapes.ts";

/** A value that the schema allows: its own example where it has one, else the plainest. */
export function exampleOf(schema: Schema): unknown {
  if (Array.isArray(schema.examples)) return schema.examples[0];
  if ("default" in schema) return schema.default;
  if (typeof schema.$ref === "string")
    return exampleOf(COMPONENTS[schema.$ref.replace("#/components/schemas/", "")]?.schema ?? {});
  const [first] = ((schema.enum ?? schema.anyOf) as [Schema] | undefined) ?? [];
  if (first !== undefined) return schema.anyOf ? exampleOf(first) : first;
  if (schema.type === "array") return [exampleOf(schema.items as Schema)];
  if (schema.type === "object") return exampleObject(schema);
  if (schema.type === "boolean") return true;
  if (schema.type === "integer" || schema.type === "number") return schema.minimum ?? 1;
  return schema.type === "string" ? "text" : {};
}

function exampleObject({ properties = {}, allOf = [] }: Schema): unknown {
  // Of two fields that exclude each other the first is shown.
  const left = new Set((allOf as { not: { required: [string, string] } }[]).map(({ not }) => not.required[1]));
  const shown = Object.entries(properties as Record<string, Schema>).filter(([name]) => !left.has(name));
  return Object.fromEntries(shown.map(([name, schema]) => [name, exampleOf(schema)]));
}
