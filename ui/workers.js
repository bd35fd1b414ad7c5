import { all, bucketPath, runsOf } from "./api.js";
import { chartOf } from "./chart.js";
import { workerSelection } from "./command.js";
import { el } from "./dom.js";
import { field, numberField, numberOf } from "./fields.js";
import { ago, duration, status } from "./format.js";
import { nothing, part, viewOfParts } from "./part.js";
import { dataOf } from "./results.js";
import { runLink, startButton } from "./starts.js";
import { dataTable } from "./table.js";

const READINGS = 50;
const PROBES = [
  ["facts", "Facts"],
  ["uptime", "Uptime"],
  ["sysstat", "Sysstat"],
];

/** The workers as they are defined (read only), what they last said of themselves, and the probes and trust. */
export function workersView(main, { bucketId, bucket }) {
  const selection = workerSelection(bucketId);
  const concurrency = numberField(1, 1024);
  const body = () => ({
    ...selection.body(),
    ...(concurrency.value !== "" && { concurrency: numberOf(concurrency) }),
  });
  const probes = PROBES.map(([name, label]) =>
    startButton(bucketId, label, () => ({ path: `/workers/${name}`, body: body() })),
  );
  const trust = startButton(bucketId, "Trust", () => ({ path: "/workers/trust", body: body() }));
  const force = startButton(bucketId, "Trust by force …", forceOrder, { danger: true });
  const controls = el(
    "div",
    { class: "panel" },
    el("div", { class: "controls" }, ...probes, trust, force),
    el("details", {}, el("summary", {}, "Which workers"), selection.element, field("At a time", concurrency)),
  );

  function forceOrder() {
    const name = bucket()?.name ?? bucketId;
    const says = [
      `Replaces the known host keys of ${selection.text()} of ${name} by whatever they show now.`,
      "Do it only where you know why a key has changed: somebody else may be answering in place of a worker.",
    ];
    return {
      path: "/workers/trust",
      body: { ...body(), force: true },
      ask: { title: "Trust by force", says, word: name },
    };
  }
  const table = workerTable();
  const list = part(
    "Definitions",
    () => readWorkers(bucketId),
    (items) => {
      table.show(items);
      return table.element;
    },
  );
  const readings = part(
    "Load, newest readings last",
    () => runsOf(bucketId, "worker_sysstat", READINGS),
    drawReadings,
  );
  const others = ["facts", "uptime", "trust"].map((name) => lastPart(bucketId, name));
  const view = viewOfParts(main, "Workers", [list, readings, ...others], [controls]);
  return { title: view.title, refresh: () => Promise.all([view.refresh(), selection.refresh()]) };
}

function workerTable() {
  return dataTable({
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
      {
        key: "up",
        label: "Up",
        text: ({ up }) => up ?? "",
        number: true,
        cell: ({ up }) => (up === undefined ? "" : duration(up * 1000)),
      },
      { key: "load", label: "Load", number: true },
      { key: "cpu_mhz", label: "CPU MHz", number: true },
      { key: "memory_mb", label: "Memory MB", number: true },
    ],
  });
}

function stateOf({ removed, trouble }) {
  return removed ? "removed" : (trouble ?? "known");
}

async function readWorkers(bucketId) {
  const [workers, [uptime], [facts]] = await Promise.all([
    all(bucketPath(bucketId, "/cat/workers")),
    ...["worker_uptime", "worker_facts"].map((kind) => runsOf(bucketId, kind, 1)),
  ]);
  const said = new Map([...resultsOf(facts), ...resultsOf(uptime)].map((one) => [one.worker, one]));
  return workers.map((worker) => {
    const one = said.get(worker.worker_ip);
    return { ...worker, up: one?.uptime_s, load: one?.load1, trouble: one?.outcome };
  });
}

function resultsOf(run) {
  return run?.result?.workers ?? [];
}

function drawReadings(runs) {
  const readings = runs
    .toReversed()
    .flatMap((run) => resultsOf(run).map((one) => ({ ...one, at: run.created_at })));
  const byWorker = [...Map.groupBy(readings, ({ worker }) => worker)];
  if (byWorker.length === 0)
    return nothing("No reading yet: Sysstat takes one of each worker, and the last 50 are drawn here.");
  return el("div", { class: "charts" }, ...byWorker.map(workerCharts));
}

function workerCharts([worker, own]) {
  const cpu = own.map(({ at, cpu_pct }) => ({ at, value: cpu_pct }));
  const memory = own.map(({ at, ...one }) => ({ at, value: memoryPct(one) }));
  return el(
    "figure",
    {},
    el("figcaption", {}, worker),
    chartOf(`CPU of ${worker}`, "CPU", cpu),
    chartOf(`Memory of ${worker}`, "Memory", memory),
  );
}

function memoryPct({ mem_used_pct, mem_total_bytes, mem_available_bytes, mem_used_bytes }) {
  if (mem_used_pct !== undefined) return mem_used_pct;
  const used = mem_used_bytes ?? mem_total_bytes - mem_available_bytes;
  return mem_total_bytes > 0 ? (100 * used) / mem_total_bytes : undefined;
}

function lastPart(bucketId, name) {
  return part(
    `Last ${name}`,
    () => runsOf(bucketId, `worker_${name}`, 1),
    ([run]) => {
      if (!run) return nothing(`${name === "trust" ? "Host keys were" : "This was"} not asked for yet.`);
      return [
        el("p", {}, status(run.status), " ", runLink(bucketId, run.id, "Run"), ", ", ago(run.created_at)),
        run.error ? el("p", { class: "error" }, run.error) : null,
        run.result === null ? null : dataOf(run.result),
      ];
    },
  );
}
