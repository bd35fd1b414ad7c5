import { unless } from "../base/api.js";
import { a, el, facts } from "../base/dom.js";
import { count, listed, number, plain, said, words } from "../base/text.js";
import { attentionPanel, attentionRows } from "../parts/attention.js";
import { fileParts } from "../parts/files.js";
import { ticking } from "../parts/form.js";
import { reasonsOf } from "../parts/map/reason.js";
import { curlItem, moreMenu, orderButton, orderItem } from "../parts/order.js";
import { head, notThere, region, tabs, viewOf } from "../parts/region.js";
import { byTrouble, mark } from "../parts/state.js";
import { dataTable } from "../parts/table.js";
import { troublesOf } from "../parts/trouble.js";
import { readAllocations } from "../run/allocations.js";
import { placesOfRows, redeployOrder } from "../run/orders.js";
import { healthGlance, healthTab } from "../watch/health.js";

const CONTROLS = { start: "Starts", restart: "Restarts", reload: "Reloads the configuration of", stop: "Stops" };
const FORGET = "The next deploy starts it as if it was new.";
const HEALTH = { name: "health_check", label: "Check its health after each batch", type: "checkbox", checked: true };
const TARGET = { name: "target", label: "Target of its Makefile", required: true };
/** What else the catalog has of a job, by its columns. */
const LISTS = {
  ports: ["name", "port"],
  hooks: ["hook", "executed_on", "demand_job", "demand_hook"],
  certs: ["cert", "worker", "common_name", "not_after", "status"],
};
const NAMED = 8;

/** What is counted of a job, the worst first. */
const COUNTS = ["failed", "unreachable", "waiting", "disabled"];

/** The state of a job by the counts of its allocations: the worst of them. */
function stateOfJob(row) {
  const word = COUNTS.find((name) => row[name] > 0);
  if (word && word !== "disabled") return word;
  if (row.promoted > 0) return "ok";
  return word ?? "not_placed";
}

/** The trouble of a job in words, each with its mark. */
function troubleOfJob(row) {
  const found = COUNTS.filter((name) => row[name] > 0);
  return found.map((name) => el("span.state.told", mark(name), `${number(row[name])} ${name}`));
}

/** How many allocations are up to date, and how it is with the others. */
export function countsInWords(row) {
  return [doneOfJob(row), " up to date ", troubleOfJob(row)];
}

/** `38 of 39`: how many allocations are up to date. */
function doneOfJob({ promoted, allocations, disabled }) {
  const due = allocations - disabled;
  return due > 0 ? `${number(promoted)} of ${number(due)}` : "none";
}

/** The jobs of the catalog with their states, and how much of each is `due` for a deploy. */
export async function readJobs(page) {
  const jobs = await unless(page.list("/cat/jobs?limit=500"), []);
  const unwell = new Map(troublesOf(page.bucket()?.summary).items.map((one) => [one.aspect && one.job, one.action]));
  const stateIn = (one) => [unwell.get(one.job), stateOfJob(one)].filter(Boolean).sort(byTrouble)[0];
  const rows = jobs.map((one) => ({ ...one, state: stateIn(one), due: one.update + one.new }));
  return Object.assign(rows, { cut: jobs.cut });
}

/** The jobs of the catalog: those with trouble first, with the counts that the server has of each. */
export function jobsView(page) {
  const table = dataTable({
    caption: "Jobs",
    columns: ["job", "state", "promoted", "counts", "deployment_seq", "version", "cpu_mhz", "memory_mb", "selectors"],
    labels: { promoted: "Up to date", counts: "Others" },
    cells: { promoted: doneOfJob, counts: troubleOfJob, selectors: ({ selectors }) => spaced(selectors) },
    keyOf: ({ job }) => job,
    none: "No job is in the catalog. Add one to workspace/jobs, then push.",
  });
  const draw = (rows) => [headOfJobs(page, rows), table.with(rows)];
  const list = region(() => readJobs(page), draw, { name: "div" });
  return viewOf("Jobs", list);
}

