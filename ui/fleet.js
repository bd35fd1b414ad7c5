import { all, runsOf } from "./api.js";
import { fieldsOf, picker, TICK, tickBox, workerSelection } from "./controls.js";
import { el } from "./dom.js";
import { count, words } from "./format.js";
import { listPart, part } from "./parts.js";
import { keysOf, lastRunPart } from "./runs.js";
import { fileParts } from "./source.js";

const READINGS = 50;
const BARS = "▁▂▃▄▅▆▇█";
const PROBES = ["facts", "uptime", "sysstat", "trust"];
const STATES = ["failed", "unreachable", "unsettled", "update", "new", "promoted", "disabled"];
const CONTROLS = {
  start: "Starts it",
  restart: "Restarts it",
  reload: "Makes it read its configuration again",
  stop: "Stops it",
};
const FORGET = "Stops it; the next deploy starts it as if it was new";
const NUMBER = { type: "number", min: 1 };
const WIDE = ["concurrency", "At a time", "Workers in one batch", NUMBER];
const SHELL = "With sh, or as its first line says";
const COMMAND = [
  ["command", "Command", SHELL, { rows: 3, required: true }],
  WIDE,
  ["timeout_seconds", "Time limit in seconds", "Of each worker; else 300", NUMBER],
  ["health_check", "Health check after each batch", "", TICK],
  ["ignore_failure", "Ignore failures", "", TICK],
];

/** The jobs of the catalog. */
export function jobsView({ path, action }) {
  const read = async () => {
    const jobs = await all(path("/cat/jobs"));
    return jobs.map(({ job, allocations, ...one }) => {
      const state = STATES.find((word) => one[word] > 0) ?? "not_placed";
      return { job, state, allocations, ...one };
    });
  };
  const list = listPart("", read, { caption: "Jobs" });
  return { title: "Jobs", above: [action("Health check", "/health_check")], parts: [list] };
}

/** One job. */
export function jobView(page) {
  const { path, link } = page;
  const [job, chosen] = page.rest;
  const below = `/jobs/${encodeURIComponent(job)}`;
  const cat = async (name) => {
    const rows = await all(path(`/cat/${name}?jobs=${encodeURIComponent(job)}`));
    return rows.map(({ job: _, ...row }) => row);
  };
  const { element, offer } = controlsOf(page, job, below);
  const about = async () => {
    const [[definition], ports, hooks] = await Promise.all(["jobs", "ports", "hooks"].map(cat));
    return definition ? { ...definition, ports, hooks } : null;
  };
  const parts = [
    listPart("Allocations", async () => offer(await cat("deployments")), {
      name: "on",
      none: "No worker has all of its selectors.",
    }),
    part("Definition", about),
    ...fileParts("Files", path(`${below}/files`), chosen, (file) => link("jobs", [job, file])),
  ];
  return { title: job, above: [element], parts };
}

function controlsOf({ action }, job, below) {
  const where = picker("Allocations");
  const health = tickBox("Health check afterwards", { checked: true });
  let allocations = [];
  const order = (target, does, extra) => {
    const wanted = where.values();
    const meant = wanted ?? allocations;
    const checks = health.control.checked && /^(re)?(start|load)$/.test(target);
    const body = { ...extra, allocations: wanted, ...(checks && { health_check: true }) };
    const says = does && [`${does}: ${job}, ${count(meant.length, "allocation")} on ${meant.join(", ")}.`];
    return { path: `${below}/${target}`, body, says, danger: job };
  };
  const buttons = Object.entries(CONTROLS).map(([target, does]) => action(`${words(target)} …`, () => order(target, does)));
  const forget = action("Stop and forget …", () => order("stop", FORGET, { forget: true }), { style: "danger" });
  const status = action("Status", () => order("status"));
  const form = el("form.row");
  const { labels, values } = fieldsOf([["target", "Target of its Makefile", "", { required: true }]]);
  const run = () => order("run", `Runs make ${values().target}`, values());
  form.append(...labels, action("Run target …", run, { form }));
  const check = action("Health check", { path: "/health_check", body: { jobs: [job] } });
  const which = el("summary", "Workers and other targets");
  const more = el("details", which, where.element, health, form);
  const offer = (rows) => {
    allocations = rows.filter(({ removed }) => !removed).map(({ worker_ip }) => worker_ip);
    where.offer(allocations);
    return rows;
  };
  return { element: el("div.panel", el("div.controls", buttons, forget, status, check), more), offer };
}

/** The hooks on the event `cli`. */
export function hooksView(page) {
  const read = async () => {
    const rows = await all(page.path("/cat/hooks"));
    const own = rows.filter(({ executed_on }) => executed_on.split(",").includes("cli"));
    return [...Map.groupBy(own, ({ job, hook }) => `${job} ${hook}`).values()].map((same) => {
      const [{ hook, job }] = same;
      const demanding = same.filter((one) => one.demand_job);
      const demands = new Set(demanding.map((one) => `${one.demand_hook} of ${one.demand_job}`));
      return { hook, job, demands: [...demands], actions: "" };
    });
  };
  const list = listPart("Hooks to run", read, {
    cells: { actions: (row) => runHook(page, row) },
    none: "No job has a hook on the event cli.",
  });
  return { title: "Hooks", parts: [list, lastRunPart(page, "Last hook", "hooks")] };
}

