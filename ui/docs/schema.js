import { el } from "../dom.js";

/** A schema in words: its type, and below it its fields; named and nested ones open on demand. */
export function schemaView(schema, description) {
  const known = resolved(schema, description);
  const fields = fieldsOf(known, description);
  return el(
    "div",
    { class: "schema" },
    el("p", {}, typeText(schema, description)),
    ...(fields ? [fields] : []),
  );
}

function resolved(schema, description) {
  const name = schema.$ref?.split("/").at(-1);
  return name === undefined ? schema : (description.components.schemas[name] ?? {});
}

/** The schema whose fields are worth showing: of an array its items, of a choice the one with fields. */
function inner(schema, description) {
  const known = resolved(schema, description);
  if (known.items) return inner(known.items, description);
  const choice = known.anyOf?.find((one) => one.$ref || one.properties || one.items);
  return choice ? inner(choice, description) : known;
}

function fieldsOf(schema, description) {
  const { properties, required = [] } = inner(schema, description);
  if (!properties) return null;
  return el(
    "ul",
    {},
    ...Object.entries(properties).map(([name, field]) => fieldItem(name, field, required, description)),
  );
}

function fieldItem(name, field, required, description) {
  const head = [
    el("code", {}, name),
    el("span", { class: "type" }, ` ${typeText(field, description)}`),
    required.includes(name) ? el("span", { class: "required" }, " required") : null,
    field.description ? el("span", { class: "what" }, `: ${field.description}`) : null,
  ];
  if (!inner(field, description).properties) return el("li", {}, ...head);
  const details = el("details", {}, el("summary", {}, ...head));
  // A schema may hold itself: what is below is made when it is asked for.
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(fieldsOf(field, description));
  });
  return el("li", {}, details);
}

/** `integer, 1 to 500, default 50`, `list of Run`, `string or null`, `one of: a, b`. */
export function typeText(schema, description) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum) return withDefault(`one of: ${schema.enum.join(", ")}`, schema);
  if (schema.anyOf)
    return withDefault(schema.anyOf.map((one) => typeText(one, description)).join(" or "), schema);
  if (schema.type === "array") return `list of ${typeText(schema.items ?? {}, description)}${bounds(schema)}`;
  const type = schema.format === "binary" ? "bytes" : (schema.type ?? "any value");
  return withDefault(
    `${type}${schema.format && type !== "bytes" ? ` (${schema.format})` : ""}${bounds(schema)}`,
    schema,
  );
}

function bounds(schema) {
  const low = schema.minimum ?? schema.minLength ?? schema.minItems;
  const high = schema.maximum ?? schema.maxLength ?? schema.maxItems;
  const unit = schema.type === "string" ? " characters" : schema.type === "array" ? " items" : "";
  if (low !== undefined && high !== undefined) return `, ${low} to ${high}${unit}`;
  if (low !== undefined) return `, at least ${low}${unit}`;
  return high === undefined ? "" : `, at most ${high}${unit}`;
}

function withDefault(text, schema) {
  return schema.default === undefined ? text : `${text}, default ${JSON.stringify(schema.default)}`;
}
