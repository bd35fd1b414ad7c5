import { queryOf, runsOf, unless } from "../base/api.js";
import { a, el } from "../base/dom.js";
import { count, duration, listed, number, plain, said, since } from "../base/text.js";
import { popupButton, wayItem } from "../parts/dialog.js";
import { curlItem, moreMenu, orderButton, orderItem } from "../parts/order.js";
import { head, notThere, region, tabs, viewOf } from "../parts/region.js";
import { mark, state, tag } from "../parts/state.js";
import { dataOf, listing } from "../parts/table.js";
import { workerChoice } from "../parts/where.js";
import { readAllocations } from "../run/allocations.js";
import { healthGlance, healthTab } from "../watch/health.js";

/** So many readings are shown, and in so many runs the last word about each worker is looked for. */
const [READINGS, LAST_RUNS] = [50, 10];
const BARS = "▁▂▃▄▅▆▇█";

/** The workers: what workers.json says of each, and what the last readings found (control-plane.md, UI). */
export function workersView(page) {
  const look = { chosen: null };
  const list = listing(() => readWorkers(page), {
    caption: "Workers",
    columns: ["worker", "state", "well", "jobs", "behind", "drift", "host_key", "load", "cpu", "memory", "labels", "actions"],
    labels: { well: "Reachable" },
    cells: cellsOf(page),
    keyOf: ({ worker }) => worker,
    none: "No worker is in the source. Add one to workspace/workers.json, then push.",
  });
  const order = (name) => () => ({ path: `/workers/${name}`, body: look.chosen?.values() ?? {} });
  const which = popupButton("Which workers", () => {
    look.chosen ??= workerChoice(page);
    look.chosen.refresh();
    return [el("div.pad", look.chosen.element)];
  });
  const trust = orderButton(page, "Trust …", () => trustOrder(look, false));
  const more = moreMenu(() => [
    orderItem(page, "Read facts", order("facts")),
    orderItem(page, "Read load", order("sysstat")),
    curlItem(page, order("uptime")),
    el("hr"),
    orderItem(page, "Trust by force …", () => trustOrder(look, true), { dangerous: true }),
  ]);
  const controls = [orderButton(page, "Read uptime", order("uptime"), { style: "primary" }), trust, which, more];
  const line = "Defined in workspace/workers.json; the rest is what runs have found.";
  return viewOf("Workers", head({ title: "Workers", line, controls }), list);
}

function trustOrder({ chosen }, force) {
  const meant = chosen ? `${count(chosen.chosen().length, "worker")}: ${listed(chosen.chosen(), 8)}` : "all workers";
  const says = force
    ? [
        `Replaces the known host keys of ${meant} by those that they show now.`,
        "Only where you know why they changed: somebody else may answer.",
      ]
    : [`Records the host keys of ${meant}, where none is known yet. A changed key is refused.`];
  const body = { ...chosen?.values(), ...(force && { force }) };
  return { path: "/workers/trust", body, says, danger: force, action: force ? "Trust by force" : "Trust" };
}

function cellsOf(page) {
  return {
    worker: ({ worker, hostname }) => [
      a(page.link("workers", [worker]), said(worker)),
      hostname && el("small", " ", said(hostname)),
    ],
    state: ({ state: word, since: at }) => el("span.whole", state(word), at && el("small", " ", since(at))),
    well: ({ well }) => (well === "" ? "" : `${well} %`),
    behind: ({ behind }) => (behind > 0 ? number(behind) : ""),
    host_key: hostKeyOf,
    load: ({ load, uptime_s: uptime }) =>
      load !== undefined && [load.toFixed(2), el("small.meta", `, up ${duration(uptime * 1000)}`)],
    cpu: ({ cpu }) => chartOf(cpu),
    memory: ({ memory }) => chartOf(memory),
    labels: ({ labels }) => el("span.whole", ...labels.map((label) => [tag(label), " "])),
    actions: ({ worker }) => moreMenu(() => askItems(page, worker), `Orders for ${worker}`),
  };
}

