import { all, call, unless } from "./api.js";
import { fieldsOf } from "./controls.js";
import { el } from "./dom.js";
import { ago, count, stateOf, status, words } from "./format.js";
import { dataOf, part, scroller } from "./parts.js";
import { lastRunPart } from "./results.js";
import { runsPart } from "./runs.js";

const RUNS = 8;
const DENSE = 12;

function namesOf({ project, name } = {}, more = []) {
  const how = { required: true, maxlength: 200 };
  return fieldsOf([
    ["project", "Project", "", { ...how, value: project }],
    ["name", "Name", "", { ...how, value: name }],
    ...more,
  ]);
}

/** The view of all projects and their buckets. */
export function bucketsView({ changed, action }) {
  const create = () => {
    const id = ["id", "Id", "A UUID, where this bucket has one elsewhere; empty for a new one"];
    const { labels, values } = namesOf({}, [id]);
    const says = ["Makes its folders and its database on this server. Its source comes with the first push."];
    return { path: "/api/buckets", body: values, says, fields: labels };
  };
  const done = ({ id }) => {
    location.hash = `#/buckets/${id}`;
  };
  const filter = el("input", {
    ...{ type: "search", placeholder: "Filter", "aria-label": "Filter buckets", "data-search": true },
    oninput: () => hideOthers(list.element, filter.value),
  });
  const none = "There is no bucket yet. Create one, then push a workspace to it.";
  const read = async () => {
    const buckets = await all("/api/buckets?limit=500");
    changed(buckets);
    return buckets;
  };
  const draw = (buckets) => {
    queueMicrotask(() => hideOthers(list.element, filter.value));
    const sorted = buckets.sort((a, b) => a.project.localeCompare(b.project) || a.name.localeCompare(b.name));
    return [...Map.groupBy(sorted, ({ project }) => project)].map(([project, own]) =>
      el(
        "section.part.project",
        el("header", el("h2", project), el("span.hint", count(own.length, "bucket"))),
        el("ul.cards", own.map(card)),
      ),
    );
  };
  const list = part("", read, draw, { none });
  const above = el("div.controls", filter, action("Create bucket", create, { style: "primary", done }));
  return { title: "Buckets", above: [above], parts: [list] };
}

function card({ id, name, initialized, last_run: run }) {
  const idle = initialized ? "Nothing has run here yet." : "Not initialised yet.";
  return el(
    "li",
    el("a", { href: `#/buckets/${id}` }, name),
    el("code", id),
    run ? el("p", status(run.status), ` ${words(run.kind)}, `, ago(run.created_at)) : el("p.hint", idle),
  );
}

function hideOthers(list, text) {
  const matches = ({ textContent }) => textContent.toLowerCase().includes(text.toLowerCase());
  for (const section of list.querySelectorAll(".project")) {
    const cards = [...section.querySelectorAll("li")];
    for (const one of cards) one.hidden = !matches(section.querySelector("h2")) && !matches(one);
    section.hidden = cards.every((one) => one.hidden);
  }
}

/** One bucket at a glance: the state of each job on each worker, drift, what the catalog holds and the last runs. */
export function overviewView(page) {
  const { bucketId, path, action, link } = page;
  const push = el("code", `ops push ${location.origin} --bucket ${bucketId}`);
  const placed = async () => {
    const { items } = await unless(call("GET", path("/cat/deployments")), { items: [] });
    return items.filter(({ rollout }) => rollout !== "removed");
  };
  const none = el("span", "The catalog is empty. Send a workspace to this bucket: ", push);
  const state = part("Jobs on workers", placed, (rows) => gridOf(page, rows), { none });
  const unchecked = "Not checked yet: whether files on the workers are still those that were deployed.";
  const drift = lastRunPart(page, "Drift", "drift", unchecked, {
    tools: [action("Check for drift", "/drift")],
  });
  const info = part("Catalog", () => unless(call("GET", path("/info")), null), dataOf, {
    none: "Not initialised yet: see Source, Schema.",
  });
  const newest = async () => (await call("GET", path(`/runs?limit=${RUNS}`))).items;
  const runs = runsPart(page, "Last runs", newest, {
    name: "runs",
    tools: [el("a", { href: link("runs") }, "All runs")],
  });
  return { title: "Overview", above: [controlsOf(page)], parts: [state, [drift, info], runs] };
}

function controlsOf({ action, bucket }) {
  const deploy = {
    ...{ path: "/deploy", danger: true },
    says: [
      "Brings every job to the state of the catalog, in health-gated waves: writes files, and starts, reloads or restarts services on its workers.",
      "A dry run first shows what would change: see Deployments.",
    ],
  };
  const rename = () => {
    const { labels, values } = namesOf(bucket());
    const says = ["Only what people call it changes; its id and everything in it stay."];
    return { method: "PUT", path: "", body: values, says, fields: labels };
  };
  const remove = () => ({
    ...{ method: "DELETE", path: "", danger: true, action: "Delete bucket" },
    says: [
      `Removes ${bucket().id} from this server: source and revisions, catalog, key-value store, secrets, certificates and the history of its runs. This cannot be undone.`,
      "What runs on the workers goes on running; nothing is stopped there.",
    ],
  });
  const leave = () => {
    location.hash = "#/";
  };
  return el(
    "div.controls",
    action("Build", "/build"),
    action("Deploy …", () => deploy, { style: "primary" }),
    action("Rename …", rename, { free: true }),
    action("Delete …", remove, { style: "danger", free: true, done: leave }),
  );
}

function gridOf({ link }, rows) {
  const workers = [...new Set(rows.map(({ worker_ip }) => worker_ip))];
  const states = [...Map.groupBy(rows, stateOf)].flatMap(([state, own]) => [
    el(
      "a",
      { href: link("deployments", ["rollout"], { rollout: own[0].rollout }) },
      el("b", own.length),
      " ",
      status(state),
    ),
    " ",
  ]);
  const lines = [...Map.groupBy(rows, ({ job }) => job)].map(([job, own]) => {
    const cells = workers.map((worker) => cellOf(own.find(({ worker_ip }) => worker_ip === worker)));
    const name = el("a", { href: link("jobs", [job]) }, job);
    return el("tr", el("th", { scope: "row" }, name), el("td", own[0].new_version), cells);
  });
  const heads = ["Job", "Version", ...workers].map((name) => el("th", { scope: "col" }, name));
  const table = el(
    workers.length > DENSE ? "table.grid.dense" : "table.grid",
    el("caption.unseen", "State of each job on each worker"),
    ...[el("thead", el("tr", heads)), el("tbody", lines)],
  );
  return [el("p.tally", states), scroller("Jobs on workers", table)];
}

function cellOf(row) {
  if (!row) return el("td", el("span.unseen", "not here"));
  const { current_version: now, new_version: target } = row;
  return el("td", { title: now === target ? null : `${now} → ${target}` }, status(stateOf(row)));
}
