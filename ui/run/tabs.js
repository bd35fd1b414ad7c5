// The other tabs of a run's page: workers, what was asked, what differs from another run, and who did what.
import { get } from "../base/api.js";
import { button, el, scroller } from "../base/dom.js";
import { count, duration, number, said } from "../base/text.js";
import { choice } from "../parts/form.js";
import { letterOf } from "../parts/map/model.js";
import { jobMap } from "../parts/map.js";
import { orderButton } from "../parts/order.js";
import { fold } from "../parts/region.js";
import { state } from "../parts/state.js";
import { dataOf, dataTable, shown } from "../parts/table.js";
import { redeployOrder } from "./orders.js";
import { aboutOf, byOf, outcomesOf } from "./words.js";

const COMPARED_WITH = 20;
const COLUMNS = ["worker", "job", "outcome", "action", "batch", "duration_ms", "exit_code", "why"];

/** Each worker, or each job on it, with its state; of a deploy the map first. @param {import("../views/run.js").RunPage} view */
export function workersTab(view) {
  const rows = outcomesOf(view.run).filter(({ worker }) => worker);
  if (view.run.kind !== "deploy" || view.run.params.dry_run) return rowsOf(view, rows);
  const summary = [el("b", "As a table"), el("span.meta", count(rows.length, "row"))];
  const table = fold(view, { key: "rows", summary }, () => rowsOf(view, rows));
  return [mapOf(view), el("section.panel", { key: "rows" }, table)];
}

/** The map, as the run moves it or as it has ended. */
function mapOf(view) {
  const { page, run } = view;
  const isActive = run.status === "running";
  if (!view.map) {
    const retry = (job) => orderButton(page, "Retry …", () => redeployOrder([job], view.map.all), { style: "small" });
    view.map = { all: jobMap(page, { sinceOf: () => "", retry }), known: null, isFinal: false };
    readMap(view);
  }
  const { all, known, isFinal } = view.map;
  if (known && isActive) all.follow(run.progress?.rollouts ?? []);
  if (known && !isActive && !isFinal) {
    all.follow(null);
    all.show(resultIn(known, run));
    view.map.isFinal = true;
  }
  return all.element;
}

async function readMap(view) {
  const found = await get(view.page.path("/map"), { signal: view.page.signal }).catch(() => null);
  if (!found) return;
  view.map.known = found;
  if (view.run.status === "running") view.map.all.show(found);
  view.draw();
}

/** The map with what a deploy came to in place of what is so now; of other jobs there is nothing. */
function resultIn(map, { result }) {
  if (!Array.isArray(result?.jobs)) return map;
  const workers = map.workers.map(({ worker }) => worker);
  const jobs = result.jobs.map(({ job, wave, allocations }) => {
    const letters = new Map(allocations.map(({ worker, outcome }) => [worker, letterOf(outcome)]));
    const { version = "" } = map.jobs.find((one) => one.job === job) ?? {};
    return { job, version, wave, cells: workers.map((worker) => letters.get(worker) ?? " ").join("") };
  });
  return { ...map, jobs };
}

function rowsOf(view, rows) {
  const { page, run } = view;
  const columns = COLUMNS.filter((name) => rows.some((row) => (row[name] ?? "") !== ""));
  const key = `workers ${columns}`;
  view.tables[key] ??= dataTable({
    caption: "workers",
    name: "workers",
    columns,
    stateColumn: "outcome",
    none: "No worker is at work yet.",
    cells: {
      outcome: ({ outcome }) => state(outcome),
      worker: ({ worker, job }) =>
        button(worker, () => page.showRun(run.id, { job, worker }), { class: "plain", title: "Its lines in the log" }),
      job: ({ job }) => job && el("a", { href: page.link("jobs", [job]) }, job),
      duration_ms: ({ duration_ms: ms }) => ms > 0 && duration(ms),
      why: ({ why }) => why && el("code", said(why.split("\n", 1)[0])),
    },
    keyOf: ({ job, worker }) => `${job}@${worker}`,
  });
  return view.tables[key].with(rows);
}

/** What was asked. */
export function definitionTab({ run }) {
  const { id, kind, params, origin, revision, started_at, finished_at } = run;
  const { command, ...others } = params;
  return el(
    "section.panel.pad",
    command && scroller("Command", said(command), "pre.scroll"),
    dataOf({ kind, ...others, revision_id: revision, origin, run: id, started_at, finished_at }),
  );
}

/** Who did what with the run. */
export function auditTab({ run }) {
  const entries = run.audit.map(({ at, action, actor, request_id }) => ({ at, action, ...actor, request_id }));
  return dataOf(entries, "History");
}

/** What differs from another run of its kind. @param {import("../views/run.js").RunPage} view */
export function compareTab(view) {
  const { page, run, compared } = view;
  if (!compared) {
    if (compared === undefined) readOthers(view);
    return el("p.notice", compared === null ? "There is no other run of its kind." : "");
  }
  const { others, other } = compared;
  const options = others.map((one) => [one.id, `${one.created_at} ${one.status} ${aboutOf(one)}`]);
  const choose = async (id) => {
    view.compared = { others, other: await get(page.path(`/runs/${id}`)) };
    view.draw();
  };
  const [before, now] = [told(other), told(run)];
  const names = [...new Set([...Object.keys(before), ...Object.keys(now)])].filter((name) => before[name] !== now[name]);
  view.tables.compare ??= dataTable({
    caption: "differences",
    name: "compare",
    columns: ["what", "that_run", "this_run"],
    cells: { that_run: (row) => shown(row.form, row.that_run), this_run: (row) => shown(row.form, row.this_run) },
    none: "Nothing differs.",
  });
  const rows = names.map((what) => ({ what, that_run: before[what], this_run: now[what], form: what.split(" ")[0] }));
  return [
    el("p", { key: "with" }, choice("With", options, other.id, choose), ` ${number(rows.length)} differences`),
    view.tables.compare.with(rows),
  ];
}

async function readOthers(view) {
  const { page, run } = view;
  view.compared = false;
  const { items } = await get(page.path(`/runs?kind=${run.kind}&limit=${COMPARED_WITH}`));
  const others = items.filter(
    (one) => one.id !== run.id && one.status !== "running" && Boolean(one.params.dry_run) === Boolean(run.params.dry_run),
  );
  const before = others.find(({ created_at: at }) => at < run.created_at) ?? others[0];
  view.compared = before ? { others, other: await get(page.path(`/runs/${before.id}`)) } : null;
  view.draw();
}

function told(run) {
  const { status, duration_ms, error, params } = run;
  const all = { status, by: byOf(run), took: duration(duration_ms), why: error ?? "" };
  for (const [name, value] of Object.entries(params)) all[`parameter ${name}`] = JSON.stringify(value);
  for (const { job, worker, outcome } of outcomesOf(run)) all[`outcome ${[job, worker].filter(Boolean).join("@")}`] = outcome;
  return all;
}
