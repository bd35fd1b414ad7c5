import { address, all, call, keepQuery, unless } from "./api.js";
import { fieldsOf, picker, TICK, tickBox } from "./controls.js";
import { el, scroller } from "./dom.js";
import { stateOf, status, words } from "./format.js";
import { dataOf, listPart, part, tableOf } from "./parts.js";
import { againButtons } from "./run.js";
import { lastRunPart, runsPart } from "./runs.js";

const RUNS = 8;
const DENSE = 12;
const MOST = 20_000;
const SHOWN_EACH = 1_000;
const OPTIONS = [
  ["build", "Build first", "", TICK],
  ["force", "Force", "Also what is as it should be", TICK],
  ["sync_only", "Only write files", "", TICK],
  ["with_hooks", "With hooks", "In a dry run, with DRY_RUN=1", TICK],
];
const RESOURCES = "workers jobs allocations deployments hooks ports kv certs".split(" ");

/** All buckets. */
export function bucketsView({ changed, action }) {
  const create = () => {
    const { labels, values } = namesOf({}, ["id", "Id", "A UUID; empty for a new one"]);
    const says = ["Its source comes with the first push."];
    return { path: "/api/buckets", body: values, says, fields: labels };
  };
  const open = ({ id }) => {
    location.hash = `#/buckets/${id}`;
  };
  const read = async () => {
    const buckets = changed(await all("/api/buckets?limit=500"));
    return buckets.map(({ id, project, name, initialized, last_run: run }) => {
      const last_run = run?.kind ?? (initialized ? "nothing yet" : "not initialised");
      return { project, bucket: name, state: run?.status, last_run, created_at: run?.created_at, id };
    });
  };
  const list = listPart("", read, {
    caption: "Buckets",
    none: "There is no bucket yet. Create one, then push a workspace.",
    cells: {
      bucket: ({ id, bucket }) => el("a", { href: `#/buckets/${id}` }, bucket),
      last_run: ({ last_run }) => words(last_run),
    },
  });
  const above = [action("Create bucket …", create, { style: "primary", done: open })];
  return { title: "Buckets", above, parts: [list] };
}

function namesOf({ project, name }, ...more) {
  const how = { required: true };
  return fieldsOf([
    ["project", "Project", "", { ...how, value: project }],
    ["name", "Name", "", { ...how, value: name }],
    ...more,
  ]);
}

/** One bucket at a glance. */
export function overviewView(page) {
  const { bucketId, path, action, link } = page;
  const read = async () => {
    const { counts } = await unless(call("GET", path("/summary")), { counts: {} });
    if (counts.allocations > SHOWN_EACH) return { counts, jobs: await all(path("/cat/jobs")) };
    const { items } = await unless(call("GET", path("/cat/deployments")), { items: [] });
    return items.filter(({ rollout }) => rollout !== "removed");
  };
  const push = el("code", `ops push ${location.origin} --bucket ${bucketId}`);
  const none = ["The catalog is empty. Push a workspace: ", push];
  const placed = part("Jobs on workers", read, (found) => (found.jobs ? countsOf(page, found) : gridOf(page, found)), { none });
  const drift = lastRunPart(page, "Drift", "drift", { tools: action("Check for drift", "/drift") });
  const info = part("Catalog", () => unless(call("GET", path("/info")), null), dataOf, {
    none: "Not initialised: see Source, Schema.",
  });
  const newest = async () => (await call("GET", path(`/runs?limit=${RUNS}`))).items;
  const tools = el("a", { href: link("runs") }, "All runs");
  const runs = runsPart(page, "Last runs", newest, { name: "runs", tools });
  return { title: "Overview", above: [controlsOf(page)], parts: [placed, [drift, info], runs] };
}

function controlsOf({ action, bucket }) {
  const rename = () => {
    const { labels, values } = namesOf(bucket());
    const says = ["Only its name changes."];
    return { method: "PUT", path: "", body: values, says, fields: labels };
  };
  const remove = () => ({
    method: "DELETE",
    path: "",
    danger: true,
    action: "Delete bucket",
    says: [
      `Removes ${bucket().id} from this server, with its secrets and history. This cannot be undone.`,
      "Nothing is stopped on the workers.",
    ],
  });
  const done = () => {
    location.hash = "#/";
  };
  return el(
    "div.controls",
    action("Build", "/build"),
    action("Deploy …", deployOrder({}), { style: "primary" }),
    action("Rename …", rename, { free: true }),
    action("Delete …", remove, { style: "danger", free: true, done }),
  );
}

