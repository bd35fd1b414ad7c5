import { call, curlOf, encoded } from "../base/api.js";
import { alertPlace, el } from "../base/dom.js";
import { fits, prose, tell, textBox } from "../base/text.js";
import { startCodes } from "../frame/session.js";
import { copying } from "../parts/dialog.js";
import { fieldsOf } from "../parts/form.js";

const LIMITS = /^(format|default|(min|max)(imum|Length|Items))$/;
const ANSWER_CHARACTERS = 200_000;

const [searchField, countPlace] = ["search", "count"].map((id) => /** @type {any} */ (document.getElementById(id)));
const referencePage = document.querySelector("main");
let components = {};
let entries = [];

/** Starts the reference in its page. */
export function startReference() {
  startCodes();
  showReference().catch(({ message }) => tell(document.getElementById("problem"), message));
}

async function showReference() {
  const description = await call("GET", "/openapi.json");
  ({ components } = description);
  entries = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => operationEntry(path, method, operation)),
  );
  referencePage.append(el("p", prose(description.info.description)));
  for (const [name, own] of Map.groupBy(entries, ({ group }) => group)) {
    const elements = own.map(({ element }) => element);
    referencePage.append(el("section", { "aria-label": name }, el("h2", name), elements));
  }
  filter();
  searchField.addEventListener("input", filter);
  addEventListener("hashchange", openEntry);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || /** @type {Element} */ (event.target).matches("input, textarea, select")) return;
    event.preventDefault();
    searchField.focus();
  });
  openEntry();
}

function operationEntry(path, method, operation) {
  const { operationId: id, summary, tags, responses: _, ...asked } = operation;
  const verb = method.toUpperCase();
  const title = el("summary", el(`b.method.${method}`, verb), " ", el("code", path), el("small", prose(summary)));
  const element = unfolding(title, () => operationParts({ ...operation, path, method: verb }));
  Object.assign(element, { id, className: "operation panel" });
  title.addEventListener("click", () => history.replaceState(null, "", `#${id}`));
  return { id, element, group: tags[0], text: JSON.stringify([verb, path, summary, asked]) };
}

function filter() {
  const found = entries.filter(({ text }) => fits(text, searchField.value));
  for (const entry of entries) entry.element.hidden = !found.includes(entry);
  for (const section of document.querySelectorAll("section")) section.hidden = !section.querySelector(".operation:not([hidden])");
  countPlace.textContent = `${found.length} of ${entries.length} operations`;
}

function openEntry() {
  const { element } = entries.find(({ id }) => `#${id}` === location.hash) ?? {};
  if (!element) return;
  searchField.value = "";
  filter();
  element.open = true;
  element.scrollIntoView();
  element.firstElementChild.focus({ preventScroll: true });
}

function unfolding(title, content) {
  const details = el("details", title);
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(el("div.data", ...content()));
  });
  return details;
}

function operationParts(operation) {
  const { description, parameters = [], requestBody, responses, "x-command": command } = operation;
  const items = parameters.map(({ name, in: place, required, description: what, schema }) =>
    el("li", named(name, `${typeText(schema)}, in the ${place}`, required, what)),
  );
  return [
    description && el("p", prose(description)),
    items.length > 0 && [el("h3", "Parameters"), el("ul", items)],
    requestBody && [el("h3", "Body"), contents(requestBody.content)],
    command && [el("h3", "On the command line"), el("p", el("code", command))],
    ...[el("h3", "Try it"), tryForm(operation)],
    ...[el("h3", "Answers"), Object.entries(responses).map(answer)],
  ];
}

function named(name, type, required, what) {
  const rest = [required && el("b", " required"), what && [": ", prose(what)]];
  return [el("code", name), el("span.meta", ` ${type}`), ...rest];
}

function answer([status, { description: what, content = {} }]) {
  const title = el("summary", el("b", status), " ", prose(what));
  return el("details.answer", { open: status.startsWith("2") }, title, contents(content));
}

function contents(content) {
  return Object.entries(content).flatMap(([type, { schema, example, examples = {} }]) => [
    el("p.meta", type),
    ...(schema ? [el("p", typeText(schema)), membersOf(schema)] : []),
    example !== undefined && exampleOf("Example", example),
    ...Object.entries(examples).map(([name, one]) => exampleOf(name, resolved(one, "examples").value)),
  ]);
}

function exampleOf(name, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return el("details", el("summary", name), textBox(`Example: ${name}`, text));
}

function resolved(one, kind = "schemas") {
  return one.$ref ? (components[kind][one.$ref.split("/").at(-1)] ?? {}) : one;
}

function inner(schema) {
  const known = resolved(schema);
  const within = known.items ?? known.anyOf?.find((one) => one.$ref || one.properties || one.items);
  return within ? inner(within) : known;
}

