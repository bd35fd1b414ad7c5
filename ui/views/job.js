import { listOf, unless } from "../base/api.js";
import { a, alertPlace, el, facts, patch, tell } from "../base/dom.js";
import { count, listed, number, plain, said, words } from "../base/text.js";
import { attentionPanel, attentionRows } from "../parts/attention.js";
import { fileParts } from "../parts/files.js";
import { reasonsOf, tellingLine } from "../parts/map/reason.js";
import { curlItem, moreMenu, orderButton, orderItem } from "../parts/order.js";
import { empty, head, region, tabs } from "../parts/region.js";
import { byTrouble, mark } from "../parts/state.js";
import { dataTable, listing } from "../parts/table.js";
import { troublesOf } from "../parts/trouble.js";
import { readAllocations } from "../run/allocations.js";
import { placesOfRows, redeployOrder } from "../run/orders.js";
import { healthGlance, healthTab } from "../watch/health.js";
import { doneOfJob, stateOfJob, troubleOfJob } from "./jobs.js";

const CONTROLS = { start: "Starts", restart: "Restarts", reload: "Reloads the configuration of", stop: "Stops" };
const FORGET = "What is stopped is forgotten: the next deploy starts it as if it was new.";
const HEALTH = { name: "health_check", label: "Check its health after each batch", type: "checkbox", checked: true };
const TARGET = { name: "target", label: "Target of its Makefile", required: true };
/** What else the catalog has of a job, by its columns. */
const LISTS = {
  ports: ["name", "port"],
  hooks: ["hook", "executed_on", "demand_job", "demand_hook"],
  certs: ["cert", "worker", "common_name", "not_after", "status"],
};
const NAMED = 8;

/** One job: where it runs and how that went, its files as they were built, and what its manifest says. */
export function jobView(page) {
  const [job, tab = "", ...rest] = page.rest;
  const look = { job, chosen: new Set(), rows: [], counts: {}, definition: null };
  const [top, problem, needs] = [el("div", el("h1", said(job))), alertPlace(), el("div.needs")];
  const drawn = { files: filesOf, definition: definitionOf, health: () => [healthTab(page, { job })] };
  const parts = drawn[tab]?.(page, look, rest) ?? [healthGlance(page, { job }), allocationsOf(page, look, draw)];

  const reasonOf = reasonsOf(page, draw);

  function draw() {
    const { definition } = look;
    if (!definition) return;
    patch(top, topOfJob(page, look, tab));
    const places = placesOfRows(look.rows);
    const options = {
      isOpen: true,
      onOpen: draw,
      onDismiss: draw,
      retryOrder: () => () => redeployOrder([job], places),
      reasonOf,
      waitingOf: () => places.countsOf().w ?? 0,
    };
    const attention = attentionRows(page.bucketId, { items: troublesOfJob(page, job), cut: 0 });
    patch(needs, tab === "" && attentionPanel(page, attention, options));
  }

  async function refresh() {
    try {
      const about = unless(listOf(page.path(`/cat/jobs?jobs=${encodeURIComponent(job)}`)), []);
      const [[row], rows] = await Promise.all([about, readAllocations(page, { jobs: job })]);
      Object.assign(look, { definition: row, counts: row ?? {}, rows });
      tell(problem, "");
      if (!row)
        patch(top, el("h1", said(job)), empty(`No job ${plain(job)} is in the catalog.`, a(page.link("jobs"), "All jobs")));
    } catch (error) {
      tell(problem, error.message);
    }
    await Promise.all(parts.map((one) => one.refresh()));
    draw();
  }
  return {
    title: plain(job),
    element: el("div", top, problem, needs, el("div.stack", ...parts.map((one) => one.element))),
    refresh,
  };
}

function troublesOfJob(page, job) {
  return troublesOf(page.bucket()?.summary).items.filter((one) => one.job === job);
}

