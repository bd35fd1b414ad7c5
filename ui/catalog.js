import { address, keepQuery } from "./address.js";
import { all, bucketPath, call } from "./api.js";
import { el } from "./dom.js";
import { tickBox } from "./fields.js";
import { ago, short, status, words } from "./format.js";
import { nothing, part, viewOfParts } from "./part.js";
import { dataTable } from "./table.js";
import { tabBar } from "./tabs.js";

const MOST = 20_000;
/** What rows of each resource of the catalog are told apart by. */
const KEYS = {
  workers: ["worker_ip"],
  jobs: ["job"],
  allocations: ["allocation_id"],
  deployments: ["allocation_id"],
  hooks: ["job", "hook", "executed_on", "demand_job", "demand_hook"],
  ports: ["job", "name"],
  kv: ["namespace", "key"],
  certs: ["scope", "job", "worker", "cert"],
};
const NAMES = Object.keys(KEYS);
/** What the server leaves out or adds when it is asked to. */
const SWITCHES = { active: "Only active", deleted: "Deleted keys too" };
const HAS_ACTIVE = ["workers", "jobs", "allocations", "deployments", "kv"];
const FACETS = ["job", "worker_ip", "worker", "rollout", "executed_on", "namespace", "status", "zone"];
const STATES = ["rollout", "gate", "status"];
const NUMBERS = /_mhz$|_mb$|^port$|^version$|^position$|^deployment_seq$|^days_left$/;

/** The catalog that the last build made, resource by resource, with filters over cells, by job, worker and state. */
export function catalogView(main, { bucketId, rest: [wanted] }) {
  const name = NAMES.includes(wanted) ? wanted : "workers";
  const switches = [
    ...(HAS_ACTIVE.includes(name) ? ["active"] : []),
    ...(name === "kv" ? ["deleted"] : []),
  ].map(switchOf);
  const rows = part("", read, draw);
  const tabs = NAMES.map((one) => [one, one === "kv" ? "KV" : words(one)]);
  const bar = tabBar("Catalog", bucketId, "catalog", tabs, name);
  let shown = { columns: "", table: null };

  function switchOf(one) {
    const box = tickBox(SWITCHES[one], { checked: address().query.get(one) === "true", onchange: changed });
    return [one, box];

    function changed() {
      keepQuery({ [one]: box.control.checked ? "true" : "" });
      rows.refresh();
    }
  }

  async function read() {
    const on = switches.filter(([, box]) => box.control.checked).map(([one]) => [one, "true"]);
    const path = bucketPath(bucketId, `/cat/${name}?${new URLSearchParams(on)}`);
    const [{ columns }, items] = await Promise.all([call("GET", `${path}&limit=1`), all(path, MOST)]);
    return { columns, items };
  }

  function draw({ columns, items }) {
    if (shown.columns !== columns.join()) shown = { columns: columns.join(), table: tableOf(name, columns) };
    shown.table.show(items);
    return shown.table.element;
  }
  const filters = el("div", { class: "filters" }, ...switches.map(([, box]) => box));
  return { ...viewOfParts(main, "Catalog", [rows], [bar, filters]), title: `${words(name)} · Catalog` };
}

function tableOf(name, columns) {
  return dataTable({
    caption: `Catalog: ${name}`,
    rowKey: (row) => JSON.stringify(KEYS[name].map((key) => row[key])),
    empty: nothing("There is nothing of the kind. The catalog is made by a build."),
    columns: columns.map((key) => ({
      key,
      label: words(key),
      facet: FACETS.includes(key),
      number: NUMBERS.test(key),
      cell: (row) => cellOf(key, row[key]),
    })),
  });
}

function cellOf(column, value) {
  if (value === null || value === "") return "";
  if (STATES.includes(column)) return status(value);
  if (/hash$|_id$/.test(column)) return short(value);
  if (column === "not_after" || column === "created_date") return ago(value);
  return typeof value === "boolean" ? (value ? "yes" : "no") : value;
}
