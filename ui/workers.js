import { all, runsOf } from "./api.js";
import { fieldsOf, numeric, TICK, workerSelection } from "./controls.js";
import { el } from "./dom.js";
import { words } from "./format.js";
import { listPart, part } from "./parts.js";
import { keysOf, lastRunPart } from "./results.js";

const READINGS = 50;
const PROBES = ["facts", "uptime", "sysstat", "trust"];
const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [200, 48];
const WIDE = ["concurrency", "At a time", "Workers in one batch", numeric(1, 1024)];
const COMMAND = [
  [
    "command",
    "Command",
    "Runs in the bucket's folder, with sh (bash if its first line says so)",
    { rows: 3, required: true },
  ],
  WIDE,
  ["timeout_seconds", "Time limit in seconds", "Of each worker; 300 by default", numeric(1, 86_400)],
  ["health_check", "Health check after each batch", "Goes on only while the jobs there are healthy", TICK],
  ["ignore_failure", "Ignore failures", "Goes on after a batch that failed", TICK],
];

/** The workers as they are defined (read only), what they last said of themselves, and the probes and trust. */
export function workersView(page) {
  const { action, bucketId } = page;
  const selection = workerSelection(page);
  const width = fieldsOf([WIDE]);
  const order = (name) => ({ path: `/workers/${name}`, body: { ...selection.values(), ...width.values() } });
  const probes = PROBES.map((name) => action(words(name), () => order(name)));
  const force = () => {
    const { path, body } = order("trust");
    const says = [
      `Replaces the known host keys of ${selection.text()} by whatever they show now.`,
      "Do it only where you know why a key has changed: somebody else may be answering in place of a worker.",
    ];
    return { path, body: { ...body, force: true }, says, danger: true };
  };
  const controls = el(
    "div.panel",
    el("div.controls", probes, action("Trust by force …", force, { style: "danger" })),
    el("details", el("summary", "Which workers"), selection.element, width.labels),
  );
  const list = listPart("Definitions", () => readWorkers(page), {
    ...{ caption: "Workers", keys: ["worker_ip"] },
    none: "The catalog has no worker: workspace/workers.json names them; push it and build.",
  });
  const load = part("Load, newest reading on the right", () => readings(bucketId), drawReadings, {
    none: "No reading yet: Sysstat takes one of each worker; the last 50 are drawn here.",
  });
  const [facts, uptime, , trust] = PROBES.map((name) =>
    lastRunPart(page, `Last ${name}`, `worker_${name}`, "Not asked for yet."),
  );
  return {
    title: "Workers",
    above: [controls],
    parts: [list, load, facts, uptime, trust],
    readers: [selection],
  };
}

/** The definitions, beside what the last runs of some kinds have found out about each. */
async function readWorkers({ bucketId, path }) {
  const lastOf = async (kind) => resultsOf(await runsOf(bucketId, kind, 1));
  const [workers, placed, uptime, trust, drift] = await Promise.all([
    ...["workers", "deployments"].map((name) => all(path(`/cat/${name}`))),
    ...["worker_uptime", "worker_trust", "drift"].map(lastOf),
  ]);
  return workers.map(({ worker_ip, removed, position: _, labels, ...one }) => {
    const of = (results) => results.find(({ worker }) => worker === worker_ip) ?? {};
    const own = placed.filter((row) => row.worker_ip === worker_ip && !row.removed);
    const behind = own.filter(({ rollout }) => /new|update|stop/.test(rollout)).length;
    const disabled = own.filter((row) => row.disabled).length;
    const { outcome: key, fingerprints, previous } = of(trust);
    const now = keysOf(fingerprints);
    return {
      worker_ip,
      state: removed ? "removed" : (of(uptime).outcome ?? "not_asked"),
      drift: of(drift).outcome ?? "",
      jobs: [own.length, behind && `${behind} behind`, disabled && `${disabled} disabled`]
        .filter(Boolean)
        .join(", "),
      host_key: key === "changed" ? `changed! It was ${keysOf(previous)}, it shows ${now}` : now || key,
      ...{
        labels: labels?.split(","),
        uptime_s: of(uptime).uptime?.uptime_s,
        load: of(uptime).uptime?.load1,
      },
      ...one,
    };
  });
}

function resultsOf(runs) {
  return runs.flatMap(({ result }) => result?.workers ?? []);
}

async function readings(bucketId) {
  const runs = await runsOf(bucketId, "worker_sysstat", READINGS);
  return resultsOf(runs.reverse()).filter(({ sysstat }) => sysstat);
}

function drawReadings(found) {
  const charts = [...Map.groupBy(found, ({ worker }) => worker)].map(([worker, own]) => {
    const cpu = own.map(({ sysstat }) => sysstat.cpu_pct);
    const memory = own.map(({ sysstat: one }) => 100 * (1 - one.mem_available_bytes / one.mem_total_bytes));
    return el(
      "figure",
      el("figcaption", worker),
      chartOf(worker, "CPU", cpu),
      chartOf(worker, "Memory", memory),
    );
  });
  return el("div.charts", charts);
}

/** A small chart of percentages, oldest first; what it shows is said in words too. */
function chartOf(worker, name, values) {
  const known = values.filter(Number.isFinite);
  const now = known.length === 0 ? "no reading" : `${Math.round(known.at(-1))} %`;
  const most = `at most ${Math.round(Math.max(0, ...known))} % in ${known.length} readings`;
  const y = (value) => (HEIGHT - 1 - (Math.min(100, Math.max(0, value)) / 100) * (HEIGHT - 2)).toFixed(1);
  const x = (index) => ((index / Math.max(1, known.length - 1)) * WIDTH).toFixed(1);
  const points = known.map((value, index) => `${x(index)},${y(value)}`);
  if (known.length === 1) points.push(`${WIDTH},${y(known[0])}`);
  const label = `${name} of ${worker}: ${now}, ${most}`;
  const svg = shape("svg", {
    ...{ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
  });
  const half = { class: "half", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 };
  svg.append(shape("line", half), shape("polyline", { points: points.join(" ") }));
  return el("div.chart", el("span", `${name} `, el("b", now)), svg);
}

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** Runs a command on workers; what they answered is folded by what is the same. */
export function commandView(page) {
  const fields = fieldsOf(COMMAND);
  const selection = workerSelection(page);
  const order = () => {
    const body = { ...fields.values(), ...selection.values() };
    const says = [`Runs on ${selection.text()}:`, body.command];
    return { path: "/run_command", body, says, danger: true, title: "Run this command?" };
  };
  const [command, ...others] = fields.labels;
  const form = el("form.panel");
  const start = page.action("Run command …", order, { form, style: "primary" });
  form.append(command, selection.element, el("div.row", others), start);
  const last = lastRunPart(page, "Last command", "run_command", "No command has run here yet.");
  return { title: "Run command", above: [form], parts: [last], readers: [selection] };
}
