import { address, keepQuery } from "./address.js";
import { all } from "./api.js";
import { tickBox } from "./controls.js";
import { el } from "./dom.js";
import { words } from "./format.js";
import { listPart } from "./parts.js";

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

/** The catalog that the last build made, resource by resource, with filters over cells, by job, worker and state. */
export function catalogView(page) {
  const name = page.rest[0] in KEYS ? page.rest[0] : "workers";
  const names = Object.keys(KEYS).map((one) => [one, one === "kv" ? "KV" : words(one)]);
  const switches = [
    !["hooks", "ports", "certs"].includes(name) && switchOf("active", "Only active"),
    name === "kv" && switchOf("deleted", "Deleted keys too"),
  ];
  const rows = catalogPart(page, name);
  const above = [page.tabs("catalog", Object.fromEntries(names), name), el("div.filters", switches)];
  return { title: "Catalog", above, parts: [rows] };

  function switchOf(key, label) {
    const checked = address().query.get(key) === "true";
    const onchange = ({ target }) => {
      keepQuery({ [key]: target.checked ? "true" : "" });
      rows.refresh();
    };
    return tickBox(label, { checked, onchange });
  }
}

/** The rows of one resource. */
export function catalogPart({ path }, name) {
  const read = () => {
    const on = [...address().query].filter(([key]) => key === "active" || key === "deleted");
    return all(path(`/cat/${name}?${new URLSearchParams(on)}`), MOST);
  };
  const none = "There is nothing of the kind. The catalog is made by a build: push a workspace.";
  return listPart("", read, { none, caption: `Catalog: ${name}`, keys: KEYS[name] });
}