/** A schema may hold itself. */
function membersOf(schema) {
  const { properties, required = [] } = inner(schema);
  const items = Object.entries(properties ?? {}).map(([name, field]) => {
    const head = named(name, typeText(field), required.includes(name), field.description);
    const content = () => [membersOf(field)];
    return el("li", inner(field).properties ? unfolding(el("summary", head), content) : head);
  });
  return properties && el("ul", items);
}

function typeText(schema) {
  const { $ref, enum: choices, anyOf, items = {}, type = "any value" } = schema;
  if ($ref) return $ref.split("/").at(-1);
  const plain = type === "array" ? `list of ${typeText(items)}` : type;
  const what = choices ? `one of: ${choices.join(", ")}` : (anyOf?.map(typeText).join(" or ") ?? plain);
  const limits = Object.entries(schema).filter(([name]) => LIMITS.test(name));
  return [what, ...limits.map(([name, value]) => `${name} ${JSON.stringify(value)}`)].join(", ");
}

function tryForm(operation) {
  const { method, parameters = [], requestBody } = operation;
  const table = parameters.map(fieldOf);
  if (requestBody) table.push(bodyOf(requestBody.content));
  if (method !== "GET") table.push({ name: "sure", label: "Really do this on this server", type: "checkbox", required: true });
  const { labels, values } = fieldsOf(table);
  const problem = alertPlace();
  const result = el("div.result", { "aria-live": "polite" });
  const copy = copying("Copy as curl", () => {
    const { target, content, headers } = askedOf(operation, values());
    const command = curlOf(method, target, content, headers);
    result.replaceChildren(textBox(`${method} ${target} as a curl command`, command));
    return command;
  });
  const controls = el("div.controls", el("button.primary", "Send"), copy);
  const form = el("form", labels, controls, problem, result);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    tell(problem, "");
    result.replaceChildren("Waiting …");
    try {
      result.replaceChildren(...(await send(method, askedOf(operation, values()))));
    } catch (error) {
      result.replaceChildren();
      tell(problem, error.message);
    }
    if (method !== "GET") labels.at(-1).control.checked = false;
  });
  return form;
}

function fieldOf({ name, required, schema, example }) {
  const choices = schema.type === "boolean" ? ["true", "false"] : schema.enum;
  const options = choices && ["", ...choices];
  const label = [el("code", name), required && " (required)"];
  const placeholder = schema.default ?? example;
  return { name, label, options, required, placeholder };
}

function bodyOf(content) {
  const [type, ...others] = Object.keys(content);
  const { schema, example } = content[type];
  if (type !== "application/json") return { name: "body", label: [type, ...others].join(" or "), type: "file", required: true };
  const needed = Object.fromEntries((schema.required ?? []).map((name) => [name, example?.[name] ?? null]));
  return { name: "body", label: "Body (JSON)", rows: 6, value: JSON.stringify(needed, null, 2) };
}

function askedOf({ path, parameters = [], requestBody }, given) {
  const within = (place) => {
    const filled = parameters.filter((one) => one.in === place && given[one.name]);
    return filled.map(({ name }) => [name, given[name].trim()]);
  };
  const query = new URLSearchParams(within("query"));
  const target = within("path").reduce((filled, [name, value]) => {
    const part = name === "path" ? encoded(value) : encodeURIComponent(value);
    return filled.replace(`{${name}}`, () => part);
  }, path);
  const { body: content } = given;
  const types = Object.keys(requestBody?.content ?? {});
  const packed = /gz$/.test(content?.name) && types.find((type) => /gzip/.test(type));
  const headers = Object.fromEntries(within("header"));
  if (content) headers["Content-Type"] = packed || types[0];
  return { target: query.size > 0 ? `${target}?${query}` : target, headers, content };
}

async function send(method, { target, headers, content: body }) {
  const started = performance.now();
  const answered = call(method, target, { headers, body, as: "response" });
  const response = await answered.catch((error) => error.response ?? Promise.reject(error));
  const text = await response.text();
  const ms = Math.round(performance.now() - started);
  const { status, statusText, ok, headers: about } = response;
  const id = about.get("X-Request-Id");
  const line = el(ok ? "p" : "p.error", `${status} ${statusText}, ${ms} ms, request ${id}`);
  return [line, textBox(`Answer to request ${id}`, readable(text, about.get("Content-Type") ?? ""))];
}

function readable(text, kind) {
  if (text !== "" && !/json|text|yaml/.test(kind)) return `(${kind}, not shown)`;
  const nice = /json/.test(kind) ? JSON.stringify(JSON.parse(text), null, 2) : text;
  return nice.length > ANSWER_CHARACTERS ? `${nice.slice(0, ANSWER_CHARACTERS)}\n…` : nice;
}