function headOfJobs(page, rows) {
  const total = page.bucket()?.summary?.jobs ?? rows.length;
  const of = (word) => rows.filter(({ state }) => state === word).length;
  const told = (many, text) => many > 0 && `${number(many)} ${text}`;
  const title = of("failed") > 0 ? `${number(of("failed"))} of ${count(total, "job")} failed` : count(total, "job");
  const line = [
    told(of("unhealthy"), "unhealthy"),
    told(of("unreachable"), "with unreachable workers"),
    told(of("waiting"), "wait for a deploy"),
    told(of("not_placed"), "on no worker"),
  ];
  const check = { path: "/health_check" };
  const controls = [orderButton(page, "Health check", check), moreMenu(() => [curlItem(page, check)])];
  const sign = of("failed") > 0 && mark("failed", { large: true });
  return head({ title, mark: sign, line: line.filter(Boolean).join(" · "), controls });
}

function spaced(names) {
  return plain(names?.replaceAll(",", ", "));
}

/** One job: where it runs and how that went, its files as they were built, and what its manifest says. */
export function jobView(page) {
  const [job, tab = "", ...rest] = page.rest;
  const look = { job, chosen: new Set(), rows: [], counts: null };
  const drawn = {
    files: () => filesOf(page, job, rest[0]),
    definition: () => definitionOf(page, job),
    health: () => healthTab(page, { job }),
  };
  const table = allocationsTable(page, look, () => top.draw());
  const reasonOf = reasonsOf(page, () => top.draw());
  const read = async () => {
    const about = unless(page.list(`/cat/jobs?jobs=${encodeURIComponent(job)}`), []);
    const [[counts], rows] = await Promise.all([about, readAllocations(page, { jobs: job })]);
    return { counts, rows, items: troublesOf(page.bucket()?.summary).items.filter((one) => one.job === job) };
  };
  const top = region(read, draw, { name: "div" });

  function draw({ counts, rows, items }) {
    Object.assign(look, { counts, rows });
    table.show(rows);
    if (!counts) return notThere(job, `No job ${plain(job)} is in the catalog.`, a(page.link("jobs"), "All jobs"));
    const places = placesOfRows(rows);
    const retryOrder = () => () => redeployOrder([job], places);
    const options = { isOpen: true, onDismiss: () => top.draw(), retryOrder, reasonOf, places };
    const attention = attentionRows(page.bucketId, { items, cut: 0 });
    return [topOfJob(page, look, tab, items[0]?.kind), tab === "" && attentionPanel(page, attention, options)];
  }
  const parts = drawn[tab]?.() ?? [healthGlance(page, { job }), table];
  return viewOf(plain(job), top, parts);
}

function topOfJob(page, look, tab, trouble) {
  const { job, counts, chosen, rows } = look;
  const [state] = [trouble, stateOfJob(counts)].filter(Boolean).sort(byTrouble);
  const { version, deployment_seq: wave } = counts;
  const line = [said(version), ` · wave ${number(wave)} · `, countsInWords(counts)];
  const first = ["Allocations", number(counts.allocations)];
  const labels = { "": first, health: "Health", files: "Files", definition: "Definition" };
  return [
    head({ title: said(job), mark: mark(state, { large: true, label: state }), line, controls: jobControls(page, look) }),
    tabs(labels, tab, (name) => page.link("jobs", [job, name])),
    tab === "" &&
      chosen.size > 0 &&
      el("p.meta", { role: "status" }, `Orders are for ${count(chosen.size, "ticked worker")} of ${number(rows.length)}.`),
  ];
}

function jobControls(page, look) {
  const { job } = look;
  const check = { path: "/health_check", body: { jobs: [job] } };
  const again = () => redeployOrder([job], placesOfRows(look.rows));
  const retry = () => orderButton(page, "Retry …", again, { style: "primary", again: true });
  const order = (target) => () => controlOrder(look, target);
  const buttons = ["restart", "reload", "stop"].map((target) => orderButton(page, `${words(target)} …`, order(target)));
  const items = () => [
    orderItem(page, "Start …", order("start")),
    orderItem(page, "Status", () => ({ path: pathOf(job, "status"), body: allocationsIn(look) })),
    orderItem(page, "Run target …", () => targetOrder(look)),
    curlItem(page, order("restart")),
    el("a.item", { href: page.path(pathOf(job, "logs?follow=true")), target: "_blank", role: "menuitem" }, "Logs on the workers"),
    el("hr"),
    orderItem(page, "Stop and forget …", () => controlOrder(look, "stop", { forget: true }), { dangerous: true }),
  ];
  return [look.counts.failed > 0 && retry(), buttons, orderButton(page, "Health check", check), moreMenu(items)];
}