function topOfJob(page, look, tab) {
  const own = troublesOfJob(page, look.job);
  const { job, counts, definition, chosen, rows } = look;
  const [state] = [own[0]?.kind, stateOfJob(counts)].filter(Boolean).sort(byTrouble);
  const { version, deployment_seq: wave } = definition;
  const line = [said(version), ` · wave ${number(wave)} · ${doneOfJob(counts)} up to date `, troubleOfJob(counts)];
  const names = [
    ["", "Allocations", number(counts.allocations)],
    ["health", "Health"],
    ["files", "Files"],
    ["definition", "Definition"],
  ];
  return [
    head({ title: said(job), mark: mark(state, { large: true, label: state }), line, controls: jobControls(page, look) }),
    tabs(names, tab, (name) => page.link("jobs", [job, name])),
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
  return {
    path: pathOf(look.job, "run"),
    body: (typed) => ({ ...allocationsIn(look), ...typed }),
    says: [`Runs a target of the Makefile of ${meantBy(look)}`],
    asks: [TARGET, HEALTH],
    danger: look.job,
    action: "Run target",
  };
}

function allocationsOf(page, look, changed) {
  const tick = (row) => {
    const onchange = ({ target }) => {
      look.chosen[target.checked ? "add" : "delete"](row.worker);
      changed();
    };
    const label = `Orders are for ${plain(row.worker)}`;
    const box = el("input", { type: "checkbox", "aria-label": label, checked: look.chosen.has(row.worker), onchange });
    return el("span.ticked", box, " ", said(row.worker));
  };
  const options = {
    caption: "Allocations",
    stateColumn: "state",
    columns: ["worker", "state", "version", "gate", "last_action", "last_outcome", "last_reason", "last_run"],
    labels: { last_action: "Last action", last_outcome: "Outcome", last_reason: "Reason", last_run: "Run" },
    cells: {
      worker: tick,
      version: ({ current_version: now, new_version: target }) =>
        el("span.whole", said(now === target ? now : `${now} → ${target}`)),
      last_reason: ({ last_reason: reason }) =>
        reason && el("code.reason", { tabindex: 0, title: plain(reason) }, said(tellingLine(reason))),
      last_run: ({ last_run: id, worker }) => id && a(page.link("runs", [id], { worker }), el("code.whole", `…${id.slice(-8)}`)),
    },
    keyOf: ({ worker }) => worker,
    none: "No worker has all of its selectors.",
  };
  return listing(async () => look.rows, options);
}

function filesOf(page, { job }, [chosen]) {
  return fileParts(page, { base: pathOf(job, "files"), chosen, linkTo: (file) => page.link("jobs", [job, "files", file]) });
}

function definitionOf(page, look) {
  const read = async () => {
    const lists = await Promise.all(
      Object.keys(LISTS).map((name) => listOf(page.path(`/cat/${name}?jobs=${encodeURIComponent(look.job)}`))),
    );
    return { ...look.definition, lists };
  };
  const draw = ({ lists, version, deployment_seq: wave, after, selectors, ...one }) => [
    el("h2", "Manifest"),
    facts([
      ["Version", said(version)],
      ["Wave", [number(wave), after && ` · after ${plain(after.replaceAll(",", ", "))}`]],
      ["Selectors", said(selectors?.replaceAll(",", ", "))],
      ["CPU", one.cpu_mhz > 0 && `${number(one.cpu_mhz)} MHz, by ${one.cpu_source}`],
      ["Memory", one.memory_mb > 0 && `${number(one.memory_mb)} MB, by ${one.memory_source}`],
    ]),
    Object.entries(LISTS).map(([name, columns], index) => sectionOf(name, columns, lists[index])),
  ];
  return [region(read, draw, { name: "section.panel.pad" })];
}

function sectionOf(name, columns, rows) {
  if (rows.length === 0) return null;
  return el("section.stack", { key: name }, el("h2", words(name)), dataTable({ caption: words(name), name, columns }).with(rows));
}