/** A changed key is never shown without the one before. */
function hostKeyOf({ trust }) {
  if (!trust) return "";
  const keys = (list) => (list ?? []).map(({ fingerprint }) => fingerprint ?? "").join(", ");
  if (trust.outcome === "changed")
    return el("span.error", mark("failed"), ` changed! It was ${keys(trust.previous)}, now ${keys(trust.fingerprints)}`);
  const [first] = trust.fingerprints ?? [];
  if (!first) return state(trust.outcome);
  return el("code", { title: keys(trust.fingerprints) }, `…${String(first.fingerprint).slice(-8)}`);
}

/** What can be asked of one worker. */
function askItems(page, worker) {
  const one = { workers: [worker] };
  return [
    orderItem(page, "Read uptime", { path: "/workers/uptime", body: one }),
    orderItem(page, "Read facts", { path: "/workers/facts", body: one }),
    orderItem(page, "Read load", { path: "/workers/sysstat", body: one }),
    orderItem(page, "Check for drift", { path: "/drift", body: one }),
    wayItem("Run a command there", page.link("command", [], { workers: worker })),
    curlItem(page, { path: "/workers/uptime", body: one }),
  ];
}

async function readWorkers(page) {
  const { drift, unwell } = page.bucket()?.summary ?? {};
  const workers = await unless(page.list("/cat/workers"), []);
  const [records, loads, uptimes, trusts, check] = await Promise.all([
    // Two aspects of each worker come before all of the jobs.
    unless(page.list("/health?limit=500", 2 * workers.length), []),
    foundBy(page, "worker_sysstat", READINGS),
    foundBy(page, "worker_uptime", LAST_RUNS),
    foundBy(page, "worker_trust", LAST_RUNS),
    drift && page.get(`/runs/${drift.id}`),
  ]);
  const readings = Map.groupBy(loads, ({ worker }) => worker);
  const rows = workers.map(({ worker_ip: worker, hostname, removed, labels, allocations: jobs, behind }) => {
    const [uptime, trust] = [uptimes, trusts].map((found) => found.findLast((one) => one.worker === worker));
    const reach = reachOf(records, worker);
    const own = readings.get(worker) ?? [];
    return {
      worker,
      hostname,
      jobs,
      behind,
      trust,
      since: reach?.at,
      well: reach?.good_percent ?? "",
      load: uptime?.uptime?.load1,
      uptime_s: uptime?.uptime?.uptime_s,
      state: stateOfWorker(removed, reach),
      drift: driftNow(worker, check?.result?.workers, unwell),
      host_key: trust?.outcome ?? "",
      labels: labels?.split(",").filter(Boolean) ?? [],
      cpu: own.map(({ sysstat }) => sysstat?.cpu_pct),
      memory: own.map(({ sysstat }) => 100 * (1 - sysstat?.mem_available_bytes / sysstat?.mem_total_bytes)),
    };
  });
  return Object.assign(rows, { cut: workers.cut });
}

/** What the last runs of a kind have found of workers, the newest at last. */
async function foundBy({ bucketId }, kind, limit) {
  const runs = await runsOf(bucketId, { kind, limit });
  return runs.reverse().flatMap(({ result }) => result?.workers ?? []);
}

/** How the files of a worker are, as the overview tells it: by the last drift run of all, without what was put right since. */
function driftNow(worker, checked, unwell) {
  const { outcome = "" } = checked?.find((one) => one.worker === worker) ?? {};
  const isHand = unwell?.items.some((one) => one.aspect === "files" && one.worker === worker);
  // A list that is cut does not tell that all was put right.
  if (isHand || (outcome === "drifted" && unwell.cut > 0)) return "drifted";
  return outcome === "drifted" ? "in_sync" : outcome;
}

/** What is known of the connection to a worker. */
function reachOf(records, worker) {
  return records.find((one) => one.worker === worker && one.job === "" && one.aspect === "reach");
}

