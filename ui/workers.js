import { all, bucketPath, runsOf } from "./api.js";
import { chartOf } from "./chart.js";
import { el } from "./dom.js";
import { field, numberField, numberOf } from "./fields.js";
import { duration, status, words } from "./format.js";
import { lastRunPart } from "./last-run.js";
import { nothing, part, tablePart, viewOfParts } from "./part.js";
import { workerSelection } from "./selection.js";
import { startButton } from "./starts.js";

const READINGS = 50;
const PROBES = ["facts", "uptime", "sysstat", "trust"];

/** The workers as they are defined (read only), what they last said of themselves, and the probes and trust. */
export function workersView(main, { bucketId, nameOfBucket }) {
  const selection = workerSelection(bucketId);
  const concurrency = numberField(1, 1024);
  const body = () => ({ ...selection.body(), concurrency: numberOf(concurrency) });
  const probes = PROBES.map((name) =>
    startButton(bucketId, words(name), () => ({ path: `/workers/${name}`, body: body() })),
  );
  const controls = el(
    "div",
    { class: "panel" },
    el(
      "div",
      { class: "controls" },
      ...probes,
      startButton(bucketId, "Trust by force …", forceOrder, { danger: true }),
    ),
    el("details", {}, el("summary", {}, "Which workers"), selection.element, field("At a time", concurrency)),
  );

  function forceOrder() {
    const says = [
      `Replaces the known host keys of ${selection.text()} of ${nameOfBucket()} by whatever they show now.`,
      "Do it only where you know why a key has changed: somebody else may be answering in place of a worker.",
    ];
    const ask = { title: "Trust by force", says, word: nameOfBucket() };
    return { path: "/workers/trust", body: { ...body(), force: true }, ask };
  }
  const list = tablePart("Definitions", () => readWorkers(bucketId), TABLE);
  const readings = part(
    "Load, newest reading on the right",
    () => runsOf(bucketId, "worker_sysstat", READINGS),
    drawReadings,
  );
  const others = PROBES.filter((name) => name !== "sysstat").map((name) =>
    lastRunPart(bucketId, `Last ${name}`, `worker_${name}`, "Not asked for yet."),
  );
  const view = viewOfParts(main, "Workers", [list, readings, ...others], [controls]);
  return { title: view.title, refresh: () => Promise.all([view.refresh(), selection.refresh()]) };
}

const TABLE = {
  caption: "Workers",
  rowKey: ({ worker_ip }) => worker_ip,
  empty: nothing("The catalog has no worker: workspace/workers.json names them; push it and build."),
  columns: [
    { key: "worker_ip", label: "Worker" },
    { key: "hostname", label: "Host name" },
    { key: "state", label: "Is", facet: true, text: stateOf, cell: (row) => status(stateOf(row)) },
    { key: "labels", label: "Labels", cell: ({ labels }) => labels?.replaceAll(",", ", ") },
    { key: "zone", label: "Zone", facet: true },
    { key: "connection", label: "Reached by" },
    { key: "up", label: "Up", number: true, cell: ({ up }) => (up === undefined ? "" : duration(up * 1000)) },
    { key: "load", label: "Load", number: true },
    { key: "cpu_mhz", label: "CPU MHz", number: true },
    { key: "memory_mb", label: "Memory MB", number: true },
  ],
};

function stateOf({ removed, trouble }) {
  return removed ? "removed" : (trouble ?? "known");
}

async function readWorkers(bucketId) {
  const [workers, [uptime]] = await Promise.all([
    all(bucketPath(bucketId, "/cat/workers")),
    runsOf(bucketId, "worker_uptime", 1),
  ]);
  const said = new Map(resultsOf(uptime).map((one) => [one.worker, one]));
  return workers.map((worker) => {
    const one = said.get(worker.worker_ip);
    return { ...worker, up: one?.uptime?.uptime_s, load: one?.uptime?.load1, trouble: one?.outcome };
  });
}

function resultsOf(run) {
  return run?.result?.workers ?? [];
}

function drawReadings(runs) {
  const readings = runs
    .toReversed()
    .flatMap(resultsOf)
    .filter(({ sysstat }) => sysstat);
  const byWorker = [...Map.groupBy(readings, ({ worker }) => worker)];
  if (byWorker.length === 0)
    return nothing("No reading yet: Sysstat takes one of each worker; the last 50 are drawn here.");
  return el("div", { class: "charts" }, ...byWorker.map(workerCharts));
}

function workerCharts([worker, own]) {
  return el(
    "figure",
    {},
    el("figcaption", {}, worker),
    chartOf(
      `CPU of ${worker}`,
      "CPU",
      own.map(({ sysstat }) => sysstat.cpu_pct),
    ),
    chartOf(`Memory of ${worker}`, "Memory", own.map(memoryPct)),
  );
}

function memoryPct({ sysstat: { mem_total_bytes: total, mem_available_bytes: available } }) {
  return total > 0 ? (100 * (total - available)) / total : undefined;
}
