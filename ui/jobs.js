import { all } from "./api.js";
import { fieldsOf, picker, tickBox } from "./controls.js";
import { el } from "./dom.js";
import { count, stateOf } from "./format.js";
import { dataOf, listPart, part } from "./parts.js";
import { lastRunPart } from "./results.js";
import { fileParts } from "./source.js";

/** What asks for attention first. */
const STATES = [
  "health_failed",
  "health_pending",
  "restart",
  "disabled_restart",
  "new",
  "promoted",
  "disabled",
];
/** What can be done with a job: its label, and what it does; without that it harms nobody. */
const CONTROLS = [
  ["start", "Start …", "Starts it"],
  ["restart", "Restart …", "Restarts it"],
  ["reload", "Reload …", "Makes it read its configuration again, without a restart"],
  ["stop", "Stop …", "Stops it: it serves nobody until it is started again"],
  [
    "stop",
    "Stop and forget …",
    "Stops it, and the next deploy starts it as if it was new; files and data stay",
    { forget: true },
  ],
  ["status", "Status"],
];

/** The jobs of the catalog, for reading; each has controls of its own. */
export function jobsView({ path, action }) {
  const read = async () => {
    const [jobs, placed] = await Promise.all(
      ["jobs", "deployments"].map((name) => all(path(`/cat/${name}`))),
    );
    return jobs.map(({ disabled: _, ...one }) => {
      const own = placed.filter(({ job, removed }) => job === one.job && !removed).map(stateOf);
      const state = STATES.find((word) => own.includes(word)) ?? "not_placed";
      return { job: one.job, state, allocations: own.length, ...one };
    });
  };
  const none = "The catalog has no job: push a workspace and build it.";
  const list = listPart("", read, { caption: "Jobs", keys: ["job"], none });
  return { title: "Jobs", above: [action("Health check of all jobs", "/health_check")], parts: [list] };
}

/** One job of the catalog: where it is, its ports and hooks, its files as they were built, and its controls. */
export function jobView(page) {
  const { path, link } = page;
  const [job, chosen] = page.rest;
  const below = `/jobs/${encodeURIComponent(job)}`;
  const cat = (name) => async () => {
    const rows = await all(path(`/cat/${name}?jobs=${encodeURIComponent(job)}`));
    return rows.map(({ job: _, ...row }) => row);
  };
  const { element, offer } = controlsOf(page, job, below);
  const read = async () => offer(await cat("deployments")());
  const where = {
    keys: ["worker_ip"],
    name: "on",
    none: "It is on no worker: none has all of its selectors.",
  };
  const parts = [
    listPart("Allocations", read, where),
    [
      part("Definition", async () => (await cat("jobs")())[0] ?? null, dataOf, {
        none: "The catalog has no such job.",
      }),
      part("Ports", cat("ports"), dataOf, { none: "It has no port." }),
      part("Hooks", cat("hooks"), dataOf, { none: "It has no hook." }),
    ],
    ...fileParts("Files as they were built", path(`${below}/files`), chosen, (file) =>
      link("jobs", [job, file]),
    ),
  ];
  return { title: job, back: "jobs", above: [element], parts };
}

/** What can be done with a job, on the chosen allocations, else on all. */
function controlsOf({ action }, job, below) {
  const where = picker("Allocations");
  const health = tickBox("Health check afterwards", { checked: true });
  let allocations = [];
  const order = (target, label, does, extra = {}) => {
    const wanted = where.values();
    const meant = allocations.filter((worker) => wanted?.includes(worker) ?? true);
    const checks = health.control.checked && ["start", "restart", "reload"].includes(target);
    const body = { ...extra, allocations: wanted, ...(checks && { health_check: true }) };
    const says = does && [`${does}: ${job}, ${count(meant.length, "allocation")} on ${meant.join(", ")}.`];
    return {
      path: `${below}/${target}`,
      body,
      says,
      danger: job,
      title: `${label.replace(" …", "")} ${job}?`,
    };
  };
  const buttons = CONTROLS.map(([target, label, does, extra]) =>
    action(label, () => order(target, label, does, extra), { style: extra && "danger" }),
  );
  const form = el("form.row");
  const fields = fieldsOf([["target", "Target of its Makefile", "", { required: true }]]);
  const run = () => order("run", "Run target", `Runs make ${fields.values().target}`, fields.values());
  form.append(...fields.labels, action("Run target …", run, { form }));
  const check = action("Health check", () => ({ path: "/health_check", body: { jobs: [job] } }));
  const which = el("summary", "On which workers, and other targets");
  const element = el(
    "div.panel",
    el("div.controls", buttons, check),
    el("details", which, where.element, health, form),
  );
  const offer = (rows) => {
    allocations = rows.filter(({ removed }) => !removed).map(({ worker_ip }) => worker_ip);
    where.offer(allocations);
    return rows;
  };
  return { element, offer };
}

/** The hooks that people may start: those on the event `cli`. The others run by themselves, in builds and deploys. */
export function hooksView(page) {
  const read = async () => {
    const rows = await all(page.path("/cat/hooks"));
    const own = rows.filter(({ executed_on }) => executed_on.split(",").includes("cli"));
    // A row of the catalog stands for one demand of a hook: its hooks, each once.
    return [...Map.groupBy(own, ({ job, hook }) => `${job} ${hook}`).values()].map((demands) => {
      const found = demands
        .filter((one) => one.demand_job)
        .map((one) => `${one.demand_hook} of ${one.demand_job}`);
      const [{ job, hook }] = demands;
      return { hook, job, demands: [...new Set(found)], actions: "" };
    });
  };
  const list = listPart("Hooks to run", read, {
    ...{
      caption: "Hooks on the event cli",
      cells: { actions: (row) => runHook(page, row) },
      keys: ["job", "hook"],
    },
    none: "No job has a hook on the event cli. A manifest declares them under hooks.",
  });
  const last = lastRunPart(page, "Last hook", "hooks", "No hook has run here yet.");
  return { title: "Hooks", parts: [list, last] };
}

function runHook({ action }, { job, hook }) {
  const says = [
    `Runs ${hook} on the server, once for each allocation of ${job}. What it does is up to its script.`,
  ];
  const body = { hook, job, verbose: true };
  return action("Run …", () => ({ path: "/hooks", body, says, danger: job, action: "Run hook" }));
}
