import { call } from "../api.js";
import { el, tell } from "../dom.js";
import { startCodes } from "../sign-in.js";
import { tryForm } from "./try.js";

/** Where the first words of a path belong; the others are a group of their own. */
const GROUPS = {
  ...{ auth: "Sign-in", "": "Buckets", init: "Buckets", cat: "Catalog", info: "Catalog" },
  ...{ push: "Source", source: "Source", files: "Source", templates: "Source", settings: "Source" },
  ...{ workspace: "Source", "openapi.yaml": "This description", "openapi.json": "This description" },
};
const STARTS = "Operations";

const [search, count, groups] = ["search", "count", "groups"].map((id) => document.getElementById(id));
const main = document.querySelector("main");
let components = {};
let entries = [];

startCodes();
start().catch((error) =>
  tell(document.getElementById("problem"), `The description of the API cannot be read: ${error.message}`),
);

async function start() {
  const description = await call("GET", "/openapi.json");
  ({ components } = description);
  entries = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => entryOf(path, method, operation)),
  );
  main.append(el("p", description.info.description), signIn());
  for (const [name, own] of Map.groupBy(entries, ({ group }) => group)) {
    const [heading, links] = [
      el("h2", name),
      el(
        "ul.plain",
        own.map(({ item }) => item),
      ),
    ];
    groups.append(el("section", heading.cloneNode(true), links));
    main.append(
      el(
        "section.part",
        { "aria-label": name },
        heading,
        own.map(({ element }) => element),
      ),
    );
  }
  filter();
  search.addEventListener("input", filter);
  addEventListener("hashchange", open);
  addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, textarea, select");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    search.focus();
  });
  open();
}

/** How requests are allowed in, in the words of the description. */
function signIn() {
  const ways = Object.values(components.securitySchemes ?? {}).map(
    ({ name = "Authorization: Bearer", in: place, description }) =>
      el("li", el("code", name), place ? ` (${place}): ` : ": ", description),
  );
  return el("details", el("summary", "Ways to sign in"), el("ul", ways));
}

function entryOf(path, method, { operationId: id, ...operation }) {
  const { summary, description = "", parameters = [], requestBody = {} } = operation;
  const verb = method.toUpperCase();
  const badge = () => el(`b.method.${method}`, verb);
  const title = el("summary", badge(), el("code", path), el("span.hint", summary));
  const element = el("details.operation.panel", { id }, title);
  // Made when it is looked at: all together they are long.
  unfolding(element, () => body({ ...operation, path, method: verb }));
  const item = el("li", el("a", { href: `#${id}`, title: `${verb} ${path}` }, badge(), el("span", summary)));
  const names = parameters.map(({ name }) => name);
  const text = [verb, path, summary, description, ...names, JSON.stringify(requestBody)].join(" ");
  return { id, element, item, group: groupOf(path, method), text: text.toLowerCase() };
}

function groupOf(path, method) {
  const [, bucket, rest = ""] = /^\/(?:api\/)?(buckets(?:\/\{bucket_id\})?\/?)?(.*)$/.exec(path);
  const [first] = rest.split("/");
  if (Object.hasOwn(GROUPS, first)) return GROUPS[first];
  if (bucket && rest === first && method === "post") return STARTS;
  return first[0].toUpperCase() + first.slice(1);
}

/** Shows only what has every word that is searched for. */
function filter() {
  const words = search.value.toLowerCase().split(/\s+/);
  const found = entries.filter(({ text }) => words.every((word) => text.includes(word)));
  for (const entry of entries) entry.element.hidden = entry.item.hidden = !found.includes(entry);
  for (const section of document.querySelectorAll("section"))
    section.hidden = !section.querySelector("li:not([hidden]), .operation:not([hidden])");
  count.textContent = `${found.length} of ${entries.length} operations`;
}

/** Opens the operation that the address names. */
function open() {
  const { element } = entries.find(({ id }) => `#${id}` === location.hash) ?? {};
  if (!element) return;
  element.hidden = false;
  element.open = true;
  element.scrollIntoView();
  element.firstElementChild.focus({ preventScroll: true });
}