function pathOf(job, target) {
  return `/jobs/${encodeURIComponent(job)}/${target}`;
}

/** Only the ticked workers, where some are ticked. */
function allocationsIn({ chosen }) {
  return chosen.size > 0 ? { allocations: [...chosen] } : {};
}

function meantBy(look) {
  const meant = look.chosen.size > 0 ? [...look.chosen] : look.rows.map(({ worker }) => worker);
  return `${plain(look.job)}: ${count(meant.length, "allocation")} on ${plain(listed(meant, NAMED))}.`;
}

function controlOrder(look, target, extra = /** @type {{ forget?: boolean }} */ ({})) {
  const action = extra.forget ? "Stop and forget" : words(target);
  return {
    path: pathOf(look.job, target),
    body: (typed) => ({ ...allocationsIn(look), ...extra, ...typed }),
    says: [`${CONTROLS[target]} ${meantBy(look)}`, extra.forget && FORGET],
    asks: target === "stop" ? [] : [HEALTH],
    danger: look.job,
    action,
    title: `${action} ${plain(look.job)}?`,
  };
}

function targetOrder(look) {
  const says = [`Runs a target of the Makefile of ${meantBy(look)}`];
  return { ...controlOrder(look, "run"), says, asks: [TARGET, HEALTH], action: "Run target", title: "Run target?" };
}

function allocationsTable(page, look, changed) {
  const { chosen } = look;
  const tick = ({ worker }) => {
    const label = `Orders are for ${plain(worker)}`;
    const about = { "aria-label": label, checked: chosen.has(worker), onchange: ticking(chosen, worker, changed) };
    return el("span.ticked", el("input", { type: "checkbox", ...about }), " ", said(worker));
  };
  return dataTable({
    caption: "Allocations",
    columns: ["worker", "state", "version", "gate", "last_action", "last_outcome", "last_reason", "last_run"],
    cells: {
      worker: tick,
      version: ({ current_version: now, new_version: target }) =>
        el("span.whole", said(now === target ? now : `${now} → ${target}`)),
      last_run: ({ last_run: id, worker }) => id && a(page.link("runs", [id], { worker }), el("code", `…${id.slice(-8)}`)),
    },
    keyOf: ({ worker }) => worker,
    none: "No worker has all of its selectors.",
  });
}

function filesOf(page, job, chosen) {
  return fileParts(page, { base: pathOf(job, "files"), chosen, linkTo: (file) => page.link("jobs", [job, "files", file]) });
}

function definitionOf(page, job) {
  const names = ["jobs", ...Object.keys(LISTS)];
  const read = () => Promise.all(names.map((name) => page.list(`/cat/${name}?jobs=${encodeURIComponent(job)}`)));
  const draw = ([[about], ...lists]) =>
    about && [manifestOf(about), Object.entries(LISTS).map(([name, columns], index) => sectionOf(name, columns, lists[index]))];
  return region(read, draw, { name: "section.panel.pad" });
}

function manifestOf({ version, deployment_seq: wave, after, selectors, ...one }) {
  return [
    el("h2", "Manifest"),
    facts([
      ["Version", said(version)],
      ["Wave", [number(wave), after && ` · after ${spaced(after)}`]],
      ["Selectors", spaced(selectors)],
      ["CPU", one.cpu_mhz > 0 && `${number(one.cpu_mhz)} MHz, by ${one.cpu_source}`],
      ["Memory", one.memory_mb > 0 && `${number(one.memory_mb)} MB, by ${one.memory_source}`],
    ]),
  ];
}

function sectionOf(name, columns, rows) {
  if (rows.length === 0) return null;
  return el("section.stack", { key: name }, el("h2", words(name)), dataTable({ caption: words(name), name, columns }).with(rows));
}
