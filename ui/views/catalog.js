import { keepQuery, queryOf, unless } from "../base/api.js";
import { words } from "../base/text.js";
import { tickBox } from "../parts/form.js";
import { orderButton } from "../parts/order.js";
import { head, tabs, viewOf } from "../parts/region.js";
import { listing } from "../parts/table.js";

/** More rows than this are not read: the table says that it is cut. */
const MOST_ENTRIES = 20_000;
const CATALOG_LISTS = ["workers", "jobs", "allocations", "deployments", "hooks", "ports", "kv", "certs"];
const STATE_COLUMNS = { allocations: "state", deployments: "rollout", certs: "status" };
const TITLES = { kv: "Keys and values", certs: "Certificates" };
const NONE = {
  kv: "There is no key yet. A build, hooks and ops kv set-secret write them.",
  certs: "No job asks for a certificate in its manifest.",
};

/** The catalog of the last build, for reading: workers, jobs, …, keys and certificates (control-plane.md, UI). */
export function catalogView(page) {
  const name = CATALOG_LISTS.includes(page.rest[0]) ? page.rest[0] : "workers";
  const title = TITLES[name] ?? "Catalog";
  const read = () => {
    const on = queryOf({ active: page.query.get("active"), deleted: page.query.get("deleted") });
    return unless(page.list(`/cat/${name}?${on}`, MOST_ENTRIES), []);
  };
  const list = listing(read, {
    caption: catalogTitle(name),
    stateColumn: STATE_COLUMNS[name],
    none: NONE[name] ?? "The catalog has none. Push a source; a push builds it.",
    tools: switchesOf(page, name, () => list.refresh()),
  });
  const controls = name === "kv" && [secretButton(page, "Set a secret …", SET), secretButton(page, "Remove a secret …", REMOVE)];
  const top = head({ title, line: "What the last build made.", controls });
  const labels = Object.fromEntries(CATALOG_LISTS.map((one) => [one, catalogTitle(one)]));
  const choices = tabs(labels, name, (one) => page.link("catalog", [one]));
  return viewOf(title, [top, !TITLES[name] && choices], list);
}

function catalogTitle(name) {
  return TITLES[name] ?? words(name);
}

function switchesOf(page, name, changed) {
  const switchOf = (key, label) => {
    const onchange = ({ target }) => {
      page.query.set(key, target.checked ? "true" : "");
      keepQuery({ [key]: page.query.get(key) });
      changed();
    };
    return tickBox(label, { checked: page.query.get(key) === "true", onchange });
  };
  return [
    !["hooks", "ports", "certs"].includes(name) && switchOf("active", "Only active"),
    name === "kv" && switchOf("deleted", "Deleted keys too"),
  ];
}

const SECRET = [
  { name: "job", label: "Job", required: true, hint: "The job whose templates and hooks may read the secret" },
  { name: "key", label: "Key", required: true },
];
/** A secret is written, and never read back. */
const SET = {
  method: "PUT",
  body: ({ value, ttl }) => ({ value, ttl }),
  example: { value: "…" },
  says: ["Deploys that come later use the new value."],
  asks: [
    ...SECRET,
    { name: "value", label: "Value", rows: 3, required: true, hint: "Stored sealed, and never shown again" },
    { name: "ttl", label: "Time to live in seconds", type: "number", min: 1, hint: "Empty: the secret stays" },
  ],
  action: "Store the secret",
};
const REMOVE = {
  method: "DELETE",
  says: ["Templates that read the secret fail in the next deploy."],
  asks: SECRET,
  danger: true,
  action: "Remove the secret",
};

function secretButton(page, label, order) {
  const path = ({ job = "", key = "" }) => `/secrets/jobs/${encodeURIComponent(job)}/${encodeURIComponent(key)}`;
  return orderButton(page, label, { ...order, path }, { free: true });
}