function runHook({ action }, { job, hook }) {
  const says = [`Runs ${hook} on the server, once for each allocation of ${job}.`];
  const body = { hook, job, verbose: true };
  return action("Run …", { path: "/hooks", body, says, danger: job, action: "Run hook" });
}

/** The workers, probes and trust. */
export function workersView(page) {
  const { action } = page;
  const selection = workerSelection(page);
  const width = fieldsOf([WIDE]);
  const order = (name) => ({ path: `/workers/${name}`, body: { ...selection.values(), ...width.values() } });
  const force = () => {
    const { path, body } = order("trust");
    const says = [
      `Replaces the known host keys of ${selection.text()} by those they show now.`,
      "Only where you know why: somebody else may answer.",
    ];
    return { path, body: { ...body, force: true }, says, danger: true };
  };
  const probes = PROBES.map((name) => action(words(name), () => order(name)));
  const which = el("details", el("summary", "Which workers"), selection.element, width.labels);
  const controls = [probes, action("Trust by force …", force, { style: "danger" })];
  const list = listPart("Definitions", () => readWorkers(page), { none: "There is none in workspace/workers.json." });
  const load = listPart("Load", () => readings(page), {
    name: "load",
    none: "No reading yet: Sysstat takes one.",
    cells: { cpu: ({ cpu }) => chartOf(cpu), memory: ({ memory }) => chartOf(memory) },
  });
  const others = ["facts", "uptime", "trust"].map((name) => lastRunPart(page, `Last ${name}`, `worker_${name}`));
  const above = [el("div.panel", el("div.controls", controls), which)];
  return { title: "Workers", above, parts: [list, load, ...others], readers: [selection] };
}

async function readWorkers({ bucketId, path }) {
  const lastOf = async (kind) => {
    const runs = await runsOf(bucketId, kind, 1);
    return resultsOf(runs).map((one) => ({ ...one, at: runs[0].finished_at }));
  };
  const [workers, uptime, trust, drift] = await Promise.all([
    all(path("/cat/workers")),
    ...["worker_uptime", "worker_trust", "drift"].map(lastOf),
  ]);
  return workers.map(({ worker_ip, removed, position: _, labels, allocations, behind, disabled, ...one }) => {
    const of = (results) => results.find(({ worker }) => worker === worker_ip) ?? {};
    const { outcome: trusted, fingerprints, previous } = of(trust);
    const now = keysOf(fingerprints);
    return {
      worker_ip,
      state: removed ? "removed" : (of(uptime).outcome ?? "not_asked"),
      drift: of(drift).outcome ?? "",
      jobs: [allocations, behind && `${behind} behind`, disabled && `${disabled} disabled`].filter(Boolean),
      host_key: trusted === "changed" ? `changed! It was ${keysOf(previous)}, it shows ${now}` : now || trusted,
      labels: labels?.split(","),
      seen_at: of(uptime).uptime && of(uptime).at,
      uptime_s: of(uptime).uptime?.uptime_s,
      load: of(uptime).uptime?.load1,
      ...one,
    };
  });
}

function resultsOf(runs) {
  return runs.flatMap(({ result }) => result?.workers ?? []);
}

async function readings({ bucketId }) {
  const runs = await runsOf(bucketId, "worker_sysstat", READINGS);
  const found = resultsOf(runs.reverse()).filter(({ sysstat }) => sysstat);
  return [...Map.groupBy(found, ({ worker }) => worker)].map(([worker, own]) => ({
    worker,
    cpu: own.map(({ sysstat }) => sysstat.cpu_pct),
    memory: own.map(({ sysstat: one }) => 100 * (1 - one.mem_available_bytes / one.mem_total_bytes)),
  }));
}

function chartOf(percents) {
  const known = percents.filter(Number.isFinite);
  const bars = known.map((percent) => BARS[Math.min(7, Math.floor(percent / 12.5))]);
  const last = `${Math.round(known.at(-1))} % `;
  return known.length > 0 && el("span", { role: "img", "aria-label": last }, last, bars);
}

/** Runs a command on workers. */
export function commandView(page) {
  const { labels, values } = fieldsOf(COMMAND);
  const selection = workerSelection(page);
  const order = () => {
    const targets = selection.confirmed();
    const body = () => ({ ...values(), ...targets.values() });
    const says = [`Runs ${values().command}`];
    return { path: "/run_command", body, says, fields: [targets.element], danger: true };
  };
  const form = el("form.panel");
  const start = page.action("Run command …", order, { form, style: "primary" });
  form.append(labels[0], selection.element, el("div.row", labels.slice(1)), start);
  const last = lastRunPart(page, "Last command", "run_command");
  return { title: "Run command", above: [form], parts: [last], readers: [selection] };
}
