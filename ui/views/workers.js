import { listOf, runsOf, unless } from "../base/api.js";
import { a, el } from "../base/dom.js";
import { count, duration, listed, number, said, since } from "../base/text.js";
import { item, popupButton } from "../parts/dialog.js";
import { curlItem, moreMenu, orderButton, orderItem } from "../parts/order.js";
import { head, viewOf } from "../parts/region.js";
import { mark, state, tag } from "../parts/state.js";
import { listing } from "../parts/table.js";
import { workerChoice } from "../parts/where.js";

const READINGS = 50;
const BARS = "▁▂▃▄▅▆▇█";

/** The workers: what workers.json says of each, and what the last readings found (control-plane.md, UI). */
export function workersView(page) {
  const look = { chosen: null };
  const list = listing(() => readWorkers(page), {
    caption: "Workers",
    stateColumn: "state",
    columns: ["worker", "state", "well", "jobs", "behind", "drift", "host_key", "load", "cpu", "memory", "labels", "actions"],
    labels: { well: "Reachable", actions: "" },
    cells: cellsOf(page),
    keyOf: ({ worker }) => worker,
    none: "There is none in workspace/workers.json. Add workers there, then push.",
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
  const line = "Definitions come from workspace/workers.json of the pushed source; the rest is what runs have found.";
  return viewOf("Workers", head({ title: "Workers", line, controls }), list);
}

function trustOrder({ chosen }, force) {
  const meant = chosen ? `${count(chosen.chosen().length, "worker")}: ${listed(chosen.chosen(), 8)}` : "all workers";
  const order = { path: "/workers/trust", body: { ...chosen?.values(), ...(force && { force: true }) } };
  if (!force)
    return {
      ...order,
      action: "Trust",
      says: [`Records the host keys of ${meant}, where none is known yet. A changed key is refused.`],
    };
  const says = [
    `Replaces the known host keys of ${meant} by those that they show now.`,
    "Only where you know why they changed: somebody else may answer.",
  ];
  return { ...order, action: "Trust by force", danger: true, says };
}

function cellsOf(page) {
  return {
    worker: (row) => [
      a(page.link("workers", [row.worker]), said(row.worker)),
      row.hostname && el("small", " ", said(row.hostname)),
    ],
    state: ({ state: word, since: at }) => [state(word), at && el("small.whole", " ", since(at))],
    well: ({ well }) => (well === "" ? "" : `${well} %`),
    behind: ({ behind }) => (behind > 0 ? number(behind) : ""),
    drift: ({ drift }) => drift && state(drift === "in_sync" ? "ok" : drift, drift.replaceAll("_", " ")),
    host_key: hostKeyOf,
    load: ({ load, uptime_s: uptime }) =>
      load !== undefined && [load.toFixed(2), el("small.meta", `, up ${duration(uptime * 1000)}`)],
    cpu: ({ cpu }) => chartOf(cpu),
    memory: ({ memory }) => chartOf(memory),
    labels: ({ labels }) => labels.map((label) => tag(label)),
    actions: (row) => askOf(page, row),
  };
}

/** A changed key is never shown without the one before. */
function hostKeyOf({ trust }) {
  if (!trust) return "";
  const keys = (list) => (list ?? []).map(({ fingerprint }) => fingerprint ?? "").join(", ");
  if (trust.outcome === "changed")
    return el("span.failed-text", mark("failed"), ` changed! It was ${keys(trust.previous)}, now ${keys(trust.fingerprints)}`);
  const [first] = trust.fingerprints ?? [];
  return first
    ? el("code", { title: keys(trust.fingerprints) }, `…${String(first.fingerprint).slice(-8)}`)
    : state(trust.outcome);
}

/** What can be asked of one worker. */
function askOf(page, { worker }) {
  const one = { workers: [worker] };
  const items = () => [
    orderItem(page, "Read uptime", { path: "/workers/uptime", body: one }),
    orderItem(page, "Read facts", { path: "/workers/facts", body: one }),
    orderItem(page, "Check for drift", { path: "/drift", body: one }),
    item("Run a command there", () => (location.hash = page.link("command", [], { workers: worker }))),
  ];
  return moreMenu(items, `Orders for ${worker}`);
}

async function readWorkers(page) {
  const { bucketId, path } = page;
  const lastOf = async (kind) => {
    const [run] = await runsOf(bucketId, { kind });
    return new Map((run?.result?.workers ?? []).map((one) => [one.worker, one]));
  };
  const workers = await unless(listOf(path("/cat/workers")), []);
  // Two aspects of each worker come before all of the jobs.
  const health = unless(listOf(path("/health?limit=500"), 2 * workers.length), []);
  const [records, uptime, trust, drift, sysstat] = await Promise.all([
    health,
    ...["worker_uptime", "worker_trust", "drift"].map(lastOf),
    readings(page),
  ]);
  const reach = new Map(records.filter(({ job, aspect }) => job === "" && aspect === "reach").map((one) => [one.worker, one]));
  const rows = workers.map(({ worker_ip: worker, hostname, removed, labels, allocations: jobs, behind }) => {
    const [seen, use, known] = [uptime.get(worker), sysstat.get(worker) ?? [], reach.get(worker)];
    return {
      ...{ worker, hostname, jobs, behind, trust: trust.get(worker), since: known?.at, well: known?.good_percent ?? "" },
      ...{ load: seen?.uptime?.load1, uptime_s: seen?.uptime?.uptime_s },
      state: removed ? "removed" : (known?.state ?? "not_asked"),
      drift: drift.get(worker)?.outcome ?? "",
      host_key: trust.get(worker)?.outcome ?? "",
      labels: labels?.split(",").filter(Boolean) ?? [],
      cpu: use.map(({ cpu }) => cpu),
      memory: use.map(({ memory }) => memory),
    };
  });
  return Object.assign(rows, { cut: workers.cut });
}

/** The use of CPU and memory at the last readings, in percent, by worker. */
async function readings({ bucketId }) {
  const runs = await runsOf(bucketId, { kind: "worker_sysstat", limit: READINGS });
  const found = runs.reverse().flatMap(({ result }) => result?.workers ?? []);
  const known = found.filter(({ sysstat }) => sysstat);
  const memoryOf = ({ mem_available_bytes: left, mem_total_bytes: all }) => 100 * (1 - left / all);
  const use = known.map(({ worker, sysstat: one }) => ({ worker, cpu: one.cpu_pct, memory: memoryOf(one) }));
  return Map.groupBy(use, ({ worker }) => worker);
}

function chartOf(percents) {
  const known = percents.filter(Number.isFinite);
  if (known.length === 0) return "";
  const bars = known.map((percent) => BARS[Math.min(7, Math.floor(percent / 12.5))]).join("");
  const last = `${Math.round(known.at(-1))} %`;
  const spoken = { role: "img", "aria-label": `${last}, the last of ${known.length} readings` };
  return el("span.chart", spoken, `${last} `, el("span", bars));
}
