import { keepQuery, listOf, queryOf, unless } from "../base/api.js";
import { el } from "../base/dom.js";
import { ago, words } from "../base/format.js";
import { fieldsOf, tickBox } from "../parts/form.js";
import { orderButton } from "../parts/order.js";
import { head, region, tabs } from "../parts/region.js";
import { state, tag } from "../parts/state.js";
import { dataTable } from "../parts/table.js";

/** More rows than this are not read: the table says that it is cut. */
const MOST = 20_000;
const RESOURCES = [
  ["workers", "Workers"],
  ["jobs", "Jobs"],
  ["allocations", "Allocations"],
  ["deployments", "Deployments"],
  ["hooks", "Hooks"],
  ["ports", "Ports"],
  ["kv", "Keys and values"],
  ["certs", "Certificates"],
];
const STATES = { allocations: "state", deployments: "rollout", certs: "status" };
const TITLES = { kv: "Keys and values", certs: "Certificates" };
const NONE = {
  kv: "There is no key yet. A build, hooks and ops kv set-secret write them.",
  certs: "No job asks for a certificate in its manifest.",
};

/** The catalog of the last build, for reading: workers, jobs, …, keys and certificates (control-plane.md, UI). */
export function catalogView(page) {
  const name = RESOURCES.some(([one]) => one === page.rest[0]) ? page.rest[0] : "workers";
  const table = dataTable({
    caption: TITLES[name] ?? words(name),
    stateColumn: STATES[name],
    cells: name === "kv" ? { key: ({ key, secret }) => [key, secret && tag("secret")] } : name === "certs" ? certCells : {},
    none: NONE[name] ?? "The catalog has none. Push a source; a push builds it.",
    tools: switchesOf(page, name, () => list.refresh()),
  });
  const read = () => {
    const on = Object.fromEntries(["active", "deleted"].map((key) => [key, page.query.get(key) ?? ""]));
    return unless(listOf(page.path(`/cat/${name}?${queryOf(on)}`), MOST), []);
  };
  const list = region(read, (rows) => table.with(rows));
  const isOwn = name in TITLES;
  const parts = [
    head({
      title: TITLES[name] ?? "Catalog",
      line: "What the last build made; for reading.",
      controls: name === "kv" && [setSecret(page), removeSecret(page)],
    }),
    !isOwn && tabs(page, "catalog", RESOURCES, name),
    list.element,
  ];
  return { title: TITLES[name] ?? "Catalog", element: el("div", parts), refresh: list.refresh };
}

const certCells = { not_after: ({ not_after: at }) => ago(at), status: ({ status }) => state(status) };

function switchesOf(page, name, changed) {
  const switchOf = (key, label) => {
    const onchange = ({ target }) => {
      page.query.set(key, target.checked ? "true" : "");
      keepQuery({ [key]: target.checked ? "true" : "" });
      changed();
    };
    return tickBox(label, { checked: page.query.get(key) === "true", onchange });
  };
  return [
    !["hooks", "ports", "certs"].includes(name) && switchOf("active", "Only active"),
    name === "kv" && switchOf("deleted", "Deleted keys too"),
  ];
}

const OF_SECRET = [
  { name: "job", label: "Job", required: true, hint: "The job whose templates and hooks may read the secret" },
  { name: "key", label: "Key", required: true },
];

function secretPath({ job = "", key = "" }) {
  return `/secrets/jobs/${encodeURIComponent(job)}/${encodeURIComponent(key)}`;
}

/** Stores a secret of a job: written, never read back. */
function setSecret(page) {
  const order = () => {
    const { labels, values } = fieldsOf([
      ...OF_SECRET,
      { name: "value", label: "Value", rows: 3, required: true, hint: "Stored sealed, and never shown again" },
      { name: "ttl", label: "Time to live in seconds", type: "number", min: 1, hint: "Empty: the secret stays" },
    ]);
    const body = () => ({ value: values().value, ttl: values().ttl });
    const says = ["Deploys that come later use the new value."];
    return {
      method: "PUT",
      path: () => secretPath(values()),
      body,
      example: { value: "…" },
      says,
      fields: labels,
      action: "Store the secret",
    };
  };
  return orderButton(page, "Set a secret …", order, { free: true });
}

/** Removes a secret of a job. */
function removeSecret(page) {
  const order = () => {
    const { labels, values } = fieldsOf(OF_SECRET);
    const says = ["Templates that read the secret fail in the next deploy."];
    return {
      method: "DELETE",
      path: () => secretPath(values()),
      says,
      fields: labels,
      danger: true,
      action: "Remove the secret",
    };
  };
  return orderButton(page, "Remove a secret …", order, { free: true });
}
