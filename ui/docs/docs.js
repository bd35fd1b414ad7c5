import { request } from "../api.js";
import { el, tell } from "../dom.js";
import { operationBody } from "./operation.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
/** Where the first words of a path belong; the others are a group of their own. */
const GROUPS = {
  auth: "Sign-in",
  "": "Buckets",
  init: "Buckets",
  push: "Source",
  source: "Source",
  files: "Source",
  templates: "Source",
  settings: "Source",
  workspace: "Source",
  cat: "Catalog",
  info: "Catalog",
  "openapi.yaml": "This description",
  "openapi.json": "This description",
};
const STARTS = "Operations";

const [search, count, problem] = ["search", "count", "problem"].map((id) => document.getElementById(id));
const [groups, main] = ["groups", "operations"].map((id) => document.getElementById(id));
let entries = [];

start();

async function start() {
  try {
    const description = await request("GET", "/openapi.json");
    show(description);
    open();
  } catch (error) {
    tell(problem, `The description of the API cannot be read: ${error.message}`);
  }
}

function show(description) {
  document.getElementById("about").append(el("p", {}, description.info.description), signIn(description));
  entries = operationsOf(description).map((operation) => ({
    ...operation,
    ...elementsOf(operation, description),
  }));
  for (const [name, own] of Map.groupBy(entries, ({ group }) => group)) {
    const parts = own.map(({ element }) => element);
    const links = el("ul", {}, ...own.map(({ item }) => item));
    main.append(el("section", { "aria-label": name }, el("h2", {}, name), ...parts));
    groups.append(el("section", {}, el("h2", {}, name), links));
  }
  filter();
  search.addEventListener("input", filter);
  addEventListener("hashchange", open);
  addEventListener("keydown", (event) => {
    if (
      event.key !== "/" ||
      event.target.matches("input, textarea, select") ||
      event.ctrlKey ||
      event.metaKey
    )
      return;
    event.preventDefault();
    search.focus();
  });
}

/** How requests are allowed in, in the words of the description. */
function signIn({ components: { securitySchemes = {} } }) {
  const ways = Object.values(securitySchemes).map(
    ({ name = "Authorization: Bearer", in: place, description }) =>
      el("li", {}, el("code", {}, name), place ? ` (${place}): ` : ": ", description),
  );
  return el("details", {}, el("summary", {}, "Ways to sign in"), el("ul", {}, ...ways));
}

function operationsOf({ paths }) {
  return Object.entries(paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => {
      const operation = methods[method];
      return {
        ...operation,
        path,
        method: method.toUpperCase(),
        group: groupOf(path, method),
        id: operation.operationId,
      };
    }),
  );
}

function groupOf(path, method) {
  const [, bucket, rest = ""] = /^\/(?:api\/)?(buckets(?:\/\{bucket_id\})?\/?)?(.*)$/.exec(path);
  const [first] = rest.split("/");
  if (Object.hasOwn(GROUPS, first)) return GROUPS[first];
  if (bucket && rest === first && method === "post") return STARTS;
  return first[0].toUpperCase() + first.slice(1);
}

function elementsOf(operation, description) {
  const { id, method, path, summary } = operation;
  const badge = () => el("span", { class: `method ${method.toLowerCase()}` }, method);
  const title = el("summary", {}, badge(), el("code", {}, path), el("span", { class: "what" }, summary));
  const element = el("details", { class: "operation", id }, title);
  element.addEventListener("toggle", () => {
    // Made when it is looked at: all together they are long.
    if (element.open && element.children.length === 1) element.append(operationBody(operation, description));
  });
  const link = el("a", { href: `#${id}`, title: `${method} ${path}` }, badge(), el("span", {}, summary));
  return { element, item: el("li", {}, link), text: textOf(operation) };
}

function textOf({ method, path, summary, description = "", parameters = [], requestBody = {} }) {
  const names = parameters.map(({ name }) => name);
  return [method, path, summary, description, ...names, JSON.stringify(requestBody)].join(" ").toLowerCase();
}

/** Shows only what has every word that is searched for. */
function filter() {
  const words = search.value.toLowerCase().split(/\s+/);
  let found = 0;
  for (const { element, item, text } of entries) {
    const isFound = words.every((word) => text.includes(word));
    if (isFound) found++;
    element.hidden = item.hidden = !isFound;
  }
  for (const section of document.querySelectorAll("#groups section, #operations section"))
    section.hidden = !section.querySelector("li:not([hidden]), .operation:not([hidden])");
  count.textContent = `${found} of ${entries.length} operations`;
}

/** Opens the operation that the address names. */
function open() {
  const entry = entries.find(({ id }) => `#${id}` === location.hash);
  if (!entry) return;
  entry.element.hidden = false;
  entry.element.open = true;
  entry.element.scrollIntoView();
  entry.element.querySelector("summary").focus({ preventScroll: true });
}
