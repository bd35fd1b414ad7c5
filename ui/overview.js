import { link } from "./address.js";
import { bucketPath, call, unless } from "./api.js";
import { deleteBucket, renameBucket } from "./buckets.js";
import { button, el, facts } from "./dom.js";
import { ago, count, short, stateOf, status, words } from "./format.js";
import { lastRunPart } from "./last-run.js";
import { nothing, part, viewOfParts } from "./part.js";
import { progressOf } from "./progress.js";
import { runRows } from "./runs.js";
import { startButton } from "./starts.js";

const RUNS = 8;

/** One bucket at a glance: the state of each job on each worker, what it waits for, drift, versions and the last runs. */
export function overviewView(main, { bucketId, bucket, refresh }) {
  const path = (rest) => bucketPath(bucketId, rest);
  const state = part(
    "Jobs on workers",
    () => unless(call("GET", path("/cat/deployments")), { items: [] }),
    ({ items }) =>
      items.length === 0
        ? emptyGrid(bucketId)
        : grid(
            bucketId,
            items.filter(({ removed, rollout }) => !removed || rollout !== "removed"),
          ),
  );
  const waits = part("Now", () => nowOf(bucketId, bucket()), drawNow(bucketId));
  const check = startButton(bucketId, "Check for drift", () => ({ path: "/drift" }));
  const unchecked = "Not checked yet: whether files on the workers are still those that were deployed.";
  const drift = lastRunPart(bucketId, "Drift", "drift", unchecked, { tools: [check] });
  const info = part("Catalog", () => unless(call("GET", path("/info")), null), drawInfo);
  const runs = part(
    "Last runs",
    () => call("GET", path(`/runs?limit=${RUNS}`)),
    ({ items }) => [
      items.length === 0 ? nothing("Nothing has run here yet.") : runRows(bucketId, items),
      el("p", {}, el("a", { href: link(bucketId, "runs") }, "All runs")),
    ],
  );
  const controls = el(
    "div",
    { class: "controls" },
    startButton(bucketId, "Build", () => ({ path: "/build" })),
    startButton(bucketId, "Deploy", () => deployAll(bucket()), { primary: true }),
    button("Rename", () => bucket() && renameBucket(bucket()).then(refresh)),
    button("Delete …", () => bucket() && deleteBucket(bucket()), { class: "danger" }),
  );
  const columns = el("div", { class: "columns" }, ...[waits, drift, info].map(({ element }) => element));
  const view = viewOfParts(main, "Overview", [state, runs], [controls]);
  state.element.after(columns);
  return {
    title: view.title,
    refresh: () => Promise.all([state, waits, drift, info, runs].map((one) => one.refresh())),
  };
}

function deployAll(bucket) {
  const name = bucket?.name ?? "";
  const says = [
    `Brings every job of ${name} to the state of its catalog, in health-gated waves: files are written and services are started, reloaded or restarted on its workers.`,
    "A dry run first shows what would change: see Deployments.",
  ];
  return { path: "/deploy", ask: { title: `Deploy ${name}`, says, action: "Deploy" } };
}

function emptyGrid(bucketId) {
  const command = el("code", {}, `ops push ${location.origin} --bucket ${bucketId}`);
  return nothing("The catalog is empty. Send a workspace to this bucket: ", command);
}

function grid(bucketId, rows) {
  const workers = [...new Set(rows.map(({ worker_ip }) => worker_ip))];
  const jobs = [...Map.groupBy(rows, ({ job }) => job)];
  const heads = workers.map((worker) => el("th", { scope: "col" }, worker));
  const table = el(
    "table",
    { class: workers.length > 12 ? "grid dense" : "grid" },
    el("caption", { class: "unseen" }, "State of each job on each worker"),
    el(
      "thead",
      {},
      el("tr", {}, el("th", { scope: "col" }, "Job"), el("th", { scope: "col" }, "Version"), ...heads),
    ),
    el("tbody", {}, ...jobs.map(([job, own]) => gridRow(bucketId, job, own, workers))),
  );
  const label = { class: "scroll", tabindex: 0, role: "group", "aria-label": "Jobs on workers" };
  return [tally(rows), el("div", label, table)];
}

function tally(rows) {
  const states = [...Map.groupBy(rows, stateOf)];
  return el(
    "p",
    { class: "tally" },
    ...states.flatMap(([state, own]) => [el("b", {}, own.length), " ", status(state), " "]),
  );
}

function gridRow(bucketId, job, own, workers) {
  const at = new Map(own.map((row) => [row.worker_ip, row]));
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, el("a", { href: link(bucketId, "jobs", [job]) }, job)),
    el("td", {}, own[0].new_version),
    ...workers.map((worker) => {
      const row = at.get(worker);
      if (!row) return el("td", {}, el("span", { class: "unseen" }, "not here"));
      const title = `${row.current_version} → ${row.new_version}`;
      return el(
        "td",
        { title: row.current_version === row.new_version ? null : title },
        status(stateOf(row)),
      );
    }),
  );
}

async function nowOf(bucketId, bucket) {
  if (!bucket?.active_run) return null;
  const { id, kind, progress, created_at } = await call(
    "GET",
    bucketPath(bucketId, `/runs/${bucket.active_run}`),
  );
  return { id, kind, progress, created_at };
}

function drawNow(bucketId) {
  return (run) => {
    if (run === null) return nothing("Nothing runs here now, and nothing is waited for.");
    return [
      el(
        "p",
        {},
        status("running"),
        " ",
        el("a", { href: link(bucketId, "runs", [run.id]) }, words(run.kind)),
        ", ",
        ago(run.created_at),
      ),
      progressOf(run.progress),
    ];
  };
}

function drawInfo(info) {
  if (info === null) return nothing("Not initialised yet: see Source, Schema.");
  return facts([
    ["Built", info.built_at ? ago(info.built_at) : "never"],
    [
      "Holds",
      `${count(info.jobs, "job")}, ${count(info.workers, "worker")}, ${count(info.allocations, "allocation")}`,
    ],
    ["Update sequence", String(info.update_seq)],
    ["Schema", String(info.schema_version)],
    ["Id", short(info.bucket_id)],
  ]);
}