function gridOf({ link }, rows) {
  const workers = [...new Set(rows.map(({ worker_ip }) => worker_ip))];
  const states = [...Map.groupBy(rows, stateOf)].map(([state, [one, ...more]]) => {
    const href = link("deployments", ["rollout"], { rollout: one.rollout });
    return [el("a", { href }, el("b", more.length + 1), " ", status(state)), " "];
  });
  const lines = [...Map.groupBy(rows, ({ job }) => job)].map(([job, own]) => {
    const cells = workers.map((worker) => cellOf(own.find(({ worker_ip }) => worker_ip === worker)));
    const name = el("a", { href: link("jobs", [job]) }, job);
    return el("tr", el("th", { scope: "row" }, name), el("td", own[0].new_version), cells);
  });
  const heads = ["Job", "Version", ...workers].map((name) => el("th", name));
  const caption = el("caption.unseen", "Jobs on workers");
  const kind = workers.length > DENSE ? "table.grid.dense" : "table.grid";
  const table = el(kind, caption, el("thead", el("tr", heads)), el("tbody", lines));
  return [el("p.tally", states), scroller("Jobs on workers", table)];
}

/** Where allocations are too many to be shown each. */
function countsOf({ link }, { counts, jobs }) {
  const { allocations, ...states } = counts;
  const told = Object.entries(states).filter(([, number]) => number > 0);
  const tally = told.map(([state, number]) => [el("b", number), " ", status(state), " "]);
  const rows = jobs.map((row) => {
    const own = told.map(([state]) => [state, row[state]]);
    return { job: row.job, version: row.version, allocations: row.allocations, ...Object.fromEntries(own) };
  });
  const href = link("deployments", ["rollout"]);
  const each = el("p.tally", el("a", { href }, el("b", allocations), " allocations"), " ", tally);
  return [each, tableOf("Jobs on workers", rows)];
}

function cellOf(row) {
  if (!row) return el("td", el("span.unseen", "not here"));
  const { current_version: now, new_version: target } = row;
  return el("td", { title: now === target ? null : `${now} → ${target}` }, status(stateOf(row)));
}

/** Plans, deploys, and the rollout. */
export function deploymentsView(page) {
  const { path, action, rest, tabs } = page;
  const bar = tabs("deployments", ["jobs", "rollout"], rest[0] ?? "jobs");
  const title = "Deployments";
  if (rest[0] === "rollout") return { title, above: [bar], parts: [catalogPart(page, "deployments")] };
  const jobs = picker("Jobs");
  const options = fieldsOf(OPTIONS);
  const body = () => ({ ...options.values(), jobs: jobs.values() });
  const form = el("form.panel");
  const plan = action("Dry run", () => ({ path: "/deploy", body: { ...body(), dry_run: true } }), { form });
  const deploy = action("Deploy …", () => deployOrder(body()), { style: "primary" });
  form.append(jobs.element, el("div.row", options.labels), el("div.controls", plan, deploy));
  const refresh = async () => jobs.offer((await all(path("/cat/jobs"))).map(({ job }) => job));
  const planned = lastRunPart(page, "Last plan", "deploy", {
    wanted: ({ params }) => params.dry_run === true,
    controlsOf: ({ id, status: state }) => state === "succeeded" && planButton(page, id),
  });
  const now = lastRunPart(page, "", "deploy", { wanted: ({ status: state }) => state === "running", none: "" });
  const last = lastRunPart(page, "Last deploy", "deploy", {
    wanted: ({ params, status: state }) => !params.dry_run && state !== "running",
    controlsOf: (run) => el("div.controls", againButtons(page, run)),
  });
  return { title, above: [bar, form], parts: [now, planned, last], readers: [{ refresh }] };
}

function deployOrder({ with_hooks: _, ...body }) {
  const { jobs, build, sync_only, force } = body;
  const says = [
    build && "Builds first.",
    `Brings ${jobs?.join(", ") ?? "all jobs"} to the state of the catalog, in health-gated waves.`,
    force && "Also what is as it should be.",
    sync_only ? "Only writes files." : "Services are started, reloaded or restarted.",
  ];
  return { path: "/deploy", body, says, danger: true };
}

function planButton({ action }, plan) {
  const says = ["Does what this plan shows, or refuses where anything has changed."];
  const order = { path: "/deploy", body: { plan }, says, danger: true };
  return action("Deploy this plan …", order, { style: "primary" });
}

/** The catalog of the last build. */
export function catalogView(page) {
  const name = RESOURCES.includes(page.rest[0]) ? page.rest[0] : "workers";
  const rows = catalogPart(page, name);
  const switchOf = (key, label) => {
    const onchange = ({ target }) => {
      keepQuery({ [key]: target.checked ? "true" : "" });
      rows.refresh();
    };
    return tickBox(label, { checked: page.query.get(key) === "true", onchange });
  };
  const switches = [
    !["hooks", "ports", "certs"].includes(name) && switchOf("active", "Only active"),
    name === "kv" && switchOf("deleted", "Deleted keys too"),
  ];
  const bar = page.tabs("catalog", RESOURCES, name);
  return { title: "Catalog", above: [bar, el("div.filters", switches)], parts: [rows] };
}

function catalogPart({ path }, name) {
  const read = () => {
    const on = [...address().query].filter(([key]) => key === "active" || key === "deleted");
    return all(path(`/cat/${name}?${new URLSearchParams(on)}`), MOST);
  };
  return listPart("", read, { caption: `Catalog: ${name}` });
}
