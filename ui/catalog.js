import { address, keepQuery } from "./address.js";
import { all, bucketPath, call } from "./api.js";
import { button, el } from "./dom.js";
import { field, tickBox } from "./fields.js";
import { ago, short, status, words } from "./format.js";
import { nothing, part, viewOfParts } from "./part.js";
import { dataTable } from "./table.js";
import { tabBar } from "./tabs.js";

/** What the catalog shows, with the filters that the server has for each, and what rows are told apart by. */
const RESOURCES = {
  workers: { filters: ["workers", "active"], key: ["worker_ip"] },
  jobs: { filters: ["jobs", "active"], key: ["job"] },
  allocations: { filters: ["jobs", "workers", "active"], key: ["allocation_id"] },
  deployments: { filters: ["jobs", "workers", "active"], key: ["allocation_id"] },
  hooks: { filters: ["jobs"], key: ["job", "hook", "executed_on", "demand_job", "demand_hook"] },
  ports: { filters: ["jobs"], key: ["job", "name"] },
  kv: { filters: ["jobs", "active", "deleted"], key: ["namespace", "key"] },
  certs: { filters: ["jobs", "workers"], key: ["scope", "job", "worker", "cert"] },
};
const LABELS = { active: "Only active", deleted: "Deleted keys too" };
const FACETS = new Set([
  "job",
  "worker_ip",
  "worker",
  "rollout",
  "executed_on",
  "namespace",
  "status",
  "zone",
]);
const STATES = new Set(["rollout", "gate", "status"]);
const NUMBERS = /_mhz$|_mb$|^port$|^version$|^position$|^deployment_seq$|^days_left$/;

/** The catalog that the last build made, resource by resource; filters of the server above, a filter over all cells below. */
export function catalogView(main, { bucketId, rest: [wanted] }) {
  const name = Object.hasOwn(RESOURCES, wanted ?? "") ? wanted : "workers";
  const { filters, key } = RESOURCES[name];
  const names = Object.keys(RESOURCES);
  const form = filterForm(filters, () => rows.refresh());
  let shown = { columns: "", table: null };
  const rows = part("", read, draw);
  const bar = tabBar(
    "Catalog",
    bucketId,
    "catalog",
    names.map((one) => [one, one === "kv" ? "KV" : words(one)]),
    name,
  );

  async function read() {
    const path = bucketPath(bucketId, `/cat/${name}?${form.query()}`);
    const { columns } = await call("GET", `${path}&limit=1`);
    return { columns, items: await all(path, 20_000) };
  }

  function draw({ columns, items }) {
    if (shown.columns !== columns.join())
      shown = { columns: columns.join(), table: tableOf(name, columns, key) };
    shown.table.show(items);
    return shown.table.element;
  }
  const view = viewOfParts(main, "Catalog", [rows], [bar, form.element]);
  return { ...view, title: `${words(name)} · Catalog` };
}

function tableOf(name, columns, key) {
  return dataTable({
    caption: `Catalog: ${name}`,
    rowKey: (row) => JSON.stringify(key.map((one) => row[one])),
    empty: nothing("There is nothing of the kind. The catalog is made by a build."),
    columns: columns.map((one) => ({
      key: one,
      label: words(one),
      facet: FACETS.has(one),
      number: NUMBERS.test(one),
      cell: (row) => cellOf(one, row[one]),
    })),
  });
}

function cellOf(column, value) {
  if (value === null || value === "") return "";
  if (STATES.has(column)) return status(value);
  if (/hash$|_id$/.test(column)) return short(value);
  if (column === "not_after" || column === "created_date") return ago(value);
  return typeof value === "boolean" ? (value ? "yes" : "no") : value;
}

function filterForm(filters, changed) {
  const { query } = address();
  const controls = filters.map((name) => {
    const given = query.get(name) ?? "";
    if (LABELS[name]) return [name, tickBox(LABELS[name], { checked: given === "true", onchange: apply })];
    return [
      name,
      Object.assign(el("input", { value: given, autocomplete: "off", spellcheck: "false" }), {
        isText: true,
      }),
    ];
  });
  const given = (control) => (control.isText ? control.value.trim() : control.control.checked ? "true" : "");
  const values = () => Object.fromEntries(controls.map(([name, control]) => [name, given(control)]));
  const shown = controls.map(([name, control]) =>
    control.isText ? field(`${words(name)}, with commas between them`, control) : control,
  );
  const element = el(
    "form",
    { class: "filters" },
    ...shown,
    el("button", { type: "submit" }, "Apply"),
    button("Clear", clear),
  );
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });

  function apply() {
    keepQuery(values());
    changed();
  }

  function clear() {
    for (const [, control] of controls) {
      if (control.isText) control.value = "";
      else control.control.checked = false;
    }
    apply();
  }
  const asQuery = () =>
    new URLSearchParams(Object.entries(values()).filter(([, value]) => value !== "")).toString();
  return { element, query: asQuery };
}
