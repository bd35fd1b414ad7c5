import { address, keepQuery, link } from "./address.js";
import { bucketPath, call } from "./api.js";
import { button, drawList, el } from "./dom.js";
import { choice } from "./fields.js";
import { ago, duration, status, words } from "./format.js";
import { nothing, part, viewOfParts } from "./part.js";

const PAGE = 50;
const STATUSES = ["running", "succeeded", "failed", "cancelled"];
/** What can run in a bucket (decisions: Runs). */
const KINDS = [
  ...["push", "rollback", "build", "deploy", "drift", "health_check", "gc", "run_command", "hooks"],
  ...["worker_trust", "worker_facts", "worker_uptime", "worker_sysstat"],
  ...["job_start", "job_stop", "job_restart", "job_reload", "job_status", "job_run"],
  ...["snapshot_create", "snapshot_restore"],
];

/** The history of a bucket, newest first, with filters by kind and status that the server applies. */
export function runsView(main, { bucketId }) {
  const { query } = address();
  const kind = choice(options("all kinds", KINDS), query.get("kind") ?? "", narrowed);
  const state = choice(options("all states", STATUSES), query.get("status") ?? "", narrowed);
  const list = el("div", {});
  let most = PAGE;
  const filters = el(
    "div",
    { class: "filters" },
    el("label", { class: "facet" }, "Kind ", kind),
    el("label", { class: "facet" }, "Status ", state),
  );
  const runs = part("", read, draw);
  const view = viewOfParts(main, "Runs", [runs], [filters]);
  return view;

  function narrowed() {
    keepQuery({ kind: kind.value, status: state.value });
    most = PAGE;
    runs.refresh();
  }

  function read() {
    const wanted = new URLSearchParams({ limit: most });
    if (kind.value !== "") wanted.set("kind", kind.value);
    if (state.value !== "") wanted.set("status", state.value);
    return call("GET", bucketPath(bucketId, `/runs?${wanted}`));
  }

  function draw({ items, next_cursor }) {
    const isFiltered = kind.value !== "" || state.value !== "";
    if (items.length === 0)
      return nothing(isFiltered ? "No run is of this kind and status." : "Nothing has run here yet.");
    list.replaceChildren(runRows(bucketId, items, list.firstElementChild ?? undefined));
    const older = button("Older runs", () => {
      most = Math.min(most + PAGE, 500);
      runs.refresh();
    });
    return [list, next_cursor === null || most >= 500 ? null : older];
  }
}

function options(everything, names) {
  return [["", everything], ...names.map((name) => [name, words(name)])];
}

/** A list of runs; `before` is the element of an earlier answer, whose rows are kept where they are the same. */
export function runRows(
  bucketId,
  runs,
  before = el("ul", { class: "runs", "aria-label": "Runs, newest first" }),
) {
  drawList(
    before,
    runs.map(rowOf),
    ({ id }) => id,
    (row) => runRow(bucketId, row),
  );
  return before;
}

/** What the list shows of a run: a row is drawn again only when this changes. */
function rowOf({ id, kind, params, status: state, origin, created_at, duration_ms, error, audit }) {
  const took = state === "running" ? "" : duration(duration_ms);
  const about = params.job ?? params.hook ?? params.command ?? params.jobs?.join(", ") ?? "";
  const by = origin === "cli" ? "command line" : (audit[0]?.actor.via ?? "");
  return { id, kind, about: params.dry_run ? `dry run ${about}` : about, state, by, created_at, took, error };
}

function runRow(bucketId, { id, kind, about, state, by, created_at, took, error }) {
  return el(
    "li",
    {},
    status(state),
    el("a", { href: link(bucketId, "runs", [id]), "data-run": id }, words(kind)),
    el("span", { class: "about" }, about),
    el("span", { class: "hint" }, by),
    el("span", {}, ago(created_at)),
    el("span", { class: "duration" }, took),
    error === null ? null : el("p", { class: "why" }, error),
  );
}