/** All about one operation: what it does, a form to try it, what it takes and what it answers. */
function body(operation) {
  const { description, parameters = [], requestBody, responses } = operation;
  const items = parameters.map(({ name, in: place, required, description: what, schema }) =>
    el("li", named(name, `${typeText(schema)}, in the ${place}`, required, what)),
  );
  return [
    description && el("p", description),
    items.length > 0 && [el("h3", "Parameters"), el("ul", items)],
    requestBody && [el("h3", "Body"), contents(requestBody.content)],
    ...[el("h3", "Try it"), tryForm(operation)],
    ...[el("h3", "Answers"), Object.entries(responses).map(answer)],
  ];
}

function named(name, type, required, what) {
  const rest = [required && el("span.why", " required"), what && `: ${what}`];
  return [el("code", name), el("span.hint", ` ${type}`), ...rest];
}

function answer([status, { description: what, content }]) {
  if (!content) return el("p.answer", el("b", status), ` ${what}`);
  const title = el("summary", el("b", status), ` ${what}`);
  return el("details.answer", { open: status.startsWith("2") }, title, contents(content));
}

function contents(content) {
  return Object.entries(content).flatMap(([type, { schema, example, examples = {} }]) => [
    el("p.hint", type),
    schema && el("div", el("p", typeText(schema)), fieldsOf(schema)),
    example !== undefined && exampleView("Example", example),
    ...Object.entries(examples).map(([name, one]) => exampleView(name, resolved(one, "examples").value)),
  ]);
}

function exampleView(name, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const attributes = { tabindex: 0, role: "region", "aria-label": `Example: ${name}` };
  return el("details", el("summary", name), el("pre", attributes, text));
}

/** What a name of the description's components stands for; anything else is itself. */
function resolved(one, kind = "schemas") {
  return one.$ref ? (components[kind]?.[one.$ref.split("/").at(-1)] ?? {}) : one;
}

/** The schema whose fields are worth showing: of an array its items, of a choice the one with fields. */
function inner(schema) {
  const known = resolved(schema);
  const within = known.items ?? known.anyOf?.find((one) => one.$ref || one.properties || one.items);
  return within ? inner(within) : known;
}

/** The fields of a schema, if it has any; those that have fields themselves open on demand. */
function fieldsOf(schema) {
  const { properties, required = [] } = inner(schema);
  const items = Object.entries(properties ?? {}).map(([name, field]) => {
    const head = named(name, typeText(field), required.includes(name), field.description);
    if (!inner(field).properties) return el("li", head);
    const details = el("details", el("summary", head));
    // A schema may hold itself: what is below is made when it is asked for.
    unfolding(details, () => [fieldsOf(field)]);
    return el("li", details);
  });
  return properties && el("ul", items);
}

/** Gives a `<details>` its content when it is opened first. */
function unfolding(details, content) {
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(el("div.body", ...content()));
  });
}

/** `integer, 1 to 500, default 50`, `list of Run`, `string or null`, `one of: a, b`. */
function typeText(schema) {
  const { $ref, enum: choices, anyOf, items, type = "any value", format } = schema;
  if ($ref) return $ref.split("/").at(-1);
  if (type === "array") return `list of ${typeText(items ?? {})}${bounds(schema)}`;
  const plain = format === "binary" ? "bytes" : format ? `${type} (${format})` : type;
  const text = choices
    ? `one of: ${choices.join(", ")}`
    : (anyOf?.map(typeText).join(" or ") ?? `${plain}${bounds(schema)}`);
  return schema.default === undefined ? text : `${text}, default ${JSON.stringify(schema.default)}`;
}

function bounds({ type, minimum, minLength, minItems, maximum, maxLength, maxItems }) {
  const [low, high] = [minimum ?? minLength ?? minItems, maximum ?? maxLength ?? maxItems];
  const unit = { string: " characters", array: " items" }[type] ?? "";
  if (low !== undefined && high !== undefined) return `, ${low} to ${high}${unit}`;
  if (low !== undefined) return `, at least ${low}${unit}`;
  return high === undefined ? "" : `, at most ${high}${unit}`;
}