function stateOfWorker(removed, reach) {
  return removed ? "removed" : (reach?.state ?? "not_asked");
}

function chartOf(percents) {
  const known = percents.filter(Number.isFinite);
  if (known.length === 0) return "";
  const bars = known.map((percent) => BARS[Math.min(7, Math.floor(percent / 12.5))]).join("");
  const last = `${Math.round(known.at(-1))} %`;
  const spoken = { role: "img", "aria-label": `${last}, the last of ${known.length} readings` };
  return el("span.chart", spoken, `${last} `, el("span", bars));
}

/** One worker: how it is and was, what runs on it, and what is known of it. @param {import("../routes.js").Page} page */
export function workerView(page) {
  const [worker, tab = ""] = page.rest;
  const read = async () => {
    const [rows, records] = await Promise.all([
      unless(page.list(`/cat/workers?${queryOf({ workers: worker })}`), []),
      unless(page.list(`/health?${queryOf({ worker, limit: 500 })}`), []),
    ]);
    return { row: rows.find(({ worker_ip: one }) => one === worker), reach: reachOf(records, worker) };
  };
  const draw = ({ row, reach }) => {
    if (!row) return notThere(worker, `No worker ${plain(worker)} is in the catalog.`, a(page.link("workers"), "All workers"));
    return headOfWorker(page, row, reach, tab);
  };
  const drawn = { health: () => healthTab(page, { worker }), known: () => knownOf(page, worker) };
  const parts = drawn[tab]?.() ?? [healthGlance(page, { worker }), allocationsOn(page, worker)];
  return viewOf(plain(worker), region(read, draw, { name: "div" }), parts);
}

function headOfWorker(page, { worker_ip: worker, hostname, labels, allocations: jobs, behind, removed }, reach, tab) {
  const word = stateOfWorker(removed, reach);
  const line = [
    hostname && `${plain(hostname)} · `,
    word.replaceAll("_", " "),
    reach && [" ", since(reach.at)],
    ` · ${count(jobs, "job")}`,
    behind > 0 && `, ${number(behind)} behind`,
    labels?.split(",").map((label) => [" ", tag(label)]),
  ];
  const one = { workers: [worker] };
  const controls = [
    orderButton(page, "Read uptime", { path: "/workers/uptime", body: one }, { style: "primary" }),
    orderButton(page, "Check for drift", { path: "/drift", body: one }),
    moreMenu(() => askItems(page, worker)),
  ];
  const names = { "": ["Jobs", number(jobs)], health: "Health", known: "Facts and definition" };
  return [
    head({ title: said(worker), mark: mark(word, { large: true, label: word.replaceAll("_", " ") }), line, controls }),
    tabs(names, tab, (name) => page.link("workers", [worker, name])),
  ];
}

function allocationsOn(page, worker) {
  return listing(() => readAllocations(page, { workers: worker }), {
    caption: "Jobs of this worker",
    columns: ["job", "state", "current_version", "new_version", "last_action", "last_outcome", "last_run"],
    keyOf: ({ job }) => job,
    none: "No job runs there.",
  });
}

/** What workers.json says of a worker, and what the last reading found. */
function knownOf(page, worker) {
  const read = async () => {
    const [definitions, found] = await Promise.all([
      page.list("/workers?limit=500").catch(() => []),
      unless(page.list("/workers/facts?limit=500"), []),
    ]);
    const { host: _, ...definition } = definitions.find((one) => one.host === worker) ?? {};
    return { definition, facts: found.find((one) => one.worker === worker)?.facts };
  };
  const draw = ({ definition, facts }) => [
    el("h2", "In workspace/workers.json"),
    dataOf(definition),
    el("h2", "Facts"),
    facts ? dataOf(facts) : el("p.meta", "They were not read yet."),
  ];
  return region(read, draw, { name: "section.panel.pad" });
}
