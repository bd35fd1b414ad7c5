import { call } from "../api.js";
import { el, tell } from "../dom.js";
import { startCodes } from "../sign-in.js";
import { tryForm } from "./try.js";

/** What a schema may say about a value beside its type. */
const LIMITS = /^(format|default|(min|max)(imum|Length|Items))$/;

const [search, count, groups] = ["search", "count", "groups"].map((id) => document.getElementById(id));
const main = document.querySelector("main");
let components = {};
let entries = [];

startCodes();
start().catch(({ message }) => tell(document.getElementById("problem"), `Cannot read the API: ${message}`));

async function start() {
  const description = await call("GET", "/openapi.json");
  ({ components } = description);
  entries = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => entryOf(path, method, operation)),
  );
  main.append(el("p", description.info.description), signIn());
  for (const [name, own] of Map.groupBy(entries, ({ group }) => group)) {
    const [items, elements] = ["item", "element"].map((part) => own.map((entry) => entry[part]));
    groups.append(el("section", el("h2", name), el("ul.plain", items)));
    main.append(el("section.part", { "aria-label": name }, el("h2", name), elements));
  }
  filter();
  search.addEventListener("input", filter);
  addEventListener("hashchange", open);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, textarea, select")) return;
    event.preventDefault();
    search.focus();
  });
  open();
}

/** How requests are allowed in, in the words of the description. */
function signIn() {
  const ways = Object.values(components.securitySchemes).map(
    ({ name = "Authorization: Bearer", in: place = "header", description }) =>
      el("li", el("code", name), ` (${place}): ${description}`),
  );
  return el("details", el("summary", "Ways to sign in"), el("ul", ways));
}

function entryOf(path, method, operation) {
  const { operationId: id, summary, tags, description, parameters = [], requestBody } = operation;
  const verb = method.toUpperCase();
  const badge = () => el(`b.method.${method}`, verb);
  const title = el("summary", badge(), el("code", path), el("span.hint", summary));
  // Made when it is looked at: all together they are long.
  const element = unfolding(title, () => contentOf({ ...operation, path, method: verb }));
  Object.assign(element, { id, className: "operation panel" });
  const item = el("li", el("a", { href: `#${id}` }, badge(), el("span", summary)));
  const names = parameters.map(({ name }) => name);
  const text = [verb, path, summary, description, ...names, JSON.stringify(requestBody)].join(" ");
  return { id, element, item, group: tags[0], text: text.toLowerCase() };
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
  Object.assign(element, { hidden: false, open: true });
  element.scrollIntoView();
  element.firstElementChild.focus({ preventScroll: true });
}

/** A `<details>` that gets its content when it is opened first. */
function unfolding(title, content) {
  const details = el("details", title);
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(el("div.body", ...content()));
  });
  return details;
}

/** All about one operation: what it does, a form to try it, what it takes and what it answers. */
function contentOf(operation) {
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

function answer([status, { description: what, content = {} }]) {
  const title = el("summary", el("b", status), ` ${what}`);
  return el("details.answer", { open: status.startsWith("2") }, title, contents(content));
}

function contents(content) {
  return Object.entries(content)
    .flatMap(([type, { schema, example, examples = {} }]) => [
      el("p.hint", type),
      schema && [el("p", typeText(schema)), fieldsOf(schema)],
      example !== undefined && exampleOf("Example", example),
      ...Object.entries(examples).map(([name, one]) => exampleOf(name, resolved(one, "examples").value)),
    ])
    .flat();
}

function exampleOf(name, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const attributes = { tabindex: 0, role: "region", "aria-label": `Example: ${name}` };
  return el("details", el("summary", name), el("pre", attributes, text));
}

/** What a name of the description's components stands for; anything else is itself. */
function resolved(one, kind = "schemas") {
  return one.$ref ? (components[kind][one.$ref.split("/").at(-1)] ?? {}) : one;
}

/** The schema whose fields are worth showing: of an array its items, of a choice the one with fields. */
function inner(schema) {
  const known = resolved(schema);
  const within = known.items ?? known.anyOf?.find((one) => one.$ref || one.properties || one.items);
  return within ? inner(within) : known;
}

/** The fields of a schema, if it has any. It may hold itself: those of a field are made when they are asked for. */
function fieldsOf(schema) {
  const { properties, required = [] } = inner(schema);
  const items = Object.entries(properties ?? {}).map(([name, field]) => {
    const head = named(name, typeText(field), required.includes(name), field.description);
    if (!inner(field).properties) return el("li", head);
    return el(
      "li",
      unfolding(el("summary", head), () => [fieldsOf(field)]),
    );
  });
  return properties && el("ul", items);
}

/** `integer, minimum 1, default 50`, `list of Run`, `string or null`, `one of: a, b`. */
function typeText(schema) {
  const { $ref, enum: choices, anyOf, items = {}, type = "any value" } = schema;
  if ($ref) return $ref.split("/").at(-1);
  const plain = type === "array" ? `list of ${typeText(items)}` : type;
  const what = choices ? `one of: ${choices.join(", ")}` : (anyOf?.map(typeText).join(" or ") ?? plain);
  const limits = Object.entries(schema).filter(([name]) => LIMITS.test(name));
  return [what, ...limits.map(([name, value]) => `${name} ${JSON.stringify(value)}`)].join(", ");
}
