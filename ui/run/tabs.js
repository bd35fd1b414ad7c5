// The other tabs of a run's page: workers, what was asked, what differs from another run, and who did what.
import { button, el } from "../base/dom.js";
import { count, duration, firstLine, number, said, textBox } from "../base/text.js";
import { choice } from "../parts/form.js";
import { letterOf } from "../parts/map/model.js";
import { fold } from "../parts/region.js";
import { cellText, dataOf, dataTable } from "../parts/table.js";
import { deployedMap } from "./orders.js";
import { aboutOf, byOf, outcomesOf } from "./words.js";

const COLUMNS = ["worker", "job", "outcome", "action", "batch", "duration_ms", "exit_code", "why"];

/** Each worker, or each job on it, with its state; of a deploy the map first. @param {import("../views/run.js").RunPage} view */
export function workersTab(view) {
  const rows = outcomesOf(view.run).filter(({ worker }) => worker);
  if (view.run.kind !== "deploy" || view.run.params.dry_run) return workersTable(view, rows);
  const summary = [el("b", "As a table"), el("span.meta", count(rows.length, "row"))];
  const table = fold(view, { key: "rows", summary }, () => workersTable(view, rows));
  return [mapOf(view), el("section.panel", { key: "rows" }, table)];
}

/** The map, as the run moves it or as it has ended. */
function mapOf(view) {
  const { page, run, read } = view;
  view.map ??= { all: deployedMap(page), shown: "" };
  const { all, shown } = view.map;
  const known = read("/map");
  if (!known) return all.element;
  const isActive = run.status === "running";
  all.follow(isActive && run, true);
  if (shown !== run.status) all.show(isActive ? known : resultIn(known, run));
  view.map.shown = run.status;
  return all.element;
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

function workersTable(view, rows) {
  const { page, run } = view;
  const columns = COLUMNS.filter((name) => rows.some((row) => (row[name] ?? "") !== ""));
  const key = `workers ${columns}`;
  const ofLog = { class: "plain", title: "Its lines in the log" };
  view.tables[key] ??= dataTable({
    caption: "workers",
    name: "workers",
    columns,
    stateColumn: "outcome",
    none: "No worker is at work yet.",
    cells: {
      worker: ({ worker, job }) => button(worker, () => page.showRun(run.id, { job, worker }), ofLog),
      duration_ms: ({ duration_ms: ms }) => ms > 0 && duration(ms),
      why: ({ why }) => why && el("code", said(firstLine(why))),
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
    command && textBox("Command", command),
    dataOf({ kind, ...others, revision_id: revision, origin, run: id, started_at, finished_at }),
  );
}

/** Who did what with the run. */
export function auditTab({ run }) {
  const entries = run.audit.map(({ at, action, actor, request_id }) => ({ at, action, ...actor, request_id }));
  return dataOf(entries, "History");
}

/** What differs from another run of its kind, the one before it at first. @param {import("../views/run.js").RunPage} view */
export function compareTab(view) {
  const { run, read } = view;
  const found = read(`/runs?kind=${run.kind}&limit=20`);
  if (!found) return el("p.notice", found === null && "The other runs could not be read.");
  const isDry = ({ params }) => Boolean(params.dry_run);
  const others = found.items.filter((one) => one.id !== run.id && one.status !== "running" && isDry(one) === isDry(run));
  if (others.length === 0) return el("p.notice", "There is no other run of its kind.");
  const before = others.find(({ created_at: at }) => at < run.created_at) ?? others[0];
  const id = view.comparedWith ?? before.id;
  const other = read(`/runs/${id}`);
  const options = others.map((one) => [one.id, `${one.created_at} ${one.status} ${aboutOf(one)}`]);
  const choose = (chosen) => {
    view.comparedWith = chosen;
    view.draw();
  };
  const [that, now] = [other ? dataOfRun(other) : {}, dataOfRun(run)];
  const names = Object.keys({ ...that, ...now }).filter((name) => that[name] !== now[name]);
  const rows = names.map((what) => ({ what, that_run: that[what], this_run: now[what], form: what.split(" ")[0] }));
  view.tables.compare ??= dataTable({
    caption: "differences",
    name: "compare",
    columns: ["what", "that_run", "this_run"],
    cells: { that_run: (row) => cellText(row.form, row.that_run), this_run: (row) => cellText(row.form, row.this_run) },
    none: "Nothing differs.",
  });
  return [
    el("p", { key: "with" }, choice("With", options, id, choose), other && ` ${number(rows.length)} differences`),
    other && view.tables.compare.with(rows),
  ];
}

function dataOfRun(run) {
  const { status, duration_ms, error, params } = run;
  const all = { status, by: byOf(run), took: duration(duration_ms), why: error ?? "" };
  for (const [name, value] of Object.entries(params)) all[`parameter ${name}`] = JSON.stringify(value);
  for (const { job, worker, outcome } of outcomesOf(run)) all[`outcome ${[job, worker].filter(Boolean).join("@")}`] = outcome;
  return all;
}
